"""Durations, sizes, shares, addresses: what is taken, and what is refused with which words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.config.units import (
    Address,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_duration_ns,
    parse_share,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("100ms", 100_000_000),
        ("0.1s", 100_000_000),
        ("1.5s", 1_500_000_000),
        ("1h30m", 5_400_000_000_000),
        ("1m 30s", 90_000_000_000),
        ("2 min", 120_000_000_000),
        ("7d", 604_800_000_000_000),
        ("3us", 3_000),
        ("3µs", 3_000),
        ("3μs", 3_000),
        ("0.000000001s", 1),
        (0, 0),
        (" 5ns ", 5),
    ],
)
def test_durations(text: object, ns: int) -> None:
    assert parse_duration_ns(text) == ns


@pytest.mark.parametrize(
    "text", ["", "ms", "100", "1,5s", "-1s", "1S", "1 lightyear", "1s!", "∞", None, True, [], "1e3s"]
)
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration_ns(text)


def test_a_number_is_told_its_unit() -> None:
    with pytest.raises(ValueError, match="200ms or 200s"):
        parse_duration_ns(200)


def test_too_long_and_too_fine() -> None:
    with pytest.raises(ValueError, match="292 years"):
        parse_duration_ns("999999999999d")
    with pytest.raises(ValueError, match="whole number of nanoseconds"):
        parse_duration_ns("0.5ns")
    assert float(parse_duration("0.5ns")) == 0.5


@given(st.integers(0, 10**18))
def test_a_duration_that_is_written_is_read_back(ns: int) -> None:
    assert parse_duration_ns(f"{ns}ns") == ns
    assert parse_duration_ns(f"{ns // 1000}us{ns % 1000}ns") == ns
    assert float(parse_duration(format_duration(ns))) == pytest.approx(ns, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("64MiB", 64 << 20),
        ("1.5KiB", 1536),
        ("500kB", 500_000),
        ("1GB", 10**9),
        ("10B", 10),
        ("2 gib", 2 << 30),
        (0, 0),
    ],
)
def test_sizes(text: object, nbytes: int) -> None:
    assert parse_size_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["", "MiB", "64", "64M", 64, "-1B", None, "9999999TiB"])
def test_what_is_no_size(text: object) -> None:
    with pytest.raises(ValueError, match=r"size|TiB"):
        parse_size_bytes(text)


@given(st.integers(0, 2**40))
def test_a_size_that_is_written_is_read_back(nbytes: int) -> None:
    assert parse_size_bytes(format_size(nbytes)) == pytest.approx(nbytes, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "share"), [("30%", 0.3), (0.3, 0.3), (1, 1.0), ("0%", 0.0), ("12.5 %", 0.125), (0, 0.0)]
)
def test_shares(text: object, share: float) -> None:
    assert parse_share(text) == share


@pytest.mark.parametrize("text", ["101%", -0.1, 30, "30", "x", None, float("nan"), float("inf"), True])
def test_what_is_no_share(text: object) -> None:
    with pytest.raises(ValueError, match="share"):
        parse_share(text)


def test_thirty_is_taken_for_percent() -> None:
    with pytest.raises(ValueError, match="write 30%"):
        parse_share(30)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9401", Address("127.0.0.1", 9401)),
        ("[::1]:9401", Address("::1", 9401)),
        ("example.org:80", Address("example.org", 80)),
        (9401, Address("127.0.0.1", 9401)),
        (0, Address("127.0.0.1", 0)),
    ],
)
def test_addresses(text: object, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", [":9401", "localhost", "a:b", "127.0.0.1:99999", "::1:80", True, None, "http://x:1", 70000]
)
def test_what_is_no_address(text: object) -> None:
    with pytest.raises(ValueError, match=r"address|port|who may connect"):
        parse_address(text)


@pytest.mark.parametrize(
    ("a", "b", "clash"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "localhost:1", True),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "127.0.0.2:1", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
    ],
)
def test_addresses_that_clash(a: str, b: str, clash: bool) -> None:
    assert parse_address(a).clashes(parse_address(b)) is clash
    assert parse_address(b).clashes(parse_address(a)) is clash
