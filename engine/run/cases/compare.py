"""Compare what came out of a case with what it expects, and show the difference.

A row is compared by the fields that the expected row names; with ``exact`` by all. Numbers may differ by ``approx``,
relative or absolute. Times are compared as times, however they are written. With ``ordered: false`` rows are compared
as a multiset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from catalog.network import Network, Output
from catalog.schema import Schema, Type
from engine.run.cases.case_file import NetworkCase
from engine.run.cases.play import Played, Row
from router.codecs.decode.values import timestamp_ns

ALIGNED_ROWS = 500  # more are compared one by one: aligning them costs the square
SHOWN_LINES = 40


class CaseFailure(NamedTuple):
    """One expectation that did not hold. ``place`` leads to it in the case."""

    place: tuple[str | int, ...]
    message: str
    lines: list[str]  # the difference


def compare(network: Network, case: NetworkCase, played: Played) -> list[CaseFailure]:
    """Return every expectation that does not hold."""
    found: list[CaseFailure] = []
    for output in network.outputs:
        if output.name in case.expect:
            found += _compare_rows(output, case, played.rows[output.name])
    for kind, wanted, came in (("late", case.late, played.late), ("dead", case.dead, played.dead)):
        for box, count in wanted.items():
            if came[box] != count:
                found.append(CaseFailure((kind, box), f"{kind} at {box}: expected {count}, got {came[box]}", []))
    for stream, count in played.refused_tuples.items():
        expected = case.refused.get(stream, 0)
        if count != expected:
            why = [f"      {reject.message}" for reject in played.refused.get(stream, [])][:SHOWN_LINES]
            if not why and count:
                why = ["      their time is further ahead of the clock than max_skew"]
            place = ("refused", stream) if stream in case.refused else ("input",)
            found.append(CaseFailure(place, f"refused by {stream}: expected {expected}, got {count}", why))
    return found


def _compare_rows(output: Output, case: NetworkCase, came: list[Row]) -> Iterator[CaseFailure]:
    expected = case.expect[output.name]
    unit = {"us": 1_000, "ms": 1_000_000, "s": 10**9}.get(getattr(output.sink, "timestamps", "ns"), 1)
    wanted = [_as_values(row, output.schema, unit) for row in expected]

    def fits(want: Row, got: Row) -> bool:
        if case.exact and set(want) != set(got):
            return False
        return all(_equal(value, got[name], case.approx) for name, value in want.items())

    pairs = align(wanted, came, fits) if case.ordered else match(wanted, came, fits)
    if all(want is not None and got is not None for want, got in pairs):
        return
    fields = list(output.schema.names) if case.exact else list(dict.fromkeys(n for row in expected for n in row))
    lines = []
    for want, got in pairs:
        if want is not None and got is not None:
            lines.append(f"        {_shown(came[got], output.schema, fields)}")
        elif want is not None:
            lines.append(f"      - {_shown(wanted[want], output.schema, list(expected[want]))}")
        elif got is not None:
            lines.append(f"      + {_shown(came[got], output.schema, fields or list(output.schema.names))}")
    if len(lines) > SHOWN_LINES:
        lines = [*lines[:SHOWN_LINES], f"      ... {len(lines) - SHOWN_LINES} more"]
    message = f"{output.name}: expected {_rows(len(expected))} (-), got {len(came)} (+)"
    first = next((want for want, got in pairs if want is not None and got is None), None)
    place = ("expect", output.name) if first is None else ("expect", output.name, first)
    yield CaseFailure(place, message, lines)


def _rows(count: int) -> str:
    return f"{count} row{'' if count == 1 else 's'}"


Pair = tuple[int | None, int | None]
"""The numbers of an expected row and of a row that came; None where one of them is missing."""

Fits = Callable[[Row, Row], bool]


def align(wanted: Sequence[Row], came: Sequence[Row], fits: Fits) -> list[Pair]:
    """Pair rows in order, as many as possible; the rest has no partner."""
    if len(wanted) > ALIGNED_ROWS or len(came) > ALIGNED_ROWS:
        return _one_by_one(wanted, came, fits)
    longest = [[0] * (len(came) + 1) for _ in range(len(wanted) + 1)]
    for i in range(len(wanted) - 1, -1, -1):
        for j in range(len(came) - 1, -1, -1):
            both = 1 + longest[i + 1][j + 1] if fits(wanted[i], came[j]) else 0
            longest[i][j] = max(both, longest[i + 1][j], longest[i][j + 1])
    pairs: list[Pair] = []
    i = j = 0
    while i < len(wanted) and j < len(came):
        if fits(wanted[i], came[j]) and longest[i][j] == 1 + longest[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif longest[i + 1][j] >= longest[i][j + 1]:
            pairs.append((i, None))
            i += 1
        else:
            pairs.append((None, j))
            j += 1
    return [*pairs, *((n, None) for n in range(i, len(wanted))), *((None, n) for n in range(j, len(came)))]


def _one_by_one(wanted: Sequence[Row], came: Sequence[Row], fits: Fits) -> list[Pair]:
    pairs: list[Pair] = []
    for n in range(max(len(wanted), len(came))):
        if n < len(wanted) and n < len(came) and fits(wanted[n], came[n]):
            pairs.append((n, n))
        else:
            pairs += [(n, None)] if n < len(wanted) else []
            pairs += [(None, n)] if n < len(came) else []
    return pairs


def match(wanted: Sequence[Row], came: Sequence[Row], fits: Fits) -> list[Pair]:
    """Pair rows in any order. Rows that name more fields choose first, so that a vague row takes what is left."""
    left = dict.fromkeys(range(len(came)))
    partner: dict[int, int] = {}
    for i in sorted(range(len(wanted)), key=lambda n: -len(wanted[n])):
        found = next((j for j in left if fits(wanted[i], came[j])), None)
        if found is not None:
            partner[i] = found
            del left[found]
    return [*((i, partner.get(i)) for i in range(len(wanted))), *((None, j) for j in left)]


def _as_values(row: Row, schema: Schema, unit: int) -> Row:
    return {name: _as_value(value, schema[name].type, unit) for name, value in row.items()}


def _as_value(value: Any, kind: Type, unit: int) -> Any:
    if kind is Type.TIMESTAMP and isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return timestamp_ns(value, unit)
        except ValueError:
            return value  # no time: it fits nothing, and the difference shows it
    return value


def _equal(want: Any, got: Any, approx: float) -> bool:
    if isinstance(want, bool) or isinstance(got, bool) or isinstance(want, str) or isinstance(got, str):
        return want is got or (type(want) is type(got) and bool(want == got))
    if want is None or got is None or not isinstance(want, int | float):
        return want is got
    if isinstance(want, int) and isinstance(got, int):
        return want == got
    return math.isclose(want, got, rel_tol=approx, abs_tol=approx) or (math.isnan(want) and math.isnan(got))


def _shown(row: Row, schema: Schema, fields: list[str]) -> str:
    shown = [f"{name}: {_text(row[name], schema[name].type)}" for name in fields if name in row]
    return "{" + ", ".join(shown) + "}"


def _text(value: Any, kind: Type) -> str:
    if kind is Type.TIMESTAMP and isinstance(value, int):
        seconds, ns = divmod(value, 10**9)
        fraction = f".{ns:09d}".rstrip("0") if ns else ""
        return orjson.dumps(_iso(seconds)).decode()[1:20] + fraction + "Z"
    return "NULL" if value is None else orjson.dumps(value).decode()


def _iso(seconds: int) -> Any:
    from datetime import UTC, datetime, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
