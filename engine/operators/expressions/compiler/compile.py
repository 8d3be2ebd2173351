"""Syntax tree to nodes: resolve names, check types, fold constants, and refuse the rest with its place.

sqlglot parses far more than an expression may use. So ``HANDLERS`` lists each kind of syntax that is compiled, with the
arguments that its handler reads. The compiler refuses every other kind, and every node that carries another argument:
it ignores nothing silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from sqlglot import exp

from catalog.errors import ExpressionError
from catalog.schema import Field, Schema, Type
from engine.operators.expressions.aggregates.table import AGGREGATE_NAMES
from engine.operators.expressions.compiler.leaves import column_run, number
from engine.operators.expressions.compiler.messages import (
    NONDETERMINISTIC,
    NONDETERMINISTIC_HINT,
    describe,
    did_you_mean,
    field_hint,
)
from engine.operators.expressions.compiler.parse import offset_of
from engine.operators.expressions.functions import FUNCTIONS
from engine.operators.expressions.functions.bits import bitwise, inverted, shifted
from engine.operators.expressions.functions.conditional import case
from engine.operators.expressions.functions.intervals import interval_arithmetic, interval_literal, negated_interval
from engine.operators.expressions.functions.patterns import like, rlike
from engine.operators.expressions.functions.signatures import ScalarFunction
from engine.operators.expressions.functions.text import concat
from engine.operators.expressions.functions.times import extract
from engine.operators.expressions.kernels.arithmetic import arithmetic, negate
from engine.operators.expressions.kernels.casts import cast
from engine.operators.expressions.kernels.compare import compare, null_safe_equal
from engine.operators.expressions.kernels.logic import conjunction, is_null, is_truth, negation
from engine.operators.expressions.kernels.membership import between, member
from engine.operators.expressions.tree.coerce import Refusal
from engine.operators.expressions.tree.node import INTERVAL, MONTHS, Node, constant

_TYPES = {
    "BOOLEAN": Type.BOOLEAN,
    "INT": Type.INT,
    "BIGINT": Type.BIGINT,
    "FLOAT": Type.FLOAT,
    "DOUBLE": Type.DOUBLE,
    "TEXT": Type.STRING,
    "TIMESTAMPTZ": Type.TIMESTAMP,
    "TIMESTAMP": Type.TIMESTAMP,
    "TIMESTAMPLTZ": Type.TIMESTAMP,
}


class Compiler:
    """Compiles one text against one schema."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema
        self.fields: set[str] = set()

    def compile(self, tree: exp.Expression) -> Node:
        """Compile the tree of a whole text."""
        try:
            return self.build(tree)
        except RecursionError as error:  # only for a caller deep in its own stack: ``parse`` limits the tree
            raise ExpressionError("the expression is nested too deeply", self.text, 0) from error

    def build(self, tree: exp.Expression) -> Node:
        """Compile a syntax tree, or a part of it."""
        entry = HANDLERS.get(type(tree))
        if entry is None:
            self.fail(tree, f"{describe(tree)} cannot be used in an expression")
        handler, arguments = entry
        for name, value in tree.args.items():
            if value and name not in arguments and name not in _HARMLESS:
                extra = "" if isinstance(value, exp.Query) else f" with {name}"
                self.fail(tree, f"{describe(tree)}{extra} cannot be used in an expression")
        try:
            node = handler(self, tree)
            return negation(node) if tree.args.get("negate") else node
        except Refusal as refusal:
            self.fail(tree, refusal.message, refusal.hint)

    def fail(self, tree: exp.Expression, message: str, hint: str = "") -> NoReturn:
        """Raise ExpressionError with the place of ``tree`` in the text."""
        offset = offset_of(tree)
        around: Any = tree.parent
        while offset < 0 and around is not None:  # sqlglot loses the place of some literals: take their parent's
            offset, around = offset_of(around), around.parent
        raise ExpressionError(message, self.text, max(0, offset), hint)

    def both(self, tree: exp.Expression) -> tuple[Node, Node]:
        return self.build(tree.this), self.build(tree.expression)

    # -- leaves -----------------------------------------------------------------------------------------------------

    def column(self, tree: exp.Column) -> Node:
        parts = tree.parts
        if not all(isinstance(part, exp.Identifier) for part in parts):
            self.fail(tree, "* can be used in count(*) only")
        name = ".".join(part.name for part in parts)
        found = self.resolve(name)
        if found is None:
            hint = field_hint(name, self.schema.names)
            if name.lower() in NONDETERMINISTIC:
                hint = NONDETERMINISTIC_HINT
            self.fail(tree, f"no field {name}", hint)
        self.fields.add(found)
        return self.field_node(self.schema[found])

    def field_node(self, field: Field) -> Node:
        node = Node(f"`{field.name}`", field.type, column_run(field.name), nullable=field.nullable)
        node.field = field.name
        return node

    def resolve(self, name: str) -> str | None:
        """Find a field by its full name, else the only one that ends in ``.name``, else either ignoring case."""
        if name in self.schema:
            return name
        for fold in (str, str.lower):
            wanted = fold(name)
            found = [n for n in self.schema.names if fold(n) == wanted or fold(n).endswith("." + wanted)]
            if len(found) > 1:
                raise Refusal(f"{name} is ambiguous: {', '.join(found)}")
            if found:
                return found[0]
        return None

    def literal(self, tree: exp.Literal) -> Node:
        return constant(tree.this, Type.STRING) if tree.is_string else number(tree.this)

    def negative(self, tree: exp.Neg) -> Node:
        inner = tree.this
        if isinstance(inner, exp.Literal) and not inner.is_string:
            return number("-" + inner.this)  # so that -2147483648 is an int and -9223372036854775808 exists
        node = self.build(inner)
        return negated_interval(node) if node.type in (INTERVAL, MONTHS) else negate(node)

    # -- operators --------------------------------------------------------------------------------------------------

    def chain(self, tree: exp.Expression) -> Node:
        """Compile AND or OR. A loop unrolls the left-deep chain, which may have thousands of parts."""
        kind = type(tree)
        parts: list[Node] = []
        stack: list[exp.Expression] = [tree]
        while stack:
            part = stack.pop()
            inner: Any = part.unnest()  # without brackets
            if type(inner) is kind:
                stack.extend((inner.expression, inner.this))
            else:
                parts.append(self.build(part))
        try:
            return conjunction("and" if kind is exp.And else "or", parts)
        except Refusal as refusal:
            self.fail(tree, refusal.message, refusal.hint)

    def is_(self, tree: exp.Is) -> Node:
        what = tree.expression
        if isinstance(what, exp.Null):
            return is_null(self.build(tree.this))
        if isinstance(what, exp.Boolean):
            return is_truth(self.build(tree.this), bool(what.this))
        return self.fail(tree, "IS takes NULL, NOT NULL, TRUE or FALSE")

    def in_(self, tree: exp.In) -> Node:
        if not tree.expressions:
            self.fail(tree, "IN takes a list of values, as in x in (1, 2)")
        return member(self.build(tree.this), [self.build(item) for item in tree.expressions])

    def like(self, tree: exp.Expression) -> Node:
        """Compile LIKE and ILIKE, with or without ESCAPE around them."""
        escape, inner = "\\", tree
        if isinstance(tree, exp.Escape):
            inner, mark = tree.this, tree.expression
            if not isinstance(inner, exp.Like | exp.ILike) or not isinstance(mark, exp.Literal):
                self.fail(tree, "ESCAPE belongs to LIKE and takes one character in quotes")
            escape = mark.this
        node = like(*self.both(inner), escape, fold=isinstance(inner, exp.ILike))
        return negation(node) if inner is not tree and inner.args.get("negate") else node

    def case(self, tree: exp.Case) -> Node:
        subject = None if tree.this is None else self.build(tree.this)
        branches: list[tuple[Node, Node]] = []
        for branch in tree.args.get("ifs") or ():
            condition = self.build(branch.this)
            if subject is not None:
                condition = compare("=", subject, condition)
            branches.append((condition, self.build(branch.args["true"])))
        default = tree.args.get("default")
        return case(branches, None if default is None else self.build(default))

    def cast(self, tree: exp.Expression) -> Node:
        to = tree.args["to"]
        kind = _TYPES.get(to.this.name) if isinstance(to, exp.DataType) and not to.expressions else None
        if kind is None:
            self.fail(tree, f"there is no type {to.sql('spark').lower()}", f"the types are {', '.join(Type)}")
        inner = tree.this
        node = cast(self.build(inner), kind, strict=bool(tree.args.get("safe")))
        if type(tree) is exp.Cast and isinstance(inner, exp.Literal) and node.is_null:  # timestamp '...'
            self.fail(tree, f"{inner.this!r} is not a {kind}")
        return node

    # -- functions --------------------------------------------------------------------------------------------------

    def call(self, tree: exp.Anonymous) -> Node:
        name = tree.name.lower()
        function = FUNCTIONS.get(name)
        if function is None:
            if name in AGGREGATE_NAMES:
                self.fail(tree, f"{name} is an aggregate; it belongs in the select of an aggregate box")
            hint = NONDETERMINISTIC_HINT
            if name not in NONDETERMINISTIC:
                hint = did_you_mean(name, self.function_names()) or "`aurorad functions` lists them"
            self.fail(tree, f"no function {name}", hint)
        return self.apply(function, tree, tree.expressions)

    def function_names(self) -> Iterable[str]:
        return FUNCTIONS

    def apply(self, function: ScalarFunction, tree: exp.Expression, args: Sequence[exp.Expression]) -> Node:
        signature = function.signature
        if not signature.least <= len(args) <= signature.most:
            self.fail(tree, f"{signature.name} takes {signature.arity}, not {len(args)}: {signature.text}")
        return function.build([self.build(arg) for arg in args])

    def named(self, name: str, tree: exp.Expression, *parts: str) -> Node:
        """Compile a function with a syntax of its own; ``parts`` names its arguments in the tree, in our order."""
        args = [tree.args[part] for part in parts if tree.args.get(part) is not None]
        return self.apply(FUNCTIONS[name], tree, args)

    def trim(self, tree: exp.Trim) -> Node:
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(str(tree.args.get("position") or "").upper(), "trim")
        return self.named(name, tree, "expression", "this")


