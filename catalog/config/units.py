"""Quantities as people write them: ``100ms``, ``64MiB``, ``30%``, ``127.0.0.1:9401``.

A number without a unit is refused, because every reader understands ``slack: 200`` differently; only 0 needs no unit.
Arithmetic is exact (fractions): ``0.1s`` is 100,000,000 ns and not a neighbour of it. A box annotates a parameter with
``Duration``, ``Size`` or ``Share`` and receives ns, bytes or a number in [0, 1].
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, InstanceOf, PlainSerializer

MAX_NS = 2**63 - 1
MAX_BYTES = 2**50

_NS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,  # the micro sign; on the next line the Greek letter: people type both
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "min": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86400 * 10**9,
}
_BYTES = {"b": 1}
_BYTES |= {f"{p}b": 1000 ** (i + 1) for i, p in enumerate("kmgt")}
_BYTES |= {f"{p}ib": 1024 ** (i + 1) for i, p in enumerate("kmgt")}

_NUMBER = r"(\d{1,30}(?:\.\d{1,30})?)"
_PARTS = re.compile(rf"(?:{_NUMBER}\s*([a-zµμ]+)\s*)+")
_PART = re.compile(rf"{_NUMBER}\s*([a-zµμ]+)")
_SIZE = re.compile(rf"{_NUMBER}\s*([a-z]+)")
_PERCENT = re.compile(rf"{_NUMBER}\s*%")
_ADDRESS = re.compile(r"(?:\[([0-9a-fA-F:.%]+)\]|([^\s:\[\]/]+)):(\d{1,5})")


def parse_duration(value: object) -> Fraction:
    """Return exact nanoseconds; ``1h30m`` is a sum. Raises ValueError."""
    if _is_zero(value):
        return Fraction(0)
    if isinstance(value, str) and (total := _sum_of_parts(value.strip())) is not None:
        if total > MAX_NS:
            raise ValueError(f"{value.strip()} is longer than 292 years")
        return total
    if _is_number(value):
        raise ValueError(f"a duration needs a unit: write {value}ms or {value}s")
    raise ValueError(f"{_quoted(value)} is not a duration: write 100ms, 1.5s or 1h30m (ns, us, ms, s, m, h, d)")


@lru_cache(maxsize=1_024)  # a file with 1,000 outputs has a few different deadlines
def _sum_of_parts(text: str) -> Fraction | None:
    """Return the nanoseconds of a text such as ``1h30m``; None when it is not a duration."""
    parts = _PART.findall(text) if _PARTS.fullmatch(text) else []
    if not parts or not all(unit in _NS for _, unit in parts):
        return None
    return sum((Fraction(number) * _NS[unit] for number, unit in parts), Fraction(0))


def parse_duration_ns(value: object) -> int:
    exact = parse_duration(value)
    if exact.denominator != 1:
        raise ValueError(f"{_quoted(value)} is not a whole number of nanoseconds")
    return int(exact)


def parse_size_bytes(value: object) -> int:
    if _is_zero(value):
        return 0
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip().lower())) and match[2] in _BYTES:
        total = Fraction(match[1]) * _BYTES[match[2]]
        if total > MAX_BYTES:
            raise ValueError(f"{value} is more than 1024TiB")
        return int(total)
    if _is_number(value):
        raise ValueError(f"a size needs a unit: write {value}MiB or {value}B")
    raise ValueError(f"{_quoted(value)} is not a size: write 64MiB, 1GiB or 500kB")


def parse_share(value: object) -> float:
    """Read ``30%`` or ``0.3``; return a number in [0, 1]."""
    share: Fraction
    if isinstance(value, str) and (match := _PERCENT.fullmatch(value.strip())):
        share = Fraction(match[1]) / 100
    elif isinstance(value, int | float) and _is_number(value):
        share = Fraction(value)
    else:
        raise ValueError(f"{_quoted(value)} is not a share: write 30% or 0.3")
    if not 0 <= share <= 1:
        hint = f": write {value}%" if _is_number(value) and 1 < share <= 100 else ""
        raise ValueError(f"a share is between 0% and 100%, not {value}{hint}")
    return float(share)


@dataclass(frozen=True, slots=True)
class Address:
    """An address to listen on. With port 0 the system chooses a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    def clashes(self, other: Address) -> bool:
        """Return whether the two addresses cannot be listened on at the same time."""
        if self.port != other.port or self.port == 0:
            return False
        mine, theirs = _HOSTS.get(self.host, self.host), _HOSTS.get(other.host, other.host)
        return mine == theirs or "*" in (mine, theirs)


