"""What each kind of box gives when a part of its input was dropped: what the load shedder goes by."""

from __future__ import annotations

import pytest

from engine.operators.boxes import box_kinds
from engine.run.network_file import read_network
from tests.golden.harness import read_case
from tests.golden.test_golden import CASES as GOLDEN

NETWORK = """
streams:
  a: {{schema: {{ts: timestamp, k: string, v: double}}, time: ts}}
  b: {{schema: {{ts: timestamp, k: string, w: double}}, time: ts}}
  c: {{schema: {{ts: timestamp, k: string, v: double}}, time: ts}}
boxes:
  x: {box}
outputs:
  out: {{from: {port}}}
"""

S = 1_000_000_000
SUM = "select: {s: 'sum(v)'}"
JOIN = "join: [a, b], on: 'l.k = r.k'"
CASES = {
    "{filter: a, where: 'v > 0'}": ["subset"],
    "{map: a, add: {d: 'v * 2'}}": ["subset"],
    "{case: a, when: {hot: 'v > 0'}}": ["subset"],
    "{union: [a, c]}": ["subset", "subset"],
    "{universal: a}": ["subset"],
    "{bsort: a, slack: 1s}": ["subset"],
    "{dedup: a, by: [k], within: 1s}": ["wrong"],
    "{latest: a, by: [k]}": ["wrong"],
    "{top: a, n: 1, of: v, window: {tumbling: 2s}}": [2 * S],
    "{top: a, n: 1, of: v, window: {count: 9}}": ["wrong"],
    f"{{aggregate: a, window: {{tumbling: 3s}}, {SUM}}}": [3 * S],
    f"{{aggregate: a, window: {{sliding: 3s, advance: 1s}}, {SUM}}}": [12 * S],
    f"{{aggregate: a, window: {{session: 3s}}, {SUM}}}": ["wrong"],
    f"{{aggregate: a, window: {{count: 3}}, {SUM}}}": ["wrong"],
    f"{{{JOIN}, within: 1s}}": ["subset", "subset"],
    f"{{{JOIN}, within: 1s, type: left}}": ["subset", "wrong"],
    f"{{{JOIN}, within: 1s, type: right}}": ["wrong", "subset"],
    f"{{{JOIN}, within: 1s, type: full}}": ["wrong", "wrong"],
    f"{{{JOIN}, asof: true}}": ["subset", "wrong"],
    "{resample: [a, b], on: 'l.k = r.k', fields: [w], within: 1s}": ["subset", "wrong"],
}


@pytest.mark.parametrize("text", CASES)
def test_a_box_says_what_it_gives_under_loss(text: str) -> None:
    network = read_network(NETWORK.format(box=text, port="x.hot" if "case" in text else "x"))
    node = network.box("x")
    assert [node.box.under_loss(p) for p in range(len(node.in_arcs))] == CASES[text]


def test_every_kind_that_answers_is_asked() -> None:
    """Here, or by ``under_loss`` in one of its golden cases. A box that does not answer counts as wrong."""
    answers = {kind for kind, box in box_kinds().items() if "under_loss" in vars(box)}
    asked = {text[1:].partition(":")[0] for text in CASES}
    asked |= {path.parent.name for path in GOLDEN if read_case(path).get("under_loss")}
    silent = sorted(answers - asked)
    assert not silent, (
        f"no test asks {silent}: add under_loss: {{BOX: [subset]}}, an answer for each input, to a golden case"
    )


def test_a_field_that_a_map_computes_anew_is_not_kept() -> None:
    text = NETWORK.format(box="{map: a, select: {ts: ts, v: 'v + 1', key: k}}", port="x")
    box = read_network(text).box("x").box
    assert [box.keeps(f) for f in ("ts", "v", "k", "key")] == [True, False, False, False]


def test_an_arc_knows_its_event_time() -> None:
    text = NETWORK.format(box=f"{{aggregate: a, window: {{tumbling: 3s}}, {SUM}}}", port="x")
    assert [a.time_field for a in read_network(text).arcs] == ["ts", "window_time"]
