"""The parts of ``bench promise``: generated networks, the linear program, the ideal, the truth, the evaluation."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.rows import ArrowRows, LineRows, read_rows
from engine.lab.bench.promise.bench import PromiseCell, PromisePlan
from engine.lab.bench.promise.goals import starved
from engine.lab.bench.promise.ideal import Ideal, KneeCosts, ideal
from engine.lab.bench.promise.kinds import KINDS, PromiseNetwork, generate
from engine.lab.bench.promise.measured import ClaimedUtility, DropShare, Felt, PromiseRun, felt
from engine.lab.bench.promise.packing import PackingError, maximise
from engine.lab.bench.promise.report import promise_results
from engine.lab.bench.promise.scenario import Contender, PromiseScenario
from engine.lab.bench.promise.truth import TruthMaker, value_grid
from engine.run.network_file import read_network

LOSSY = """
http: {listen: off}
engine: {workers: 2}
streams:
  rows: {schema: {ts: timestamp, v: double}, time: ts, overload: shed}
boxes:
  dear: {universal: rows, cost: 90us}
  cheap: {universal: rows, cost: 10us}
outputs:
  strict: {from: dear, qos: {deadline: 100ms}}
  lossy: {from: cheap, qos: {deadline: 100ms, lossy: 50%}}
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_gives_valid_networks_that_differ_by_seed(kind: str, tmp_path: Path) -> None:
    first, again, other = generate(kind, 1), generate(kind, 1), generate(kind, 2)
    assert first == again
    assert first.document != other.document
    assert sum(first.mix.values()) == pytest.approx(1.0)
    scenario = PromiseScenario(first, tmp_path)
    assert {o.name for o in scenario.network.outputs} == set(first.document["outputs"])
    for output in scenario.network.outputs:
        assert all(name in output.schema for name in first.times_of(output.name))
    naive = json.loads(scenario.file(Contender("block"), 1 << 20).read_text())
    assert {s["overload"] for s in naive["streams"].values()} == {"block"}


def test_there_are_at_least_ten_kinds() -> None:
    assert len(KINDS) >= 10


def best_of_corners(gains: np.ndarray, limits: np.ndarray, at_most: np.ndarray) -> float:
    """Try every corner of a small program: each set of equations that meets in a point."""
    count = len(gains)
    rows, ends = np.vstack([limits, -np.eye(count)]), np.concatenate([at_most, np.zeros(count)])
    best = 0.0
    for chosen in product(range(len(rows)), repeat=count):
        part = rows[list(chosen)]
        if len(set(chosen)) == count and abs(np.linalg.det(part)) > 1e-9:
            x = np.linalg.solve(part, ends[list(chosen)])
            if (rows @ x <= ends + 1e-9).all():
                best = max(best, float(gains @ x))
    return best


@pytest.mark.parametrize("seed", range(20))
def test_the_linear_program_finds_the_best_corner(seed: int) -> None:
    random = np.random.default_rng(seed)
    gains, limits, at_most = random.uniform(0, 1, 3), random.uniform(-0.3, 1, (5, 3)), random.integers(0, 3, 5) * 1.0
    limits = np.vstack([limits, np.eye(3)])
    at_most = np.concatenate([at_most, np.ones(3)])
    x = maximise(gains, limits, at_most)
    assert (limits @ x <= at_most + 1e-9).all() and (x >= -1e-12).all()
    assert float(gains @ x) == pytest.approx(best_of_corners(gains, limits, at_most))


def test_a_program_without_a_limit_is_refused() -> None:
    with pytest.raises(PackingError, match="no upper bound"):
        maximise(np.ones(1), -np.ones((1, 1)), np.ones(1))


def costs(edge: float = 0.1) -> KneeCosts:
    """The knee at 10,000 rows/s: the dear box needs 0.9 of a worker, the cheap one 0.1."""
    return KneeCosts({"rows": 10_000.0}, (0.9, 0.1), ((1.0,), (1.0,)), edge)


def test_the_ideal_gives_an_incurable_output_what_one_worker_can_do() -> None:
    network = read_network(LOSSY, {})
    assert ideal(network, costs(), 1.0, {}).utility == pytest.approx(2.0)
    found = ideal(network, costs(), 3.0, {})
    assert found.outputs == pytest.approx({"strict": 1 / 3, "lossy": 1.0})  # a box runs on one worker at a time


def test_the_ideal_is_limited_by_the_edge() -> None:
    network = read_network(LOSSY, {})
    found = ideal(network, costs(edge=1.0), 4.0, {})  # decoding is full at the knee: a quarter of the rows gets in
    assert found.outputs == pytest.approx({"strict": 0.25 / 0.9 * 0.9, "lossy": 0.5})


def test_the_ideal_keeps_the_tuples_of_most_worth() -> None:
    text = LOSSY.replace("lossy: 50%", 'value: {v: [[0, 0.1], [10, 1.0]]}').replace("deadline: 100ms}}\n  lossy",
                         "deadline: 100ms, lossy: 100%}}\n  lossy")  # fmt: skip
    network = read_network(text, {})
    even = KneeCosts({"rows": 10_000.0}, (0.0, 1.0), ((1.0,), (1.0,)), 0.1)
    grid = np.interp(np.linspace(0, 1, 65), [0, 0.2, 1], [0, 0.8, 1])  # a fifth of the tuples carries four fifths
    assert ideal(network, even, 2.0, {"lossy": grid}).outputs["lossy"] == pytest.approx(0.8 + 0.2 * 0.3 / 0.8)