_HOSTS = {"localhost": "127.0.0.1", "0.0.0.0": "*", "::": "*"}  # noqa: S104 - to recognise it


def parse_address(value: object) -> Address:
    """Read ``host:port``, ``[::1]:port``, or a port alone. A port alone is on loopback: nothing is open to other
    machines by accident."""
    if isinstance(value, Address):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        host, port = "127.0.0.1", value
    elif isinstance(value, str) and (match := _ADDRESS.fullmatch(value.strip())):
        host, port = match[1] or match[2], int(match[3])
    elif isinstance(value, str) and value.strip().startswith(":"):
        rest = value.strip()
        raise ValueError(f"{rest} does not say who may connect: write 127.0.0.1{rest}, or 0.0.0.0{rest} for everyone")
    else:
        raise ValueError(f"{_quoted(value)} is not an address: write 127.0.0.1:9401 or [::1]:9401")
    if not 0 <= port <= 65535:
        raise ValueError(f"{port} is not a port: 0 (any free one) to 65535")
    return Address(host, port)


def format_duration(ns: float) -> str:
    """Return the shortest form: 100ms, 1.5s, 2m."""
    for unit, size in (("d", _NS["d"]), ("h", _NS["h"]), ("m", _NS["m"])):
        if ns >= size and ns % size == 0:
            return f"{ns // size:.0f}{unit}"
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if ns >= size:
            return f"{_digits(ns / size)}{unit}"
    return f"{ns:.4g}ns" if ns else "0ms"


def format_duration_roughly(ns: int) -> str:
    """Return a duration without more digits than anybody reads: 17d, 3h, 12.5s."""
    size = next((size for size in (_NS["d"], _NS["h"]) if ns >= 2 * size), None)
    return format_duration(ns if size is None else ns // size * size)


def format_size(nbytes: int) -> str:
    for i, unit in reversed(list(enumerate(("B", "KiB", "MiB", "GiB", "TiB")))):
        if nbytes >= 1024**i:
            return f"{_digits(nbytes / 1024**i)}{unit}"
    return "0B"


def _digits(number: float) -> str:
    return f"{number:.4g}" if number < 1000 else f"{number:.0f}"  # never an exponent, such as 1e+04s


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -inf < value < inf


def _is_zero(value: object) -> bool:
    return _is_number(value) and value == 0


def _quoted(value: object) -> str:
    text = str(value)
    return f"'{text}'" if len(text) <= 40 else f"'{text[:40]}...'"


def _float_ns(value: object) -> float:
    return float(parse_duration(value))


Duration = Annotated[int, BeforeValidator(parse_duration_ns)]
"""A pydantic type: ``200ms`` in the file, whole nanoseconds in the model."""

Cost = Annotated[float, BeforeValidator(_float_ns)]
"""A duration that may be below a nanosecond, such as the cost of a tuple."""

Size = Annotated[int, BeforeValidator(parse_size_bytes)]
"""``64MiB`` in the file, bytes in the model."""

Share = Annotated[float, BeforeValidator(parse_share)]
"""``30%`` or 0.3 in the file, a number in [0, 1] in the model."""

Listen = Annotated[InstanceOf[Address], BeforeValidator(parse_address), PlainSerializer(str, return_type=str)]

PositiveDuration = Annotated[Duration, Field(gt=0)]
PositiveSize = Annotated[Size, Field(gt=0)]


def plain(value: Any) -> Any:
    """Convert a value for JSON: an address becomes text, all else is unchanged."""
    return str(value) if isinstance(value, Address) else value
