"""Every codec, case by case: whole, one byte at a time, and with garbage behind it, by one helper.

A new codec needs no line here: ``round_trips`` feeds every decoder with the output of its encoder. Special cases of a
codec go to ``cases()``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pytest

from catalog.schema import Schema
from router.codecs import CODECS
from router.codecs.base import Intake, Reason, Reject
from router.codecs.encode.frames import LONG_TUPLES
from storage.train import Train

TRADES = Schema.of(ts="timestamp", symbol="string", price="double", size="int", venue="string?")
WIDE = Schema.of(b="boolean?", i="int?", l="bigint?", f="float?", d="double?", s="string?", t="timestamp?")
LINE_BYTES = 4096
GARBAGE = b'\xff\x00}{",\r[garbage\n\n'


@dataclass(frozen=True)
class Case:
    name: str
    format: str
    schema: Schema
    data: bytes
    rows: list[tuple[Any, ...]]
    rejects: list[tuple[Reason, int]]  # reason and line
    unit: str = "ns"
    fatal: bool = False

    def __str__(self) -> str:
        return f"{self.format}: {self.name}"


GOOD = b'{"ts":5,"symbol":"A","price":1.5,"size":3}'
ROW = (5, "A", 1.5, 3, None)


def json_case(name: str, line: bytes, reason: Reason | None, row: tuple[Any, ...] = ROW, **more: Any) -> Case:
    """Put one line between two good lines."""
    rows = [ROW, ROW] if reason else [ROW, row, ROW]
    rejects = [(reason, 2)] if reason else []
    return Case(name, "ndjson", TRADES, GOOD + b"\n" + line + b"\n" + GOOD + b"\n", rows, rejects, **more)


def trade(**changes: bytes | None) -> bytes:
    """Write the good line with some values changed; None leaves the field out."""
    fields = {"ts": b"5", "symbol": b'"A"', "price": b"1.5", "size": b"3"} | changes
    return b"{" + b",".join(b'"%b":%b' % (k.encode(), v) for k, v in fields.items() if v is not None) + b"}"


def ndjson_cases() -> Iterator[Case]:
    yield Case("nothing", "ndjson", TRADES, b"", [], [])
    yield Case("no newline at the end", "ndjson", TRADES, GOOD + b"\n" + GOOD, [ROW, ROW], [])
    yield Case(
        "blank lines are nothing", "ndjson", TRADES, b"\n" + GOOD + b"\n  \n\r\n" + GOOD + b"\r\n", [ROW, ROW], []
    )
    yield Case("byte order mark", "ndjson", TRADES, b"\xef\xbb\xbf" + GOOD + b"\n", [ROW], [])
    yield json_case("not JSON", b"hello", Reason.MALFORMED)
    yield json_case("cut off", GOOD[:-5], Reason.MALFORMED)
    yield json_case("two objects", GOOD + GOOD, Reason.MALFORMED)
    yield json_case("trailing comma", GOOD[:-1] + b",}", Reason.MALFORMED)
    yield json_case("an array", b"[1,2]", Reason.MALFORMED)
    yield json_case("null", b"null", Reason.MALFORMED)
    yield json_case("a number", b"17", Reason.MALFORMED)
    yield json_case("nested brackets", b"[" * 2000, Reason.TOO_DEEP)
    yield json_case(
        "deep in an ignored field", GOOD[:-1] + b',"x":' + b"[" * 1500 + b"]" * 1500 + b"}", Reason.TOO_DEEP
    )
    yield json_case("invalid UTF-8", trade(symbol=b'"\xff"'), Reason.INVALID_UTF8)
    yield json_case("a lone surrogate", trade(symbol=rb'"\ud800"'), Reason.MALFORMED)
    yield json_case("a control character", trade(symbol=b'"a\tb"'), Reason.MALFORMED)
    yield json_case("NaN", trade(price=b"NaN"), Reason.MALFORMED)
    yield json_case("minus infinity", trade(price=b"-Infinity"), Reason.MALFORMED)
    yield json_case("1e400", trade(price=b"1e400"), Reason.MALFORMED)
    yield json_case("leading zero", trade(size=b"007"), Reason.MALFORMED)
    yield json_case("hexadecimal", trade(size=b"0x10"), Reason.MALFORMED)
    yield json_case("plus sign", trade(price=b"+1"), Reason.MALFORMED)
    yield json_case("point without digits", trade(price=b"1.e5"), Reason.MALFORMED)
    yield json_case("2^64", trade(size=b"18446744073709551616"), Reason.OUT_OF_RANGE)
    yield json_case("2^31", trade(size=b"2147483648"), Reason.OUT_OF_RANGE)
    yield json_case("2^63 ns", trade(ts=b"9223372036854775808"), Reason.OUT_OF_RANGE)
    yield json_case("a float for an integer", trade(size=b"3.0"), Reason.WRONG_TYPE)
    yield json_case("a string for a number", trade(price=b'"1.5"'), Reason.WRONG_TYPE)
    yield json_case("a boolean for a number", trade(price=b"true"), Reason.WRONG_TYPE)
    yield json_case("a number for a string", trade(symbol=b"5"), Reason.WRONG_TYPE)
    yield json_case("an object for a string", trade(symbol=b'{"a":1}'), Reason.WRONG_TYPE)
    yield json_case("no time", trade(ts=b'"yesterday"'), Reason.WRONG_TYPE)
    yield json_case("30 February", trade(ts=b'"2023-02-30T00:00:00Z"'), Reason.WRONG_TYPE)
    yield json_case("the year 3000", trade(ts=b'"3000-01-01"'), Reason.OUT_OF_RANGE)
    yield json_case("missing", trade(price=None), Reason.MISSING_FIELD)
    yield json_case("null where it may not be", trade(price=b"null"), Reason.NULL)
    yield json_case("too long", trade(symbol=b'"' + b"x" * LINE_BYTES + b'"'), Reason.TOO_LONG)
    yield json_case("null where it may be", trade(venue=b"null"), None)
    yield json_case("extra fields", trade(x=b'[1,{"ts":2}]', y=b"null"), None)
    yield json_case("a key twice", b'{"ts":1,' + GOOD[1:], None)
    yield json_case("escapes", trade(symbol=rb'"\u00e9\n\"\\,\ud83d\ude00"'), None, (5, 'é\n"\\,😀', 1.5, 3, None))
    yield json_case("another order", b'{"size":3,"price":1.5,"symbol":"A","ts":5}', None)
    yield json_case("blanks", b' { "ts" : 5 , "symbol":"A","price":1.5,"size":3 } ', None)
    yield json_case("an integer for a double", trade(price=b"2"), None, (5, "A", 2.0, 3, None))
    yield json_case("ISO time", trade(ts=b'"1970-01-01T00:00:00.000000005Z"'), None)
    yield json_case("ISO time with a zone", trade(ts=b'"1970-01-01T01:00:00.000000005+01:00"'), None)
    zeros = [(0.0, 1), (0.0, 1), (2.0**64, 1)]
    few = b'{"d":-0.0,"n":1}\n{"d":-0,"n":1}\n{"d":18446744073709551616,"n":1}\n{"d":1,"n":1e0}\n'
    wrong = [(Reason.WRONG_TYPE, 4)]
    yield Case("minus zero is zero", "ndjson", Schema.of(d="double", n="bigint"), few, zeros, wrong)
    together = GOOD + b"," + GOOD + b'\n{"x":[{}\n{}],' + GOOD[1:] + b"\n"
    yield Case("only good together", "ndjson", TRADES, together, [], [(Reason.MALFORMED, i) for i in (1, 2, 3)])
    wide = b'{"b":true,"i":-1,"l":-9223372036854775808,"f":0.1,"d":-0.0,"s":"","t":2}\n{}\n'
    values = (True, -1, -(2**63), 0.10000000149011612, 0.0, "", 2_000_000)
    yield Case("every type", "ndjson", WIDE, wide, [values, (None,) * 7], [], "ms")
    too_big = b'{"f":1e39}\n{"t":9223372036855}\n{"t":-9223372036855}\n'
    yield Case("beyond the type", "ndjson", WIDE, too_big, [], [(Reason.OUT_OF_RANGE, i) for i in (1, 2, 3)], "ms")


HEADER = b"ts,symbol,price,size,venue\n"


def csv_case(name: str, line: bytes, reason: Reason | None, row: tuple[Any, ...] = ROW) -> Case:
    rows = [ROW, ROW] if reason else [ROW, row, ROW]
    data = HEADER + b"5,A,1.5,3,\n" + line + b"\n5,A,1.5,3,\n"
    return Case(name, "csv", TRADES, data, rows, [(reason, 3)] if reason else [])


def csv_cases() -> Iterator[Case]:
    yield Case("nothing", "csv", TRADES, b"", [], [])
    yield Case("only a header", "csv", TRADES, HEADER, [], [])
    yield Case("another order, one more", "csv", TRADES, b"x,size,price,symbol,ts\n?,3,1.5,A,5\n", [ROW], [])
    yield Case("windows", "csv", TRADES, (HEADER + b"5,A,1.5,3,\n\n").replace(b"\n", b"\r\n"), [ROW], [])
    no_size = b"ts,symbol,price\n5,A,1.5\n"
    yield Case("no such column", "csv", TRADES, no_size, [], [(Reason.WRONG_SCHEMA, 1)], fatal=True)
    yield Case("no header", "csv", TRADES, b"5,A,1.5,3,\n", [], [(Reason.WRONG_SCHEMA, 1)], fatal=True)
    yield Case("a column twice", "csv", TRADES, b"ts,ts\n", [], [(Reason.MALFORMED, 1)], fatal=True)
    yield csv_case("too few fields", b"5,A,1.5", Reason.MALFORMED)
    yield csv_case("too many fields", b"5,A,1.5,3,,", Reason.MALFORMED)
    yield csv_case("a quote left open", b'5,"A,1.5,3,', Reason.MALFORMED)
    yield csv_case("text behind a quote", b'5,"A"b,1.5,3,', Reason.MALFORMED)
    yield csv_case("no number", b"5,A,x,3,", Reason.WRONG_TYPE)
    yield csv_case("hexadecimal", b"5,A,1.5,0x3,", Reason.WRONG_TYPE)
    yield csv_case("a float for an integer", b"5,A,1.5,3.0,", Reason.WRONG_TYPE)
    yield csv_case("NaN", b"5,A,nan,3,", Reason.WRONG_TYPE)
    yield csv_case("1e400", b"5,A,1e400,3,", Reason.OUT_OF_RANGE)
    yield csv_case("2^64", b"5,A,1.5,18446744073709551616,", Reason.OUT_OF_RANGE)
    yield csv_case("endless digits", b"5,A,1.5," + b"9" * 2000 + b",", Reason.OUT_OF_RANGE)
    yield csv_case("empty where it may not be", b"5,A,,3,", Reason.NULL)
    yield csv_case("invalid UTF-8", b"5,\xff,1.5,3,", Reason.INVALID_UTF8)
    yield csv_case("too long", b"5," + b"x" * LINE_BYTES + b",1.5,3,", Reason.TOO_LONG)
    yield csv_case("quotes", b'5,"say ""x"", y",1.5,3,"N"', None, (5, 'say "x", y', 1.5, 3, "N"))
    yield csv_case("a quote inside", b'5,5" pipe,1.5,3,', None, (5, '5" pipe', 1.5, 3, None))
    yield csv_case("empty strings", b'5,,1.5,3,""', None, (5, "", 1.5, 3, ""))
    yield csv_case("numbers", b" 5 ,A,+1.50e0,003,", None)
    yield csv_case("ISO time", b"1970-01-01T00:00:00.000000005Z,A,1.5,3,", None)
    booleans = b"b\ntrue\nFALSE\n1\n\nyes\n"
    yield Case(
        "booleans", "csv", Schema.of(b="boolean"), booleans, [(True,), (False,), (True,)], [(Reason.WRONG_TYPE, 6)]
    )


ARROW = pa.schema(
    [
        ("venue", pa.string()),
        ("size", pa.int16()),
        ("ts", pa.timestamp("us", "UTC")),
        ("price", pa.float32()),
        ("symbol", pa.dictionary(pa.int8(), pa.string())),
        ("ignored", pa.list_(pa.int8())),
    ]
)


def arrow_batch(symbols: list[str | None], sizes: list[int | None]) -> pa.RecordBatch:
    n = len(sizes)
    columns: list[Any] = [pa.array([None] * n, pa.string()), pa.array(sizes, pa.int16())]
    columns += [pa.array([5] * n, pa.int64()).cast(pa.timestamp("us", "UTC")), pa.array([1.5] * n, pa.float32())]
    columns += [
        pa.array(symbols).dictionary_encode().cast(ARROW.field("symbol").type),
        pa.array([[1]] * n, pa.list_(pa.int8())),
    ]
    return pa.record_batch(columns, schema=ARROW)


def arrow_stream(schema: pa.Schema, batches: list[pa.RecordBatch], **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa_ipc.new_stream(sink, schema, options=pa_ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def arrow_cases() -> Iterator[Case]:
    rows = [(5000, "A", 1.5, 3, None), (5000, "B", 1.5, 4, None)]
    batch = arrow_batch(["A", "B"], [3, 4])
    yield Case("nothing", "arrow", TRADES, b"", [], [])
    yield Case("no batch", "arrow", TRADES, arrow_stream(ARROW, []), [], [])
    for compression in (None, "lz4", "zstd"):
        data = arrow_stream(ARROW, [batch, batch], compression=compression)
        yield Case(f"compression {compression}", "arrow", TRADES, data, rows + rows, [])
    deltas = arrow_stream(ARROW, [batch, arrow_batch(["A", "B", "C"], [3, 4, 5])], emit_dictionary_deltas=True)
    yield Case("dictionary deltas", "arrow", TRADES, deltas, [*rows, *rows, (5000, "C", 1.5, 5, None)], [])
    nulls = arrow_stream(ARROW, [arrow_batch(["A", None, "B"], [None, None, 4]), batch])
    yield Case("NULLs", "arrow", TRADES, nulls, [rows[1], *rows], [(Reason.NULL, 0)] * 2)
    other = pa.schema([("ts", pa.string()), ("price", pa.float64())])
    yield Case("another schema", "arrow", TRADES, arrow_stream(other, []), [], [(Reason.WRONG_SCHEMA, 0)], fatal=True)
    http = b"GET / HTTP/1.1\r\n\r\n"
    yield Case("not Arrow at all", "arrow", TRADES, http, [], [(Reason.MALFORMED, 0)], fatal=True)
    cut = arrow_stream(ARROW, [batch, batch])[:-60]
    yield Case("cut off", "arrow", TRADES, cut, rows, [(Reason.MALFORMED, 0)], fatal=True)
    strings = pa.schema([("s", pa.string())])
    names = Schema.of(s="string")
    good = pa.record_batch([pa.array(["abc", "de"])], schema=strings)
    whole = arrow_stream(strings, [good, good, good])
    second = whole.index(b"abcde", whole.index(b"abcde") + 1)
    corrupt = whole[: second - 4 - 8] + (2**30).to_bytes(4, "little") + whole[second - 8 :]
    texts: list[tuple[Any, ...]] = [("abc",), ("de",)]
    yield Case("a corrupt offset", "arrow", names, corrupt, texts + texts, [(Reason.MALFORMED, 0)])
    invalid = whole[:second] + b"\xff" + whole[second + 1 :]
    yield Case("invalid UTF-8", "arrow", names, invalid, texts + texts, [(Reason.MALFORMED, 0)])


def round_trips() -> Iterator[Case]:
    """For every codec: its encoder writes a few tuples, and its decoder must return them."""
    wide = [(True, -1, 2**62, 0.5, 1e-7, 'é,"x"\t\\', 5 * 10**9), (None,) * 7, (False, 0, 0, 0.25, -1.5e300, "", -1)]
    trades: list[tuple[Any, ...]] = [(5, "A", 1.5, 3, None), (6, "B", -2.5, 4, "N")]
    texts: list[tuple[Any, ...]] = [("a",), ("",), (" ",), ("b",)]  # an empty line or a blank one would vanish
    for format in CODECS:
        for schema, rows in ((WIDE, wide), (TRADES, trades), (TRADES, []), (Schema.of(s="string"), texts)):
            data = encoded(format, schema, rows)
            yield Case(f"{len(rows)} tuples of {len(schema)} fields, there and back", format, schema, data, rows, [])


def encoded(format: str, schema: Schema, rows: list[tuple[Any, ...]]) -> bytes:
    """Write the bytes of a connection, one train for each row, without the end of the stream."""
    encoder = CODECS[format].encoder(schema, "ns")
    columns = {f.name: i for i, f in enumerate(schema)}
    trains = [Train.from_pylists(schema, {name: [row[i]] for name, i in columns.items()}, 1) for row in rows]
    return encoder.begin() + b"".join(map(encoder.encode, trains))


def cases() -> list[Case]:
    return [*round_trips(), *ndjson_cases(), *csv_cases(), *arrow_cases()]


def feed(
    case: Case, pieces: list[bytes], columnar_bytes: int | None = None
) -> tuple[list[tuple[Any, ...]], list[Reject]]:
    """Decode to rows and rejects, and check the laws of every train and of the decoder's counts."""
    intake = Intake(case.schema, case.unit, line_bytes=LINE_BYTES, columnar_bytes=columnar_bytes)
    decoder = CODECS[case.format].decoder(intake)
    trains: list[Train] = []
    rejects: list[Reject] = []
    for piece in pieces:
        received = decoder.receive(piece, 7)
        trains += received.trains
        rejects += received.rejects
        if received.fatal:
            break
    else:
        received = decoder.end(8)
        trains += received.trains
        rejects += received.rejects
    for train in trains:
        train.verify()
        assert train.count and set(train.arrival_ns.tolist()) <= {7, 8}
    rows = [row for train in trains for row in train.to_rows()]
    assert decoder.received == len(rows) + sum(r.tuples for r in rejects)
    return rows, rejects


