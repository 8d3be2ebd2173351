"""Text to syntax tree: sqlglot's Spark grammar, reduced to one scalar expression and guarded by limits.

Rules:
- A limit is checked before the stage that it protects: length before the tokenizer, bracket depth and runs of prefix
  operators before the recursive parser, tree depth and node count before the recursive compiler. Chains of AND and OR
  do not count as depth, because the compiler flattens them in a loop.
- Parsing starts at an expression, never at a statement: ``select``, ``drop`` and the rest are syntax errors, and no
  statement parser runs.
- sqlglot's table of functions is emptied. It would rewrite calls into its common dialect (``date_format`` gets another
  format string, ``dayofweek`` a hidden cast). Here every call stays a name with arguments, and ``functions`` defines
  the name. Only functions with a syntax of their own keep their parsers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NoReturn, cast

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError

from catalog.errors import ExpressionError

MAX_TEXT_CHARS = 8_192
MAX_NESTING = 32  # brackets and CASE open at once; the parser uses about 16 frames for each
MAX_PREFIX_RUN = 16  # NOT NOT NOT ..., - - - ...
MAX_DEPTH = 120  # of the syntax tree, without chains of AND and OR; the compiler uses 4 frames for each
MAX_NODES = 4_000

_SYNTAX_FUNCTIONS = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "POSITION")


class AuroraSql(Spark):
    """Spark's lexer and operators, for scalar expressions only."""

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["\\", "'", '"']  # noqa: RUF012  a doubled quote is a quote, as in Spark 4

    class Parser(Spark.parser_class):  # type: ignore[valid-type, misc]  # chosen by sqlglot when it is imported
        FUNCTIONS: dict[str, object] = {}  # noqa: RUF012  (sqlglot reads it as a class attribute)
        FUNCTION_PARSERS = {  # noqa: RUF012
            name: parser for name, parser in Spark.parser_class.FUNCTION_PARSERS.items() if name in _SYNTAX_FUNCTIONS
        }
        NO_PAREN_FUNCTIONS: dict[object, object] = {}  # noqa: RUF012
        NO_PAREN_FUNCTION_PARSERS = {  # noqa: RUF012
            "CASE": Spark.parser_class.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }


_NUMBER = r"[+-]?\s*\d+(\.\d*)?"
_INTERVAL = re.compile(rf"\s*(({_NUMBER}\s+[A-Za-z]+\s*)+|{_NUMBER}|[+-]?\d[\d :.-]*)\s*", re.ASCII)
_DIALECT = AuroraSql()
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})
_PREFIX = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE})


def parse(text: str) -> exp.Expression:
    """Parse one scalar expression. Raises ExpressionError with the place of the error."""
    if len(text) > MAX_TEXT_CHARS:
        raise ExpressionError(f"an expression may have {MAX_TEXT_CHARS} characters, this one has {len(text)}", text, 0)
    if not text.strip():
        raise ExpressionError("the expression is empty", text, 0)
    try:
        tokens = _DIALECT.tokenize(text)
        _check_tokens(text, tokens)
        trees = _DIALECT.parser().parse_into(exp.Condition, tokens, text)
    except TokenError as error:
        raise ExpressionError(_token_message(text), text, _open_quote(text)) from error
    except ParseError as error:
        _refuse(text, error)
    except RecursionError as error:  # the limits above should exclude this; the parser is not ours
        raise ExpressionError("the expression is nested too deeply", text, 0) from error
    if len(trees) != 1 or trees[0] is None:
        raise ExpressionError("one expression is expected here, without a semicolon", text, max(0, text.find(";")))
    tree = cast(exp.Expression, trees[0])
    _check_tree(text, tree)
    return tree


def offset_of(tree: exp.Expression) -> int:
    """Return where a node begins in the text: the first place of it and its parts; -1 when sqlglot kept none."""
    places = [node.meta["start"] for node in tree.walk() if "start" in node.meta]
    return min(places, default=-1)


def _check_tokens(text: str, tokens: Iterable[Token]) -> None:
    depth = run = 0
    before: TokenType | None = None
    for token in tokens:
        kind = token.token_type
        if before is TokenType.INTERVAL and kind is TokenType.STRING and not _INTERVAL.fullmatch(token.text):
            hint = "write interval 5 seconds or interval '1 day 2 hours'"  # sqlglot would drop the rest silently
            raise ExpressionError(f"{token.text!r} is not an interval", text, token.start, hint)
        before = kind
        if kind in _OPENING:
            depth += 1
            if depth > MAX_NESTING:
                raise ExpressionError(f"more than {MAX_NESTING} brackets are open at once", text, token.start)
        elif kind in _CLOSING:
            depth -= 1
        run = run + 1 if kind in _PREFIX else 0
        if run > MAX_PREFIX_RUN:
            raise ExpressionError(f"more than {MAX_PREFIX_RUN} prefix operators in a row", text, token.start)


def _check_tree(text: str, tree: exp.Expression) -> None:
    """Check depth and size with an explicit stack, because the limit protects from recursion."""
    count = 0
    stack: list[tuple[exp.Expression, int]] = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        count += 1
        if count > MAX_NODES:
            raise ExpressionError(f"the expression has more than {MAX_NODES} parts", text, 0)
        if depth > MAX_DEPTH:
            raise ExpressionError(f"the expression is nested more than {MAX_DEPTH} deep", text, 0)
        for child in node.iter_expressions():
            same_chain = isinstance(node, exp.And | exp.Or) and type(child) is type(node)
            stack.append((child, depth if same_chain else depth + 1))


def _refuse(text: str, error: ParseError) -> NoReturn:
    detail = error.errors[0] if error.errors else {}
    highlight = str(detail.get("highlight") or "")
    offset = _offset(text, int(detail.get("line") or 1), int(detail.get("col") or 1), len(highlight))
    description = str(detail.get("description") or "")
    if description.startswith("Expecting"):
        message = f"{description.lower()} after {highlight!r}"
    elif "Required keyword" in description:
        message = f"something is missing after {highlight!r}"
    else:
        message = f"unexpected {highlight!r}: write one SQL scalar expression"
    raise ExpressionError(message, text, offset) from error


def _offset(text: str, line: int, column: int, length: int) -> int:
    """Convert sqlglot's place: it counts lines from 1 and gives the column of a token's last character."""
    start = 0
    for _ in range(line - 1):
        start = text.find("\n", start) + 1
    return max(0, min(len(text), start + column - max(1, length)))


def _open_quote(text: str) -> int:
    """Find the quote that is never closed; -1 when all are closed."""
    quote, start, at = "", -1, 0
    while at < len(text):
        char = text[at]
        if quote:
            if char == "\\" and quote != "`":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "'\"`":
            quote, start = char, at
        at += 1
    return start if quote else -1


def _token_message(text: str) -> str:
    return "a quote is not closed" if _open_quote(text) >= 0 else "this is not SQL: a character is not allowed here"
