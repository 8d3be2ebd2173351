"""The network file that ``aurorad schema`` writes, from the driver's answer."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from engine.lab.draft.from_spark import draft_from_spark
from engine.run.network_file import read_network


def column(name: str, type_: str, there: int = 10, times: int = 0) -> dict[str, Any]:
    return {"name": name, "type": type_, "there": there, "times": times}


def draft(*columns: dict[str, Any], spark: str = "parquet", rows: int = 10) -> tuple[str, dict[str, Any]]:
    source = {"spark": spark, "path": "./in", "options": {}}
    text = draft_from_spark(source, {"rows": rows, "all": True, "columns": list(columns)})
    read_network(text, {})
    return text, yaml.safe_load(text)["streams"]["rows"]


def test_types_that_a_stream_has_need_nothing() -> None:
    _, stream = draft(column("ts", "timestamp"), column("n", "smallint"), column("x", "double", there=9))
    assert stream["schema"] == {"ts": "timestamp", "n": "int", "x": "double?"}
    assert stream["time"] == "ts" and "sql" not in stream["source"]


@pytest.mark.parametrize(
    ("theirs", "ours", "expression"),
    [
        ("decimal(20,0)", "double", "cast(`c` as double)"), ("date", "timestamp", "cast(`c` as timestamp)"),
        ("binary", "string", "base64(`c`)"), ("struct<a:int>", "string", "to_json(`c`)"),
        ("array<map<string,int>>", "string", "to_json(`c`)"), ("interval second", "string", "cast(`c` as string)"),
    ],
)  # fmt: skip
def test_other_types_are_cast_and_named(theirs: str, ours: str, expression: str) -> None:
    text, stream = draft(column("c", theirs))
    assert stream["schema"] == {"c": ours} and expression in stream["source"]["sql"] and theirs in text
    text, stream = draft(column("c", theirs), spark="json")
    assert stream["schema"] == {"c": ours} and "sql" not in stream["source"]


def test_names_that_no_field_can_have() -> None:
    names = ["a b", "a.b", "", "1st", "on", "line\nbreak # x", "Ä", "a b "]
    _, stream = draft(*(column(name, "int") for name in names))
    assert len(stream["schema"]) == len(names) and all(isinstance(name, str) for name in stream["schema"])
    for name in names:
        assert f"`{name}`" in stream["source"]["sql"]
    _, stream = draft(column("a.b", "double"), column("s", "string"), spark="csv")
    assert "cast(`a.b` as double)" in stream["source"]["sql"] and "`s` as `s`" in stream["source"]["sql"]


def test_times_are_found() -> None:
    text, stream = draft(column("a", "timestamp", there=9), column("b", "date"), column("c", "timestamp"))
    assert stream["time"] == "b" and '# or "a", "c"' in text
    text, stream = draft(column("t", "string", times=10))
    assert "time" not in stream and "a timestamp as text" in text
    assert draft(column("x", "int", there=0), rows=0)[1]["schema"] == {"x": "int?"}
