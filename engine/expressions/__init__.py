"""SQL scalar expressions: text in, typed numpy kernels out. ``price * size > 100000``.

    big = compile_expression("price * size > 100000", trades_schema)
    mask = big.mask(Scope(train))

**The way of a text.** ``parse`` (limits, sqlglot's Spark grammar without its functions) -> ``compile`` (names, types,
one table of what is taken) -> a tree of ``node.Node``, each with a closure over its children made by a kernel factory
for exactly the types at hand: ``arithmetic`` ``compare`` ``logic`` ``membership`` ``conditional`` ``casts`` ``maths``
``bits`` ``text`` ``patterns`` ``times`` ``intervals`` ``formats``. There is no eval and no way to Python: what is not
in the tables is refused with its place. ``functions.FUNCTIONS`` and ``aggregate_names.AGGREGATES`` are those tables,
with a signature and a line for each. Read ``vector``, ``node``, ``arithmetic``, ``pools`` first.

**At run time.** A ``Scope`` holds the columns of one train; a kernel takes vectors and gives one. NULL is a validity
mask that is absent when nothing is NULL, so the usual case is one numpy call and about 1 us for a node. A string
function runs once for each distinct string (``pools``, ``combinations``). Subexpressions with equal keys run once for
each scope (``share``). Overflow and division by zero make NULL and are counted in ``Scope.null_errors``, for rows
that SQL would have looked at: not in a branch of CASE that a row does not take.

**Meaning.** Spark SQL's with ``ansi`` off, time zone UTC; 1,300 expressions are held to Spark's own answers. A text
that compiles here means the same there, but for this:

- Integer overflow, in arithmetic as in casts, ``abs``, ``floor`` and ``round``, is NULL. Spark wraps integers around
  and cuts doubles off at the ends of the integers (``try_add`` and ``try_cast`` do what is done here). Double NaN to
  an integer is NULL, in Spark 0.
- ``1.5`` is a double, in Spark a decimal; ``extract(second from ts)`` too. There are no decimals, dates, arrays,
  maps.
- A timestamp has nanoseconds from 1677 to 2262, in Spark microseconds over 292,000 years. Up to nine digits of a
  second are read and written.
- Text like ``'01:02'``, ``'now'`` or ``'today'`` is no timestamp, and there is no ``now()`` and no ``rand()``: a
  replay would give another answer.
- Regular expressions are RE2's (``patterns`` has the small differences to Java's).
- Doubles are written with the fewest digits that read back the same; Java before 19 now and then writes more.
- ``upper``, ``lower`` and ``initcap`` know the Unicode tables of Python, not Java's.
- ``repeat``, ``replace``, ``lpad`` and their kin give NULL for a result of more than 1,048,576 characters.
- CAST is not told apart from TRY_CAST, except that CAST cuts the fraction of ``'1.9'`` off and TRY_CAST gives NULL.

Refused here, taken by Spark with a meaning that surprises: arithmetic on strings; ``size > '1.5'`` (Spark: ``size >
1``) and other literals that a comparison would cut or lose; strings and other types mixed in IN; booleans compared
with numbers; patterns and formats that are not constants. A string column compared with a number is cast to its type,
and a string beside another type in CASE, IF, COALESCE makes all of them strings, as in Spark.

DuckDB, the second oracle, differs from Spark in more (an error on overflow, infinity for a division by zero, rounding
in casts); ``tests/property/test_expressions_trees.py`` says where. Spark decides.
"""

from __future__ import annotations

from engine.expressions.aggregate_names import AGGREGATES
from engine.expressions.aggregates import AggregateCall, AggregatedExpression, split_aggregates
from engine.expressions.expression import Expression, compile_expression, share
from engine.expressions.functions import FUNCTIONS
from engine.expressions.vector import Mask, Scope, Vector

__all__ = [
    "AGGREGATES",
    "FUNCTIONS",
    "AggregateCall",
    "AggregatedExpression",
    "Expression",
    "Mask",
    "Scope",
    "Vector",
    "compile_expression",
    "share",
    "split_aggregates",
]
