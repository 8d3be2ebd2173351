"""The history of connection points as lines for people: for ``aurorad history list`` and ``aurorad top``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from engine.cli.views.numbers import count, duration, size


def history_lines(places: Sequence[Mapping[str, Any]], files: bool) -> Iterator[str]:
    """Describe each place in full."""
    if not places:
        yield "nothing keeps history: write keep: {for: 24h} on a stream or a box"
    for place in places:
        limit = "" if place["for_ns"] is None else f"{duration(place['for_ns'])}, "
        yield f"{place['name']}: {_kept(place)} (at most {limit}{size(place['size_bytes'])})"
        yield f"  {place['files']}"
        for entry in place["index"] if files else ():
            span = f"{_time(entry['from_ns'])} to {_time(entry['to_ns'])}"
            yield f"  {entry['first']} to {entry['last']}, {span}, {size(entry['nbytes'])}"


def history_top_lines(places: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe each place in one line of the table."""
    return [f"history {place['name']}: {_kept(place)}" for place in places]


def _kept(place: Mapping[str, Any]) -> str:
    tuples = place["newest"] - place["oldest"] + 1
    if tuples <= 0:
        return "empty"
    span = f"{_time(place['from_ns'])} to {_time(place['to_ns'])}"
    lost = f", {count(place['lost'])} LOST ({place['trouble'] or 'written again'})" if place["lost"] else ""
    return f"{count(tuples)} tuples, {size(place['nbytes'])} in {place['segments']} files, {span}{lost}"


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