def _arithmetic(op: str) -> Handler:
    def handler(compiler: Compiler, tree: exp.Expression) -> Node:
        left, right = compiler.both(tree)
        node = interval_arithmetic(op, left, right)
        return node if node is not None else arithmetic(op, left, right)

    return handler


def _binary(function: Callable[[Node, Node], Node]) -> Handler:
    return lambda compiler, tree: function(*compiler.both(tree))


def _operator(function: Callable[[str, Node, Node], Node], op: str) -> Handler:
    return lambda compiler, tree: function(op, *compiler.both(tree))


Handler = Callable[[Compiler, Any], Node]
_PAIR = frozenset({"this", "expression"})
_ONE = frozenset({"this"})
_LIST = frozenset({"this", "expressions"})
_HARMLESS = frozenset({"negate", "safe", "typed", "_type", "coalesce", "is_string", "quoted"})
HANDLERS: dict[type[exp.Expression], tuple[Handler, frozenset[str]]] = {
    exp.Column: (Compiler.column, frozenset({"this", "table", "db", "catalog"})),
    exp.Literal: (Compiler.literal, _ONE),
    exp.RawString: (lambda compiler, tree: constant(tree.this, Type.STRING), _ONE),
    exp.Boolean: (lambda compiler, tree: constant(bool(tree.this), Type.BOOLEAN), _ONE),
    exp.Null: (lambda compiler, tree: constant(None, None), frozenset()),
    exp.Paren: (lambda compiler, tree: compiler.build(tree.this), _ONE),
    exp.Neg: (Compiler.negative, _ONE),
    exp.Add: (_arithmetic("+"), _PAIR),
    exp.Sub: (_arithmetic("-"), _PAIR),
    exp.Mul: (_arithmetic("*"), _PAIR),
    exp.Div: (_arithmetic("/"), _PAIR),
    exp.Mod: (_arithmetic("%"), _PAIR),
    exp.IntDiv: (_arithmetic("div"), _PAIR),
    exp.EQ: (_operator(compare, "="), _PAIR),
    exp.NEQ: (_operator(compare, "<>"), _PAIR),
    exp.LT: (_operator(compare, "<"), _PAIR),
    exp.GT: (_operator(compare, ">"), _PAIR),
    exp.LTE: (_operator(compare, "<="), _PAIR),
    exp.GTE: (_operator(compare, ">="), _PAIR),
    exp.NullSafeEQ: (_binary(null_safe_equal), _PAIR),
    exp.NullSafeNEQ: (_binary(lambda left, right: negation(null_safe_equal(left, right))), _PAIR),
    exp.BitwiseAnd: (_operator(bitwise, "&"), _PAIR),
    exp.BitwiseOr: (_operator(bitwise, "|"), _PAIR),
    exp.BitwiseXor: (_operator(bitwise, "^"), _PAIR),
    exp.BitwiseNot: (lambda compiler, tree: inverted(compiler.build(tree.this)), _ONE),
    exp.BitwiseLeftShift: (_operator(shifted, "<<"), _PAIR),
    exp.BitwiseRightShift: (_operator(shifted, ">>"), _PAIR),
    exp.And: (Compiler.chain, _PAIR),
    exp.Or: (Compiler.chain, _PAIR),
    exp.Not: (lambda compiler, tree: negation(compiler.build(tree.this)), _ONE),
    exp.Is: (Compiler.is_, _PAIR),
    exp.In: (Compiler.in_, _LIST),
    exp.Between: (
        lambda compiler, tree: between(*(compiler.build(tree.args[name]) for name in ("this", "low", "high"))),
        frozenset({"this", "low", "high"}),
    ),
    exp.Like: (Compiler.like, _PAIR),
    exp.ILike: (Compiler.like, _PAIR),
    exp.Escape: (Compiler.like, _PAIR),
    exp.RegexpLike: (_binary(rlike), _PAIR),
    exp.Case: (Compiler.case, frozenset({"this", "ifs", "default"})),
    exp.Cast: (Compiler.cast, frozenset({"this", "to"})),
    exp.TryCast: (Compiler.cast, frozenset({"this", "to"})),
    exp.Interval: (lambda compiler, tree: interval_literal(tree), frozenset({"this", "unit"})),
    exp.DPipe: (_binary(lambda left, right: concat([left, right])), _PAIR),
    exp.Concat: (lambda compiler, tree: concat([compiler.build(part) for part in tree.expressions]), _LIST),
    exp.Anonymous: (Compiler.call, _LIST),
    exp.Trim: (Compiler.trim, frozenset({"this", "expression", "position"})),
    exp.Substring: (
        lambda compiler, tree: compiler.named("substring", tree, "this", "start", "length"),
        frozenset({"this", "start", "length"}),
    ),
    exp.StrPosition: (
        lambda compiler, tree: compiler.named("locate", tree, "substr", "this", "position"),
        frozenset({"this", "substr", "position"}),
    ),
    exp.Extract: (lambda compiler, tree: extract(tree.this.name, compiler.build(tree.expression)), _PAIR),
}
