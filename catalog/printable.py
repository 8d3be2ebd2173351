"""Text of others on a terminal: what a name, a path or a value of a file shows must not move the cursor or change
colours."""

from __future__ import annotations

from typing import Any


def printable(text: str, *, keep: str = "") -> str:
    """Return the text with every control and format character as an escape such as ``\\x1b``, but those of ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def printable_answer(value: Any) -> Any:
    """Return the answer of a daemon with every text in it printable: names of readers and values come from others."""
    if isinstance(value, str):
        return printable(value, keep="\n")
    if isinstance(value, list):
        return [printable_answer(item) for item in value]
    if isinstance(value, dict):
        return {printable(key): printable_answer(item) for key, item in value.items()}
    return value


def counted(number: int, word: str) -> str:
    """Return a number with its word: 1 box, 3 boxes."""
    plural = word + ("es" if word.endswith("x") else "s")
    return f"{number} {word if number == 1 else plural}"
