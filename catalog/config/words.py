"""Check names and types, and find the word that the author probably meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from catalog.schema import Type

MAX_NAME = 128
MOST_SHOWN = 20  # every policy, every kind of box


class RefusedValueError(ValueError):
    """An invalid value, with a hint and the path below the value at fault."""

    def __init__(self, message: str, hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.hint = hint
        self.at = at


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_TYPE_WORDS = {
    "bool": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "integer": "int",
    "int32": "int",
    "int64": "bigint",
    "long": "bigint",
    "real": "float",
    "float32": "float",
    "float64": "double",
    "number": "double",
    "numeric": "double",
    "decimal": "double",
    "str": "string",
    "text": "string",
    "varchar": "string",
    "char": "string",
    "utf8": "string",
    "datetime": "timestamp",
    "date": "timestamp",
    "time": "timestamp",
    "timestamp_ns": "timestamp",
}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known word, else the list of known words, at most ``MOST_SHOWN``."""
    choices = list(dict.fromkeys(known))
    near = near_word(word, choices)
    if near is not None:
        return f"did you mean '{near}'?"
    if not choices:
        return ""
    shown = ", ".join(choices[:MOST_SHOWN])
    return f"known: {shown}{', ...' if len(choices) > MOST_SHOWN else ''}"


def near_word(word: str, known: Iterable[str]) -> str | None:
    """Return the known word with the fewest edits, else one that begins with the word; None if there is none.

    No more than a third of the letters may change.

    An edit inserts, removes or replaces a letter, or swaps two neighbours (Damerau-Levenshtein). Case does not count.
    """
    known, word = list(known), word.lower()[:MAX_NAME]
    most = max(len(word) > 1, len(word) // 3)  # one letter is near nothing
    found = [(edits, choice) for choice in known if (edits := _edits(word, choice.lower(), most)) <= most]
    if found:
        return min(found, key=lambda pair: pair[0])[1]
    begun = [choice for choice in known if word and choice.lower().startswith(word)]
    return next((choice for choice in begun if len(word) > 2 or len(choice) == len(word) + 1), None)


def _edits(a: str, b: str, most: int) -> int:
    """Return the number of edits between two words; any number above ``most`` when there are more."""
    if abs(len(a) - len(b)) > most:
        return most + 1
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, before = before, row
        row = [i]
        for j, y in enumerate(b, 1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
            if i > 1 and j > 1 and x == b[j - 2] and y == a[i - 2]:
                row[-1] = min(row[-1], above[j - 2] + 1)
    return row[-1]


def nearest(words: Iterable[str], known: Iterable[str]) -> str:
    """Return a did-you-mean for the first of these words that is near a known one."""
    choices = list(known)
    return next((hint for w in words if (hint := did_you_mean(w, choices)).startswith("did")), "")


def check_name(name: str) -> str:
    """Check the name of a stream, box or output. A dot separates a port, ``->`` the ends of an arc: a name has
    neither."""
    if not _NAME.fullmatch(name) or "--" in name or name.endswith("-"):
        raise ValueError(f"'{name[:40]}' is not a name: letters, digits, _ and -, beginning with a letter")
    if len(name) > MAX_NAME:
        raise ValueError(f"the name has {len(name)} characters; at most {MAX_NAME} are allowed")
    return name


def check_field_name(name: str) -> str:
    """Check the name of a field. Less strict than other names, because the sender chooses it; a dot would mean a
    qualified field."""
    if not name or "." in name or not name.isprintable() or len(name) > MAX_NAME:
        raise ValueError(f"'{name[:40]}' is not a field name: printable, without a dot, at most {MAX_NAME} characters")
    return name


def check_field_type(text: str) -> str:
    word = text.strip().removesuffix("?").strip()
    if word not in tuple(Type):
        meant = _TYPE_WORDS.get(word.lower().split("(")[0])
        hint = f"did you mean '{meant}'?" if meant else did_you_mean(word, [str(t) for t in Type])
        raise RefusedValueError(f"'{word[:40]}' is not a type", hint)
    return text.strip()
