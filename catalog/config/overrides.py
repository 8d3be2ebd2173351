"""Options of the command line that override keys of the network file.

A section is overridden key by key (``engine.workers``). In streams and outputs, keys of one entry are (``source``,
``sink``). A source or sink that takes the place of another keeps the format and the unit of timestamps that the file
gives, unless the option names its own: the rows are the same, only their way is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from catalog.config.words import did_you_mean
from catalog.errors import AuroraError

NAMED = ("streams", "boxes", "outputs")
DEFAULT_FORMAT = "ndjson"


@dataclass(frozen=True)
class Overrides:
    """Options of the command line that override the file."""

    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # keys by section
    port_base: int | None = None  # the lowest port of the network; the others keep their distance from it


class Fallback(NamedTuple):
    """A value that holds only if the file does not have the key."""

    value: Any


class UnknownNameError(AuroraError):
    """An option names a stream or an output that the file does not have."""


def apply_overrides(data: dict[str, Any], overrides: Overrides) -> None:
    """Change the data of a document. Raises UnknownNameError."""
    for section, keys in overrides.sections.items():
        below = data.get(section)
        entries = dict(below) if isinstance(below, dict) else {}
        data[section] = entries
        for key, value in keys.items():
            if isinstance(value, Fallback):
                entries.setdefault(key, value.value)
            elif section in NAMED:
                entries[key] = _merged(section, key, entries, value)
                _make_way(key, entries, value)
            else:
                entries[key] = value


def _merged(section: str, name: str, entries: dict[str, Any], keys: Mapping[str, Any]) -> Any:
    if name not in entries:
        known = [str(key) for key in entries]
        hint = did_you_mean(name, known) or f"there is {', '.join(known) or 'none'}"
        raise UnknownNameError(f"there is no {section.removesuffix('s')} '{name}': {hint}")
    entry = entries[name]
    if not isinstance(entry, dict):
        return entry  # the validator reports it
    return {**entry, **{key: _in_place(entry.get(key), value) for key, value in keys.items()}}


def _make_way(name: str, entries: dict[str, Any], keys: Mapping[str, Any]) -> None:
    """Take standard input or output away from the entry that has it in the file: the option wins."""
    for key, value in keys.items():
        for other, entry in entries.items():
            theirs = entry.get(key) if isinstance(entry, dict) else None
            if other != name and isinstance(value, dict) and isinstance(theirs, dict) and theirs.keys() & value.keys():
                entries[other] = {k: v for k, v in entry.items() if k != key}


def _in_place(old: Any, new: Any) -> Any:
    """Return a source or sink such as ``{stdin: None}`` with the format and the timestamps of the one before it."""
    if not isinstance(new, dict):
        return new
    before = old if isinstance(old, dict) else {}
    known = before.get("format", DEFAULT_FORMAT)
    kept = {"timestamps": before["timestamps"]} if "timestamps" in before else {}
    return {**kept, **{key: known if value is None else value for key, value in new.items()}}
