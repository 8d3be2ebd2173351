"""Equal boxes are one box: which are equal, what a change does to their state, and that the answers stay the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from catalog.network import Network
from engine.lab.draw import draw_list, sketch
from engine.run.cases.case_file import NetworkCase
from engine.run.cases.play import Row, play
from engine.run.change.compare import Change, Fate, compare
from engine.run.network_file import read_network

HEAD = """
streams: {s: {schema: {k: string, n: bigint}}}
boxes:
"""
TWO = """  a: {filter: s, where: "n > 1"}
  sums: {aggregate: a, window: {count: 4}, by: [k], select: {total: "sum(n)"}}
  b: {filter: s, where: "n > 1"}
  sums2: {aggregate: b, window: {count: 4}, by: [k], select: {total: "sum(n)"}}
"""
OUT = "outputs:\n  o: {from: sums}\n  p: {from: sums2}\n"
APART = "engine: {share: false}\n"


def network_of(text: str, before: Network | None = None) -> Network:
    return read_network(text, {}, before=before)


def changed(before: str, after: str) -> tuple[Change, Network]:
    was = network_of(before)
    now = network_of(after, was)
    return compare(was, now), now


def fates(change: Change) -> dict[str, Fate]:
    return {part.name: part.fate for part in change.parts if part.kind == "box"}


def names(network: Network) -> list[tuple[str, ...]]:
    return sorted(node.names for node in network.boxes)


def test_whole_chains_are_shared_and_every_name_finds_the_box() -> None:
    network = network_of(HEAD + TWO + OUT)
    assert names(network) == [("a", "b"), ("sums", "sums2")]
    assert network.box("sums2") is network.box("sums")
    assert [arc.name for arc in network.arcs] == ["s->a", "a->sums", "sums->o", "sums->p"]
    assert network.declared == {"a": ("s",), "sums": ("a",), "b": ("s",), "sums2": ("b",)}
    assert "sums = sums2" in draw_list(sketch(network))
    assert names(network_of(APART + HEAD + TWO + OUT)) == [("a",), ("b",), ("sums",), ("sums2",)]


@pytest.mark.parametrize(
    "second",
    [
        'filter: s, where: "n > 2"',
        'filter: s, where: "n > 1", selectivity: 0.5',
        'filter: s, where: "n > 1", cost: 1us',
        'filter: other, where: "n > 1"',
    ],
)
def test_boxes_that_differ_stay_apart(second: str) -> None:
    head = HEAD.replace("}}}\n", "}}, other: {schema: {k: string, n: bigint}}}\n")
    text = f'{head}  a: {{filter: s, where: "n > 1"}}\n  b: {{{second}}}\noutputs: {{o: {{from: a}}, p: {{from: b}}}}\n'
    assert len(network_of(text).boxes) == 2


def test_python_boxes_are_shared_only_if_they_are_pure(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(columns):\n    return columns\n")
    box = "{python: s, call: 'mine:f', schema: {n: bigint}, pure: false}"
    text = f"{HEAD}  a: {box}\n  b: {box}\noutputs: {{o: {{from: a}}, p: {{from: b}}}}\n"
    for pure, boxes in (("false", 2), ("true", 1)):
        file = tmp_path / f"{pure}.yaml"
        file.write_text(text.replace("pure: false", f"pure: {pure}"))
        assert len(read_network(file, {}).boxes) == boxes
    universal = f"{HEAD}  a: {{universal: s}}\n  b: {{universal: s}}\noutputs: {{o: {{from: a}}, p: {{from: b}}}}\n"
    assert len(network_of(universal).boxes) == 2


def test_a_query_that_comes_joins_and_the_last_one_takes_the_box_along() -> None:
    one = HEAD + "".join(TWO.splitlines(keepends=True)[:2]) + "outputs:\n  o: {from: sums}\n"
    change, _ = changed(one, HEAD + TWO + OUT)
    assert fates(change) == {"a": Fate.KEPT, "b": Fate.ADDED, "sums": Fate.KEPT, "sums2": Fate.ADDED}
    assert change.boxes == {"a": "a", "sums": "sums"} and not change.drops_state
    second = HEAD + "".join(TWO.splitlines(keepends=True)[2:]) + "outputs:\n  p: {from: sums2}\n"
    change, now = changed(HEAD + TWO + OUT, second)
    assert fates(change) == {"b": Fate.KEPT, "a": Fate.REMOVED, "sums2": Fate.KEPT, "sums": Fate.REMOVED}
    assert change.boxes == {"b": "a", "sums2": "sums"} and not change.drops_state, "the state goes on under its name"
    none = "streams: {s: {schema: {k: string, n: bigint}}}\noutputs: {o: {from: s}}\n"
    last = compare(now, network_of(none, now))
    assert [part.name for part in last.drops_state] == ["sums2"]


def test_boxes_that_run_apart_stay_apart_and_a_new_one_joins_the_first() -> None:
    change, now = changed(APART + HEAD + TWO + OUT, HEAD + TWO + OUT)
    assert names(now) == [("a",), ("b",), ("sums",), ("sums2",)] and not change.drops_state
    more = HEAD + TWO + '  c: {filter: s, where: "n > 1"}\n' + OUT + "  q: {from: c}\n"
    assert ("a", "c") in names(network_of(more, now))
    altered = HEAD + TWO.replace('b: {filter: s, where: "n > 1"}', 'b: {filter: s, where: "n > 2"}') + OUT
    was = network_of(altered)
    assert names(network_of(HEAD + TWO + OUT, was)) == [("a",), ("b",), ("sums",), ("sums2",)]


def test_a_renamed_box_goes_on_for_itself_beside_an_equal_one() -> None:
    change, now = changed(APART + HEAD + TWO + OUT, HEAD + TWO.replace("b: {", "renamed: {").replace(
        "aggregate: b", "aggregate: renamed") + OUT)  # fmt: skip
    assert names(now) == [("a",), ("renamed",), ("sums",), ("sums2",)]
    assert change.boxes == {"a": "a", "renamed": "b", "sums": "sums", "sums2": "sums2"}


def test_a_box_that_leaves_takes_a_copy_of_the_state_and_of_the_tuples_that_wait() -> None:
    change, _ = changed(HEAD + TWO + OUT, APART + HEAD + TWO + OUT)
    assert fates(change) == dict.fromkeys(("a", "b", "sums", "sums2"), Fate.KEPT)
    assert change.boxes == {"a": "a", "sums": "sums"}
    assert change.copied_boxes == {"b": "a", "sums2": "sums"}
    assert change.same_boxes == {"a": "a", "b": "a", "sums": "sums", "sums2": "sums"}
    altered = TWO.replace('b: {filter: s, where: "n > 1"}', 'b: {filter: s, where: "n > 2"}')
    change, _ = changed(HEAD + TWO + OUT, HEAD + altered + OUT)
    assert fates(change) == {"a": Fate.KEPT, "b": Fate.REBUILT, "sums": Fate.KEPT, "sums2": Fate.KEPT}
    assert change.copied_boxes == {"sums2": "sums"}


KINDS = (
    '{{filter: {0}, where: "n > {1}"}}',
    '{{map: {0}, select: {{k: k, n: "n + {1}"}}}}',
    '{{aggregate: {0}, window: {{count: 3}}, by: [k], bounds: [], select: {{n: "sum(n)"}}}}',
    "{{dedup: {0}, by: [n], within: 1h}}",
)


def _by_key(rows: list[Row]) -> dict[str, list[Row]]:
    return {key: [row for row in rows if row["k"] == key] for key in "ab"}


@pytest.mark.parametrize("seed", range(8))
def test_the_answers_are_the_same_with_and_without(seed: int) -> None:
    dice = random.Random(seed)
    places, boxes = ["s"], []
    for i in range(30):
        kind = dice.choice(KINDS)
        boxes.append(f"  b{i}: " + kind.format(dice.choice(places), dice.randint(0, 2)))
        if "aggregate" not in kind:  # behind it there is no event time
            places.append(f"b{i}")
    outputs = "\n".join(f"  o{i}: {{from: b{i}}}" for i in range(30))
    text = HEAD + "\n".join(boxes) + "\noutputs:\n" + outputs + "\n"
    rows = [{"k": dice.choice("ab"), "n": dice.randint(0, 6)} for _ in range(60)]
    case = NetworkCase(name="some", input=[{"s": rows[i : i + 7]} for i in range(0, 60, 7)])
    together, apart = network_of(text), network_of(APART + text)
    assert len(apart.boxes) == 30 > len(together.boxes)
    found, expected = play(together, case).rows, play(apart, case).rows
    assert any(found.values())
    for i, box in enumerate(boxes):
        # Windows of one train that are full by count leave key by key, so their order follows the trains.
        divide = _by_key if "aggregate" in box else list
        assert divide(found[f"o{i}"]) == divide(expected[f"o{i}"]), box
