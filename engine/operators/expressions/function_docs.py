"""Every operator, function and aggregate as documentation, for ``docs/functions.md`` and ``aurorad functions NAME``.

The facts stand beside each definition (``compiler/operators``, ``functions/signatures``, ``aggregates/table``); this
module only brings them into one shape. ``tests/unit/test_expressions_examples.py`` runs every example. Only the
documentation imports this module: the daemon does not pay for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.operators.expressions.aggregates.table import AGGREGATES
from engine.operators.expressions.compiler.operators import OPERATORS
from engine.operators.expressions.functions import FAMILIES
from engine.operators.expressions.functions.signatures import Argument

OPERATOR_FAMILY = "operators"
AGGREGATE_FAMILY = "aggregates"


@dataclass(frozen=True, slots=True)
class FunctionDoc:
    """One operator, function or aggregate. The example is an SQL expression, its result an SQL literal."""

    name: str
    aliases: tuple[str, ...]
    family: str  # "operators", maths, text, ... (the module in functions/), "aggregates"
    signature: str  # "x + y -> ...", "round(x: number[, digits: constant int]) -> type of x"
    arguments: tuple[Argument, ...]  # each with its name and type; none for operators
    returns: str  # "double", "int or double", "type of x", "common type of x and y"
    description: str
    example: str
    result: str
    values: tuple[str, ...] = ()  # for an aggregate: the values of the field x in the example, as SQL literals


def catalogue() -> list[FunctionDoc]:
    """List the operators, the scalar functions, family by family in the order of their tables, and the aggregates."""
    operators = [
        FunctionDoc(o.names[0], o.names[1:], OPERATOR_FAMILY, o.form, (), o.returns, o.description, o.example, o.result)
        for o in OPERATORS
    ]
    scalars = [
        FunctionDoc(
            name=function.name,
            aliases=function.aliases,
            family=family,
            signature=function.signature.text,
            arguments=function.signature.arguments,
            returns=function.signature.returns,
            description=function.description,
            example=function.example,
            result=function.result,
        )
        for family, functions in FAMILIES.items()
        for function in functions
    ]
    aggregates = [
        FunctionDoc(
            name=(name := aggregate.signature.name),
            aliases=tuple(
                alias for alias in (aggregate.name, *aggregate.aliases) if alias not in (name, "collect_list")
            ),
            family=AGGREGATE_FAMILY,
            signature=aggregate.signature.text,
            arguments=aggregate.signature.arguments,
            returns=aggregate.signature.returns,
            description=aggregate.description,
            example=aggregate.example,
            result=aggregate.example_result,
            values=aggregate.values,
        )
        for aggregate in AGGREGATES
    ]
    return operators + scalars + aggregates


def find(name: str) -> list[FunctionDoc]:
    """Find the entries with this name or alias, ignoring case. ``timestamp`` has two: a literal and a function."""
    wanted = name.lower()
    return [doc for doc in catalogue() if wanted in (doc.name, *doc.aliases)]
