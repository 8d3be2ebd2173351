"""Lines written by compiled loops: the same bytes as the other writers, and the decimals that Python reads back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.schema import Schema
from router.codecs import CODECS, csv, ndjson
from router.codecs.encode import line_writer
from router.codecs.encode.line_writer import LineWriter
from router.compiled.writing import DECIMAL_CELLS, LINES
from storage.compiled.compiler import is_available
from storage.strings import StringPool
from storage.train import Train, constant_ns

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="numba is not installed: make check installs it"),
    pytest.mark.timeout(600),  # compiling takes seconds of CPU, the first time
    pytest.mark.xdist_group("kernels"),
    pytest.mark.usefixtures("compiled_kernels"),
]

SCHEMA = Schema.of(
    b="boolean?", i="int?", l="bigint?", f="float?", d="double?", s="string?", t="timestamp?", u="string",
    v="timestamp",
)  # fmt: skip
TEXT = st.text(st.sampled_from('aZ,"\\\n\r\t\u0001\u00e9\U0001f600 '), max_size=20)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "b": st.none() | st.booleans(),
    "i": st.none() | st.sampled_from([0, 7, 10, -1, 99_999_999, 100_000_000, -(2**31), 2**31 - 1]),
    "l": st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, -99_999_999]),
    "f": st.none() | st.floats(width=32),
    "d": st.none() | st.floats() | st.decimals(-1000, 1000, places=2).map(float),
    "s": st.none() | TEXT,
    "t": st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
    "u": TEXT,
    "v": st.integers(0, 2**61) | st.sampled_from([0, 951_782_400_000_000_000, -1]),
}


@pytest.fixture(autouse=True)
def short_trains_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "FEWEST_TUPLES", 1)


def with_other_writers(format: str, train: Train, timestamps: str, nan: str) -> tuple[bytes, int]:
    """Write with the pieces of text."""
    LINES.choose(compiled=False)
    encoder = CODECS[format].encoder(train.schema, timestamps, nan)
    data = encoder.encode(train)
    LINES.choose(compiled=True)
    return data, encoder.not_finite


@pytest.mark.parametrize("nan", ["null", "string"])
@pytest.mark.parametrize("timestamps", ["iso", "us"])
@pytest.mark.parametrize("format", ["csv", "ndjson"])
@given(rows=st.lists(st.fixed_dictionaries(VALUES), min_size=9, max_size=40))
@settings(max_examples=25, deadline=None)
def test_the_bytes_are_those_of_the_other_writers(
    rows: list[dict[str, Any]], format: str, timestamps: str, nan: str
) -> None:
    train = Train.from_pylists(SCHEMA, {n: [r[n] for r in rows] for n in SCHEMA.names}, 0)
    encoder = CODECS[format].encoder(SCHEMA, timestamps, nan)
    assert (encoder.encode(train), encoder.not_finite) == with_other_writers(format, train, timestamps, nan)


@pytest.mark.parametrize("format", ["csv", "ndjson"])
def test_the_loops_are_really_used(format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson if format == "ndjson" else csv, "pieces", lambda *args: pytest.fail("not compiled"))
    train = Train.from_pylists(Schema.of(a="int", s="string?"), {"a": [1] * 200, "s": ["x", None] * 100}, 0)
    lines = {"csv": b"1,x\n1,\n", "ndjson": b'{"a":1,"s":"x"}\n{"a":1,"s":null}\n'}
    assert CODECS[format].encoder(train.schema).encode(train) == lines[format] * 100


def decimals(values: npt.NDArray[Any]) -> list[bytes]:
    kind = "double" if values.dtype == np.float64 else "float"
    schema = Schema.of(a=kind, b="boolean")
    train = Train(schema, (values, np.ones(len(values), np.bool_)), constant_ns(0, len(values)))
    data = LineWriter(schema, "iso", [b"", b","], b"\n", b"", b"", lambda texts: np.empty(0, object)).write(train)
    assert data is not None
    return [line[:-5] for line in data.splitlines()]


@pytest.mark.parametrize("seed", range(2))
def test_decimals_are_the_shortest_that_read_back(seed: int) -> None:
    """Against Python's own shortest digits, and the layout of orjson."""
    random = np.random.default_rng(seed)
    drawn = [
        random.integers(0, 2**64, 20_000, np.uint64).view(np.float64),
        np.round(random.random(20_000) * 1000, 2),
        random.integers(0, 10**7, 20_000) * 0.908,
        random.integers(-(10**17), 10**17, 20_000).astype(np.float64),
        2.0 ** np.arange(-1074, 1024),
        np.array([float(f"1e{n}") for n in range(-323, 309)] + [float(f"9.5e{n}") for n in range(-320, 308)]),
        np.array([0.0, -0.0, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 9007199254740993.0]),
    ]
    values = np.concatenate(drawn)
    values = values[np.isfinite(values)]
    texts = decimals(values)
    assert texts == orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    for text, value in zip(texts, values.tolist(), strict=True):
        assert float(text) == value
        assert digits(text.decode()) == digits(repr(value)), value


