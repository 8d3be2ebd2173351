"""The decoders of a format must agree: the same lines give the same tuples and rejects, by columns or line by line.

The oracle is the decoder itself, fed one line at a time (then it never decodes by columns), and for good values plain
Python.
"""

from __future__ import annotations

import json
import math
import shlex
from datetime import datetime, timedelta
from random import Random
from typing import Any

import polars as pl
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from catalog.schema import Schema, Type
from router.codecs import CODECS
from router.codecs.base import Intake, Reject
from router.codecs.decode.values import arrow_timestamps, parse_iso_ns, timestamp_ns
from router.codecs.encode.frames import LONG_TUPLES, FrameWriter
from storage.train import Train

SCHEMA = Schema.of(b="boolean?", i="int", l="bigint?", f="float?", d="double", s="string", t="timestamp", n="string?")

NO_FLOAT = Schema(tuple(f for f in SCHEMA if f.type is not Type.FLOAT))  # the types that ``few_rows`` reads

SEEDS = st.integers(0, 2**32)
STRINGS = ["A", "B", "MSFT", "BRK.B", "x.e", "", "null", "0x1", "é😀", 'say "x"', "a\\b", "\t", "a,b", "true", "5", " "]
TIMES = ["2024-02-29", "2024-02-30", "2024-01-01T10Z", "2024-01-01 10:00+0130", "1600-01-01", "2024-01-01T24:00"]
ODD = shlex.split(
    "-0 -0.0 1e400 1e39 1e-400 007 +1 .5 1. 1.e5 0x10 1E+2 2147483648 9223372036854775808 18446744073709551616 5.0 1_0 "
    "NaN nan inf -Infinity true null [1] {} '5\t5' --1 - 1e 0e0 -0.5 "
    """'"5"' '""' '"2024-01-01"' '"\\ud800"' '"\\u0041"' '"\\x"'"""
)
BYTES = b',":{}[]\\x0.e-+nN \t\r\xff\x00\n'


def good_value(random: Random, kind: Type, times: str) -> Any:
    """Make a value that fits its type."""
    if kind is Type.BOOLEAN:
        return random.random() < 0.5
    if kind is Type.INT:
        return random.choice([random.randint(-100, 100), random.randint(-(2**31), 2**31 - 1)])
    if kind is Type.BIGINT:
        return random.choice([random.randint(-100, 100), random.randint(-(2**63), 2**63 - 1)])
    if kind is Type.FLOAT or kind is Type.DOUBLE:
        spread = 10.0 ** random.randint(-30, 30)
        return random.choice(
            [round(random.uniform(-100, 100), 2), random.uniform(-spread, spread), float(random.randint(0, 9))]
        )
    if kind is Type.STRING:
        return random.choice(STRINGS[:3] if random.random() < 0.7 else STRINGS)
    if times == "integer" or (times == "any" and random.random() < 0.5):
        return random.randint(-(10**9), 10**9)
    return (datetime(2024, 1, 1) + timedelta(microseconds=random.randint(0, 10**15))).isoformat() + (
        "Z" if times == "zoned" else ""
    )


def json_lines(seed: int, schema: Schema) -> list[bytes]:
    """Make lines of one sender: the same keys in the same order and spacing, and in most blocks an unusual value."""
    random = Random(seed)
    fields = [f for f in schema if not f.nullable or random.random() < 0.7]
    random.shuffle(fields)
    colon, comma = random.choice([(":", ","), (":", ","), (": ", ", "), (" :\t", " ,")])
    end = random.choice(["}", "}", " }", "}\r"])
    times = random.choice(["integer", "plain", "zoned", "any"])
    plain = random.random() < 0.7
    rows = []
    for _ in range(random.randint(1, 8)):
        row = {}
        for f in fields:
            value = good_value(random, f.type, times)
            if plain and isinstance(value, str):
                value = value.replace(",", ";")
            row[f.name] = (
                "null" if f.nullable and random.random() < 0.2 else json.dumps(value, ensure_ascii=seed % 2 == 0)
            )
        rows.append(row)
    odd = random.choice(rows)
    if random.random() < 0.4:
        odd[random.choice(fields).name] = random.choice([*ODD, *map(json.dumps, TIMES)])
    elif random.random() < 0.1:
        del odd[random.choice(fields).name]
    elif random.random() < 0.1:
        odd["extra"] = random.choice(ODD)
    lines = ["{" + comma.join(f'"{k}"{colon}{v}' for k, v in row.items()) + end for row in rows]
    return damaged(random, [line.encode("utf-8", "surrogatepass") for line in lines])


