"""The errors of the world outside: a network file, an expression, a tuple that does not fit.

Each names its place, so that whoever wrote the input can find it. The programmer's own errors are asserts and never
come from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class AuroraError(Exception):
    """Root of every error that is the world's fault and not ours."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a network file.

    ``path`` is the place in the document (``("boxes", "big", "where")``); ``line`` and ``column`` count from 1 and
    are 0 while unknown (the YAML loader fills them in). ``hint`` is the did-you-mean.
    """

    path: tuple[str | int, ...]
    message: str
    hint: str = ""
    line: int = 0
    column: int = 0
    warning: bool = False

    @property
    def place(self) -> str:
        return ".".join(str(part) for part in self.path) or "(the file)"


class NetworkError(AuroraError):
    """A network file that cannot be deployed; carries every problem found, not only the first.

    ``source`` is the file's name and ``text`` what was read from it, for showing the lines at fault.
    """

    def __init__(self, problems: Sequence[Problem], source: str = "", text: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        self.text = text
        super().__init__("; ".join(f"{p.place}: {p.message}" for p in self.problems))


class BindError(AuroraError):
    """A box cannot work on the schemas that it is given. ``key`` names the parameter at fault, below the box."""

    def __init__(self, message: str, key: tuple[str | int, ...] = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.hint = hint


class ExpressionError(AuroraError):
    """An expression that does not parse, does not type-check or exceeds a limit. ``offset`` is into its text."""

    def __init__(self, message: str, text: str = "", offset: int = -1, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.offset = offset
        self.hint = hint
