"""Errors in the user's input: a network file, an expression, a tuple that does not fit its schema.

Each error names its place, so that the author of the input can find it. Errors of the programmer are asserts and never
come from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass


class AuroraError(Exception):
    """The base class of all errors that the environment or the input causes, not a bug."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a network file.

    ``path`` is the place in the document (``("boxes", "big", "where")``). ``line`` and ``column`` count from 1; 0 means
    unknown (the YAML loader fills them in). ``hint`` is advice, such as a did-you-mean.
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
    """A network file that cannot be deployed. It carries all problems found, not only the first.

    ``source`` is the name of the file and ``text`` its content, to show the lines at fault.
    """

    def __init__(self, problems: Sequence[Problem], source: str = "", text: str = "") -> None:
        self.problems = tuple(problems)
        self.source = source
        self.text = text
        super().__init__("; ".join(f"{p.place}: {p.message}" for p in self.problems))


class BindError(AuroraError):
    """A box cannot work on the schemas of its inputs. ``key`` names the parameter at fault, below the box.

    ``more`` has the errors of other parameters of the same box.
    """

    def __init__(self, message: str, key: tuple[str | int, ...] = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.hint = hint
        self.more: tuple[BindError, ...] = ()


class BindErrors:
    """Collects the errors of several parameters of a box, so that the author sees all of them at once."""

    def __init__(self) -> None:
        self._found: list[BindError] = []

    @contextmanager
    def part(self) -> Iterator[None]:
        """Run one step that may fail; the others still run."""
        try:
            yield
        except BindError as error:
            self._found += [error, *error.more]

    def check(self) -> None:
        """Raise the first error, with the others in ``more``."""
        if self._found:
            first = self._found[0]
            first.more = tuple(self._found[1:])
            raise first


class ExpressionError(AuroraError):
    """An expression does not parse, does not type-check or exceeds a limit. ``offset`` is a position in its text."""

    def __init__(self, message: str, text: str = "", offset: int = -1, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.offset = offset
        self.hint = hint


class ListenError(AuroraError):
    """The daemon cannot listen on an address. The message names the key of the network file and the reason."""
