"""The words of the compiler's messages: hints, and names for syntax that it refuses."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from sqlglot import exp

NONDETERMINISTIC = frozenset({"now", "current_timestamp", "current_date", "localtimestamp", "rand", "random", "uuid"})
NONDETERMINISTIC_HINT = "expressions read neither the clock nor random numbers: a replay would give another answer"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint with the nearest name; empty when no name is near."""
    near = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def describe(tree: exp.Expression) -> str:
    """Name a kind of syntax for a message."""
    if isinstance(tree, exp.Subquery | exp.Select | exp.Exists) or tree.find(exp.Select):
        return "a subquery"
    names = {exp.Lambda: "a lambda", exp.Star: "*", exp.Dot: "an access with a dot", exp.Bracket: "an access with [ ]"}
    return names.get(type(tree), type(tree).__name__.lower())
