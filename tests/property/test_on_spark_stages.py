"""Stages on shards give the rows of the daemon's engine: every golden case, NEXMark, and random disorder.

Spark itself is not needed: ``on_spark_local`` runs the tasks here. ``tests/spark/test_on_spark.py`` has Spark.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import yaml

from catalog.network import Network
from engine.lab.bench.nexmark.generator import SCHEMAS, Events, generate
from engine.lab.bench.nexmark.queries import QUERIES, Query
from engine.lab.bench.nexmark.run_query import run_query
from engine.on_spark import lanes, shard_state
from engine.run.core import Engine
from engine.run.network_file import read_network
from router.event_time import EventTime
from storage.train import Train
from tests.golden.harness import read_case, trains
from tests.property.on_spark_local import NOW_NS, LocalBatches, shown_train

GOLDEN = Path(__file__).parents[1] / "golden"
CASES = sorted(p for p in GOLDEN.glob("*/*.yaml") if p.parent.name not in ("python", "universal"))
SINK = "sink: {spark: parquet, path: nowhere}"


def with_sinks(data: dict[str, Any]) -> Network:
    data = deepcopy(data)
    for output in data["outputs"].values():
        output |= yaml.safe_load(SINK)
    return read_network(yaml.safe_dump(data, sort_keys=False) + "\n", {})


@pytest.mark.parametrize("shards", [7])
@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_golden_cases(path: Path, shards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole input is one batch: before the end no watermark moves, as in the golden tests."""
    case = read_case(path)
    if not case.get("close") and any(k in str(case["network"]) for k in ("bsort", "asof")):
        pytest.skip("what the case has waiting at its end is not its result")
    network = with_sinks(case["network"])
    rows: dict[str, list[dict[str, Any]]] = {}
    for block in case["input"]:
        for name, given in block.items():
            rows.setdefault(name, []).extend(given)
    frame = {}
    for stream in network.streams:
        if given := rows.get(stream.name):
            [frame[stream.number]] = trains(stream.schema, given, len(given))
    monkeypatch.setattr(lanes, "NS_PER_US", 1)  # golden cases have single nanoseconds
    batches = LocalBatches(network, tmp_path, shards, Random(shards), tick_ns=1)
    batches(frame, 0)
    if case.get("close"):
        batches.end()
    for output in network.outputs:
        wanted = [[row[f.name] for f in output.schema] for row in case["expect"].get(output.name, [])]
        if output.name in case["expect"]:
            given = Train.from_pylists(
                output.schema, {f.name: [row[i] for row in wanted] for i, f in enumerate(output.schema)}, 0
            )
            assert batches.rows[output.name] == Counter(shown_train(given, 1))


@pytest.fixture(scope="module")
def events() -> Events:
    """With microseconds, as Spark has them."""
    made = generate(4_000, rate=500, seed=7, jitter_ns=300_000_000)
    return Events(*(_in_us(made.train(stream)) for stream in SCHEMAS))


