"""The differ: each row of the table in docs/live.md, from two networks to the fate of every part."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run.change.compare import Change, Fate, compare
from engine.run.change.report import change_json, change_lines
from engine.run.network_file import read_network

BASE = """
engine: {workers: 2}
streams:
  trades: {schema: {ts: timestamp, k: string, price: double, n: int}, time: ts, source: {tcp: "127.0.0.1:19401"}}
boxes:
  big: {filter: trades, where: "n > 10"}
  sums: {aggregate: big, window: {tumbling: 1s}, by: [k], select: {total: "sum(price)"}}
outputs:
  totals: {from: sums, qos: {deadline: 1s}, sink: {tcp: "127.0.0.1:19411"}}
  raw: {from: big}
"""


def change(after: str, before: str = BASE) -> Change:
    was = read_network(before, {})
    return compare(was, read_network(after, {}, version=2, before=was))


def fates(found: Change) -> dict[str, Fate]:
    return {part.name: part.fate for part in found.parts}


def edited(*pairs: tuple[str, str]) -> str:
    text = BASE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_same_network_is_kept_whole() -> None:
    found = change(BASE)
    assert found.is_empty and not found.drops_state
    assert fates(found) == dict.fromkeys(("trades", "big", "sums", "totals", "raw"), Fate.KEPT)
    assert change_json(found)["same"] is True


def test_unchanged_boxes_are_not_bound_again() -> None:
    was = read_network(BASE, {})
    now = read_network(edited(("sum(price)", "max(price)")), {}, before=was)
    assert now.box("big").box is was.box("big").box
    assert now.box("sums").box is not was.box("sums").box


def test_a_changed_filter_is_rebuilt_and_the_window_behind_it_keeps_its_state() -> None:
    found = change(edited(("n > 10", "n > 20")))
    assert fates(found) == {
        "trades": Fate.KEPT, "big": Fate.REBUILT, "sums": Fate.KEPT, "totals": Fate.KEPT, "raw": Fate.KEPT,
    }  # fmt: skip
    assert not found.drops_state  # a filter remembers nothing
    assert found.boxes == {"sums": "sums"} and found.same_boxes["big"] == "big"
    [line] = [line for line in change_lines(change_json(found)["parts"]) if "rebuilt" in line]
    assert line == "rebuilt  box big: where n > 10 -> n > 20"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("tumbling: 1s", "tumbling: 2s", "window"),
        ('total: "sum(price)"', 'total: "sum(price)", top: "max(price)"', "select"),
        ("aggregate: big, window: {tumbling: 1s}, by: [k]", "aggregate: big, window: {tumbling: 1s}", "by"),
    ],
)
def test_a_changed_window_drops_its_state(old: str, new: str, why: str) -> None:
    found = change(edited((old, new)))
    [part] = found.drops_state
    assert (part.name, part.fate, part.loses) == ("sums", Fate.REBUILT, "the state of aggregate") and why in part.why


def test_a_window_that_reads_another_box_keeps_its_state() -> None:
    found = change(
        edited(("aggregate: big", "aggregate: huge"), ("boxes:", 'boxes:\n  huge: {filter: big, where: "n > 9"}'))
    )
    assert fates(found)["sums"] is Fate.CHANGED and found.boxes["sums"] == "sums"
    assert fates(found)["huge"] is Fate.ADDED


def test_a_renamed_box_keeps_its_state_also_behind_a_renamed_box() -> None:
    found = change(edited(("big", "large"), ("sums", "per_key")))
    assert found.boxes == {"large": "big", "per_key": "sums"}
    assert fates(found) == dict.fromkeys(("trades", "large", "per_key", "totals", "raw"), Fate.KEPT)
    assert not found.is_empty


def test_a_renamed_box_with_another_definition_is_another_box() -> None:
    found = change(edited(("sums", "per_key"), ("sum(price)", "max(price)")))
    assert fates(found)["per_key"] is Fate.ADDED and fates(found)["sums"] is Fate.REMOVED
    assert [part.name for part in found.drops_state] == ["sums"]


def test_a_removed_query_drops_the_state_that_only_it_needs() -> None:
    found = change(
        BASE.replace(BASE[BASE.index("  sums") : BASE.index("outputs:")], "").replace("from: sums", "from: big")
    )
    assert fates(found)["sums"] is Fate.REMOVED and fates(found)["totals"] is Fate.REBUILT  # other fields
    assert "readers are disconnected" in next(p.why for p in found.parts if p.name == "totals")


def test_an_output_with_another_graph_or_input_keeps_its_readers() -> None:
    found = change(edited(("deadline: 1s", "deadline: 2s")))
    assert fates(found)["totals"] is Fate.CHANGED and found.outputs["totals"] == "totals"
    found = change(edited(("raw: {from: big}", "raw: {from: trades}")))
    assert fates(found)["raw"] is Fate.CHANGED


def test_an_output_at_another_address_is_rebuilt() -> None:
    found = change(edited(("19411", "19412")))
    assert fates(found)["totals"] is Fate.REBUILT and "totals" not in found.outputs


def test_a_stream_with_more_slack_keeps_its_senders() -> None:
    found = change(edited(("time: ts,", "time: ts, slack: 5s,")))
    assert fates(found)["trades"] is Fate.CHANGED and found.streams == {"trades": "trades"}


def test_a_stream_with_other_fields_is_rebuilt_with_every_box_that_sees_them() -> None:
    found = change(edited(("n: int}", "n: int, venue: string?}")))
    assert fates(found)["trades"] is Fate.REBUILT
    assert {p.name for p in found.of(Fate.REBUILT)} == {"trades", "big", "sums", "raw"}
    assert [part.name for part in found.drops_state] == ["sums"]


def test_settings_change_in_place_or_need_a_restart() -> None:
    found = change(edited(("{workers: 2}", "{workers: 3, data_dir: ./data}")) + "limits: {line: 2MiB}\n")
    assert fates(found)["engine.workers"] is Fate.CHANGED
    assert {p.name for p in found.needs_restart} == {"engine.data_dir", "limits.line"}


def test_files_need_a_restart_and_spilling_does_not() -> None:
    found = change(edited(("raw: {from: big}", "raw: {from: big, sink: {file: out.ndjson}}")))
    assert [p.name for p in found.needs_restart] == ["raw"]
    found = change(edited(("time: ts,", "time: ts, overload: spill,")))
    assert not found.needs_restart and [p.name for p in found.of(Fate.CHANGED)] == ["trades"]


def test_a_python_box_is_rebuilt_when_its_code_has_changed(tmp_path: Path) -> None:
    text = """
streams: {s: {schema: {a: int}}}
boxes: {twice: {python: s, call: "own:twice", schema: {a: int}}}
outputs: {o: {from: twice}}
"""
    file = tmp_path / "net.yaml"
    (tmp_path / "own.py").write_text("def twice(columns):\n    return {'a': columns['a'] * 2}\n")
    before = read_network(text, {}, named=str(file))
    assert compare(before, read_network(text, {}, named=str(file), before=before)).is_empty
    (tmp_path / "own.py").write_text("def twice(columns):\n    return {'a': columns['a'] + columns['a']}\n")
    [part] = compare(before, read_network(text, {}, named=str(file), before=before)).of(Fate.REBUILT)
    assert part.why == "its Python code has changed"
