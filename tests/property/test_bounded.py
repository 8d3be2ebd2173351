"""State on disk changes no result: every keyed box with a memory of a few bytes against the same box in memory."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from engine.operators.bounded import divided
from storage.train import END_WATERMARK, Train
from tests.property.bounded_harness import SECOND, Fed, node_of

SELECT = "{n: 'count(*)', s: 'sum(v)', a: 'avg(v)', d: 'count(distinct v)', f: 'first(name)', p: 'median(v)'}"
BOXES = {
    "tumbling": f"{{aggregate: s, window: {{tumbling: 4s}}, by: [k], select: {SELECT}}}",
    "tumbling by two": f"{{aggregate: s, window: {{tumbling: 4s}}, by: [name, k], select: {SELECT}}}",
    "sliding": f"{{aggregate: s, window: {{sliding: 4s, advance: 1s}}, by: [name], select: {SELECT}}}",
    "sliding tree": "{aggregate: s, window: {sliding: 20s, advance: 1s}, by: [k], select: {m: 'max(v)', s: 'sum(v)'}}",
    "session": f"{{aggregate: s, window: {{session: 2s}}, by: [k], select: {SELECT}}}",
    "count": f"{{aggregate: s, window: {{count: 4, advance: 2}}, by: [k], select: {SELECT}}}",
    "update": "{aggregate: s, window: {tumbling: 4s}, emit: update, by: [k], select: {n: 'count(*)', s: 'sum(v)'}}",
    "dedup": "{dedup: s, by: [k], within: 3s}",
    "dedup names": "{dedup: s, by: [name, k], within: 3s}",
    "latest": "{latest: s, by: [k], changes: [name]}",
    "latest forget": "{latest: s, by: [name], forget: 5s}",
    "top": "{top: s, n: 2, of: v, by: [k], window: {tumbling: 4s}}",
    "top count": "{top: s, n: 2, of: v, by: [name], window: {count: 5}}",
    "join": "{join: [s, t], on: 'l.k = r.k', within: 1s}",
    "join full": "{join: [s, t], on: 'l.k = r.k and l.name = r.name', within: 1s, type: full}",
    "join asof": "{join: [s, t], on: 'l.k = r.k', asof: true, type: left}",
    "resample": "{resample: [s, t], on: 'l.k = r.k', within: 2s, fields: [v], method: linear}",
}


def rows_of(random: Random, count: int, keys: int, at_s: float, late_s: float) -> dict[str, list[Any]]:
    return {
        "ts": [int((at_s + random.random() * 2 - random.choice([0, 0, 0, late_s])) * SECOND) for _ in range(count)],
        "k": [random.choice([None, *range(keys)]) for _ in range(count)],
        "name": [random.choice([None, "", *"abcdefgh"]) for _ in range(count)],
        "v": [random.choice([0.1, 0.2, 0.3, float("inf"), 1e300, -0.0, 7.0]) for _ in range(count)],
    }


@pytest.mark.parametrize("name", BOXES)
@pytest.mark.parametrize("seed", range(3))
def test_on_disk_and_in_memory_the_same(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divided, "SMALLEST_BYTES", 4_000)
    node, random = node_of(BOXES[name]), Random(f"{name}{seed}")
    late_s = random.choice([0.5, 3])
    spilled, plain = Fed(node, random.choice([64, 2_000]), late_s < 1), Fed(node, 2**40, late_s < 1)
    for step in range(25):
        port = random.randrange(len(node.in_arcs))
        columns = rows_of(random, random.choice([1, 7, 60]), random.choice([3, 50, 5_000]), step / 2, late_s)
        train = Train.from_pylists(node.in_schemas[port], columns, step)
        watermark_ns = int((step / 2 - 1) * SECOND)
        hurry = random.random() < 0.6
        for fed in (spilled, plain):
            fed.feed(port, train, watermark_ns, hurry=hurry)
        if random.random() < 0.2:
            spilled.restart()
    last = Train.from_pylists(node.in_schemas[0], rows_of(random, 1, 1, 30, 0), 50)
    for fed in (spilled, plain):
        fed.feed(0, last, END_WATERMARK, hurry=False)
    assert spilled.divided
    assert spilled.rows() == plain.rows()
    ours, theirs = spilled.runtime.tally, plain.runtime.tally
    assert (ours.filtered, ours.absorbed, ours.late, ours.dead, ours.waiting) == (
        theirs.filtered, theirs.absorbed, theirs.late, theirs.dead, 0,
    )  # fmt: skip
