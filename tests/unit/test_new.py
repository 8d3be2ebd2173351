"""``aurorad new``: what it infers from rows, and that the file it writes validates and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from engine.cli import make_app
from engine.lab.draft.sample import SampleError, take_sample
from engine.lab.draft.write import DraftPorts, stream_name, write_draft
from engine.run.network_file import read_network

NOW_NS = 1_767_225_600 * 10**9  # 2026-01-01


def as_lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def types(data: bytes, format: str | None = None) -> dict[str, str]:
    return {f.name: f"{f.type}{'?' if f.nullable else ''}" for f in take_sample(data, format).fields}


def test_types_of_json() -> None:
    rows = as_lines(
        {"i": 1, "big": 2**40, "f": 1, "s": "x", "b": True, "t": "2026-01-01T12:00:00Z", "m": 1, "n": None, "l": [1]},
        {"i": 2, "big": 1, "f": 1.5, "s": "", "b": False, "t": "2026-01-01 12:00", "n": None, "huge": 2**70},
    )
    assert types(rows) == {
        "i": "bigint", "big": "bigint", "f": "double", "s": "string", "b": "boolean", "t": "timestamp", "m": "bigint?",
        "n": "string?", "huge": "double?",
    }  # fmt: skip
    assert set(take_sample(rows, None).left_out) == {"l"}


def test_types_of_csv() -> None:
    rows = b'a,b,c,d,e,f\n1,1.5,true,"x,y",2026-01-01,\n-2,3,FALSE,,2026-01-02T00:00:00Z,4\n'
    assert types(rows) == {
        "a": "bigint",
        "b": "double",
        "c": "boolean",
        "d": "string?",
        "e": "timestamp",
        "f": "bigint?",
    }


@pytest.mark.parametrize(("value", "unit"), [(1767225600, "s"), (1767225600123, "ms"), (1767225600123456, "us"),
                                             (1767225600123456789, "ns")])  # fmt: skip
def test_numbers_that_are_times(value: int, unit: str) -> None:
    sample = take_sample(as_lines({"created_at": value, "price": value}), None)
    assert sample.unit == unit
    assert sample.time is not None and sample.time.name == "created_at"
    assert types(as_lines({"created_at": value, "price": value}))["price"] == "bigint", "no name of a time"


def test_the_best_name_is_the_time() -> None:
    row = {"received": "2026-01-01T12:00:00Z", "ts": "2026-01-01T12:00:00Z"}
    sample = take_sample(as_lines(row), None)
    assert sample.time is not None and sample.time.name == "ts"
    sample = take_sample(as_lines(row, {"received": "2026-01-01T12:00:00Z", "ts": None}), None)
    assert sample.time is not None and sample.time.name == "received", "a time must not be NULL"


def test_disorder_and_the_future_are_noticed() -> None:
    rows = as_lines({"ts": "2030-01-01T00:00:10Z"}, {"ts": "2030-01-01T00:00:07.5Z"})
    stream = read_network(write_draft(take_sample(rows, None), "x.ndjson", NOW_NS).text).stream("x")
    assert stream.slack_ns == 3 * 10**9
    assert stream.options.max_skew_ns > 4 * 365 * 86_400 * 10**9


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"\n \n", "empty"),
        (b"\x00\x01\x02\xff" * 50, "not text"),
        (b'[{"a": 1}]', "JSON array"),
        (b'{"a": 1}\n{"a": \n{"a": 2}\n', "line 2: not JSON"),
        (b'{"a": 1}\n5\n{"a":1}\n', "line 2: not a JSON object"),
        (b"a,b\n", "only one line"),
        (b"a,a\n1,2\n", "twice"),
        (b"a,b\n1\n1,2\n", "line 2: 1 fields"),
        (b'{"l": [1]}\n', "no field can be used: l: a list"),
        (b'{"m": 1}\n{"m": "x"}\n{"m": true}\n', "m: its values have different types: number, text, true or false"),
        (b'{"a": 1,\n "b": 2}\n', "line 1: not JSON.*jq -c . FILE"),
        (b"a;b\n1;2\n", "divided by ';'"),
    ],
)
def test_rows_that_cannot_be_used(data: bytes, said: str) -> None:
    with pytest.raises(SampleError, match=said):
        take_sample(data, None)


NAMES = st.one_of(
    st.sampled_from(["ts", "id", "on", "rows", "window_start", "a b", "A", "a", "1x", "größe"]), st.text(max_size=8)
)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=5),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02"]), st.lists(st.integers(), max_size=1),
)  # fmt: skip

FILE_NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), max_size=8)


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=6), min_size=1, max_size=5), FILE_NAMES)
def test_every_draft_is_a_valid_network(rows: list[dict[str, Any]], file: str) -> None:
    try:
        data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        sample = take_sample(data, "ndjson")
    except SampleError:
        return
    network = read_network(write_draft(sample, f"{file}.ndjson", NOW_NS).text)
    assert [s.name for s in network.streams] == [stream_name(f"{file}.ndjson")]


def test_the_summary_counts_rows_and_names_fields_that_are_not_read() -> None:
    summary = write_draft(take_sample(b'{"a": 1, "o": {"x": 1}}\n', None), "r.ndjson", 0).summary
    assert summary == "1 row of ndjson: a bigint; no event time; not read: o"


def test_a_draft_for_a_daemon_that_runs_on_has_ports_and_leaves_the_rest_to_it() -> None:
    ports = DraftPorts("127.0.0.1:9500", "127.0.0.1:9510")
    for rows in (as_lines({"ts": "2026-01-01T12:00:00Z", "room": "a", "c": 1.5}), b"room,c\na,1.5\n"):
        sample = take_sample(rows, None)
        draft = write_draft(sample, None, NOW_NS, "weather", ports)
        network = read_network(draft.text)
        stream, output = network.stream("weather"), network.output("weather_summary")
        assert (stream.source.tcp.port, output.sink.tcp.port) == (9500, 9510)
        assert (stream.source.format, stream.overload) == (sample.format, "block")
        assert "http:" not in draft.text and "log:" not in draft.text


def test_it_writes_and_does_not_replace(tmp_path: Path) -> None:
    rows, file = tmp_path / "trades.ndjson", tmp_path / "net.yaml"
    rows.write_bytes(as_lines({"ts": "2026-01-01T12:00:00Z", "symbol": "A", "price": 1.5}))
    words = ["new", str(rows), "-o", str(file)]
    assert CliRunner().invoke(make_app(words), words).exit_code == 0
    assert read_network(file).stream("trades").time_field == "ts"
    assert CliRunner().invoke(make_app(words), words).exit_code == 2
    assert CliRunner().invoke(make_app(words), [*words, "--force"]).exit_code == 0
    piped = CliRunner().invoke(make_app(["new"]), ["new"], input=rows.read_text())
    assert read_network(piped.stdout).stream("rows").source.stdin == "ndjson"