def _in_us(train: Train) -> Train:
    columns = [c // 1_000 * 1_000 if f.type == "timestamp" else c for f, c in zip(train.schema, train.columns)]
    return Train(train.schema, tuple(columns), train.arrival_ns, valid=train.valid, pools=train.pools)


@pytest.mark.parametrize("query", [q for q in QUERIES if not q.by_arrival], ids=lambda q: q.name)
def test_nexmark_as_the_daemon_answers_it(query: Query, events: Events, tmp_path: Path) -> None:
    network = read_network(query.network(slack="300ms").replace("{from: out}", f"{{from: out, {SINK}}}"), {})
    batches = LocalBatches(network, tmp_path, 3, Random(1))
    parts = list(events.in_time(query.streams, 1_500))
    for number, at in enumerate(range(0, len(parts), len(query.streams))):
        batches({network.stream(n).number: train for n, train in parts[at : at + len(query.streams)]}, number)
    batches.end()
    wanted = Counter(row for train in run_query(query, events, slack="300ms").trains for row in shown_train(train))
    assert wanted and batches.rows["answer"] == wanted


BOXES = {
    "tumbling": "out: {aggregate: a, window: {tumbling: 10s}, by: [k], select: {n: 'count(*)', s: 'sum(x)'}}",
    "sliding": "out: {aggregate: a, window: {sliding: 10s, advance: 5s}, by: [k, j], select: {m: 'max(x)'}}",
    "session": "out: {aggregate: a, window: {session: 2s}, by: [k], select: {n: 'count(*)', d: 'count(distinct j)'}}",
    "no key": "out: {aggregate: a, window: {tumbling: 5s}, select: {p: 'percentile(x, 0.5)'}}",
    "join": "out: {join: [a, b], on: 'l.k = r.k and l.x < r.y', within: 1s}",
    "left join": "out: {join: [a, b], on: 'l.k = r.k', within: {before: 1s, after: 0s}, type: left}",
    "full join": "out: {join: [a, b], on: 'l.k = r.k and l.j = r.j', within: 500ms, type: full}",
    "computed key": "out: {join: [a, b], on: 'upper(l.k) = upper(r.k)', within: 1s}",
    "as-of join": "out: {join: [a, b], on: 'l.k = r.k', asof: true, within: 5s, select: {ts: l.ts, k: l.k, rts: r.ts}}",
    "resample": "out: {resample: [a, b], on: 'l.k = r.k', fields: [y], method: mean, within: 1s}",
    "top": "out: {top: a, n: 2, of: x, by: [k], window: {tumbling: 10s}}",
    "ordered union": "u: {union: [a, a], order: time}\n  out: {aggregate: u, window: {tumbling: 5s}, by: [k], "
    "select: {n: 'count(*)'}}",
    "two keys": "w: {aggregate: a, window: {tumbling: 5s}, by: [k, j], select: {n: 'count(*)'}}\n"
    "  v: {filter: w, where: 'n > 1'}\n"
    "  out: {aggregate: v, window: {tumbling: 10s}, by: [j], select: {n: 'sum(n)', m: 'max(n)'}}",
    "same key": "w: {aggregate: a, window: {tumbling: 5s}, by: [k], select: {n: 'count(*)'}}\n"
    "  out: {join: [w, b], on: 'l.k = r.k', within: 2s}",
    "a stream behind a window": "w: {aggregate: a, window: {tumbling: 5s}, by: [j], select: {n: 'count(*)'}}\n"
    "  out: {join: [w, b], on: 'l.j = r.j', within: 1s, type: left}",
    "late": "w: {aggregate: a, window: {tumbling: 2s}, by: [k], select: {n: 'count(*)'}}\n"
    "  out: {filter: w.late, where: 'j > 0'}",
    "ours before a key": "m: {map: a, add: {i: 'cast(x as int) % 3'}}\n"
    "  out: {aggregate: m, window: {tumbling: 5s}, by: [i], select: {n: 'count(*)', s: 'sum(x)'}}",
    "count window": "out: {aggregate: o, window: {count: 3}, by: [k], select: {n: 'sum(x)', f: 'first(j)'}}",
    "first and last": "out: {aggregate: o, window: {tumbling: 5s}, by: [j], select: {f: 'first(k)', l: 'last(x)'}}",
    "dedup": "m: {map: o, select: {at: ts, number: seq, j: j}}\n  out: {dedup: m, by: [j], within: 1s}",
    "latest": "f: {filter: o, where: 'x > 20'}\n  out: {latest: f, by: [k], changes: [j]}",
    "top by count": "out: {top: o, n: 2, of: x, by: [k], window: {count: 5}}",
    "bsort": "out: {bsort: o, by: j, slack: 3}",
    "case": "c: {case: a, when: {low: 'x < 30', mid: 'x < 60'}, otherwise: high}\n  u: {union: [c.low, c.high]}\n"
    "  out: {aggregate: u, window: {tumbling: 5s}, by: [k], select: {n: 'count(*)'}}",
}


@pytest.mark.parametrize("box", BOXES)
def test_random_disorder(box: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 2 shards the state of most batches is a log behind a snapshot."""
    for shards in (1, 2, 7):
        monkeypatch.setattr(shard_state, "SMALLEST_SNAPSHOT", 0 if shards == 2 else 2**40)
        monkeypatch.setattr(shard_state, "LOG_SHARE", 1e9)
        check_disorder(BOXES[box], shards, 31 * shards + len(box), tmp_path / str(shards))


def check_disorder(boxes: str, shards: int, seed: int, folder: Path, rows: int = 60) -> None:
    """Feed the same batches to stages on shards and to the engine."""
    rng = Random(seed)
    late_s = 4 if ".late" in boxes else 0  # with two streams the order of their trains says what is late
    network = read_network(
        f"""
streams:
  a: {{schema: {{ts: timestamp, k: string, j: int, x: double?}}, time: ts, slack: 3s}}
  b: {{schema: {{ts: timestamp, k: string, j: int, y: double}}, time: ts, slack: 3s}}
  o: {{schema: {{ts: timestamp, k: string, j: int, x: double?, seq: bigint}}, time: ts, slack: 3s, order: seq}}
boxes:
  {boxes}
outputs:
  answer: {{from: out, {SINK}}}
""",
        {},
    )
    batches = LocalBatches(network, folder, shards, rng)
    fed = [_made_up(network, rng, number, rows, late_s) for number in range(4)]
    assert not [r for r in batches._plan.refusals if "order" in r.message]
    for number, frame in enumerate(fed):
        batches({s: _shuffled(train, rng) for s, train in frame.items()}, number)
    batches.end()
    assert (".log" in _last_states(folder)) == (shard_state.SMALLEST_SNAPSHOT == 0)
    wanted, late = _engine(network, fed)
    assert batches.rows["answer"] == wanted
    assert sum(sum(report.late.values()) for report in batches.reports) == late
    assert wanted and bool(late) == bool(late_s)


def _made_up(network: Network, rng: Random, batch: int, rows: int, late_s: int) -> dict[int, Train]:
    frame = {}
    for stream in network.streams:
        if not stream.arcs or (stream.name == "b" and rng.random() < 0.2):
            continue
        start = (1_700_000_000 + 6 * batch) * 10**6
        ts = [(start + rng.randrange(-(2 + 2 * late_s) * 10**6, 6 * 10**6)) * 1_000 for _ in range(rows)]
        value = [None if stream.name != "b" and rng.random() < 0.1 else rng.random() * 100 for _ in range(rows)]
        columns = {
            "ts": ts, "k": [rng.choice(["x", "y", "zz", ""]) for _ in ts], "j": [rng.randrange(4) for _ in ts],
            stream.schema.names[3]: value, "seq": list(range(batch * rows, (batch + 1) * rows)),
        }  # fmt: skip
        frame[stream.number] = Train.from_pylists(stream.schema, columns, NOW_NS)
    return frame


def _last_states(folder: Path) -> str:
    return sorted(folder.glob("batches/*/manifest.json"))[-2].read_text()


def _shuffled(train: Train, rng: Random) -> Train:
    return train.take(np.array(rng.sample(range(train.count), train.count), np.intp))


def _engine(network: Network, fed: list[dict[int, Train]]) -> tuple[Counter[str], int]:
    found: Counter[str] = Counter()
    event_time = EventTime(network, lambda: NOW_NS)
    outlets = [lambda train: found.update(shown_train(train)) for _ in network.outputs]
    engine = Engine(network, outlets, workers=1, event_time=event_time, now_ns=lambda: NOW_NS)
    engine.expire(False)
    engine.start()
    try:
        for frame in fed:
            for number, train in frame.items():
                assert engine.ingress.admit(number, train, timeout_s=20)
                assert engine.drain(20)
        for stream in network.streams:
            engine.ingress.end(stream.number)
        assert engine.drain(20)
        return found, sum(runtime.reading().late for runtime in engine.runtimes)
    finally:
        engine.stop()


__all__ = ["check_disorder"]