def damaged(random: Random, lines: list[bytes]) -> list[bytes]:
    """Insert, remove or change one byte in a third of all blocks."""
    if random.random() < 0.35:
        which = random.randrange(len(lines))
        line = lines[which]
        at = random.randrange(len(line) + 1)
        byte = bytes([random.choice(BYTES)])
        lines[which] = line[:at] + random.choice([byte, b""]) + line[at + random.randint(0, 1) :]
    return b"\n".join(lines).split(b"\n")


def decode(
    format: str, pieces: list[bytes], columnar_bytes: int, unit: str, schema: Schema = SCHEMA
) -> tuple[list[Any], list[Any]]:
    decoder = CODECS[format].decoder(Intake(schema, unit, columnar_bytes=columnar_bytes))
    trains: list[Train] = []
    rejects: list[Reject] = []
    for piece in pieces:
        received = decoder.receive(piece, 7)
        trains += received.trains
        rejects += received.rejects
        if received.fatal:
            break
    for train in trains:
        train.verify()
    rows = [row for train in trains for row in train.to_rows()]
    assert decoder.received == len(rows) + sum(r.tuples for r in rejects)
    assert not any(isinstance(v, float) and v == 0 and math.copysign(1, v) < 0 for row in rows for v in row)
    return rows, [(r.reason, r.line, r.offset, r.message) for r in rejects]


@given(SEEDS, st.sampled_from(["ns", "ns", "ms", "s"]), st.sampled_from([SCHEMA, NO_FLOAT]))
@settings(max_examples=600)
def test_ndjson_decoders_agree(seed: int, unit: str, schema: Schema) -> None:
    lines = json_lines(seed, schema)
    whole = b"\n".join(lines) + b"\n"
    one_by_one = decode("ndjson", [line + b"\n" for line in lines], 2**40, unit, schema)
    assert decode("ndjson", [whole], 2**40, unit, schema) == one_by_one, whole
    assert decode("ndjson", [whole], 0, unit, schema) == one_by_one, whole


def csv_lines(seed: int, schema: Schema) -> list[bytes]:
    random = Random(seed)
    fields = [f for f in schema if not f.nullable or random.random() < 0.7]
    random.shuffle(fields)
    quotes = random.choice(["needed", "needed", "strings", "any"])
    end = random.choice(["", "", "\r"])
    times = random.choice(["integer", "plain", "zoned", "any"])
    lines = [",".join([f.name for f in fields]) + end]
    for _ in range(random.randint(1, 8)):
        cells = []
        for f in fields:
            value = str(good_value(random, f.type, times))
            if random.random() < 0.02:
                value = random.choice([*ODD, *TIMES])
            if f.nullable and random.random() < 0.2:
                value = ""
            elif (
                (quotes == "strings" and f.type is Type.STRING)
                or (quotes == "any" and random.random() < 0.3)
                or (any(c in value for c in ',"') and random.random() < 0.9)
            ):
                value = '"' + value.replace('"', '""') + '"'
            cells.append(value)
        lines.append(",".join(cells) + end)
    header, *rest = [line.encode("utf-8", "surrogatepass") for line in lines]
    return [header, *damaged(random, rest)]


