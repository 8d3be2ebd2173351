"""The parts of the benchmarks: every ratio would be wrong if a baseline did other work than the engine."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
import pytest

from engine.lab.bench import workload
from engine.lab.bench.harness import interleave
from engine.lab.bench.report import Result
from engine.lab.bench.sockets import bare_loops
from engine.run.network_file import read_network

DATA = workload.columns(2_000, seed=4)


def frame() -> pl.DataFrame:
    seq, symbol, price, size = DATA
    names = [workload.SYMBOLS[code] for code in symbol]
    return pl.DataFrame({"seq": seq, "symbol": names, "price": price, "size": size})


@pytest.mark.parametrize("query", [0, 7, 199])
def test_survivors_are_what_the_predicates_say(query: int) -> None:
    expected = frame().sql(f"select * from self where {' and '.join(workload.bounds(query).predicates)}")
    seq, symbol, price, size = workload.survivors(DATA, query)
    assert 0.3 < len(seq) / 2_000 < 0.9, "a chain that keeps all or nothing measures something else"
    assert seq.tolist() == expected["seq"].to_list()
    assert [workload.SYMBOLS[code] for code in symbol] == expected["symbol"].to_list()
    assert price.tolist() == expected["price"].to_list()
    assert size.tolist() == expected["size"].to_list()


def test_every_format_carries_the_same_rows() -> None:
    schema = frame().schema
    assert pl.read_ndjson(workload.ndjson_bytes(DATA), schema=schema).equals(frame())
    text = workload.CSV_HEADER + workload.csv_bytes(DATA)
    assert pl.read_csv(text, schema=schema).equals(frame())
    with pa.ipc.open_stream(BytesIO(workload.arrow_bytes(DATA, batch=300, repeat=2))) as stream:
        table = stream.read_all()
    assert table.to_pydict() == pl.concat([frame(), frame()]).to_dict(as_series=False)


def test_the_bare_loops_keep_the_same_rows() -> None:
    body = workload.ndjson_bytes(DATA)
    kept = [orjson.loads(line) for line in bare_loops.orjson_rows(body).splitlines()]
    assert [row["seq"] for row in kept] == workload.survivors(DATA)[0].tolist()
    assert [orjson.loads(line) for line in bare_loops.polars_ndjson()(body).splitlines()] == kept
    rows = bare_loops.polars_csv()(workload.CSV_HEADER + workload.csv_bytes(DATA)).splitlines()
    assert [int(row.split(b",")[0]) for row in rows] == [row["seq"] for row in kept]


def test_networks_have_the_boxes_that_they_promise() -> None:
    network = read_network(workload.chain_network(40), {})
    assert len(network.boxes) == 40 * workload.FILTERS
    assert len(network.outputs) == 40
    idle = read_network(workload.chain_network(1, idle_boxes=95), {})
    assert len(idle.boxes) == 100
    sockets = read_network(workload.socket_network("csv", (1, 2, 3)), {})
    assert len(sockets.boxes) == workload.FILTERS


def test_no_two_queries_share_a_predicate() -> None:
    """Equal predicates could be computed once, and the engine would look faster than it is."""
    chains = [workload.bounds(query) for query in range(200)]
    assert len({(c.price_above, c.price_below) for c in chains}) == 200
    assert len({c.seq_above for c in chains}) == 200


def test_a_result_has_the_one_form() -> None:
    result = Result("chain", "queries=40", "tuples_per_s", 800_000.0, 1_000_000.0, at_least=0.8)
    assert orjson.loads(result.to_json()) == {
        "bench": "chain", "case": "queries=40", "metric": "tuples_per_s", "value": 800_000, "baseline": 1_000_000,
        "ratio": 0.8,
    }  # fmt: skip
    assert list(orjson.loads(result.to_json())) == ["bench", "case", "metric", "value", "baseline", "ratio"]


@pytest.mark.parametrize(
    ("value", "limits", "verdict"),
    [
        (0.8, {"at_least": 0.8}, "reached"),
        (0.79, {"at_least": 0.8}, "missed"),
        (2.5, {"at_most": 2.5}, "reached"),
        (2.6, {"at_most": 2.5}, "missed"),
        (9.9, {}, ""),
    ],
)
def test_a_verdict_is_about_the_ratio(value: float, limits: dict[str, float], verdict: str) -> None:
    assert Result("b", "c", "m", value, 1.0, **limits).verdict == verdict


def test_contenders_take_turns() -> None:
    order: list[str] = []

    def contender(name: str) -> float:
        order.append(name)
        return float(len(order))

    outcomes = interleave({"a": lambda: contender("a"), "b": lambda: contender("b")}, rounds=3)
    assert order == ["a", "b"] * 3
    assert outcomes == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_a_result_of_rounds_has_medians_and_the_spread() -> None:
    result = Result.of_rounds("b", "c", "rows_per_s", [10.0, 30.0, 20.0], [10.0, 20.0, 40.0], "in memory", at_least=1.5)
    assert (result.value, result.baseline, result.ratio, result.spread) == (20.0, 20.0, 1.0, (0.5, 1.5))
    assert result.verdict == "missed"
    record = orjson.loads(result.to_json())
    assert (record["ratio_low"], record["ratio_high"], record["rows"]) == (0.5, 1.5, "in memory")


def test_trains_share_a_pool_and_are_sound() -> None:
    trains = workload.trains(3, 100)
    assert len({id(train.pools[1]) for train in trains}) == 1
    for train in trains:
        train.verify()
    assert not np.array_equal(trains[0].columns[0], trains[1].columns[0])