def small(windows: dict[str, str]) -> PromiseNetwork:
    aggregate = {
        "aggregate": "rows",
        "window": {"tumbling": "1s"},
        "by": ["k"],
        "select": {"n": "count(*)", "mean": "avg(v)"},
    }
    document = {
        "engine": {"workers": 2},
        "streams": {"rows": {"schema": {"ts": "timestamp", "id": "bigint", "k": "string", "v": "double", "size": "int"},
                             "time": "ts", "overload": "shed"}},
        "boxes": {"u": {"universal": "rows", "cost": "1s"}} | ({"counts": aggregate} if windows else {}),
        "outputs": {"out": {"from": "counts" if windows else "u", "qos": {"deadline": "1s", "lossy": "50%"}}},
    }  # fmt: skip
    return PromiseNetwork("small", 1, document, {"rows": 1.0}, keys=4, windows=windows)


def test_the_truth_of_rows_counts_each_row_once(tmp_path: Path) -> None:
    spec = small({})
    maker = TruthMaker(spec, PromiseScenario(spec, tmp_path).samples)  # boxes of a second a row cost nothing here
    truth = maker.make(ArrivalShape("uniform", 2.0, 1.0), {"rows": 500.0}, 0)
    assert truth.due["out"].tuples.sum() == 1_000
    assert value_grid(maker.network, maker.sums, "out", 5) is None  # all rows are worth the same


def test_the_truth_of_windows_has_the_rows_of_each(tmp_path: Path) -> None:
    spec = small({"out": "exact"})
    begun_ns = 1_700_000_000_000_000_000
    maker = TruthMaker(spec, PromiseScenario(spec, tmp_path).samples)
    truth = maker.make(ArrivalShape("uniform", 1.0, 2.0), {"rows": 1_000.0}, begun_ns)
    rows = truth.windows["out"]
    assert {end for end, _ in rows} == {begun_ns + 10**9, begun_ns + 2 * 10**9}
    assert sum(window.rows for window in rows.values()) == 2_000
    assert truth.due["out"].tuples.sum() == 4  # the windows of the last second end after the schedule


def test_lines_and_batches_carry_the_same_rows(tmp_path: Path) -> None:
    scenario = PromiseScenario(generate("edge", 1), tmp_path)
    spec = scenario.stream_specs({"rows": 1.0})[0]
    lines = read_rows(spec)
    batches = read_rows({**spec, "format": "arrow"})
    assert isinstance(lines, LineRows) and isinstance(batches, ArrowRows)
    keep = np.arange(10) % 2 == 0
    payload, count = lines.cut(5, 10, keep, 1_700_000_000_000_000_000)
    batch, also = batches.cut(5, 10, keep, 1_700_000_000_000_000_000)
    assert count == also == 5
    read = [json.loads(line) for line in bytes(payload).splitlines()]
    assert [r["id"] for r in read] == batch["id"].to_pylist()
    assert {r["ts"] for r in read} == {1_700_000_000_000_000_000}
    assert [r["v"] for r in read] == batch["v"].to_pylist()


def run_of(contender: str, utilities: dict[str, float], claims: dict[str, float] | None = None) -> PromiseRun:
    outputs = tuple(Felt(name, 1.0, 1.0, 1.0, u, 1e6, 2e6) for name, u in utilities.items())
    said = {name: ClaimedUtility(1.0, u) for name, u in (claims or {}).items()}
    drops = (DropShare("rows->u", "shed", 0.5, 10),)
    return PromiseRun(contender, "small-1", "steady", 3.0, outputs, said, drops, 0, 0, 0.0, 2.0)


def test_medians_are_judged_beside_the_ideal_and_the_best_naive_contender() -> None:
    runs = [run_of("qos", {"a": u, "b": 0.01}, {"a": u, "b": 0.5}) for u in (0.2, 0.9, 0.8)]
    runs += [run_of("block", {"a": 0.4, "b": 0.4}), run_of("random 1", {"a": 0.5, "b": 0.5})]
    cell = PromiseCell("small-1", "steady", 3.0, 100.0, Ideal(1.0, {"a": 0.8, "b": 0.2}), runs, ["qos"])
    assert (cell.utility("qos"), cell.best_naive) == (pytest.approx(0.81), 1.0)
    found = {(r.case.rpartition(",")[2], r.metric): r for r in promise_results(cell)}
    assert found["qos", "utility"].verdict == "missed" and found["qos", "utility"].extra["starved"] == ["b"]
    assert found["qos", "of_best_naive_utility"].ratio == pytest.approx(0.81)
    assert found["qos", "claimed_less_measured_utility"].value == pytest.approx(0.49)
    assert ("block", "of_best_naive_utility") not in found
    assert starved(cell, runs[-1]) == []


def test_late_and_missing_results_are_felt() -> None:
    network = read_network(LOSSY, {})
    spec = small({})
    counts = np.full(20, 5.0)
    answer = {"name": "lossy", "counts": counts, "utility": counts * 0.6, "value": counts, "warm": 10,
              "p50_ns": 1.0, "p99_ns": 2.0}  # fmt: skip
    from engine.lab.bench.overload.utility import Due

    due = Due(np.full(20, 20.0), np.full(20, 20.0))
    found = felt(answer, network.output("lossy"), due)
    assert (found.share, found.utility) == pytest.approx((0.25, 0.5 * 0.6))  # half may be lost, a quarter came
    assert felt({**answer, "name": "strict"}, network.output("strict"), due).utility == pytest.approx(0.25 * 0.6)
    assert spec.times_of("out") == ("ts",)


def test_random_drops_run_at_each_rate() -> None:
    names = [c.name for c in PromisePlan(policies=("qos",), naive=("block", "random")).contenders()]
    assert names == ["qos", "block", "random 0.85", "random 1"]
