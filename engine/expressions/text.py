"""String functions. Each runs once for each distinct string (``pools``), so they are plain Python on one string.

Positions count from 1 and length counts code points, as in Spark. What is not a string is cast to one, as Spark does.
A result that could grow without bound (``repeat``, ``replace``) is NULL beyond a limit (``strings``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from catalog.schema import Type
from engine.expressions import strings
from engine.expressions.casts import cast
from engine.expressions.coerce import Refusal
from engine.expressions.combinations import combined_run
from engine.expressions.node import Node, Range, constant, folded
from engine.expressions.pools import text_table_run
from engine.expressions.signatures import function

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
    python: Python,
    nodes: Sequence[Node],
    type: Type,
    *,
    nullable: bool = False,
    nulls: bool = False,
    range: Range | None = None,
) -> Node:
    """A node that calls ``python`` with Python values; NULL in makes NULL unless it asks for NULLs (``nulls``)."""
    if not nulls and any(node.is_null for node in nodes):
        return constant(None, type)
    fixed = [node.value if node.constant is not None else None for node in nodes]
    free = [at for at, node in enumerate(nodes) if node.constant is None]
    shape = ", ".join("?" if at in free else repr(value) for at, value in enumerate(fixed))
    key = f"{name}({', '.join(node.key for node in nodes)})"
    free = free or [0]  # all constant: computed at once, by folding
    bound = _bind(python, fixed, free)
    if len(free) == 1 and nodes[free[0]].type is Type.STRING and not nulls:
        run = text_table_run(nodes[free[0]], f"{name}({shape})", bound, type)
    else:
        run = combined_run(f"{name}({shape}) {type}", bound, [nodes[at] for at in free], type, nulls=nulls)
    result_nullable = nullable or any(node.nullable for node in nodes)
    return folded(Node(key, type, run, tuple(nodes), nullable=result_nullable, range=range))


def _bind(python: Python, fixed: Sequence[Any], free: Sequence[int]) -> Python:
    """The function of its free arguments only."""

    def bound(*values: Any) -> Any:
        full = list(fixed)
        for at, value in zip(free, values, strict=True):
            full[at] = value
        return python(*full)

    return bound


# -- the table ------------------------------------------------------------------------------------------------------


def _texts(name: str, python: Python, type: Type = Type.STRING, **options: Any) -> Callable[[Sequence[Node]], Node]:
    """Every argument is a string."""
    return lambda args: text_function(name, python, [as_text(a) for a in args], type, **options)


def _counted(name: str, python: Python) -> Callable[[Sequence[Node]], Node]:
    """A string to a number that is not negative."""
    return _texts(name, python, Type.INT, range=_LENGTHS)


def _mixed(name: str, python: Python, kinds: str, **options: Any) -> Callable[[Sequence[Node]], Node]:
    """``kinds`` has a letter for each argument: t for a string, i for an integer."""

    def build(args: Sequence[Node]) -> Node:
        nodes = [as_text(a) if kind == "t" else as_integer(name, a) for a, kind in zip(args, kinds, strict=False)]
        return text_function(name, python, nodes, Type.STRING, **options)

    return build


def concat(args: Sequence[Node]) -> Node:
    if not args:
        return constant("", Type.STRING)
    return text_function("concat", lambda *parts: "".join(parts), [as_text(a) for a in args], Type.STRING)


def _build_concat_ws(args: Sequence[Node]) -> Node:
    nodes = [as_text(a) for a in args]
    if nodes[0].is_null:
        return constant(None, Type.STRING)
    node = text_function("concat_ws", strings.concat_ws, nodes, Type.STRING, nulls=True)
    node.nullable = nodes[0].nullable and node.constant is None
    return node


def _build_locate(args: Sequence[Node]) -> Node:
    nodes = [as_text(args[0]), as_text(args[1]), *(as_integer("locate", a) for a in args[2:])]
    if len(nodes) == 3 and nodes[2].is_null:
        return constant(0, Type.INT)
    return text_function("locate", strings.locate, nodes, Type.INT, range=_LENGTHS)


def _build_split_part(args: Sequence[Node]) -> Node:
    if args[2].constant is not None and args[2].value == 0:
        raise Refusal("split_part counts parts from 1, or from -1 backwards")
    return _mixed("split_part", strings.split_part, "tti", nullable=args[2].constant is None)(args)


def _build_pad(name: str, python: Python) -> Callable[[Sequence[Node]], Node]:
    def build(args: Sequence[Node]) -> Node:
        if args[1].constant is not None and not args[1].is_null and args[1].value > strings.MAX_RESULT_CHARS:
            raise Refusal(f"{name} makes at most {strings.MAX_RESULT_CHARS} characters")
        return _mixed(name, python, "tit", nullable=args[1].constant is None)(args)

    return build


def _build_chr(args: Sequence[Node]) -> Node:
    return text_function("chr", strings.character, [as_integer("chr", args[0])], Type.STRING)


def _build_space(args: Sequence[Node]) -> Node:
    node = as_integer("space", args[0])
    return text_function("repeat", strings.repeat, [constant(" ", Type.STRING), node], Type.STRING, nullable=True)


def trim(name: str, args: Sequence[Node]) -> Node:
    """``trim(s)`` takes blanks away, ``trim(chars, s)`` any of the characters: Spark's order."""
    strip = {"trim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}[name]
    chars, text = (
        (as_text(args[0]), as_text(args[1])) if len(args) > 1 else (constant(" ", Type.STRING), as_text(args[0]))
    )
    return text_function(name, lambda c, t: strip(t, c) if c else t, [chars, text], Type.STRING)


_B = Type.BOOLEAN
FUNCTIONS = (
    function("upper(string)", "in capitals", _texts("upper", str.upper), "ucase"),
    function("lower(string)", "in small letters", _texts("lower", str.lower), "lcase"),
    function("initcap(string)", "each word with a capital", _texts("initcap", strings.initcap)),
    function(
        "length(string) -> int",
        "number of characters",
        _counted("length", len),
        "len",
        "char_length",
        "character_length",
    ),
    function("octet_length(string) -> int", "number of bytes in UTF-8", _counted("octet_length", strings.octet_length)),
    function("trim([chars,] string)", "without blanks (or chars) at both ends", lambda a: trim("trim", a), "btrim"),
    function("ltrim([chars,] string)", "without them at the start", lambda a: trim("ltrim", a)),
    function("rtrim([chars,] string)", "without them at the end", lambda a: trim("rtrim", a)),
    function(
        "substring(string, start[, length])",
        "a part, counted from 1, or from the end below 0",
        _mixed("substring", strings.substring, "tii"),
        "substr",
    ),
    function("left(string, n)", "the first n characters", _mixed("left", strings.left, "ti")),
    function("right(string, n)", "the last n characters", _mixed("right", strings.right, "ti")),
    function("concat([string, ...])", "one after another; also ||", concat),
    function("concat_ws(sep[, string, ...])", "joined by sep, NULLs left out", _build_concat_ws),
    function("replace(string, old[, new])", "every old by new", _texts("replace", strings.replace, nullable=True)),
    function("translate(string, old, new)", "character by character", _texts("translate", strings.translate)),
    function("overlay(string, new, start[, length])", "new over a part", _mixed("overlay", strings.overlay, "ttii")),
    function("instr(string, part) -> int", "where part begins, 0 if nowhere", lambda a: _build_locate([a[1], a[0]])),
    function("locate(part, string[, start]) -> int", "where part begins, 0 if nowhere", _build_locate, "position"),
    function(
        "startswith(string, part) -> boolean",
        "whether it begins so",
        _texts("startswith", str.startswith, _B),
        "starts_with",
    ),
    function(
        "endswith(string, part) -> boolean", "whether it ends so", _texts("endswith", str.endswith, _B), "ends_with"
    ),
    function("contains(string, part) -> boolean", "whether part is in it", _texts("contains", str.__contains__, _B)),
    function("lpad(string, n[, pad])", "filled or cut to n, on the left", _build_pad("lpad", strings.lpad)),
    function("rpad(string, n[, pad])", "filled or cut to n, on the right", _build_pad("rpad", strings.rpad)),
    function("reverse(string)", "backwards", _texts("reverse", lambda t: t[::-1])),
    function("repeat(string, n)", "n times", _mixed("repeat", strings.repeat, "ti", nullable=True)),
    function("space(n)", "n blanks", _build_space),
    function("split_part(string, delimiter, n)", "the n-th part", _build_split_part),
    function(
        "substring_index(string, delimiter, n)",
        "all before the n-th delimiter",
        _mixed("substring_index", strings.substring_index, "tti"),
    ),
    function("ascii(string) -> int", "code of the first character", _counted("ascii", strings.first_code)),
    function("chr(n)", "the character of a code below 256", _build_chr, "char"),
)
