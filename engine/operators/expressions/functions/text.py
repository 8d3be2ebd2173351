"""String functions. Each is plain Python on one string, because it runs once for each distinct string (``pools``).

As in Spark, positions count from 1, lengths count code points, and an argument of another type is cast to a string. A
result that could grow without bound (``repeat``, ``replace``) is NULL beyond a limit (``strings``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from catalog.schema import Type
from engine.operators.expressions.functions import strings
from engine.operators.expressions.functions.signatures import function
from engine.operators.expressions.kernels.casts import cast
from engine.operators.expressions.kernels.combinations import combined_run
from engine.operators.expressions.kernels.pools import text_table_run
from engine.operators.expressions.tree.coerce import Refusal, with_article
from engine.operators.expressions.tree.node import Node, Range, constant, folded

_LENGTHS: Range = (0, 2**31 - 1)

Python = Callable[..., Any]


def as_text(node: Node) -> Node:
    return cast(node, Type.STRING)


def as_integer(what: str, node: Node) -> Node:
    if node.type is None:
        return constant(None, Type.INT)
    if not node.type.is_integer:
        raise Refusal(f"{what} takes an integer here, not {with_article(node.type)}")
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
    """Make a node that calls ``python`` with Python values. A NULL argument gives NULL, unless ``nulls``: then the
    function gets None."""
    if not nulls and any(node.is_null for node in nodes):
        return constant(None, type)
    fixed = [node.value if node.constant is not None else None for node in nodes]
    free = [at for at, node in enumerate(nodes) if node.constant is None]
    shape = ", ".join("?" if at in free else repr(value) for at, value in enumerate(fixed))
    key = f"{name}({', '.join(node.key for node in nodes)})"
    free = free or [0]  # all are constant: folding computes the result now
    bound = _bind(python, fixed, free)
    if len(free) == 1 and nodes[free[0]].type is Type.STRING and not nulls:
        run = text_table_run(nodes[free[0]], f"{name}({shape})", bound, type)
    else:
        run = combined_run(f"{name}({shape}) {type}", bound, [nodes[at] for at in free], type, nulls=nulls)
    result_nullable = nullable or any(node.nullable for node in nodes)
    return folded(Node(key, type, run, tuple(nodes), nullable=result_nullable, range=range))


def _bind(python: Python, fixed: Sequence[Any], free: Sequence[int]) -> Python:
    """Bind the constant arguments; the result takes only the free ones."""

    def bound(*values: Any) -> Any:
        full = list(fixed)
        for at, value in zip(free, values, strict=True):
            full[at] = value
        return python(*full)

    return bound


# -- the table ------------------------------------------------------------------------------------------------------


def _texts(name: str, python: Python, type: Type = Type.STRING, **options: Any) -> Callable[[Sequence[Node]], Node]:
    """Make the builder of a function whose arguments are all strings."""
    return lambda args: text_function(name, python, [as_text(a) for a in args], type, **options)


def _counted(name: str, python: Python) -> Callable[[Sequence[Node]], Node]:
    """Make the builder of a function from a string to a number that is not negative."""
    return _texts(name, python, Type.INT, range=_LENGTHS)


def _mixed(name: str, python: Python, kinds: str, **options: Any) -> Callable[[Sequence[Node]], Node]:
    """Make the builder of a function of strings (t in ``kinds``) and integers (i), one letter for each argument."""

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
    if len(nodes) == 2 or not nodes[2].nullable:
        return text_function("locate", strings.locate, nodes, Type.INT, range=_LENGTHS)
    if nodes[2].is_null:
        return constant(0, Type.INT)
    # a NULL position gives 0, as in Spark, even where the strings are NULL
    found = text_function("locate", strings.locate, nodes, Type.INT, nulls=True, nullable=True, range=_LENGTHS)
    found.nullable = any(node.nullable for node in nodes[:2])
    return found


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
    """Make the node of ``trim(s)``, which removes blanks, or ``trim(chars, s)``, in Spark's order of arguments."""
    strip = {"trim": str.strip, "ltrim": str.lstrip, "rtrim": str.rstrip}[name]
    chars, text = (
        (as_text(args[0]), as_text(args[1])) if len(args) > 1 else (constant(" ", Type.STRING), as_text(args[0]))
    )
    return text_function(name, lambda c, t: strip(t, c) if c else t, [chars, text], Type.STRING)