def check(case: Case, rows: list[tuple[Any, ...]], rejects: list[Reject]) -> None:
    assert rows == case.rows
    assert not any(isinstance(v, float) and v == 0 and math.copysign(1, v) < 0 for row in rows for v in row)
    assert [(r.reason, r.line) for r in rejects] == case.rejects, [r.message for r in rejects]
    assert [r.fatal for r in rejects[-1:]] == ([case.fatal] if rejects else [])
    for reject in rejects:
        assert reject.message
        assert 0 <= reject.offset < len(case.data)
        assert reject.sample[:20] == case.data[reject.offset :][:20].partition(b"\n")[0] or not reject.sample


@pytest.mark.parametrize("case", cases(), ids=str)
class TestEveryCase:
    def test_whole(self, case: Case) -> None:
        check(case, *feed(case, [case.data]))

    def test_by_columns(self, case: Case) -> None:
        check(case, *feed(case, [case.data], columnar_bytes=0))

    def test_byte_by_byte(self, case: Case) -> None:
        check(case, *feed(case, [case.data[i : i + 1] for i in range(len(case.data))]))

    def test_with_garbage_behind(self, case: Case) -> None:
        """Garbage is refused and does not harm the tuples before it."""
        ended = case.data if case.format == "arrow" or case.data.endswith(b"\n") or not case.data else case.data + b"\n"
        rows, rejects = feed(case, [ended + GARBAGE])
        assert rows == case.rows
        assert len(rejects) > len(case.rejects) or case.fatal
        assert [(r.reason, r.line) for r in rejects][: len(case.rejects)] == case.rejects


