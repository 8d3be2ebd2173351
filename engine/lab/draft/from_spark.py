"""The text of a network file for a source of Spark: its columns as fields, with what to do about other types.

A stream has seven types. A column of another one needs a cast in the ``sql`` of the source. csv and json are text, and
Spark reads it as the type that the field has: they need none. A name that no field can have needs a new name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from catalog.config.words import check_field_name

_SAME = {
    "boolean": "boolean", "tinyint": "int", "smallint": "int", "int": "int", "bigint": "bigint", "float": "float",
    "double": "double", "string": "string", "timestamp": "timestamp", "timestamp_ntz": "timestamp",
}  # fmt: skip
_OTHER = [  # a type of Spark, the type of the field, the expression, what to know
    ("decimal", "double", "cast({} as double)", "a double has 15 digits; cast(... as string) keeps all"),
    ("date", "timestamp", "cast({} as timestamp)", "midnight in UTC"),
    ("binary", "string", "base64({})", "as base64"),
    ("struct", "string", "to_json({})", "as JSON; {}.part selects a part of it"),
    ("array", "string", "to_json({})", "as JSON; explode in sql makes a row of each element"),
    ("map", "string", "to_json({})", "as JSON; {}['key'] selects a value"),
    ("variant", "string", "to_json({})", "as JSON"),
    ("", "string", "cast({} as string)", "as text"),
]
_TEXT = ("csv", "json")


class DraftField(NamedTuple):
    name: str
    type: str
    nullable: bool
    expression: str  # of Spark, over the source
    is_as_it_is: bool
    note: str


def draft_from_spark(source: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Return a network file. ``source`` is that of the file, ``found`` the answer of the driver."""
    fields = _fields(source["spark"], found)
    of = "" if found["all"] else "the first "
    lines = [
        f"# Made by aurorad schema from {of}{found['rows']:,} rows. ? marks the fields that had a NULL: without it",
        "# a row with a NULL is refused.",
        "streams:",
        "  rows:",
        "    schema:",
        *map(_field_line, fields),
    ]
    times = [f.name for f in fields if f.type == "timestamp"]
    if good := [f.name for f in fields if f.type == "timestamp" and not f.nullable]:
        others = ", ".join(json.dumps(name) for name in times if name != good[0])
        lines.append(f"    time: {_key(good[0])}{f'   # or {others}' if others else ''}")
    else:
        lines.append("    # time: ts   # the event time, which windows need: a timestamp without NULLs. There is none")
    lines += ["    source:", f"      spark: {json.dumps(source['spark'])}"]
    lines += [f"      {key}: {json.dumps(source[key])}" for key in ("path", "options") if source.get(key)]
    if not all(f.is_as_it_is for f in fields):
        is_text = source["spark"] == "csv"  # with sql, Spark reads csv as strings
        parts = ", ".join(_part(f, is_text) for f in fields)
        lines.append(f"      sql: {json.dumps(' '.join(['select', parts, 'from source']))}")
    return "\n".join([*lines, "outputs:", "  all_rows: {from: rows}", ""])


def _field_line(field: DraftField) -> str:
    note = f"   # {field.note}" if field.note else ""
    return f"      {_key(field.name)}: {field.type}{'?' if field.nullable else ''}{note}"


def _fields(kind: str, found: Mapping[str, Any]) -> list[DraftField]:
    taken: set[str] = set()
    out = []
    for column in found["columns"]:
        name = _name(column["name"], taken)
        taken.add(name.lower())
        type_, expression, note = _typed(kind, column)
        notes = [note, f"column {json.dumps(column['name'])}" if name != column["name"] else ""]
        if column["times"] and column["times"] == column["there"]:
            notes.append("a timestamp as text")
        as_it_is = name == column["name"] and expression == _quoted(column["name"])
        nullable = column["there"] < found["rows"] or not found["rows"]
        out.append(DraftField(name, type_, nullable, expression, as_it_is, "; ".join(filter(None, notes))))
    return out


def _typed(kind: str, column: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the type of the field, the expression for it, and what to know about it."""
    quoted, theirs = _quoted(column["name"]), column["type"]
    if theirs in _SAME:
        return _SAME[theirs], quoted, ""
    _, ours, expression, note = next(row for row in _OTHER if theirs.startswith(row[0]))
    note = f"{_short(theirs)}: {note.format(json.dumps(column['name'])) if '{}' in note else note}"
    return ours, quoted if kind in _TEXT else expression.format(quoted), note


def _short(type_: str) -> str:
    return type_ if len(type_) <= 40 else f"{type_[:40]}..."


def _part(field: DraftField, is_text: bool) -> str:
    value = field.expression
    if is_text and field.type != "string":
        value = f"cast({value} as {field.type})"
    return f"{value} as {_quoted(field.name)}"


def _name(name: str, taken: Sequence[str] | set[str]) -> str:
    """Return a name that a field can have, and no other field has."""
    try:
        found = check_field_name(name)
    except ValueError:
        found = re.sub(r"\W+", "_", name).strip("_") or "field"
        found = f"f_{found}" if found[0].isdigit() else found
    number, base = 2, found
    while found.lower() in taken:
        found, number = f"{base}_{number}", number + 1
    return found


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _key(name: str) -> str:
    """Write a name as a key of YAML: quoted if YAML would read another type."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) and name.lower() not in _WORDS else json.dumps(name)


_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
