"""The market of the demo: a seed repeats it, and the demo's network accepts its rows."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from engine.lab.processes import shipped
from engine.run.network_file import read_network
from engine.simulate.market import LAG_MAX_NS, Bursts, Market

NOW_NS = 1_700_000_000_000_000_000


def steps(seed: int, count: int = 40) -> list[tuple[bytes, bytes]]:
    market = Market(seed)
    return [market.step(NOW_NS + i * 50_000_000, 0.05, 1_000, 1.0 + i % 3) for i in range(count)]


def test_one_seed_is_one_market() -> None:
    assert steps(1) == steps(1)
    assert steps(1) != steps(2)


def test_rows_fit_the_streams_of_the_demo() -> None:
    network = read_network(shipped("demo.yaml"), {})
    kinds: dict[str, type | tuple[type, ...]] = {
        "timestamp": int,
        "string": str,
        "double": float,
        "int": int,
    }
    for stream, lines in zip(("trades", "quotes"), zip(*steps(3), strict=True), strict=True):
        schema = network.stream(stream).schema
        rows = [orjson.loads(line) for line in b"".join(lines).splitlines()]
        assert len(rows) > 1_000
        for row in rows:
            assert tuple(row) == schema.names
            for field in schema:
                value = row[field.name]
                assert field.nullable if value is None else isinstance(value, kinds[field.type]), (field, value)


def test_event_times_lag_and_are_out_of_order() -> None:
    market = Market(5)
    trades, _ = market.step(NOW_NS, 1.0, 2_000, 1.0)
    times = [orjson.loads(line)["ts"] for line in trades.splitlines()]
    assert all(NOW_NS - LAG_MAX_NS <= t <= NOW_NS for t in times)
    assert times != sorted(times)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_bursts_come_and_go(seed: int) -> None:
    bursts = Bursts(seed)
    factors = [bursts.factor(t / 10) for t in range(3_000)]
    busy = sum(f > 1 for f in factors) / len(factors)
    assert 0.1 < busy < 0.5
    assert all(f == 1.0 or 4 <= f <= 10 for f in factors)
    assert len(set(factors)) > 10, "each burst has a height of its own"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_many_symbols_share_the_trades(seed: int) -> None:
    """A few symbols lead, as on a real market, and no seed makes a market of one symbol."""
    for side in zip(*steps(seed, 100), strict=True):
        counts = Counter(orjson.loads(line)["symbol"] for lines in side for line in lines.splitlines())
        shares = sorted((n / counts.total() for n in counts.values()), reverse=True)
        assert len(shares) >= 24
        assert 0.1 < shares[0] < 0.25
        assert 0.4 < sum(shares[:10]) < 0.8


def test_every_output_of_the_demo_gets_something() -> None:
    """Every output gets tuples; an empty one would look broken."""
    trades, quotes = (
        [orjson.loads(line) for lines in side for line in lines.splitlines()]
        for side in zip(*steps(1, 200), strict=True)
    )
    assert any(row["price"] * row["size"] >= 1_000_000 for row in trades)
    assert any(row["bid"] >= row["ask"] for row in quotes)
    assert any(10_000 * (row["ask"] - row["bid"]) / ((row["ask"] + row["bid"]) / 2) > 12 for row in quotes)
    assert {row["venue"] for row in trades} == {"N", "P", "Q", "D", None}


def test_the_outputs_of_the_demo_ask_for_different_things() -> None:
    network = read_network(shipped("demo.yaml"), {})
    assert not network.warnings
    assert len(network.outputs) >= 3
    assert len({output.qos for output in network.outputs}) == len(network.outputs)
    deadlines = [output.qos.deadline_ns for output in network.outputs]
    assert deadlines == sorted(deadlines, key=lambda d: d or 0), "from the tightest to the loosest"
