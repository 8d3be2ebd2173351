"""Each compiled loop against its numpy twin: the same arrays in, the same bits out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.operators.compiled import folding
from engine.operators.compiled.hashing import WIDEST
from engine.operators.compiled.searching import KEY_BOUNDS
from engine.operators.state.distinct import DISTINCT
from engine.operators.state.hash_index import FIND, INSERT, HashIndex
from storage.compiled.compiler import compile_now, is_available
from storage.compiled.kernel import ASKED_AFTER, Kernel, connect, known

pytestmark = [
    pytest.mark.skipif(not is_available(), reason="numba is not installed: make check installs it"),
    pytest.mark.timeout(600),  # compiling takes seconds of CPU, the first time
    pytest.mark.xdist_group("kernels"),
    pytest.mark.usefixtures("compiled_kernels"),
]

SLOTS = 5
INTEGERS = st.sampled_from([0, 1, -1, 7, 2**62, -(2**63), 2**63 - 1])
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -3.25, float("nan"), float("inf"), float("-inf"), 1e300, 5e-324])


def both(kernel: Kernel[Any], *args: Any) -> tuple[list[Any], list[Any]]:
    """Return what the twin and the compiled loop leave of their arguments, as bytes, and give back."""
    out = []
    for compiled in (False, True):
        mine = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        kernel.choose(compiled=compiled)
        with np.errstate(all="ignore"):
            answer = kernel.run(*mine)
        arrays = [a for a in mine if isinstance(a, np.ndarray)]
        arrays += list(answer) if isinstance(answer, tuple) else [answer] if answer is not None else []
        out.append([_bits(a) for a in arrays])
    assert kernel.is_compiled, "the loop was refused: the twin was compared with itself"
    return out[0], out[1]


def _bits(array: Any) -> bytes:
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)  # any NaN is as good
    return bytes(array.tobytes())


def test_all_kernels_are_compiled() -> None:
    assert all(kernel.is_compiled for kernel in known)


# -- folding -----------------------------------------------------------------------------------------------------------


@st.composite
def folded(draw: st.DrawFn, dtype: str) -> tuple[Any, ...]:
    """Cells, slots, values and marks."""
    kind = np.dtype(dtype)
    element: Any = FLOATS if kind.kind == "f" else st.booleans() if kind.kind == "b" else INTEGERS
    if dtype == "int32":
        element = st.integers(-(2**31), 2**31 - 1)
    count = draw(st.integers(0, 40))

    def column(size: int) -> Any:
        values = draw(st.lists(element, min_size=size, max_size=size))
        with np.errstate(over="ignore"):
            return np.array(values, kind)

    slots = np.array(draw(st.lists(st.integers(0, SLOTS - 1), min_size=count, max_size=count)), np.int64)
    valid = draw(st.none() | st.lists(st.booleans(), min_size=count, max_size=count))
    marks = folding.ALL if valid is None or not count else np.array(valid, np.bool_)
    return column(SLOTS), slots, column(count), marks


VALUES = [(folding.SUM, d) for d in ("int64", "float64")]
VALUES += [(kernel, d) for kernel in (folding.MAX, folding.MIN) for d in ("int32", "int64", "bool")]
VALUES += [(folding.FLOAT_MAX, d) for d in ("float32", "float64")]


@pytest.mark.parametrize(("kernel", "dtype"), VALUES, ids=[f"{k.name}-{d}" for k, d in VALUES])
@given(data=st.data())
def test_folding(kernel: Kernel[Any], dtype: str, data: st.DataObject) -> None:
    twin, loop = both(kernel, *data.draw(folded(dtype)))
    assert twin == loop


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(data=st.data())
def test_the_minimum_of_floats(dtype: str, data: st.DataObject) -> None:
    cell, slots, values, valid = data.draw(folded(dtype))
    cell = np.where(np.isnan(cell), cell.dtype.type(np.inf), cell)  # a NaN is counted, never kept
    twin, loop = both(folding.FLOAT_MIN, cell, np.zeros(SLOTS, np.int64), slots, values, valid)
    assert twin == loop


@given(data=folded("int64"), times=folded("int64"), constant=st.booleans())
def test_rows_and_times(data: tuple[Any, ...], times: tuple[Any, ...], constant: bool) -> None:
    newest, slots, values, valid = data
    twin, loop = both(folding.COUNT, np.zeros(SLOTS, np.int64), slots, valid)
    assert twin == loop
    twin, loop = both(folding.BOUNDS, newest, times[0], slots, values)
    assert twin == loop
    if slots.shape[0]:
        arrival = values[:1] if constant else values
        twin, loop = both(folding.ARRIVALS, np.zeros(SLOTS, np.int64), newest, slots, arrival)
        assert twin == loop


# -- hashing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", range(1, WIDEST + 2))
@settings(max_examples=25)
@given(data=st.data())
def test_distinct_rows(width: int, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*[INTEGERS] * width), min_size=1, max_size=60))
    columns = tuple(np.array(c, np.int64) for c in zip(*rows, strict=True))
    kernel = DISTINCT[width]
    first, inverse = kernel.run(columns)
    by_row = {row: i for i, row in enumerate(dict.fromkeys(rows))}
    assert [rows[i] for i in first] == list(by_row)
    assert inverse.tolist() == [by_row[row] for row in rows]
    if isinstance(kernel, Kernel):
        twin, loop = both(kernel, columns)
        assert twin == loop


@pytest.mark.parametrize("width", range(1, WIDEST + 2))
@settings(max_examples=25)
@given(data=st.data())
def test_the_hash_index(width: int, data: st.DataObject) -> None:
    """Keys are found, whichever of twin and loop inserted them, in any mixture."""
    keys = st.lists(st.tuples(*[st.integers(-9, 9)] * width), min_size=1, max_size=80, unique=True)
    present = data.draw(keys)
    asked = [*present, *data.draw(keys)]
    columns = tuple(np.array([*c, 0], np.int64) for c in zip(*present, strict=True))  # one unused row at the end
    index = HashIndex(width)
    index.rebuild(tuple(c[:0] for c in columns), np.arange(0), len(present))
    half = len(present) // 2
    for part, compiled in ((slice(0, half), False), (slice(half, len(present)), True)):
        _choose(INSERT[width], compiled)
        index.insert(tuple(c[:-1][part] for c in columns), np.arange(len(present))[part])
    probes = tuple(np.array(c, np.int64) for c in zip(*asked, strict=True))
    expected = [present.index(key) if key in present else -1 for key in asked]
    for compiled in (False, True):
        _choose(FIND[width], compiled)
        assert index.find(probes, columns).tolist() == expected
    same_first = [i for i, key in enumerate(asked) if key[0] == asked[0][0]]
    if width > 1:
        some = (probes[0][:1], *(p.take(same_first) for p in probes[1:]))
        for probe in some:
            probe.flags.writeable = False  # as a sender's buffer is
        assert index.find(some, columns).tolist() == [expected[i] for i in same_first]


def _choose(kernel: Any, compiled: bool) -> None:
    if isinstance(kernel, Kernel):
        kernel.choose(compiled=compiled)


@given(
    rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=60),
    needles=st.lists(st.tuples(st.integers(0, 6), st.integers(-2, 33)), min_size=1, max_size=40),
    is_right=st.booleans(),
)
def test_key_bounds(rows: list[tuple[int, int]], needles: list[tuple[int, int]], is_right: bool) -> None:
    """Where a key reaches a time, for needles in order of key and within a key of time."""
    rows.sort(key=lambda row: row[1])
    needles.sort(key=lambda needle: needle[1])
    times = np.array([t for _, t in rows], np.int64)
    bits = times.shape[0].bit_length()
    places = np.sort(np.array([(key << bits) | i for i, (key, _) in enumerate(rows)], np.int64))
    order = sorted(range(len(needles)), key=lambda i: (needles[i][0], i))
    keys = np.array([needles[i][0] for i in order], np.int64)
    limit = np.array([t for _, t in needles], np.int64)
    out = np.empty(len(order), np.int64)
    twin, loop = both(KEY_BOUNDS, places, bits, times, keys, np.array(order, np.int64), limit, is_right, out)
    assert twin == loop


# -- which of the two runs ---------------------------------------------------------------------------------------------


def test_a_loop_is_asked_for_when_it_is_called_often() -> None:
    asked: list[Kernel[Any]] = []
    kernel = Kernel("often", lambda: 1, lambda: None, lambda types: [()])
    known.remove(kernel)
    connect(asked.append)
    try:
        assert [kernel.run() for _ in range(ASKED_AFTER)] == [1] * ASKED_AFTER
    finally:
        connect(None)
    assert asked == [kernel]


def test_a_loop_that_does_not_compile_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    def loop(cell: Any) -> None:
        cell.no_such_thing()

    kernel = Kernel("broken", lambda cell: "twin", loop, lambda types: [(types.int64[::1],)])
    known.remove(kernel)
    compile_now(kernel)
    assert [kernel.run(np.zeros(1, np.int64)) for _ in range(3)] == ["twin"] * 3
    assert [r.message[:45] for r in caplog.records] == ["kernel broken is not compiled, numpy does its"]


def test_a_type_that_the_loop_does_not_know_goes_to_the_twin(caplog: pytest.LogCaptureFixture) -> None:
    def loop(cell: Any) -> None:
        cell[0] = 1

    kernel = Kernel("picky", lambda cell: "twin", loop, lambda types: [(types.int64[::1],)])
    known.remove(kernel)
    compile_now(kernel)
    assert kernel.run(np.zeros(1, np.int64)) is None
    assert [kernel.run(np.zeros(1, "U3")) for _ in range(2)] == ["twin"] * 2
    assert len(caplog.records) == 1
