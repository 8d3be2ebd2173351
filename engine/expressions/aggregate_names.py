"""The aggregates by name: a table for ``aggregates``, for the documentation and for messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from catalog.schema import Type


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One line of the table. ``result`` gives the type from the argument's, or None when it does not take it."""

    name: str
    signature: str
    summary: str
    result: Callable[[Type], Type | None]
    parameters: int = 0
    nullable: bool = True
    aliases: tuple[str, ...] = ()


def _number_to(kind: Type) -> Callable[[Type], Type | None]:
    return lambda argument: kind if argument.is_numeric else None


def _sum(argument: Type) -> Type | None:
    return Type.BIGINT if argument.is_integer else Type.DOUBLE if argument.is_numeric else None


def _same(argument: Type) -> Type | None:
    return argument


_D = _number_to(Type.DOUBLE)
AGGREGATES: tuple[Aggregate, ...] = (
    Aggregate(
        "count", "count(* | [distinct] x)", "tuples, or values that are not NULL", lambda t: Type.BIGINT, 0, False
    ),
    Aggregate("sum", "sum([distinct] x)", "sum; bigint of integers, double otherwise", _sum),
    Aggregate("avg", "avg([distinct] x)", "mean, a double", _D, aliases=("mean",)),
    Aggregate("min", "min(x)", "least value; NaN is greatest", _same),
    Aggregate("max", "max(x)", "greatest value; NaN is greatest", _same),
    Aggregate("first", "first(x [ignore nulls])", "first value", _same, 1, aliases=("first_value", "any_value")),
    Aggregate("last", "last(x [ignore nulls])", "last value", _same, 1, aliases=("last_value",)),
    Aggregate("stddev_samp", "stddev(x)", "sample standard deviation", _D, aliases=("stddev", "std")),
    Aggregate("stddev_pop", "stddev_pop(x)", "population standard deviation", _D),
    Aggregate("var_samp", "variance(x)", "sample variance", _D, aliases=("variance",)),
    Aggregate("var_pop", "var_pop(x)", "population variance", _D),
    Aggregate("median", "median(x)", "middle value, interpolated", _D),
    Aggregate("percentile", "percentile(x, q)", "value at share q, interpolated", _D, 1),
    Aggregate(
        "percentile_approx",
        "percentile_approx(x, q[, accuracy])",
        "a value of x near share q",
        lambda t: t if t.is_numeric else None,
        2,
        aliases=("approx_percentile",),
    ),
    Aggregate(
        "approx_count_distinct",
        "approx_count_distinct(x[, rsd])",
        "about how many distinct values",
        lambda t: Type.BIGINT,
        1,
        False,
    ),
    Aggregate(
        "bool_and", "bool_and(x)", "true when all are", lambda t: t if t is Type.BOOLEAN else None, aliases=("every",)
    ),
    Aggregate(
        "bool_or", "bool_or(x)", "true when one is", lambda t: t if t is Type.BOOLEAN else None, aliases=("some", "any")
    ),
    Aggregate(
        "collect_list",
        "string_agg(x, sep), concat_ws(sep, collect_list(x))",
        "the values in order, joined as a string",
        lambda t: Type.STRING,
        1,
        aliases=("string_agg", "listagg"),
    ),
)
AGGREGATE_NAMES: dict[str, Aggregate] = {name: a for a in AGGREGATES for name in (a.name, *a.aliases)}
"""Every aggregate under its name and under its aliases."""
