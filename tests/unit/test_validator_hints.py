"""All bad expressions of a box at once, hints that help, and names that cannot write to the terminal."""

from __future__ import annotations

import logging

import pytest

from catalog.config.words import near_word
from catalog.errors import NetworkError, Problem
from catalog.printable import printable, printable_answer
from engine.cli.views.problems import format_problem
from engine.cli.views.stats import Stats
from engine.daemon.process.logs import TextFormatter
from engine.lab.draw import draw_list, draw_text, sketch
from engine.operators.expressions import FUNCTIONS
from engine.run.network_file import read_network

STREAMS = """
streams:
  doors: {schema: {ts: timestamp, room: string, open: boolean}, time: ts}
  heat: {schema: {ts: timestamp, room: string, degrees: double}, time: ts}
"""


def problems(text: str) -> list[Problem]:
    with pytest.raises(NetworkError) as refused:
        read_network(STREAMS + text)
    return list(refused.value.problems)


def places(text: str) -> list[tuple[str, str]]:
    return [(p.place, p.message) for p in problems(text)]


def test_every_bad_expression_of_a_map_is_reported_at_once() -> None:
    text = """
boxes:
  m:
    map: heat
    select:
      a: degree + 1
      b: room
      c: uper(room)
      d: degrees > 'x'
outputs: {out: {from: m}}
"""
    found = problems(text)
    assert [p.place for p in found] == ["boxes.m.select.a", "boxes.m.select.c", "boxes.m.select.d"]
    assert [p.line for p in found] == sorted({p.line for p in found})
    assert [p.hint for p in found[:2]] == ["did you mean degrees?", "did you mean upper?"]


@pytest.mark.parametrize(
    ("box", "at"),
    [
        ('{case: heat, when: {a: "degree > 1", b: "rom = 1"}}', ["when.a", "when.b"]),
        ('{aggregate: heat, window: {tumbling: 1s}, select: {a: "sum(x)", b: "avg(y)"}}', ["select.a", "select.b"]),
        ('{join: [doors, heat], "on": "l.rom = r.room", within: 1s, select: {a: nothing}}', ["on", "select.a"]),
    ],
)
def test_other_boxes_report_all_as_well(box: str, at: list[str]) -> None:
    found = places(f"boxes: {{b: {box}}}\noutputs: {{out: {{from: {'b.a' if 'case' in box else 'b'}}}}}\n")
    assert [place for place, _ in found] == [f"boxes.b.{key}" for key in at]


@pytest.mark.parametrize(
    ("on", "hint"),
    [
        ("doors.room = heat.room", "write l.room"),
        ("l.room = heat.room", "write r.room"),
        ("rooms.room = r.room", "write l.room or r.room"),
        ("l.room = r.room and heat.degrees > 1", "write r.degrees"),
        ("l.rom = r.room", "did you mean l.room?"),
    ],
)
def test_a_field_by_the_name_of_its_stream(on: str, hint: str) -> None:
    box = f'boxes: {{b: {{join: [doors, heat], "on": "{on}", within: 1s}}}}\noutputs: {{out: {{from: b}}}}\n'
    assert problems(box)[0].hint == hint


def test_a_field_that_resembles_none_gets_the_list() -> None:
    box = 'boxes: {b: {filter: heat, where: "temperature > 1"}}\noutputs: {out: {from: b}}\n'
    assert problems(box)[0].hint == "the fields are ts, room, degrees"
    box = 'boxes: {b: {filter: heat, where: "heat.degrees > 1"}}\noutputs: {out: {from: b}}\n'
    assert problems(box)[0].hint == "write degrees"


def test_a_type_that_does_not_exist_gets_the_types() -> None:
    with pytest.raises(NetworkError) as refused:
        read_network("streams: {s: {schema: {a: array<string>}}}\noutputs: {out: {from: s}}\n")
    hint = refused.value.problems[0].hint
    assert hint == "known: boolean, int, bigint, float, double, string, timestamp"


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("to_date", list(FUNCTIONS), None),
        ("params", ["streams", "boxes", "outputs", "engine", "http"], None),
        ("sterams", ["streams", "boxes"], "streams"),
        ("cvs", ["csv", "ndjson", "arrow"], "csv"),
        ("dubble", ["double", "float"], "double"),
        ("st", ["ts", "symbol"], "ts"),
        ("PRICE", ["price"], "price"),
        ("trades", ["trades->big", "big->out"], "trades->big"),
        ("x", ["y"], None),
        ("abcdef", ["abczzz"], None),
        ("", ["a"], None),
    ],
)
def test_a_suggestion_changes_at_most_a_third_of_the_word(word: str, known: list[str], near: str | None) -> None:
    assert near_word(word, known) == near


EVIL = "\x1b[31mred\x1b[0m\x07\u202e"


def test_names_of_a_file_cannot_write_to_the_terminal() -> None:
    for text in (
        f'streams: {{s: {{schema: {{a: int}}}}}}\nboxes: {{"{_yaml(EVIL)}": {{filter: s, where: "a > 1"}}}}\n',
        f'streams: {{s: {{schema: {{"{_yaml(EVIL)}": int}}}}}}\noutputs: {{out: {{from: s}}}}\n',
        f'streams: {{s: {{schema: {{a: int}}}}}}\noutputs: {{out: {{from: "{_yaml(EVIL)}"}}}}\n',
        f'streams: {{s: {{schema: {{a: int}}, "{_yaml(EVIL)}": 1}}}}\noutputs: {{out: {{from: s}}}}\n',
    ):
        with pytest.raises(NetworkError) as refused:
            read_network(text)
        for problem in refused.value.problems:
            shown = format_problem(problem, f"{EVIL}.yaml", text.splitlines())
            assert all(line.isprintable() for line in shown.split("\n"))
        assert "\\x1b[31mred" in shown


def test_a_drawing_cannot_write_to_the_terminal() -> None:
    box = f"""boxes: {{b: {{filter: doors, where: "room = '{_yaml(EVIL)}'"}}}}\noutputs: {{out: {{from: b}}}}\n"""
    drawing = sketch(read_network(STREAMS + box))
    for drawn in (draw_text(drawing), draw_list(drawing)):
        assert all(line.isprintable() for line in drawn.split("\n"))
        assert "\\x1b[31mred" in drawn


def test_a_log_line_cannot_write_to_the_terminal() -> None:
    record = logging.LogRecord("aurorad", logging.INFO, "", 1, "reader %s\nis slow", (EVIL,), None)
    line = TextFormatter().format(record)
    assert line.isprintable() and "\\x1b[31mred" in line and "\\nis slow" in line


def test_an_answer_of_a_daemon_cannot_write_to_the_terminal() -> None:
    stats: Stats = {"outputs": [{"name": EVIL, "subscribers": [{"name": EVIL}]}], "n": 1}
    clean = printable_answer(stats)
    assert clean["outputs"][0]["subscribers"][0]["name"] == printable(EVIL) == "\\x1b[31mred\\x1b[0m\\x07\\u202e"
    assert clean["n"] == 1


def _yaml(text: str) -> str:
    return text.encode("unicode_escape").decode()


def test_a_mistake_in_every_box_is_reported() -> None:
    boxes = "\n".join(f'  b{i}: {{map: heat, add: {{a: "x{i}1", b: "x{i}2"}}}}' for i in range(3))
    outputs = ", ".join(f"o{i}: {{from: b{i}}}" for i in range(3))
    assert len(problems(f"boxes:\n{boxes}\noutputs: {{{outputs}}}\n")) == 6
