"""String functions. Each runs once for each distinct string (``pools``), so they are plain Python on one string.

Positions count from 1 and length counts code points, as in Spark. What is not a string is cast to one, as Spark does.
A result that could grow without bound (``repeat``, ``replace``) is NULL beyond MAX_RESULT_CHARS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from catalog.schema import Type
from engine.expressions.casts import cast
from engine.expressions.coerce import Refusal
from engine.expressions.combinations import combined_run
from engine.expressions.node import Node, Range, constant, folded
from engine.expressions.pools import text_table_run
from engine.expressions.signatures import MANY, Function

MAX_RESULT_CHARS = 2**20
_LENGTHS: Range = (0, 2**31 - 1)

Python = Callable[..., Any]


def as_text(node: Node) -> Node:
    return cast(node, Type.STRING)


def as_integer(what: str, node: Node) -> Node:
    if node.type is None:
        return constant(None, Type.INT)
    if not node.type.is_integer:
        raise Refusal(f"{what} takes an integer here, not {node.type}")
    return node


def text_function(
    name: str,
    function: Python,
    nodes: Sequence[Node],
    type: Type,
    *,
    nullable: bool = False,
    nulls: bool = False,
    range: Range | None = None,
) -> Node:
    """A node that calls ``function`` with Python values; NULL arguments make NULL unless it asks for them (``nulls``)."""
    if not nulls and any(node.is_null for node in nodes):
        return constant(None, type)
    fixed = [node.value if node.constant is not None else None for node in nodes]
    free = [at for at, node in enumerate(nodes) if node.constant is None]
    shape = ", ".join("?" if at in free else repr(value) for at, value in enumerate(fixed))
    key = f"{name}({', '.join(node.key for node in nodes)})"
    free = free or [0]  # all constant: computed at once, by folding
    bound = _bind(function, fixed, free)
    if len(free) == 1 and nodes[free[0]].type is Type.STRING and not nulls:
        run = text_table_run(nodes[free[0]], f"{name}({shape})", bound, type)
    else:
        run = combined_run(f"{name}({shape}) {type}", bound, [nodes[at] for at in free], type, nulls=nulls)
    result_nullable = nullable or any(node.nullable for node in nodes)
    return folded(Node(key, type, run, tuple(nodes), nullable=result_nullable, range=range))


def _bind(function: Python, fixed: Sequence[Any], free: Sequence[int]) -> Python:
    """The function of its free arguments only."""

    def bound(*values: Any) -> Any:
        full = list(fixed)
        for at, value in zip(free, values, strict=True):
            full[at] = value
        return function(*full)

    return bound


# -- one string at a time -------------------------------------------------------------------------------------------


def substring(text: str, position: int, length: int | None = None) -> str:
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    end = len(text) if length is None else start + length
    return text[max(0, start) : max(0, end)]


def _left(text: str, count: int) -> str:
    return text[: max(0, count)]


def _right(text: str, count: int) -> str:
    return text[-count:] if count > 0 else ""


def _replace(text: str, old: str, new: str = "") -> str | None:
    if not old:
        return text
    grown = len(text) + text.count(old) * (len(new) - len(old))
    return text.replace(old, new) if grown <= MAX_RESULT_CHARS else None


def locate(part: str, text: str, position: int | None = 1) -> int:
    if position is None or position < 1:
        return 0
    return 1 if not part else text.find(part, position - 1) + 1


def _pad(text: str, length: int, pad: str) -> str | None:
    """What is missing up to ``length``."""
    missing = length - len(text)
    if missing > MAX_RESULT_CHARS:
        return None
    return (pad * (missing // len(pad) + 1))[:missing] if missing > 0 and pad else ""


def _lpad(text: str, length: int, pad: str = " ") -> str | None:
    filling = _pad(text, length, pad)
    return None if filling is None else (filling + text)[: max(0, length)]


def _rpad(text: str, length: int, pad: str = " ") -> str | None:
    filling = _pad(text, length, pad)
    return None if filling is None else (text + filling)[: max(0, length)]


def _repeat(text: str, times: int) -> str | None:
    return text * max(0, times) if len(text) * times <= MAX_RESULT_CHARS else None


def split_part(text: str, delimiter: str, part: int) -> str | None:
    parts = text.split(delimiter) if delimiter else [text]
    if part == 0:
        return None
    at = part - 1 if part > 0 else len(parts) + part
    return parts[at] if 0 <= at < len(parts) else ""


def _substring_index(text: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    parts = text.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _initcap(text: str) -> str:
    return " ".join(word[:1].title() + word[1:] for word in text.lower().split(" "))


def _translate(text: str, old: str, new: str) -> str:
    table: dict[int, int | None] = {}
    for at, char in enumerate(old):
        table.setdefault(ord(char), ord(new[at]) if at < len(new) else None)
    return text.translate(table)


def _overlay(text: str, new: str, position: int, length: int = -1) -> str:
    length = length if length >= 0 else len(new)
    return substring(text, 1, position - 1) + new + substring(text, position + length)


def _concat_ws(separator: str | None, *parts: str | None) -> str | None:
    return None if separator is None else separator.join(part for part in parts if part is not None)


def _chr(code: int) -> str:
    return "" if code < 0 else chr(code & 0xFF)


# -- the table ------------------------------------------------------------------------------------------------------


def _texts(name: str, function: Python, type: Type = Type.STRING, **options: Any) -> Callable[[Sequence[Node]], Node]:
    """Every argument is a string."""
    return lambda args: text_function(name, function, [as_text(a) for a in args], type, **options)


def _mixed(name: str, function: Python, kinds: str, **options: Any) -> Callable[[Sequence[Node]], Node]:
    """``kinds`` has a letter for each argument: t for a string, i for an integer."""

    def build(args: Sequence[Node]) -> Node:
        nodes = [as_text(a) if kind == "t" else as_integer(name, a) for a, kind in zip(args, kinds, strict=False)]
        return text_function(name, function, nodes, Type.STRING, **options)

    return build


def concat(args: Sequence[Node]) -> Node:
    if not args:
        return constant("", Type.STRING)
    return text_function("concat", lambda *parts: "".join(parts), [as_text(a) for a in args], Type.STRING)


def _build_concat_ws(args: Sequence[Node]) -> Node:
    nodes = [as_text(a) for a in args]
    if nodes[0].is_null:
        return constant(None, Type.STRING)
    node = text_function("concat_ws", _concat_ws, nodes, Type.STRING, nulls=True)
    node.nullable = nodes[0].nullable and node.constant is None
    return node


def _build_locate(args: Sequence[Node]) -> Node:
    nodes = [as_text(args[0]), as_text(args[1]), *(as_integer("locate", a) for a in args[2:])]
    if len(nodes) == 3 and nodes[2].is_null:
        return constant(0, Type.INT)
    return text_function("locate", locate, nodes, Type.INT, range=_LENGTHS)


def _build_split_part(args: Sequence[Node]) -> Node:
    if args[2].constant is not None and args[2].value == 0:
        raise Refusal("split_part counts parts from 1, or from -1 backwards")
    return _mixed("split_part", split_part, "tti", nullable=args[2].constant is None)(args)


def _build_pad(name: str, function: Python) -> Callable[[Sequence[Node]], Node]:
    def build(args: Sequence[Node]) -> Node:
        if args[1].constant is not None and not args[1].is_null and args[1].value > MAX_RESULT_CHARS:
            raise Refusal(f"{name} makes at most {MAX_RESULT_CHARS} characters")
        return _mixed(name, function, "tit", nullable=args[1].constant is None)(args)

    return build


def _build_chr(args: Sequence[Node]) -> Node:
    return text_function("chr", _chr, [as_integer("chr", args[0])], Type.STRING)


def _build_space(args: Sequence[Node]) -> Node:
    node = as_integer("space", args[0])
    return text_function("repeat", _repeat, [constant(" ", Type.STRING), node], Type.STRING, nullable=True)


def trim(name: str, args: Sequence[Node]) -> Node:
    """``trim(s)`` takes blanks away, ``trim(chars, s)`` any of the characters: Spark's order."""
    strip = {"trim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}[name]
    chars, text = (as_text(args[0]), as_text(args[1])) if len(args) > 1 else (constant(" ", Type.STRING), as_text(args[0]))
    return text_function(name, lambda c, t: strip(t, c) if c else t, [chars, text], Type.STRING)


_B, _I = Type.BOOLEAN, Type.INT
FUNCTIONS = (
    Function("upper", "upper(string)", "in capitals", _texts("upper", str.upper), 1, 1, ("ucase",)),
    Function("lower", "lower(string)", "in small letters", _texts("lower", str.lower), 1, 1, ("lcase",)),
    Function("initcap", "initcap(string)", "each word with a capital", _texts("initcap", _initcap), 1, 1),
    Function(
        "length",
        "length(string) -> int",
        "number of characters",
        _texts("length", len, _I, range=_LENGTHS),
        1,
        1,
        ("len", "char_length", "character_length"),
    ),
    Function(
        "octet_length",
        "octet_length(string) -> int",
        "number of bytes in UTF-8",
        _texts("octet_length", lambda t: len(t.encode()), _I, range=_LENGTHS),
        1,
        1,
    ),
    Function("trim", "trim([chars,] string)", "without blanks (or chars) at both ends", lambda a: trim("trim", a), 1, 2, ("btrim",)),
    Function("ltrim", "ltrim([chars,] string)", "without them at the start", lambda a: trim("ltrim", a), 1, 2),
    Function("rtrim", "rtrim([chars,] string)", "without them at the end", lambda a: trim("rtrim", a), 1, 2),
    Function(
        "substring",
        "substring(string, from[, length])",
        "a part, counted from 1, or from the end below 0",
        _mixed("substring", substring, "tii"),
        2,
        3,
        ("substr", "mid"),
    ),
    Function("left", "left(string, n)", "the first n characters", _mixed("left", _left, "ti"), 2, 2),
    Function("right", "right(string, n)", "the last n characters", _mixed("right", _right, "ti"), 2, 2),
    Function("concat", "concat(string, ...)", "one after another; also ||", concat, 0, MANY),
    Function("concat_ws", "concat_ws(sep, string, ...)", "joined by sep, NULLs left out", _build_concat_ws, 1, MANY),
    Function(
        "replace", "replace(string, old[, new])", "every old by new", _texts("replace", _replace, nullable=True), 2, 3
    ),
    Function("translate", "translate(string, from, to)", "character by character", _texts("translate", _translate), 3, 3),
    Function(
        "overlay", "overlay(string, new, from[, length])", "new in place of a part", _mixed("overlay", _overlay, "ttii"), 3, 4
    ),
    Function(
        "instr",
        "instr(string, part) -> int",
        "where part begins, 0 if nowhere",
        lambda a: _build_locate([a[1], a[0]]),
        2,
        2,
    ),
    Function(
        "locate", "locate(part, string[, from]) -> int", "where part begins, 0 if nowhere", _build_locate, 2, 3, ("position",)
    ),
    Function(
        "startswith",
        "startswith(string, part) -> boolean",
        "whether it begins so",
        _texts("startswith", str.startswith, _B),
        2,
        2,
        ("starts_with",),
    ),
    Function(
        "endswith",
        "endswith(string, part) -> boolean",
        "whether it ends so",
        _texts("endswith", str.endswith, _B),
        2,
        2,
        ("ends_with",),
    ),
    Function(
        "contains",
        "contains(string, part) -> boolean",
        "whether part is in it",
        _texts("contains", lambda t, p: p in t, _B),
        2,
        2,
    ),
    Function("lpad", "lpad(string, n[, pad])", "filled or cut to n, on the left", _build_pad("lpad", _lpad), 2, 3),
    Function("rpad", "rpad(string, n[, pad])", "filled or cut to n, on the right", _build_pad("rpad", _rpad), 2, 3),
    Function("reverse", "reverse(string)", "backwards", _texts("reverse", lambda t: t[::-1]), 1, 1),
    Function("repeat", "repeat(string, n)", "n times", _mixed("repeat", _repeat, "ti", nullable=True), 2, 2),
    Function("space", "space(n)", "n blanks", _build_space, 1, 1),
    Function("split_part", "split_part(string, delimiter, n)", "the n-th part", _build_split_part, 3, 3),
    Function(
        "substring_index",
        "substring_index(string, delimiter, n)",
        "all before the n-th delimiter",
        _mixed("substring_index", _substring_index, "tti"),
        3,
        3,
    ),
    Function(
        "ascii",
        "ascii(string) -> int",
        "code of the first character",
        _texts("ascii", lambda t: ord(t[0]) if t else 0, _I, range=_LENGTHS),
        1,
        1,
    ),
    Function("chr", "chr(n)", "the character of a code below 256", _build_chr, 1, 1, ("char",)),
)
