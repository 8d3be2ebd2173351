"""The aggregates by name: one table for ``split``, for the documentation and for messages.

An entry reads as in ``functions/signatures``; ``[distinct]`` before the first argument allows ``f(distinct x)``. Its
example is ``expression over values of x -> value``. To add an aggregate, add an entry here and its
accumulators in ``engine/operators/windows/functions.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from catalog.schema import Type
from engine.operators.expressions.functions.signatures import Signature, parse_signature

_DISTINCT = "[distinct] "


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """One aggregate. ``result`` gives the type of the result for the type of the argument; None refuses that type."""

    name: str  # of the call, one for all aliases
    signature_text: str
    description: str
    example: str
    values: tuple[str, ...]  # of the field x in the example, as SQL literals
    example_result: str
    result: Callable[[Type], Type | None]
    nullable: bool
    aliases: tuple[str, ...]

    @property
    def signature(self) -> Signature:
        return parse_signature(self.signature_text)

    @property
    def distinct(self) -> bool:
        """Whether ``f(distinct x)`` is allowed and differs from ``f(x)``."""
        return _DISTINCT in self.signature_text

    @property
    def parameters(self) -> int:
        """Return how many constants may follow the argument."""
        return len(self.signature.arguments) - 1


def _aggregate(
    signature: str,
    description: str,
    example: str,
    *aliases: str,
    call: str = "",
    result: Callable[[Type], Type | None] | None = None,
    nullable: bool = True,
) -> AggregateFunction:
    """Make an entry; without ``call`` the name of the signature is that of the call."""
    text, _, value = example.rpartition(" -> ")
    expression, _, values = text.partition(" over ")
    shown = signature.partition("(")[0]
    name = call or shown
    names = tuple(alias for alias in (shown, *aliases) if alias != name)
    result = result or (lambda argument: _result(parse_signature(signature), argument))
    rows = tuple(values.split(", "))
    return AggregateFunction(name, signature, description, expression, rows, value, result, nullable, names)


def _result(signature: Signature, argument: Type) -> Type | None:
    """Read the type of the result from the signature; None when it does not take the argument."""
    if argument not in signature.arguments[0].types:
        return None
    return argument if signature.returns.startswith("type of") else Type(signature.returns)


def _sum(argument: Type) -> Type | None:
    return Type.BIGINT if argument.is_integer else Type.DOUBLE if argument.is_numeric else None


AGGREGATES: tuple[AggregateFunction, ...] = (
    _aggregate(
        "count(* | [distinct] x: any) -> bigint",
        "the number of values that are not NULL; count(*) counts tuples",
        "count(x) over 1, 2, NULL -> 2",
        nullable=False,
    ),
    _aggregate(
        "sum([distinct] x: number) -> bigint or double",
        "the sum, a bigint of integers; NULL where it overflows",
        "sum(x) over 1, 2, NULL -> 3",
        result=_sum,
    ),
    _aggregate("avg([distinct] x: number) -> double", "the mean", "avg(x) over 1, 2, NULL -> 1.5", "mean"),
    _aggregate("min(x: any) -> type of x", "the least value; NaN is the greatest", "min(x) over 'b', 'a' -> 'a'"),
    _aggregate("max(x: any) -> type of x", "the greatest value; NaN is the greatest", "max(x) over 1, 3, 2 -> 3"),
    _aggregate(
        "first(x: any[, ignore_nulls: constant boolean]) -> type of x",
        "the first value in event time; first(x) ignore nulls too",
        "first(x, true) over NULL, 2, 3 -> 2",
        "first_value",
        "any_value",
    ),
    _aggregate(
        "last(x: any[, ignore_nulls: constant boolean]) -> type of x",
        "the last value in event time; last(x) ignore nulls too",
        "last(x) over 1, 2, 3 -> 3",
        "last_value",
    ),
    _aggregate(
        "stddev_samp(x: number) -> double",
        "the standard deviation of a sample; NULL for one value",
        "stddev(x) over 1, 3, 5 -> 2.0",
        "stddev",
        "std",
    ),
    _aggregate(
        "stddev_pop(x: number) -> double",
        "the standard deviation of the whole",
        "stddev_pop(x) over 1, 3 -> 1.0",
    ),
    _aggregate(
        "var_samp(x: number) -> double",
        "the variance of a sample; NULL for one value",
        "variance(x) over 1, 3, 5 -> 4.0",
        "variance",
    ),
    _aggregate("var_pop(x: number) -> double", "the variance of the whole", "var_pop(x) over 1, 3 -> 1.0"),
    _aggregate("median(x: number) -> double", "the middle value, interpolated", "median(x) over 1, 2, 10, 20 -> 6.0"),
    _aggregate(
        "percentile(x: number, share: constant double) -> double",
        "the value below which a share of 0 to 1 lies, interpolated",
        "percentile(x, 0.25) over 1, 2, 3, 4, 5 -> 2.0",
    ),
    _aggregate(
        "percentile_approx(x: number, share: constant double[, accuracy: constant int]) -> type of x",
        "a value of x at a share of 0 to 1, not interpolated; exact here for every accuracy",
        "percentile_approx(x, 0.5) over 1, 2, 10, 20 -> 2",
        "approx_percentile",
    ),
    _aggregate(
        "approx_count_distinct(x: any[, relative_error: constant double]) -> bigint",
        "the number of distinct values, estimated with a relative error of 0.05 by default",
        "approx_count_distinct(x) over 'a', 'b', 'a' -> 2",
        nullable=False,
    ),
    _aggregate(
        "bool_and(x: boolean) -> boolean", "whether all are true", "every(x) over true, false -> false", "every"
    ),
    _aggregate(
        "bool_or(x: boolean) -> boolean", "whether one is true", "any(x) over true, false -> true", "some", "any"
    ),
    _aggregate(
        "string_agg(x: any, separator: constant string) -> string",
        "the values in event time as one string; concat_ws(separator, collect_list(x)) too",
        "string_agg(x, ', ') over 'a', 'b', NULL -> 'a, b'",
        "listagg",
        call="collect_list",
    ),
)
AGGREGATE_NAMES: dict[str, AggregateFunction] = {name: a for a in AGGREGATES for name in (a.name, *a.aliases)}
"""Every aggregate under its name and under its aliases."""