@given(SEEDS, st.sampled_from(["ns", "ms", "s"]), st.sampled_from([SCHEMA, NO_FLOAT]))
@settings(max_examples=600)
def test_csv_decoders_agree(seed: int, unit: str, schema: Schema) -> None:
    header, *lines = csv_lines(seed, schema)
    whole = b"\n".join(lines) + b"\n"
    one_by_one = decode("csv", [header + b"\n", *[line + b"\n" for line in lines]], 2**40, unit, schema)
    assert decode("csv", [header + b"\n" + whole], 2**40, unit, schema) == one_by_one, whole
    assert decode("csv", [header + b"\n", whole], 0, unit, schema) == one_by_one, whole


def test_the_columnar_decoders_are_really_used() -> None:
    """Otherwise the two tests above would compare the line by line decoder with itself."""
    from router.codecs.decode.csv_columns import ArrowCsv
    from router.codecs.decode.ndjson_columns import Layout

    intake = Intake(SCHEMA, columnar_bytes=0)
    line = b'{"i":1,"d":-1.5e3,"s":"BRK.B","t":"2024-01-01T00:00:00Z","b":null,"n":"\\u00e9","f":0.5,"l":-0}'
    layout = Layout.learn(intake, line)
    assert layout is not None
    train = layout.decode((line + b"\n") * 3, 1)
    assert train is not None and train.to_rows()[2] == (None, 1, 0, 0.5, -1500.0, "BRK.B", 1704067200 * 10**9, "é")
    fast = ArrowCsv(intake, ["i", "d", "s", "t", "n"], skips_empty_lines=True)
    cut = fast.decode(b'1,-1.5e3,"a,b",2024-01-01T00:00:00Z,\n' * 3, 1)
    assert cut is not None and cut.to_rows()[0] == (None, 1, None, None, -1500.0, "a,b", 1704067200 * 10**9, None)


@given(st.binary(max_size=300), st.sampled_from(sorted(CODECS)), st.integers(1, 50))
def test_any_bytes_are_refused_without_a_fault(data: bytes, format: str, step: int) -> None:
    for columnar_bytes in (0, 2**40):
        pieces = [data[i : i + step] for i in range(0, len(data), step)]
        decode(format, pieces, columnar_bytes, "ns")


@given(st.data())
@settings(max_examples=100)
def test_damaged_arrow_is_refused_without_a_fault(data: st.DataObject) -> None:
    """Bytes changed anywhere in a good stream give an error or other values, never a crash, and the counts agree."""
    train = Train.from_pylists(SCHEMA, {f.name: [None if f.nullable else SAMPLES[f.type]] * 3 for f in SCHEMA}, 1)
    encoder = CODECS["arrow"].encoder(SCHEMA)
    stream = bytearray(encoder.begin() + encoder.encode(train) + encoder.encode(train) + encoder.end())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(stream) - 1))
        change = data.draw(st.binary(min_size=1, max_size=8))
        stream[at : at + len(change)] = change
    decode("arrow", [bytes(stream)], 0, "ns")


SAMPLES: dict[Type, Any] = {Type.INT: 1, Type.DOUBLE: 1.5, Type.STRING: "abc", Type.TIMESTAMP: 5}


iso = st.datetimes().map(datetime.isoformat) | st.sampled_from([*TIMES, "2024-01-01T10:00:00.123456789Z"])


@given(st.lists(iso, min_size=1, max_size=5))
def test_arrow_reads_times_as_we_do(values: list[str]) -> None:
    import pyarrow as pa

    parsed = arrow_timestamps(pa.array(values, pa.string()))
    if parsed is not None:
        assert parsed.tolist() == [timestamp_ns(v, 1) for v in values]


@given(st.datetimes())
def test_iso_times_are_pythons(moment: datetime) -> None:
    delta = moment - datetime(1970, 1, 1)
    assert parse_iso_ns(moment.isoformat()) == (delta.days * 86400 + delta.seconds) * 10**9 + delta.microseconds * 1000


