"""Sets of code points, the content of a character class: ranges, and Unicode properties that only RE2 can expand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from engine.operators.expressions.tree.coerce import Refusal

LAST = 0x10FFFF
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class CodePoints:
    """The code points of ``ranges`` (sorted, apart) and of RE2's ``properties``; all others if ``negated``."""

    ranges: tuple[Range, ...]
    properties: tuple[str, ...] = ()
    negated: bool = False

    def __or__(self, other: CodePoints) -> CodePoints:
        if (self.negated and self != other) or other.negated:
            raise Refusal("a class may not put a negated Unicode property beside other characters")
        properties = tuple(dict.fromkeys((*self.properties, *other.properties)))
        return CodePoints(_sorted((*self.ranges, *other.ranges)), properties)

    def __and__(self, other: CodePoints) -> CodePoints:
        if self.properties or other.properties:
            raise Refusal("a class with && may not have a Unicode property")
        both = [(max(a, c), min(b, d)) for a, b in self.ranges for c, d in other.ranges if max(a, c) <= min(b, d)]
        return CodePoints(_sorted(both))

    def __invert__(self) -> CodePoints:
        if self.properties:
            return CodePoints(self.ranges, self.properties, not self.negated)
        edges = [-1, *(edge for pair in self.ranges for edge in pair), LAST + 1]
        gaps = zip(edges[::2], edges[1::2], strict=True)
        return CodePoints(tuple((a + 1, b - 1) for a, b in gaps if a + 1 <= b - 1))

    def folded(self) -> CodePoints:
        """Add the other case of every ASCII letter. Java folds no other letters unless (?u) is set."""
        more: list[Range] = []
        for low, high, shift in ((65, 90, 32), (97, 122, -32)):
            more += [(max(a, low) + shift, min(b, high) + shift) for a, b in self.ranges if a <= high and b >= low]
        return CodePoints(_sorted((*self.ranges, *more)), self.properties, self.negated)

    @property
    def re2(self) -> str:
        """Return the class as RE2 writes it."""
        body = "".join(_written(a) if a == b else f"{_written(a)}-{_written(b)}" for a, b in self.ranges)
        body += "".join(self.properties)
        if not body:
            return rf"[^\x00-\x{{{LAST:x}}}]"  # nothing
        return f"[{'^' if self.negated else ''}{body}]"


def code_points(*parts: str | Range) -> CodePoints:
    """Return the set of some characters (each of a text) and ranges."""
    pairs = [(ord(c), ord(c)) for part in parts if isinstance(part, str) for c in part]
    return CodePoints(_sorted([*pairs, *(part for part in parts if not isinstance(part, str))]))


def _sorted(ranges: Iterable[Range]) -> tuple[Range, ...]:
    out: list[Range] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        else:
            out.append((low, high))
    return tuple(out)


def _written(code: int) -> str:
    return rf"\x{{{code:x}}}"


_DIGIT, _UPPER, _LOWER = (48, 57), (65, 90), (97, 122)
_HORIZONTAL = code_points(" \t\xa0\u1680\u180e\u202f\u205f\u3000", (0x2000, 0x200A))
_VERTICAL = code_points((0x0A, 0x0D), "\x85\u2028\u2029")
LINE_BREAKS = code_points("\n\r\x85\u2028\u2029")
ESCAPES: dict[str, CodePoints] = {
    "d": code_points(_DIGIT),
    "w": code_points(_DIGIT, _UPPER, _LOWER, "_"),
    "s": code_points((0x09, 0x0D), " "),
    "h": _HORIZONTAL,
    "v": _VERTICAL,
}
ESCAPES |= {letter.upper(): ~points for letter, points in ESCAPES.items()}
POSIX: dict[str, CodePoints] = {
    "Lower": code_points(_LOWER),
    "Upper": code_points(_UPPER),
    "ASCII": code_points((0, 0x7F)),
    "Alpha": code_points(_LOWER, _UPPER),
    "Digit": code_points(_DIGIT),
    "Alnum": code_points(_LOWER, _UPPER, _DIGIT),
    "Punct": code_points("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"),
    "Graph": code_points((0x21, 0x7E)),
    "Print": code_points((0x20, 0x7E)),
    "Blank": code_points(" \t"),
    "Cntrl": code_points((0, 0x1F), "\x7f"),
    "XDigit": code_points(_DIGIT, (65, 70), (97, 102)),
    "Space": code_points((0x09, 0x0D), " "),
}
"""The POSIX classes of Java, which are ASCII only."""
