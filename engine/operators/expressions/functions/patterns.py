"""LIKE and regular expressions. A pattern is a constant, compiled once and matched once for each distinct string.

RE2 matches all regular expressions. Its time is linear in the text for every pattern, so a hostile string cannot stall
a worker. ``java_patterns`` translates a pattern of Java, which Spark uses, into one of RE2. RE2 has no backreferences
and no lookaround; patterns with them are refused.

Two differences to Spark are left. ``\\b`` looks at ASCII letters only, as Java does from version 19 on. Java finds an
empty match inside a character beyond U+FFFF and breaks it in two; here there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import re2

from catalog.schema import Type
from engine.operators.expressions.functions.java_patterns import translate
from engine.operators.expressions.functions.signatures import function
from engine.operators.expressions.functions.strings import MAX_RESULT_CHARS
from engine.operators.expressions.functions.text import as_text, text_function
from engine.operators.expressions.kernels.compare import compare
from engine.operators.expressions.tree.coerce import Refusal
from engine.operators.expressions.tree.node import Node, constant

MAX_PATTERN_CHARS = 1_000
MAX_PATTERN_BYTES = 2**20  # of the compiled automaton


def like(node: Node, pattern: Node, escape: str = "\\", *, fold: bool = False) -> Node:
    """Make the node of LIKE, or of ILIKE with ``fold``. The usual shapes need no regular expression."""
    node, text = as_text(node), _constant_text("like", pattern)
    if text is None or node.is_null:
        return constant(None, Type.BOOLEAN)
    if len(escape) != 1:
        raise Refusal("the escape of LIKE must be one character")
    if fold:  # as in Spark: both sides in small letters, then LIKE
        fits = _like_regex(_like_parts(text.lower(), escape))
        return _predicate(node, f"ilike {text!r} {escape!r}", lambda t: fits(t.lower()))
    parts = _like_parts(text, escape)
    words = [part for part in parts if isinstance(part, str)]
    if not any(part == _ONE for part in parts):
        word = "".join(words)
        if len(parts) == len(words):
            return compare("=", node, constant(word, Type.STRING))
        if len(words) <= 1:
            shape = (parts[0] is _ANY, parts[-1] is _ANY)
            if not words:
                return _predicate(node, "like %", lambda t: True)
            if shape == (False, True):
                return _predicate(node, f"startswith {word!r}", lambda t: t.startswith(word))
            if shape == (True, False):
                return _predicate(node, f"endswith {word!r}", lambda t: t.endswith(word))
            return _predicate(node, f"contains {word!r}", lambda t: word in t)
    return _predicate(node, f"like {text!r} {escape!r}", _like_regex(parts))


class _Wildcard:
    """One of the two wildcards of LIKE."""


_ANY, _ONE = _Wildcard(), _Wildcard()


def _like_parts(pattern: str, escape: str) -> list[str | _Wildcard]:
    """Split a LIKE pattern into literal pieces and wildcards; %% counts as %."""
    parts: list[str | _Wildcard] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        piece: str | _Wildcard = char
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise Refusal(f"in LIKE the escape {escape!r} must be followed by %, _ or itself")
            piece = pattern[at]
        elif char == "%":
            piece = _ANY
        elif char == "_":
            piece = _ONE
        if isinstance(piece, str) and parts and isinstance(parts[-1], str):
            parts[-1] += piece
        elif not (piece is _ANY and parts and parts[-1] is _ANY):
            parts.append(piece)
        at += 1
    return parts


def _like_regex(parts: Sequence[str | _Wildcard]) -> Callable[[str], bool]:
    body = "".join(re2.escape(p) if isinstance(p, str) else ".*" if p is _ANY else "." for p in parts)
    regex = _compile("(?s)" + body, "".join(p if isinstance(p, str) else "%" for p in parts))
    return lambda text: regex.fullmatch(text) is not None


def _predicate(node: Node, name: str, function: Callable[[str], bool]) -> Node:
    return text_function(name, function, [node], Type.BOOLEAN)


# -- regular expressions --------------------------------------------------------------------------------------------


def _constant_text(what: str, node: Node) -> str | None:
    if node.constant is None:
        raise Refusal(f"the pattern of {what} must be a constant")
    if node.type not in (Type.STRING, None):
        raise Refusal(f"the pattern of {what} must be a string, not {node.type}")
    text: str | None = node.value
    if text is not None and len(text) > MAX_PATTERN_CHARS:
        raise Refusal(f"the pattern of {what} has more than {MAX_PATTERN_CHARS} characters")
    return text


def _compile(pattern: str, shown: str) -> Any:
    options = re2.Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else "?"
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise Refusal(f"RE2 refuses the pattern {shown!r}: {reason}") from error


Span = tuple[int, int]


class JavaPattern:
    """A pattern of Java, matched by RE2. A match is a list of spans: the whole, then each group.

    (-1, -1) stands for a group that is no part of the match.
    """

    def __init__(self, text: str) -> None:
        translation = translate(text)
        self._regex = _compile(translation.pattern, text)
        self._groups = translation.groups
        self._ends = translation.ends
        self.groups = len(translation.groups) - 1

    def occurs_in(self, text: str) -> bool:
        return self._regex.search(text) is not None

    def search(self, text: str, start: int = 0) -> list[Span] | None:
        """Return the first match from ``start`` on."""
        found = self._regex.search(text, start)
        if found is None:
            return None
        spans: list[Span] = [found.span(group) for group in self._groups]
        taken = max((found.end(group) - found.start(group) for group in self._ends), default=0)
        if taken:  # $ took up a final line break, which is not part of the match
            last = spans[0][1] - taken
            spans = [(min(a, last), min(b, last)) for a, b in spans]
        return spans

    def all(self, text: str) -> Iterator[list[Span]]:
        """Yield the matches as Java finds them. re2's own ``finditer`` finds some empty matches twice."""
        start = 0
        while start <= len(text) and (spans := self.search(text, start)) is not None:
            yield spans
            begin, end = spans[0]
            start = end + (begin == end)


