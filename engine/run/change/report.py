"""A change in words and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.printable import counted
from engine.run.change.compare import Change, Fate, PartChange

_ORDER = (Fate.RESTART, Fate.REMOVED, Fate.REBUILT, Fate.CHANGED, Fate.ADDED, Fate.KEPT)
KEPT_SHOWN = 20


def change_json(change: Change) -> dict[str, Any]:
    """Return a change as plain data. Every part is there, the kept ones too."""
    return {
        "same": change.is_empty,
        "needs_restart": [part.name for part in change.needs_restart],
        "drops_state": [part.name for part in change.drops_state],
        "parts": [_part_json(part) for part in change.parts],
    }


def changed_json(change: Change) -> list[dict[str, str]]:
    """Return the parts that a change touches as plain data."""
    return [_part_json(part) for part in change.parts if part.fate is not Fate.KEPT or part.was]


def _part_json(part: PartChange) -> dict[str, str]:
    told = {"kind": part.kind, "name": part.name, "fate": str(part.fate)}
    optional = {"why": part.why, "was": part.was, "loses": part.loses}
    return told | {key: text for key, text in optional.items() if text}


def change_lines(parts: list[dict[str, str]]) -> list[str]:
    """Return the lines that describe the parts of a change, as ``change_json`` gives them; kept parts come last."""
    lines: list[str] = []
    for fate in _ORDER:
        mine = [part for part in parts if part["fate"] == fate]
        plain = [part for part in mine if fate is Fate.KEPT and len(part) == 3]
        lines += [_line(part) for part in mine if part not in plain]
        if plain:
            names = ", ".join(part["name"] for part in plain[:KEPT_SHOWN])
            more = f" and {len(plain) - KEPT_SHOWN} more" if len(plain) > KEPT_SHOWN else ""
            lines.append(f"kept     {counted(len(plain), 'part')}: {names}{more}")
    return lines


def forecast_lines(told: Mapping[str, Any] | None) -> list[str]:
    """Return the lines that describe a forecast (``engine/simulate/admission``) as plain data; None: there is none."""
    if told is None:
        return []
    now, then = told["load"]
    return [
        f"forecast load {now:.0%} -> {then:.0%}",
        *(
            f"forecast output {o['name']}: utility {o['utility'][0]:.2f} -> {o['utility'][1]:.2f}, "
            f"p99 {o['p99_ns'][0] / 1e6:.1f} -> {o['p99_ns'][1] / 1e6:.1f} ms"
            for o in told["outputs"]
        ),
    ]


def _line(part: dict[str, str]) -> str:
    line = f"{part['fate']:8} {part['kind']} {part['name']}"
    if "was" in part:
        line += f" (was {part['was']})"
    if "why" in part:
        line += f": {part['why']}"
    if "loses" in part:
        line += f"; drops {part['loses']}"
    return line
