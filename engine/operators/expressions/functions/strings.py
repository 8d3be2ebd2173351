"""Functions of single strings in plain Python, with Spark's meaning: positions count from 1, lengths in code points.

A function whose result could grow without bound returns None (NULL) beyond MAX_RESULT_CHARS.
"""

from __future__ import annotations

MAX_RESULT_CHARS = 2**20


def substring(text: str, position: int, length: int | None = None) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = len(text) if length is None else start + length
    return text[max(0, start) : max(0, end)]


def left(text: str, count: int) -> str:
    return text[: max(0, count)]


def right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def replace(text: str, old: str, new: str = "") -> str | None:
    if not old:
        return text
    grown = len(text) + text.count(old) * (len(new) - len(old))
    return text.replace(old, new) if grown <= MAX_RESULT_CHARS else None


def locate(part: str | None, text: str | None, position: int | None = 1) -> int | None:
    if position is None:
        return 0
    if part is None or text is None:
        return None
    if position < 1:
        return 0
    return 1 if not part else text.find(part, position - 1) + 1


def _filling(text: str, length: int, pad: str) -> str | None:
    """Return the padding that is missing up to ``length``; None beyond the limit."""
    missing = length - len(text)
    if missing > MAX_RESULT_CHARS:
        return None
    return (pad * (missing // len(pad) + 1))[:missing] if missing > 0 and pad else ""


def lpad(text: str, length: int, pad: str = " ") -> str | None:
    filling = _filling(text, length, pad)
    return None if filling is None else (filling + text)[: max(0, length)]


def rpad(text: str, length: int, pad: str = " ") -> str | None:
    filling = _filling(text, length, pad)
    return None if filling is None else (text + filling)[: max(0, length)]


def repeat(text: str, times: int) -> str | None:
    return text * max(0, times) if len(text) * times <= MAX_RESULT_CHARS else None


def split_part(text: str, delimiter: str, part: int) -> str | None:
    parts = text.split(delimiter) if delimiter else [text]
    if part == 0:
        return None
    at = part - 1 if part > 0 else len(parts) + part
    return parts[at] if 0 <= at < len(parts) else ""


def substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def initcap(text: str) -> str:
    return " ".join(_capital(word) + word.lower()[len(word[:1].lower()) :] for word in text.split(" "))


def _capital(word: str) -> str:
    """Return the title case of a word's first letter; İ is a capital already, and its small letter has two."""
    return "İ" if word[:1] == "İ" else word[:1].lower().title()


def translate(text: str, old: str, new: str) -> str:
    table: dict[int, int | None] = {}
    for at, char in enumerate(old):
        table.setdefault(ord(char), ord(new[at]) if at < len(new) else None)
    return text.translate(table)


def overlay(text: str, new: str, position: int, length: int = -1) -> str:
    length = length if length >= 0 else len(new)
    return substring(text, 1, position - 1) + new + substring(text, position + length)


def concat_ws(separator: str | None, *parts: str | None) -> str | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def character(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


def octet_length(text: str) -> int:
    return len(text.encode())


def first_code(text: str) -> int:
    return ord(text[0]) if text else 0
