"""Numbers by arithmetic, compared with Python's own reading of the same text: equal, or None."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from router.codecs.decode.digits import MAX_STRING_BYTES, PaddedBytes

digits = st.text("0123456789", min_size=1, max_size=20)
whole = st.builds(lambda sign, number: f"{sign}{number}", st.sampled_from(["", "-"]), st.integers(0, 10**19).map(str))
plain = st.builds(
    lambda sign, number, part: f"{sign}{number}.{part}",
    st.sampled_from(["", "-"]),
    st.integers(0, 10**8).map(str) | st.just("0"),
    st.text("0123456789", min_size=1, max_size=9),
)
ODD = """|-|--1|+1|01|-01|00|1.|.5|-.5|1..2|1.2.3|1e5|1.5e3|0x1| 1|1 |1-2|null|true|NaN|1_0|\u0663|1/2|1.5/|"1"
99999999999999999999|9223372036854775808|0.1234567890"""
odd = st.sampled_from(ODD.replace("\n", "|").split("|"))


def block_of(cells: list[str]) -> tuple[PaddedBytes, Any, Any, bytes]:
    data = b",".join(cell.encode() for cell in cells) + b"\n"
    lengths = np.array([len(cell.encode()) for cell in cells], np.int64)
    stop = np.cumsum(lengths + 1) - 1
    return PaddedBytes(data), stop - lengths, stop, data


def is_json_number(text: str) -> bool:
    try:
        return type(orjson.loads(text)) in (int, float) and text == text.strip()
    except ValueError:
        return False


@given(st.lists(whole | digits | odd | plain, min_size=1, max_size=6))
def test_integers(cells: list[str]) -> None:
    block, start, stop, _ = block_of(cells)
    found = block.integers(start, stop)
    fit = all(is_json_number(c) and type(orjson.loads(c)) is int and abs(int(c)) < 2**63 for c in cells)
    assert (found is not None) == fit
    if found is not None:
        assert found.tolist() == [int(c) for c in cells]


@given(st.lists(plain | odd | whole | digits, min_size=1, max_size=6))
@example(["0.1", "88.52", "-0.0", "5", "123456789012345"])
@example(["12345678.1234567", "0.3"])
@example(["4.35", "0.000001", "1.0000001"])
def test_decimals(cells: list[str]) -> None:
    block, start, stop, _ = block_of(cells)
    found = block.decimals(start, stop)
    if found is not None:
        assert all(is_json_number(c) for c in cells)
        assert found.tolist() == [float(c) for c in cells]
    plain_forms = all(is_json_number(c) and "e" not in c and len(c.lstrip("-").replace(".", "")) <= 15 for c in cells)
    short = all(len(c.partition(".")[2]) <= 7 for c in cells)
    assert (found is not None) == (plain_forms and short and all(c.isascii() for c in cells))


@given(st.lists(st.sampled_from(["true", "false", "true", "null", "True", "falsee", "", "1", "truefalse"]), min_size=1))
def test_booleans(cells: list[str]) -> None:
    block, start, stop, _ = block_of(cells)
    found = block.booleans(start, stop)
    assert (None if found is None else found.tolist()) == (
        [c == "true" for c in cells] if set(cells) <= {"true", "false"} else None
    )


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40), min_size=1, max_size=8))
def test_distinct_strings(cells: list[str]) -> None:
    block, start, stop, data = block_of(cells)
    found = block.distinct(start, stop)
    raw = [data[a:b] for a, b in zip(start.tolist(), stop.tolist())]
    if max(map(len, raw)) > MAX_STRING_BYTES:
        assert found is None
        return
    assert found is not None
    texts, places = found
    assert [texts[i] for i in places.tolist()] == raw
    assert len(set(texts)) == len(texts)
