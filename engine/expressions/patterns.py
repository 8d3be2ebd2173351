"""LIKE and regular expressions: patterns are constants, compiled once, matched once for each distinct string.

Regular expressions go through RE2 only, which is linear in the text whatever the pattern: a hostile string cannot stall
a worker. RE2 has no backreferences and no lookaround; Spark (Java) has, and such patterns are refused here. Where both
take a pattern they agree, with these exceptions: Java's ``$`` also matches before a final line break, its ``.`` stops
at ``\\r`` and two Unicode line separators as well, and an empty match falls into the middle of a character beyond
U+FFFF.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import re2

from catalog.schema import Type
from engine.expressions.coerce import Refusal
from engine.expressions.compare import compare
from engine.expressions.node import Node, constant
from engine.expressions.signatures import function
from engine.expressions.strings import MAX_RESULT_CHARS
from engine.expressions.text import as_text, text_function

MAX_PATTERN_CHARS = 1_000
MAX_PATTERN_BYTES = 2**20  # of the compiled automaton


def like(node: Node, pattern: Node, escape: str = "\\", *, fold: bool = False) -> Node:
    """LIKE, and ILIKE with ``fold``. The usual shapes need no regular expression at all."""
    node, text = as_text(node), _constant_text("like", pattern)
    if text is None or node.is_null:
        return constant(None, Type.BOOLEAN)
    if len(escape) != 1:
        raise Refusal("the escape of LIKE is one character")
    parts = _like_parts(text, escape)
    if fold:
        return _predicate(node, f"ilike {text!r} {escape!r}", _like_regex(parts, "(?si)"))
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
    return _predicate(node, f"like {text!r} {escape!r}", _like_regex(parts, "(?s)"))


class _Wildcard:
    """One of the two wildcards of LIKE."""


_ANY, _ONE = _Wildcard(), _Wildcard()


def _like_parts(pattern: str, escape: str) -> list[str | _Wildcard]:
    """Literal pieces and wildcards; %% is %."""
    parts: list[str | _Wildcard] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        piece: str | _Wildcard = char
        if char == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise Refusal(f"in LIKE the escape {escape!r} stands before %, _ or itself")
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


def _like_regex(parts: Sequence[str | _Wildcard], flags: str) -> Callable[[str], bool]:
    body = "".join(re2.escape(p) if isinstance(p, str) else ".*" if p is _ANY else "." for p in parts)
    regex = _compile(flags + body)
    return lambda text: regex.fullmatch(text) is not None


def _predicate(node: Node, name: str, function: Callable[[str], bool]) -> Node:
    return text_function(name, function, [node], Type.BOOLEAN)


# -- regular expressions --------------------------------------------------------------------------------------------


def _constant_text(what: str, node: Node) -> str | None:
    if node.constant is None:
        raise Refusal(f"the pattern of {what} must be a constant")
    if node.type not in (Type.STRING, None):
        raise Refusal(f"the pattern of {what} is a string, not {node.type}")
    text: str | None = node.value
    if text is not None and len(text) > MAX_PATTERN_CHARS:
        raise Refusal(f"a pattern may have {MAX_PATTERN_CHARS} characters")
    return text


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.max_mem = MAX_PATTERN_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else "?"
        reason = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise Refusal(f"RE2 does not take the pattern {pattern!r}: {reason}") from error


def rlike(node: Node, pattern: Node) -> Node:
    """Whether a regular expression is found anywhere in the string."""
    node, text = as_text(node), _constant_text("rlike", pattern)
    if text is None or node.is_null:
        return constant(None, Type.BOOLEAN)
    regex = _compile(text)
    return _predicate(node, f"rlike {text!r}", lambda t: regex.search(t) is not None)


def _regexp_extract(args: Sequence[Node]) -> Node:
    node, text = as_text(args[0]), _constant_text("regexp_extract", args[1])
    group = args[2].value if len(args) > 2 and args[2].constant is not None else 1
    if text is None or node.is_null or group is None:
        return constant(None, Type.STRING)
    regex = _compile(text)
    if (len(args) > 2 and args[2].constant is None) or not isinstance(group, int) or not 0 <= group <= regex.groups:
        raise Refusal(f"regexp_extract takes a constant group from 0 to {regex.groups}, as many as the pattern has")

    def extract(value: str) -> str:
        found = regex.search(value)
        return "" if found is None else found.group(group) or ""

    return text_function(f"regexp_extract {text!r} {group}", extract, [node], Type.STRING)


def _regexp_replace(args: Sequence[Node]) -> Node:
    node, text = as_text(args[0]), _constant_text("regexp_replace", args[1])
    new = _constant_text("regexp_replace", args[2])
    if text is None or new is None or node.is_null:
        return constant(None, Type.STRING)
    regex = _compile(text)
    parts = _replacement(new, regex.groups)

    def expand(found: Any) -> str:
        return "".join(part if isinstance(part, str) else found.group(part) or "" for part in parts)

    def replace(value: str) -> str | None:
        if len(value) * max(1, len(new)) > 4 * MAX_RESULT_CHARS:
            return None
        changed = str(regex.sub(expand, value))
        return changed if len(changed) <= MAX_RESULT_CHARS else None

    return text_function(f"regexp_replace {text!r} {new!r}", replace, [node], Type.STRING, nullable=True)


def _replacement(text: str, groups: int) -> list[str | int]:
    """Java's replacement: ``$1`` is a group, a backslash takes the next character as it is."""
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
    regex = _compile(text)
    return text_function(f"regexp_count {text!r}", lambda t: sum(1 for _ in regex.finditer(t)), [node], Type.INT)


FUNCTIONS = (
    function(
        "regexp_like(string, pattern) -> boolean",
        "whether the pattern is found; also rlike",
        lambda a: rlike(a[0], a[1]),
        "rlike",
        "regexp",
    ),
    function("regexp_extract(string, pattern[, group])", "a group of the first match", _regexp_extract),
    function("regexp_replace(string, pattern, new)", "every match by new, $1 for groups", _regexp_replace),
    function("regexp_count(string, pattern) -> int", "number of matches", _regexp_count),
)
