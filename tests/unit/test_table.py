"""Rows as a table on standard output: columns stay aligned, whatever the values."""

from __future__ import annotations

from catalog.schema import Schema
from router.files.table import TableEncoder
from storage.train import Train


def table(names: list[str]) -> list[str]:
    schema = Schema.of(name="string", v="int")
    train = Train.from_pylists(schema, {"name": names, "v": list(range(len(names)))}, 0)
    return TableEncoder(schema).encode(train).decode().splitlines()


def test_wide_and_combining_characters_take_their_cells() -> None:
    head, _rule, plain, wide, combined = table(["a", "日本", "e\N{COMBINING ACUTE ACCENT}"])
    assert head == "name           v"
    assert plain == "a              0"
    assert wide == "日本" + " " * 11 + "1", "four cells"
    assert combined == "e\N{COMBINING ACUTE ACCENT}" + " " * 14 + "2", "one cell"


def test_control_characters_are_not_written() -> None:
    assert "\x1b" not in "".join(table(["\x1b[31mred"]))