@pytest.mark.parametrize("format", CODECS)
def test_hundred_thousand_brackets(format: str) -> None:
    """A line that could overflow a stack is one reject (in Arrow it ends the connection)."""
    decoder = CODECS[format].decoder(Intake(TRADES))
    received = decoder.receive(b"[" * 100_000 + b"\n", 1)
    assert len(received.rejects) == 1 and not received.trains


@pytest.mark.parametrize("format", ["ndjson", "csv"])
def test_many_bad_lines_are_counted_and_few_described(format: str) -> None:
    decoder = CODECS[format].decoder(Intake(TRADES))
    received = decoder.receive(HEADER + b"x\n" * 10_000 if format == "csv" else b"x\n" * 10_000, 1)
    assert sum(r.tuples for r in received.rejects) == 10_000 == decoder.received
    assert len(received.rejects) < 100


def test_a_long_line_is_not_kept() -> None:
    """Two MiB without a newline are refused at the limit and skipped; the next line is decoded."""
    decoder = CODECS["ndjson"].decoder(Intake(TRADES))
    rejects: list[Reject] = []
    for _ in range(2048):
        rejects += decoder.receive(b"x" * 1024, 1).rejects
    assert [(r.reason, r.line, r.offset) for r in rejects] == [(Reason.TOO_LONG, 1, 0)]
    received = decoder.receive(b"x\n" + GOOD + b"\nbad\n", 1)
    assert [t.to_rows() for t in received.trains] == [[ROW]]
    assert [(r.line, r.offset) for r in received.rejects] == [(3, 2048 * 1024 + 2 + len(GOOD) + 1)]


