"""SQL scalar expressions: SQL text in, typed numpy kernels out.

    big = compile_expression("price * size > 100000", trades_schema)
    mask = big.mask(Scope(train))

**How a text becomes a kernel.**

1. ``compiler/parse`` checks the limits (length, nesting, size) and parses with sqlglot's Spark grammar, without its
   functions.
2. ``compiler/compile`` resolves names, checks types and builds a tree of ``tree/node.Node``. Each node holds a closure
   over its children, which a kernel factory of ``kernels`` or ``functions`` made for exactly the types of its operands.
3. Constants are folded, and equal subexpressions are shared.

There is no eval and no access to Python: the compiler refuses all syntax, functions and types that its tables do not
list, with the place in the text.

**How a kernel runs.** A ``Scope`` holds the columns of one train. A kernel takes vectors and returns one.

- NULL is a validity mask, which is absent when nothing is NULL. Then a node is one numpy call, about 1 us.
- A string column holds codes into a pool. A function of strings runs once for each distinct string of the pool, not for
  each row (``kernels/pools``, ``kernels/combinations``).
- A subexpression that occurs more than once, in one expression or in several of a box, runs once for each scope
  (``share``).
- Overflow and division by zero give NULL and are counted in ``Scope.null_errors``, but only for rows that SQL would
  have evaluated: not in a branch of CASE that a row does not take.

**Where to read.** ``tree/vector``, ``tree/node``, ``kernels/arithmetic``, ``kernels/pools``, ``functions/maths``,
``compiler/compile``, ``expression``. The layers are ``tree``, ``kernels``, ``functions``, ``compiler`` and
``aggregates``; each imports only layers before it, except that the compiler reads the table of the aggregates.

**How to add a function.** Add one entry to the ``FUNCTIONS`` of its family in ``functions/``: signature, description,
kernel factory and an example. The compiler, the error messages, ``aurorad functions`` and ``docs/functions.md``
(``make docs``) read the entry, and tests run the example and every type of the signature. An aggregate is an entry in
``aggregates/table`` and its accumulators in ``engine/operators/windows/functions.py``.

**What an expression means.** The meaning is Spark SQL's with ``ansi`` off in the time zone UTC; tests compare 2,700
expressions with Spark's own answers, half of them on values at the edges of their types. A text that compiles here
means the same in Spark, with these exceptions:

- Integer overflow gives NULL, in arithmetic, casts, ``abs``, ``floor`` and ``round``. Spark wraps integers around and
  limits doubles to the range of the integers; its ``try_add`` and ``try_cast`` give NULL as here. A double NaN cast to
  an integer is NULL; in Spark it is 0.
- ``1.5`` is a double; in Spark it is a decimal, and so is ``extract(second from ts)``. There are no decimals, dates,
  arrays or maps.
- A timestamp has nanoseconds from 1677 to 2262; in Spark it has microseconds over 292,000 years. Up to nine digits of a
  second are read and written.
- ``'01:02'``, ``'now'`` and ``'today'`` are not timestamps, and there is no ``now()`` and no ``rand()``: a replay would
  give another answer.
- Regular expressions are those of Java, matched by RE2. Lookaround, backreferences, possessive repetitions, ``(?m)``
  with ``^`` or ``$``, a ``$`` that is not at the end and flags other than ``i``, ``s`` and ``m`` are refused. ``\\b``
  looks at ASCII letters, as in Java from 19 on; beside a letter beyond ASCII in the pattern it is refused. Java finds
  an empty match inside a character beyond U+FFFF; here there is none. ``\\p{...}`` uses the Unicode tables of RE2.
- Of 0.0 and -0.0, which are equal, ``min`` gives -0.0 and ``max`` 0.0. In Spark it is the first to arrive.
- ``split_part`` at the constant 0 is refused and at a field that is 0 gives NULL; Spark fails.
  ``substring(text, -2147483648)`` is the whole text; in Spark the last character is missing.
- A double is written with the fewest digits that read back as the same double; Java before 19 sometimes writes more.
- ``upper``, ``lower`` and ``initcap`` use the Unicode tables of Python, not Java's.
- ``repeat``, ``replace``, ``lpad`` and similar functions give NULL for a result of more than 1,048,576 characters.
- CAST is TRY_CAST, except that CAST drops the fraction of ``'1.9'`` and TRY_CAST gives NULL for it.

**What is refused** here, although Spark accepts it with a surprising meaning: arithmetic on strings; ``size > '1.5'``
(in Spark ``size > 1``) and other literals that a comparison would truncate or lose; strings mixed with other types in
IN; booleans compared with numbers; patterns and formats that are not constants. As in Spark, a string column compared
with a number is cast to its type, and a string beside another type in CASE, IF or COALESCE makes all of them strings.

DuckDB, the second oracle, differs from Spark in more points: it raises an error on overflow, divides by zero to
infinity, and rounds in casts. ``tests/property/test_expressions_trees.py`` lists them. Spark decides.
"""

from __future__ import annotations

from engine.operators.expressions.aggregates.split import AggregateCall, AggregatedExpression, split_aggregates
from engine.operators.expressions.aggregates.table import AGGREGATES
from engine.operators.expressions.expression import Expression, compile_expression, ignore_float_flags, share
from engine.operators.expressions.functions import FUNCTIONS
from engine.operators.expressions.tree.node import ColumnTest
from engine.operators.expressions.tree.vector import Mask, Scope, Vector

__all__ = [
    "AGGREGATES",
    "FUNCTIONS",
    "AggregateCall",
    "AggregatedExpression",
    "ColumnTest",
    "Expression",
    "Mask",
    "Scope",
    "Vector",
    "compile_expression",
    "ignore_float_flags",
    "share",
    "split_aggregates",
]
