"""docs/functions.md: every SQL function, from the entry beside its definition (``function_docs.catalogue``)."""

from __future__ import annotations

from itertools import groupby

from catalog.config.document import read_document
from catalog.schema import Field, Schema
from engine.operators import expressions
from engine.operators.expressions import compile_expression
from engine.operators.expressions.function_docs import FunctionDoc, catalogue
from tests.docs.prose import NOTE, markdown, table

TITLES = {
    "operators": "Operators",
    "maths": "Numbers",
    "bits": "Bits",
    "text": "Strings",
    "patterns": "Regular expressions",
    "times": "Timestamps",
    "conditional": "Conditions and NULL",
    "conversions": "Conversions",
    "aggregates": "Aggregates",
}
SAMPLE = "{ts: timestamp, symbol: string, price: double, size: int, venue: string?}"
SYNTAX = {  # what is shown is compiled, over the fields of SAMPLE
    "literals: int, bigint, double, string, boolean, timestamp": [
        "1", "9000000000", "1.5", "'text'", "true", "timestamp '2026-01-05 09:30:00'"
    ],
    "arithmetic; overflow and division by zero give NULL and are counted": [
        "price * size + 1", "size % 100", "size div 3", "-price"
    ],
    "division, always a double": ["size / 2"],
    "comparison; `<=>` compares NULL as a value": ["price > 100", "symbol <> 'A'", "venue <=> 'N'"],
    "three-valued logic": ["price > 1 and not size = 2", "venue is null", "(price > 1) is true"],
    "ranges and sets": ["price between 1 and 2", "symbol in ('A', 'B')"],
    "patterns; regular expressions are RE2's": ["symbol like 'A%'", "symbol rlike '^[A-C]'"],
    "the first branch whose condition is true": ["case when price > 100 then 'high' else 'low' end"],
    "conversion; a text that does not fit gives NULL": ["cast(price as bigint)", "try_cast(symbol as int)"],
    "concatenation": ["symbol || '.' || venue"],
    "bits of integers": ["size & 7", "size | 8", "size ^ 1", "~size", "size << 2"],
    "time": ["ts + interval 5 minutes", "ts - interval '1' day", "extract(hour from ts)"],
}  # fmt: skip
HEAD = """# SQL expressions and functions

An expression is the text of a parameter such as `where` or `select`. It is checked when the network file is read:
every name and every type, with the place of an error. The same text has the same meaning in Spark SQL with `ansi`
off; 2,700 expressions are compared with Spark's own answers (`test_expressions_catalogue.py` and
`test_expressions_edges.py` in `tests/property`).

Types: `boolean`, `int` (32 bits), `bigint` (64 bits), `float`, `double`, `string`, `timestamp` (nanoseconds, UTC). A
value may be NULL where the schema says `?`. In a signature `number` is int, bigint, float or double, `integer` is int
or bigint, and `constant` asks for a literal. Optional arguments stand in brackets, and `...` repeats the last one.
Where a string is asked for, another type is cast to a string; where a timestamp is asked for, a string is read as
one.

These examples of the syntax are over the fields `SAMPLE`:
"""
AGGREGATE_HEAD = """For `select` and `having` of the box [`aggregate`](boxes.md#aggregate). Every aggregate takes
`filter (where ...)`.
"""


def page() -> str:
    parts = [NOTE + HEAD.replace("SAMPLE", SAMPLE) + "\n" + syntax()]
    for family, docs in groupby(sorted(catalogue(), key=family_order), key=lambda doc: doc.family):
        head = f"## {TITLES.get(family, family)}\n\n" + (AGGREGATE_HEAD + "\n" if family == "aggregates" else "")
        parts.append(head + table(["function", "meaning", "example"], map(row, docs)))
    parts.append("## How expressions are compiled and run\n\n" + theory())
    return "\n\n".join(parts) + "\n"


def family_order(doc: FunctionDoc) -> int:
    """A family without a title comes last, under its own name."""
    names = list(TITLES)
    return names.index(doc.family) if doc.family in names else len(names)


def row(doc: FunctionDoc) -> list[str]:
    also = f" (also {', '.join(f'`{alias}`' for alias in doc.aliases)})" if doc.aliases else ""
    over = f" over {', '.join(doc.values)}" if doc.values else ""
    return [f"`{doc.signature}`", doc.description + also, f"`{doc.example}`{over} is `{doc.result}`"]


def syntax() -> str:
    fields = read_document(SAMPLE, "", {}).data.items()
    schema = Schema(tuple(Field.parse(name, kind) for name, kind in fields))
    for texts in SYNTAX.values():
        for text in texts:
            compile_expression(text, schema)
    rows = [[", ".join(f"`{text}`" for text in texts), meaning] for meaning, texts in SYNTAX.items()]
    return table(["syntax", "meaning"], rows)


def theory() -> str:
    text = expressions.__doc__ or ""
    return markdown(text.split("\n\n", 1)[-1], "python norun: an illustration")