def test_an_arrow_message_beyond_the_limit_is_refused_before_its_body_arrives() -> None:
    batch = pa.record_batch([pa.array(["x" * 1000] * 1000)], names=["s"])
    for compression in (None, "zstd"):
        data = arrow_stream(batch.schema, [batch], compression=compression)
        decoder = CODECS["arrow"].decoder(Intake(Schema.of(s="string"), batch_bytes=100_000))
        cut = 2000 if compression is None else len(data)
        received = decoder.receive(data[:cut], 1)
        assert [r.reason for r in received.rejects] == [Reason.TOO_LONG]
        assert received.fatal


@pytest.mark.parametrize("timestamps", ["iso", "ns", "us", "ms", "s"])
@pytest.mark.parametrize("format", CODECS)
def test_what_is_encoded_decodes_to_the_same(format: str, timestamps: str) -> None:
    """There and back, also in a train long enough for the columnar encoder."""
    rows = [
        (True, -1, 2**62, 0.5, 1e-7, 'é,"\n\\', 5 * 10**9),
        (None,) * 7,
        (False, 0, 0, 0.25, -1.5e300, "", -(10**9)),
    ]
    for times in (1, LONG_TUPLES):
        data = {f.name: [row[i] for row in rows * times] for i, f in enumerate(WIDE)}
        train = Train.from_pylists(WIDE, data, 1)
        encoder = CODECS[format].encoder(WIDE, timestamps)
        encoded = encoder.begin() + encoder.encode(train) + encoder.end()
        if format == "csv":  # the encoder writes a newline in a field, the decoder cannot read it
            encoded = encoded.replace(b'"\xc3\xa9,""\n', b'"\xc3\xa9,""|')
        decoder = CODECS[format].decoder(Intake(WIDE, "ns" if timestamps == "iso" else timestamps))
        received = decoder.receive(encoded, 1)
        assert not received.rejects
        got = [row for t in received.trains for row in t.to_rows()]
        assert [tuple(v.replace("|", "\n") if isinstance(v, str) else v for v in row) for row in got] == rows * times