def rlike(node: Node, pattern: Node) -> Node:
    """Make the node of RLIKE: whether the regular expression matches anywhere in the string."""
    node, text = as_text(node), _constant_text("rlike", pattern)
    if text is None or node.is_null:
        return constant(None, Type.BOOLEAN)
    return _predicate(node, f"rlike {text!r}", JavaPattern(text).occurs_in)


def _regexp_extract(args: Sequence[Node]) -> Node:
    node, text = as_text(args[0]), _constant_text("regexp_extract", args[1])
    group = args[2].value if len(args) > 2 and args[2].constant is not None else 1
    if text is None or node.is_null or group is None:
        return constant(None, Type.STRING)
    regex = JavaPattern(text)
    if (len(args) > 2 and args[2].constant is None) or not isinstance(group, int) or not 0 <= group <= regex.groups:
        raise Refusal(f"the group of regexp_extract must be a constant from 0 to {regex.groups}, as in the pattern")

    def extract(value: str) -> str:
        found = regex.search(value)
        return "" if found is None else _part(value, found[group])

    return text_function(f"regexp_extract {text!r} {group}", extract, [node], Type.STRING)


def _regexp_replace(args: Sequence[Node]) -> Node:
    node, text = as_text(args[0]), _constant_text("regexp_replace", args[1])
    new = _constant_text("regexp_replace", args[2])
    if text is None or new is None or node.is_null:
        return constant(None, Type.STRING)
    regex = JavaPattern(text)
    parts = _replacement(new, regex.groups)

    def replace(value: str) -> str | None:
        if len(value) * max(1, len(new)) > 4 * MAX_RESULT_CHARS:
            return None
        pieces: list[str] = []
        done = 0
        for spans in regex.all(value):
            pieces.append(value[done : spans[0][0]])
            pieces.extend(part if isinstance(part, str) else _part(value, spans[part]) for part in parts)
            done = spans[0][1]
        changed = "".join([*pieces, value[done:]])
        return changed if len(changed) <= MAX_RESULT_CHARS else None

    return text_function(f"regexp_replace {text!r} {new!r}", replace, [node], Type.STRING, nullable=True)


def _part(text: str, span: Span) -> str:
    """Return the text of a group; empty for a group that is no part of the match."""
    return text[span[0] : span[1]] if span[0] >= 0 else ""


def _replacement(text: str, groups: int) -> list[str | int]:
    """Read a replacement as Java does: ``$1`` is a group, a backslash makes the next character literal."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\" and at + 1 < len(text):
            parts.append(text[at + 1])
            at += 2
        elif char == "$":
            end = at + 1
            while end < len(text) and text[end].isdigit() and (end == at + 1 or int(text[at + 1 : end + 1]) <= groups):
                end += 1
            if end == at + 1 or int(text[at + 1 : end]) > groups:
                hint = "write \\\\$ for a $"
                raise Refusal(f"the replacement {text!r} names a group that the pattern does not have", hint)
            parts.append(int(text[at + 1 : end]))
            at = end
        else:
            parts.append(char)
            at += 1
    return parts


def _regexp_count(args: Sequence[Node]) -> Node:
    node, text = as_text(args[0]), _constant_text("regexp_count", args[1])
    if text is None or node.is_null:
        return constant(None, Type.INT)
    regex = JavaPattern(text)
    return text_function(f"regexp_count {text!r}", lambda t: sum(1 for _ in regex.all(t)), [node], Type.INT)


FUNCTIONS = (
    function(
        "regexp_like(text: string, pattern: constant string) -> boolean",
        "whether the regular expression matches anywhere in text; text rlike pattern is the same",
        lambda a: rlike(a[0], a[1]),
        "regexp_like('AAPL.N', '^[A-Z]+[.]N$') -> true",
        "rlike",
        "regexp",
    ),
    function(
        "regexp_extract(text: string, pattern: constant string[, group: constant int]) -> string",
        "a group of the first match, group 1 by default; the empty string without a match",
        _regexp_extract,
        "regexp_extract('order 66 of 70', '([0-9]+)') -> '66'",
    ),
    function(
        "regexp_replace(text: string, pattern: constant string, new: constant string) -> string",
        "replaces every match by new, in which $1 stands for group 1",
        _regexp_replace,
        "regexp_replace('a-b', '([a-z])', '<$1>') -> '<a>-<b>'",
    ),
    function(
        "regexp_count(text: string, pattern: constant string) -> int",
        "the number of matches",
        _regexp_count,
        "regexp_count('banana', 'an') -> 2",
    ),
)
