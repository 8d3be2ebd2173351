"""History in the network file: ``keep`` of a stream or box, and ``start`` of an output."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, InstanceOf

from catalog.config.section import Section
from catalog.config.units import PositiveDuration, PositiveSize, parse_duration_ns
from catalog.config.words import RefusedValueError

KEEP_BYTES = 1024**3


class KeepModel(Section):
    """How much history a place keeps: what is older, or does not fit, is removed."""

    for_ns: PositiveDuration | None = Field(default=None, alias="for")
    size_bytes: PositiveSize = Field(default=KEEP_BYTES, alias="size")
    ports: list[str] = Field(default=[], max_length=100)


@dataclass(frozen=True, slots=True)
class StartPoint:
    """Where in the history of its inputs a query starts. The unit of ``ns`` follows from ``rule``."""

    rule: Literal["earliest", "now", "ago", "at"]
    ns: int = 0  # ago: before now; at: since 1970

    def from_ns(self, now_ns: int) -> int | None:
        """Return the time of the first tuple; None for the earliest that is kept."""
        if self.rule == "earliest":
            return None
        return self.ns if self.rule == "at" else now_ns - self.ns

    def __str__(self) -> str:
        if self.rule == "at":
            seconds, rest = divmod(self.ns, 10**9)
            whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            return f"{whole}.{rest:09d}Z" if rest else f"{whole}Z"
        return f"-{self.ns / 1e9:g}s" if self.rule == "ago" else self.rule


def parse_start(value: object) -> StartPoint:
    """Read ``-1h``, ``earliest``, ``now`` or a time such as ``2026-01-01T12:00Z``. Raises ValueError."""
    if isinstance(value, StartPoint):
        return value
    if value == "earliest" or value == "now":
        return StartPoint("earliest" if value == "earliest" else "now")
    if isinstance(value, str) and value.startswith("-"):
        return StartPoint("ago", parse_duration_ns(value[1:]))
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            pass
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if isinstance(value, datetime):
        exact = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        since = exact - datetime(1970, 1, 1, tzinfo=UTC)
        return StartPoint("at", (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1_000)
    raise RefusedValueError(f"a start is -1h, earliest, now or a time such as 2026-01-01T12:00Z, not '{value}'")


Start = Annotated[InstanceOf[StartPoint], BeforeValidator(parse_start)]