@pytest.mark.parametrize("field", ["string?", "double?", "boolean?", "timestamp?"])
@pytest.mark.parametrize("format", CODECS)
def test_a_null_alone_in_its_row_does_not_vanish(format: str, field: str) -> None:
    schema = Schema.of(x=field)
    some = {"string?": "a", "double?": 1.5, "boolean?": True, "timestamp?": 5}[field]
    for times in (1, LONG_TUPLES):
        values = [some, None, some, None] * times
        encoder = CODECS[format].encoder(schema, "ns")
        data = encoder.begin() + encoder.encode(Train.from_pylists(schema, {"x": values}, 1))
        for columnar_bytes in (0, 2**40):
            decoder = CODECS[format].decoder(Intake(schema, columnar_bytes=columnar_bytes))
            received = decoder.receive(data, 1)
            assert not received.rejects
            assert [row[0] for train in received.trains for row in train.to_rows()] == values


@pytest.mark.parametrize("format", ["ndjson", "csv"])
def test_values_that_are_not_finite_are_written_as_null(format: str) -> None:
    schema = Schema.of(d="double")
    for count in (1, LONG_TUPLES):
        train = Train.from_pylists(schema, {"d": [float("nan"), float("inf"), 1.0] * count}, 1)
        lines = CODECS[format].encoder(schema).encode(train).splitlines()
        want = [b'{"d":null}', b'{"d":null}', b'{"d":1.0}'] if format == "ndjson" else [b'""', b'""', b"1.0"]
        assert lines == want * count


