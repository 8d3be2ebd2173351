"""The words of the compiler's messages: hints, and names for syntax that it refuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlglot import exp

from catalog.config.words import MOST_SHOWN, near_word

NONDETERMINISTIC = frozenset({"now", "current_timestamp", "current_date", "localtimestamp", "rand", "random", "uuid"})
NONDETERMINISTIC_HINT = "expressions read neither the clock nor random numbers: a replay would give another answer"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a hint with the nearest name; empty when no name is near."""
    near = near_word(name, names)
    return f"did you mean {near}?" if near else ""


def field_hint(name: str, names: Sequence[str]) -> str:
    """Return a hint for a field that does not exist: the same field of a side, a near name, or the names there are."""
    last = name.rpartition(".")[2].lower()
    same = [known for known in names if "." in name and known.lower().rpartition(".")[2] == last]
    if same:
        return f"write {' or '.join(same)}"
    return did_you_mean(name, names) or f"the fields are {', '.join(names[:MOST_SHOWN])}"


def describe(tree: exp.Expression) -> str:
    """Name a kind of syntax for a message."""
    if isinstance(tree, exp.Subquery | exp.Select | exp.Exists) or tree.find(exp.Select):
        return "a subquery"
    names = {exp.Lambda: "a lambda", exp.Star: "*", exp.Dot: "an access with a dot", exp.Bracket: "an access with [ ]"}
    return names.get(type(tree), type(tree).__name__.lower())