@pytest.mark.parametrize("seed", range(2))
def test_short_decimals_are_the_shortest_that_read_back(seed: int) -> None:
    random = np.random.default_rng(seed)
    bits = random.integers(0, 2**32, 40_000, np.uint32).view(np.float32)
    values = np.concatenate([bits, (2.0 ** np.arange(-149, 128)).astype(np.float32), np.float32([0, 1e-45, 1e13])])
    values = values[np.isfinite(values)]
    texts = decimals(values)
    assert texts == orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")
    assert np.array_equal(np.array([float(t) for t in texts], np.float32), values)
    assert [digits(t.decode()) for t in texts[:2000]] == [digits(str(v)) for v in values[:2000]]


def digits(text: str) -> str:
    """The digits of a number, without its sign, zeros around them and exponent."""
    return text.lower().split("e")[0].replace(".", "").replace("-", "").strip("0")


def test_pools_that_grow_and_pools_that_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are escaped once, those of pools that are gone leave the buffer, and no cell points to old text."""
    monkeypatch.setattr(line_writer, "DEAD_BYTES", 2_000)
    schema = Schema.of(s="string", t="string")
    encoder = CODECS["csv"].encoder(schema)
    writer: LineWriter = encoder._lines  # type: ignore[attr-defined]
    stays = StringPool(["stays"])
    largest = 0
    for n in range(300):
        other = StringPool([f"{n}-{i}" * 3 for i in range(20)])
        stays.code(f"new {n}")
        codes = np.arange(60, dtype=np.int32)
        train = Train(schema, (codes % len(stays), codes % 20), constant_ns(0, 60), pools=(stays, other))
        expected = [f"{stays.values[i % len(stays)]},{other.values[i % 20]}" for i in range(60)]
        assert encoder.encode(train).decode().splitlines() == expected
        largest = max(largest, writer._kept)
    assert largest < 40_000  # all of them would be 80,000


def test_a_string_too_long_for_a_cell_goes_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer.writing, "SIZE_MASK", 15)
    schema = Schema.of(a="int", s="string")
    train = Train.from_pylists(schema, {"a": [1, 2] * 10, "s": ["x" * 16, "y"] * 10}, 0)
    assert CODECS["csv"].encoder(schema).encode(train) == (b"1," + b"x" * 16 + b"\n2,y\n") * 10


def test_a_loop_that_is_refused_is_replaced_by_another_writer() -> None:
    schema = Schema.of(a="double", s="string")
    train = Train.from_pylists(schema, {"a": [1.5, 2.25] * 10, "s": ["x", "y"] * 10}, 0)
    DECIMAL_CELLS.choose(compiled=False)
    assert CODECS["csv"].encoder(schema).encode(train) == b"1.5,x\n2.25,y\n" * 10