@pytest.mark.parametrize("format", ["ndjson", "csv"])
@pytest.mark.parametrize("count", [1, 4, LONG_TUPLES])
def test_values_that_are_not_finite_are_counted_and_written_as_words(format: str, count: int) -> None:
    schema = Schema.of(d="double", f="float?", s="string?")
    numbers = [float("nan"), float("inf"), float("-inf"), 1.5] * count
    data = {"d": numbers, "f": [None, *numbers[1:]], "s": [None, "a", "b", "c"] * count}
    train = Train.from_pylists(schema, data, 1)
    for nan in ("null", "string"):
        encoder = CODECS[format].encoder(schema, nan=nan)
        text = encoder.encode(train)
        assert encoder.not_finite == 6 * count - 1
        lines = text.decode().splitlines()
        if format == "ndjson":
            words = [None] * 3 if nan == "null" else ["NaN", "Infinity", "-Infinity"]
            rows = [json.loads(line) for line in lines]
            assert [row["d"] for row in rows] == [*words, 1.5] * count
            assert [row["f"] for row in rows] == [None, *([*words, 1.5] * count)[1:]]
        else:
            words = [""] * 3 if nan == "null" else ["NaN", "Infinity", "-Infinity"]
            rows = [line.split(",") for line in lines]
            assert [row[0] for row in rows] == [*words, "1.5"] * count
            assert [row[1] for row in rows] == ["", *([*words, "1.5"] * count)[1:]]
    plain = CODECS[format].encoder(schema)
    plain.encode(Train.from_pylists(schema, {"d": [1.0] * 4, "f": [None] * 4, "s": [None] * 4}, 1))
    assert plain.not_finite == 0


@pytest.mark.parametrize("count", [1, LONG_TUPLES])
def test_no_reader_skips_a_lone_nan(count: int) -> None:
    schema = Schema.of(d="double")
    encoder = CODECS["csv"].encoder(schema)
    data = encoder.begin() + encoder.encode(Train.from_pylists(schema, {"d": [float("nan"), 2.0] * count}, 1))
    received = CODECS["csv"].decoder(Intake(schema)).receive(data, 1)
    assert sum(train.count for train in received.trains) == count
    assert sum(reject.tuples for reject in received.rejects) == count


def test_a_gap_tells_the_number_of_missing_tuples() -> None:
    assert CODECS["ndjson"].encoder(TRADES).gap(7) == b'{"_gap":7}\n'
    assert CODECS["csv"].encoder(TRADES).gap(7) == b"# gap 7\n"
    encoder = CODECS["arrow"].encoder(TRADES)
    reader = pa_ipc.open_stream(encoder.begin() + encoder.gap(7) + encoder.end())
    found = reader.read_next_batch_with_custom_metadata()
    assert found.batch.num_rows == 0 and found.custom_metadata == {b"aurorad.gap": b"7"}
