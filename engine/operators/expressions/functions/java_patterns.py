r"""Translate a regular expression of Java, which Spark uses, into one of RE2 with the same meaning.

The two agree on most of the syntax and differ in silence on some of it: ``[[:digit:]]`` and ``&&`` in classes, ``(?i)``
beyond ASCII, ``\s`` and ``\v``, ``.`` and ``$`` beside line breaks. So each element is read as Java reads it, and
written in a form that means the same in RE2. What RE2 cannot express is refused with the reason.

``$`` becomes a group that takes up a final line break. ``JavaPattern`` cuts it off again.

One difference is left. ``\b`` looks at ASCII letters only, as Java does from version 19 on; before, Java looked at
Unicode letters. A pattern in which ``\b`` touches a letter beyond ASCII is refused, because it depends on the version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

import re2

from engine.operators.expressions.functions.code_points import (
    ESCAPES,
    LINE_BREAKS,
    POSIX,
    CodePoints,
    code_points,
)
from engine.operators.expressions.tree.coerce import Refusal

_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_FLAGS = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_NAME = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_REPEAT = re.compile(r"\{\d+(,\d*)?\}")
_HEX = re.compile(r"x\{([0-9a-fA-F]+)\}|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2})")
_PROPERTY = re.compile(r"([pP])(?:\{(\w+)\}|([A-Z]))")
_CATEGORY = re.compile(r"[CLMNPSZ][a-z]?")
_END = rf"((?:\r\n|{LINE_BREAKS.re2})?\z)"
_AROUND = {"(?=": "ahead", "(?!": "ahead", "(?<=": "behind", "(?<!": "behind"}


@dataclass(slots=True)
class Translation:
    """A pattern for RE2. ``groups[k]`` is RE2's number of Java's group k, ``ends`` are the groups of ``$``."""

    pattern: str
    groups: list[int]
    ends: list[int]


def translate(pattern: str) -> Translation:
    """Return the pattern for RE2. Raises Refusal."""
    return _Translator(pattern).translation()


class _Translator:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.fold = self.dot_all = self.lines = False
        self.stack: list[tuple[bool, bool, bool]] = []  # the flags around each open group
        self.groups: list[int] = [0]  # RE2's number of each group of Java
        self.ends: list[int] = []  # RE2's numbers of the groups that $ became
        self.opened = 0  # capturing groups of RE2 so far
        self.dollars: list[int] = []  # places of $ in ``out``
        self.bounds: list[int] = []  # places of \b and \B in ``out``

    def translation(self) -> Translation:
        while self.at < len(self.pattern):
            self._element()
        for place in self.dollars:
            if not self._is_final(place):
                self._refuse("has a $ before its end; in Java it also matches before a final line break", "write \\\\z")
        for place in self.bounds:
            beside = "".join(self.out[max(0, place - 1) : place] + self.out[place + 1 : place + 2])
            if any(c.isalnum() and not c.isascii() for c in beside):
                self._refuse("has \\b beside a letter beyond ASCII, which depends on the version of Java")
        return Translation("".join(self.out), self.groups, self.ends)

    def _refuse(self, reason: str, hint: str = "") -> NoReturn:
        raise Refusal(f"the pattern {self.pattern!r} {reason}", hint)

    def _is_final(self, place: int) -> bool:
        """Tell whether nothing can follow the element at this place in a match."""
        at = place + 1
        while at < len(self.out):
            if self.out[at] == "|":
                depth = 0
                while at < len(self.out) and (depth or self.out[at] != ")"):
                    here = self.out[at]
                    depth += (here[0] == "(" and here[-1] != ")") - (here == ")")
                    at += 1
            elif self.out[at] == ")" and (at + 1 == len(self.out) or self.out[at + 1][0] not in "*+?{"):
                at += 1
            else:
                return False
        return True

    # -- outside classes ---------------------------------------------------------------------------------------------

    def _element(self) -> None:
        char = self.pattern[self.at]
        if char == "(":
            self._open()
        elif char == "\\":
            self._escape()
        elif char == "[":
            self.out.append(self._class().re2)
        elif char in "*+?{":
            self._repeat(char)
        else:
            self.at += 1
            if char == ".":
                self.out.append("(?s:.)" if self.dot_all else (~LINE_BREAKS).re2)
            elif char == "^":
                self._check_lines()
                self.out.append(r"\A")
            elif char == "$":
                self._end()
            elif char in "|)":
                self.out.append(char)
                if char == ")" and self.stack:
                    self.fold, self.dot_all, self.lines = self.stack.pop()
            else:
                self._literal(char)

    def _literal(self, char: str) -> None:
        if self.fold and char.isascii() and char.isalpha():
            self.out.append(f"[{char.lower()}{char.upper()}]")
        else:
            self.out.append(char if char.isalnum() else re2.escape(char))

    def _check_lines(self) -> None:
        if self.lines:
            self._refuse("has ^ or $ behind (?m): Java and RE2 do not end lines at the same characters")

    def _end(self) -> None:
        self._check_lines()
        self.opened += 1
        self.ends.append(self.opened)
        self.dollars.append(len(self.out))
        self.out.append(_END)

    def _repeat(self, char: str) -> None:
        found = _REPEAT.match(self.pattern, self.at)
        if char == "{" and not found:
            self._refuse("has a { that is no repetition", "write \\\\{ for a {")
        self.out.append(found[0] if found and char == "{" else char)
        self.at += len(self.out[-1])
        if self.pattern.startswith("+", self.at):
            self._refuse("has a possessive repetition, which RE2 does not have")

    def _open(self) -> None:
        rest = self.pattern[self.at :]
        for mark, where in _AROUND.items():
            if rest.startswith(mark):
                self._refuse(f"looks {where} with {mark}, which RE2 cannot")
        around = (self.fold, self.dot_all, self.lines)
        if not rest.startswith("(?"):
            self._capture("(", 1)
        elif name := _NAME.match(rest):
            self._capture(f"(?P<{name[1]}>", len(name[0]))
        elif flags := _FLAGS.match(rest):
            self._set_flags(flags[1], True)
            self._set_flags(flags[2] or "", False)
            self.at += len(flags[0])
            if flags[3] == ")":
                if self.pattern[self.at : self.at + 1] in ("*", "+", "?", "{"):
                    self._refuse(f"repeats {flags[0]}")
                return
            self.out.append("(?:")
        else:
            self._refuse(f"has the group {rest[:4]!r}, which Java or RE2 does not have")
        self.stack.append(around)

    def _capture(self, text: str, length: int) -> None:
        self.opened += 1
        self.groups.append(self.opened)
        self.out.append(text)
        self.at += length

    def _set_flags(self, letters: str, on: bool) -> None:
        for letter in letters:
            if letter == "i":
                self.fold = on
            elif letter == "s":
                self.dot_all = on
            elif letter == "m":
                self.lines = on
            else:
                self._refuse(f"has the flag {letter}; the flags are i, s and m")

    def _escape(self) -> None:
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter == "Q":
            for char in self._quoted():
                self._literal(char)
        elif letter in ("b", "B"):
            self.at += 2
            if self.pattern.startswith("{", self.at):
                self._refuse(f"has \\{letter}{{, which RE2 does not have")
            self.bounds.append(len(self.out))
            self.out.append(f"\\{letter}")
        elif letter in ("A", "z", "Z", "R"):
            self.at += 2
            if letter == "Z":
                self._end()
            else:
                self.out.append(rf"(?:\r\n|{ESCAPES['v'].re2})" if letter == "R" else f"\\{letter}")
        else:
            found = self._one_or_set()
            if isinstance(found, str):
                self._literal(found)
            else:
                self.out.append((found.folded() if self.fold and not found.properties else found).re2)

    def _quoted(self) -> str:
        """Read ``\\Q...\\E``."""
        end = self.pattern.find("\\E", self.at)
        text = self.pattern[self.at + 2 : end if end >= 0 else None]
        self.at = end + 2 if end >= 0 else len(self.pattern)
        return text

    def _one_or_set(self) -> str | CodePoints:
        """Read an escape that stands for one character or for a set, inside a class or outside."""
        rest = self.pattern[self.at + 1 :]
        letter = rest[:1]
        if found := _HEX.match(rest):
            self.at += 1 + len(found[0])
            digits = found[1] or found[2] or found[3]
            return self._character(int(digits, 16) if digits else int(found[4], 8), bool(found[3]))
        if found := _PROPERTY.match(rest):
            self.at += 1 + len(found[0])
            return self._property(found[2] or found[3], found[1] == "P")
        self.at += 2
        if letter in ESCAPES:
            return ESCAPES[letter]
        if letter in _LETTERS:
            return _LETTERS[letter]
        if letter == "c" and len(rest) > 1:
            self.at += 1
            return chr(ord(rest[1]) ^ 64)
        if not letter or (letter.isascii() and letter.isalnum()):
            if letter.isdigit() or letter == "k":
                self._refuse(f"has the backreference \\{letter}, which RE2 does not have")
            self._refuse(f"has the escape \\{letter}, which Java or RE2 does not have")
        return letter

    def _character(self, code: int, is_half: bool) -> str:
        if is_half and 0xD800 <= code < 0xDC00:  # a character beyond U+FFFF as two halves
            low = re.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})", self.pattern[self.at :])
            if low:
                self.at += len(low[0])
                return chr(0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            self._refuse(f"has the code {code:x}, which is no character")
        return chr(code)

    def _property(self, name: str, negated: bool) -> CodePoints:
        if name in POSIX:
            return ~POSIX[name] if negated else POSIX[name]
        if name.startswith("Is") and len(name) > 2:
            name = name[2:]
        elif not _CATEGORY.fullmatch(name):
            self._refuse(f"has the property {name!r}, which Java does not have", "write \\\\p{L} or \\\\p{IsGreek}")
        if name in ("Alphabetic", "Letter", "Digit", "Punctuation", "Control", "Assigned", "Emoji"):
            self._refuse(f"has the property Is{name}, which RE2 does not have")
        made = CodePoints((), (rf"\p{{{name}}}",))
        return ~made if negated else made

    # -- classes -----------------------------------------------------------------------------------------------------

    def _class(self) -> CodePoints:
        """Read ``[...]`` as Java does: nested classes are united, ``&&`` intersects all on its left with all on its
        right, and ``^`` turns the whole."""
        self.at += 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        whole: CodePoints | None = None
        while True:
            part = self._union()
            whole = part if whole is None else whole & part
            if self.pattern.startswith("]", self.at):
                self.at += 1
                return ~whole if negated else whole
            self.at += 2  # &&
            if self.pattern[self.at : self.at + 1] in ("&", "]"):
                self._refuse("has && without a class on its right")

    def _union(self) -> CodePoints:
        """Read up to the ``]`` or ``&&`` that ends a part of a class."""
        found: CodePoints | None = None
        while True:
            if self.at >= len(self.pattern):
                self._refuse("has a class that is not closed")
            here = self.pattern[self.at]
            if found is not None and (here == "]" or self.pattern.startswith("&&", self.at)):
                return found
            if here == "[":
                item = self._class()
            elif self.pattern.startswith("\\Q", self.at):
                item = code_points(self._quoted())
            else:
                item = self._range()
                item = item.folded() if self.fold and not item.properties else item
            found = item if found is None else found | item

    def _range(self) -> CodePoints:
        low = self._class_member()
        if not isinstance(low, str):
            return low
        if not self.pattern.startswith("-", self.at) or self.pattern[self.at + 1 : self.at + 2] in ("]", "[", ""):
            return code_points(low)
        self.at += 1
        high = self._class_member()
        if not isinstance(high, str) or high < low:
            self._refuse("has a class with a range that ends before it begins, or in a set")
        return code_points((ord(low), ord(high)))

    def _class_member(self) -> str | CodePoints:
        char = self.pattern[self.at]
        if char == "\\":
            return self._one_or_set()
        self.at += 1
        return char
