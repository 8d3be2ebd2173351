"""The problems of a network file, as text for people and as JSON for tools.

The first line of a problem is ``file:line:column: place: message``, which editors can jump to. Below it come the line
at fault with a mark under the spot, and a hint.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any, TextIO

from catalog.errors import Problem
from catalog.printable import counted, printable

MAX_WIDTH = 110

_RED, _YELLOW, _DIM, _BOLD, _RESET = "\033[31m", "\033[33m", "\033[2m", "\033[1m", "\033[0m"


def wants_colour(stream: TextIO) -> bool:
    """Whether this is a terminal, and the user has not switched colours off (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def write_problems(problems: Sequence[Problem], source: str, text: str, stream: TextIO | None = None) -> None:
    """Write every problem, then their number; to standard error unless another stream is given."""
    out = stream if stream is not None else sys.stderr
    colour = wants_colour(out)
    lines = text.splitlines()
    for problem in problems:
        out.write(format_problem(problem, source, lines, colour=colour) + "\n")
    errors = sum(not p.warning for p in problems)
    if errors:
        out.write(f"{printable(source)}: {counted(errors, 'error')}\n")


def format_problem(problem: Problem, source: str, lines: Sequence[str], *, colour: bool = False) -> str:
    def paint(style: str, words: str) -> str:
        return f"{style}{words}{_RESET}" if colour else words

    source = printable(source)
    place = f"{source}:{problem.line}:{problem.column}" if problem.line else source
    path = f"{printable(problem.place)}: " if problem.path else ""
    kind = paint(_YELLOW, "warning: ") if problem.warning else paint(_RED, "error: ")
    out = [f"{paint(_BOLD, place)}: {kind}{path}{printable(problem.message)}"]
    gutter = max(5, len(str(problem.line)) + 1)
    if 0 < problem.line <= len(lines) and lines[problem.line - 1].strip():
        shown, caret = excerpt(lines[problem.line - 1], problem.column)
        out.append(f"{paint(_DIM, f'{problem.line:>{gutter}} |')} {shown}")
        out.append(f"{paint(_DIM, ' ' * gutter + ' |')} {paint(_YELLOW if problem.warning else _RED, caret)}")
    if problem.hint:
        out.append(f"{' ' * gutter} {paint(_DIM, '=')} {printable(problem.hint)}")
    return "\n".join(out)


def excerpt(line: str, column: int) -> tuple[str, str]:
    """Return the part of a line around a column, and a mark that stands under the word there."""
    start = min(max(column - 1, 0), len(line))
    word = re.match(r"[\w.+-]+|\"[^\"]*\"|'[^']*'", line[start:])
    end = start + (len(word[0]) if word else 1)
    left = 0 if len(line) <= MAX_WIDTH else max(0, min(start - MAX_WIDTH // 3, len(line) - MAX_WIDTH))
    right = min(len(line), left + MAX_WIDTH)
    before, after = "…" if left else "", "…" if right < len(line) else ""
    shown = "".join(c if c.isprintable() else " " for c in line[left:right])
    pad = " " * (len(before) + _cells(line[left:start]))
    return f"{before}{shown}{after}", pad + "^" * max(1, _cells(line[start : min(end, right)]))


def _cells(text: str) -> int:
    """Count the columns that a text takes on a terminal: a wide character of East Asia takes two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def problem_json(problem: Problem) -> dict[str, Any]:
    return {
        "severity": "warning" if problem.warning else "error",
        "path": problem.place if problem.path else "",
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "hint": problem.hint,
    }