_B = Type.BOOLEAN
FUNCTIONS = (
    function(
        "upper(text: string) -> string",
        "in capital letters",
        _texts("upper", str.upper),
        "upper('abc') -> 'ABC'",
        "ucase",
    ),
    function(
        "lower(text: string) -> string",
        "in small letters",
        _texts("lower", str.lower),
        "lower('ABC') -> 'abc'",
        "lcase",
    ),
    function(
        "initcap(text: string) -> string",
        "each word with a capital and small letters behind it",
        _texts("initcap", strings.initcap),
        "initcap('new york') -> 'New York'",
    ),
    function(
        "length(text: string) -> int",
        "the number of characters",
        _counted("length", len),
        "length('abc') -> 3",
        "len",
        "char_length",
        "character_length",
    ),
    function(
        "octet_length(text: string) -> int",
        "the number of bytes in UTF-8",
        _counted("octet_length", strings.octet_length),
        "octet_length('é') -> 2",
    ),
    function(
        "trim([chars: string,] text: string) -> string",
        "text without blanks (or without any of chars) at both ends",
        lambda a: trim("trim", a),
        "trim('  abc ') -> 'abc'",
    ),
    function(
        "btrim(text: string[, chars: string]) -> string",
        "the same as trim, with the arguments in the other order",
        lambda a: trim("trim", a[::-1]),
        "btrim('xabcx', 'x') -> 'abc'",
    ),
    function(
        "ltrim([chars: string,] text: string) -> string",
        "text without blanks (or without any of chars) at its start",
        lambda a: trim("ltrim", a),
        "ltrim('0', '007') -> '7'",
    ),
    function(
        "rtrim([chars: string,] text: string) -> string",
        "text without blanks (or without any of chars) at its end",
        lambda a: trim("rtrim", a),
        "rtrim('abc  ') -> 'abc'",
    ),
    function(
        "substring(text: string, start: int[, length: int]) -> string",
        "a part of text; positions count from 1, or backwards from the end when negative",
        _mixed("substring", strings.substring, "tii"),
        "substring('abcdef', 2, 3) -> 'bcd'",
        "substr",
    ),
    function(
        "left(text: string, n: int) -> string",
        "the first n characters",
        _mixed("left", strings.left, "ti"),
        "left('abc', 2) -> 'ab'",
    ),
    function(
        "right(text: string, n: int) -> string",
        "the last n characters",
        _mixed("right", strings.right, "ti"),
        "right('abc', 2) -> 'bc'",
    ),
    function(
        "concat([text: string, ...]) -> string",
        "the strings one after another, NULL if one is NULL; a || b is the same",
        concat,
        "concat('a', 'b', 3) -> 'ab3'",
    ),
    function(
        "concat_ws(separator: string[, text: string, ...]) -> string",
        "the strings joined by the separator; NULLs are left out",
        _build_concat_ws,
        "concat_ws('-', 'a', NULL, 'b') -> 'a-b'",
    ),
    function(
        "replace(text: string, old: string[, new: string]) -> string",
        "replaces every old by new, or removes it",
        _texts("replace", strings.replace, nullable=True),
        "replace('1,234', ',') -> '1234'",
    ),
    function(
        "translate(text: string, old: string, new: string) -> string",
        "replaces each character of old by the one at its place in new; without a partner it is removed",
        _texts("translate", strings.translate),
        "translate('a.b-c', '.-', '_') -> 'a_bc'",
    ),
    function(
        "overlay(text: string, new: string, start: int[, length: int]) -> string",
        "new in the place of length characters from start on, as many as new has by default",
        _mixed("overlay", strings.overlay, "ttii"),
        "overlay('abcdef', 'XY', 3) -> 'abXYef'",
    ),
    function(
        "instr(text: string, part: string) -> int",
        "the position of the first part in text, 0 if there is none",
        lambda a: _build_locate([a[1], a[0]]),
        "instr('abcd', 'cd') -> 3",
    ),
    function(
        "locate(part: string, text: string[, start: int]) -> int",
        "the position of the first part from start on, 0 if there is none; position(part in text) too",
        _build_locate,
        "locate('a', 'banana', 3) -> 4",
        "position",
    ),
    function(
        "startswith(text: string, part: string) -> boolean",
        "whether text begins with part",
        _texts("startswith", str.startswith, _B),
        "startswith('AAPL.N', 'AAPL') -> true",
        "starts_with",
    ),
    function(
        "endswith(text: string, part: string) -> boolean",
        "whether text ends with part",
        _texts("endswith", str.endswith, _B),
        "endswith('AAPL.N', '.N') -> true",
        "ends_with",
    ),
    function(
        "contains(text: string, part: string) -> boolean",
        "whether part occurs in text",
        _texts("contains", str.__contains__, _B),
        "contains('AAPL.N', 'PL') -> true",
    ),
    function(
        "lpad(text: string, n: int[, pad: string]) -> string",
        "padded on the left to n characters, or truncated to them",
        _build_pad("lpad", strings.lpad),
        "lpad('7', 3, '0') -> '007'",
    ),
    function(
        "rpad(text: string, n: int[, pad: string]) -> string",
        "padded on the right to n characters, or truncated to them",
        _build_pad("rpad", strings.rpad),
        "rpad('abc', 5, '.') -> 'abc..'",
    ),
    function(
        "reverse(text: string) -> string",
        "the characters in reverse order",
        _texts("reverse", lambda t: t[::-1]),
        "reverse('abc') -> 'cba'",
    ),
    function(
        "repeat(text: string, n: int) -> string",
        "text n times; NULL beyond 1,048,576 characters",
        _mixed("repeat", strings.repeat, "ti", nullable=True),
        "repeat('ab', 3) -> 'ababab'",
    ),
    function("space(n: int) -> string", "n blanks", _build_space, "concat('a', space(2), 'b') -> 'a  b'"),
    function(
        "split_part(text: string, delimiter: string, n: int) -> string",
        "the n-th part between delimiters, from the end when n is negative; empty beyond the last",
        _build_split_part,
        "split_part('a:b:c', ':', 2) -> 'b'",
    ),
    function(
        "substring_index(text: string, delimiter: string, n: int) -> string",
        "everything before the n-th delimiter; behind it, counted from the end, when n is negative",
        _mixed("substring_index", strings.substring_index, "tti"),
        "substring_index('a.b.c', '.', 2) -> 'a.b'",
    ),
    function(
        "ascii(text: string) -> int",
        "the code point of the first character, 0 for the empty string",
        _counted("ascii", strings.first_code),
        "ascii('A') -> 65",
    ),
    function("chr(n: int) -> string", "the character with code n modulo 256", _build_chr, "chr(65) -> 'A'", "char"),
)