@st.composite
def trains(draw: st.DrawFn) -> Train:
    count = draw(st.integers(1, 5))
    good: dict[Type, st.SearchStrategy[Any]] = {
        Type.BOOLEAN: st.booleans(),
        Type.INT: st.integers(-(2**31), 2**31 - 1),
        Type.BIGINT: st.integers(-(2**63), 2**63 - 1),
        Type.FLOAT: st.floats(width=32),
        Type.DOUBLE: st.floats(),
        Type.STRING: st.text(max_size=6) | st.sampled_from(STRINGS),
        Type.TIMESTAMP: st.integers(-(2**62), 2**62),
    }
    data = {
        f.name: draw(
            st.lists(good[f.type] | (st.none() if f.nullable else st.nothing()), min_size=count, max_size=count)
        )
        for f in SCHEMA
    }
    return Train.from_pylists(SCHEMA, data, 1)


@given(trains(), st.booleans(), st.sampled_from(["iso", "ns", "us", "ms", "s"]))
def test_ndjson_out_is_read_by_polars_and_python(train: Train, many: bool, timestamps: str) -> None:
    """polars and Python read the encoder's output, of short and of long trains, as the same values."""
    text = FrameWriter(timestamps).ndjson(train) if many else CODECS["ndjson"].encoder(SCHEMA, timestamps).encode(train)
    rows = [json.loads(line) for line in text.splitlines()]
    want = expected(train, timestamps)
    assert [list(row) for row in rows] == [list(SCHEMA.names)] * train.count
    assert [tuple(row.values()) for row in rows] == want
    kinds = {f.name: POLARS[f.type] if f.type is not Type.TIMESTAMP else None for f in SCHEMA}
    kinds["t"] = pl.String if timestamps == "iso" else pl.Int64
    assert pl.read_ndjson(text, schema=kinds).height == train.count


POLARS: dict[Type, Any] = {
    Type.BOOLEAN: pl.Boolean,
    Type.INT: pl.Int32,
    Type.BIGINT: pl.Int64,
    Type.FLOAT: pl.Float64,
    Type.DOUBLE: pl.Float64,
    Type.STRING: pl.String,
}


def expected(train: Train, timestamps: str) -> list[tuple[Any, ...]]:
    def value(f: Any, v: Any) -> Any:
        if v is None or (isinstance(v, float) and not math.isfinite(v)):
            return None
        if f.type is Type.FLOAT:
            return float(str(pl.Series([v], dtype=pl.Float32).cast(pl.String)[0]))  # the shortest text of 32 bits
        if f.type is Type.TIMESTAMP and timestamps == "iso":
            return iso_of(v)
        if f.type is Type.TIMESTAMP:
            return v // {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}[timestamps]
        return v

    return [tuple(value(f, v) for f, v in zip(train.schema, row)) for row in train.to_rows()]


def iso_of(ns: int) -> str:
    seconds, rest = divmod(ns, 10**9)
    return f"{(datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()}.{rest:09d}Z"


@given(trains(), st.booleans(), st.sampled_from(sorted(CODECS)))
def test_there_and_back(train: Train, many: bool, format: str) -> None:
    """Finite values come back as they were, through every codec."""
    assume(all(v is None or not isinstance(v, float) or math.isfinite(v) for row in train.to_rows() for v in row))
    assume(
        format != "csv" or not any(c in v for row in train.to_rows() for v in row if isinstance(v, str) for c in "\r\n")
    )
    if many:
        train = Train.concat([train] * LONG_TUPLES)
    encoder = CODECS[format].encoder(SCHEMA)
    decoder = CODECS[format].decoder(Intake(SCHEMA))
    received = decoder.receive(encoder.begin() + encoder.encode(train) + encoder.end(), 1)
    assert not received.rejects
    assert [row for t in received.trains for row in t.to_rows()] == train.to_rows()
