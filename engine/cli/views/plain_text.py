"""Docstrings for a terminal: the same text as in the manual, without the marks of reStructuredText."""

from __future__ import annotations

import re


def plain_text(text: str) -> str:
    """Return a docstring with single backticks for double ones, and without marks of emphasis."""
    text = re.sub(r"``([^`\n]+(?:\n[^`\n]+)?)``", r"`\1`", text)
    return re.sub(r"(?<![\w*`])\*{1,2}(?=[A-Za-z])([^*\n`]*[A-Za-z.])\*{1,2}(?![\w*])", r"\1", text)
