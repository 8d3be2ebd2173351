"""A node: one compiled subexpression. At run time an expression is a tree of nodes and nothing else.

``run`` is a closure over the child nodes. A kernel factory makes it for exactly the types of its operands, so no type
is examined per train. It calls ``child.run`` through the node, not through a captured function, because ``share``
replaces ``run`` of nodes that occur more than once by a memoised one.

``mask`` computes a boolean node as a filter: True where it is true, False for false and NULL, None for all true.
Filters use it, because AND and OR of masks need no three-valued logic.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from catalog.schema import Type
from engine.operators.expressions.tree.vector import Mask, Scope, Vector
from storage.strings import StringPool

Run = Callable[[Scope], Vector]
RunMask = Callable[[Scope], "Mask | None"]
Range = tuple[int, int]


class _Interval:
    """A type that exists only inside expressions. It is not a member of Type, so checks for a column type refuse it."""

    is_numeric = False
    is_integer = False
    dtype = np.dtype(np.int64)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


INTERVAL = cast(Type, _Interval("interval"))  # nanoseconds: the difference of two timestamps
MONTHS = cast(Type, _Interval("interval of months"))  # calendar months, which differ in length

MAX_KEY_CHARS = 400
_INT64 = (-(2**63), 2**63 - 1)
INTEGER_RANGE: dict[Type, Range] = {
    Type.INT: (-(2**31), 2**31 - 1),
    Type.BIGINT: _INT64,
    Type.TIMESTAMP: _INT64,
    INTERVAL: _INT64,
    MONTHS: (-(2**31), 2**31 - 1),
}


class ColumnTest(NamedTuple):
    """``column op constant`` on plain values: a fused chain computes it on the raw column, without a scope."""

    field: str
    ufunc: Any
    value: Any  # a numpy scalar; a str where the column holds strings, which only ``Node.needs`` has
    flip: bool  # negate the result of the ufunc


class Node:
    """One subexpression. Immutable after compiling, apart from ``share``; any number of threads may run it."""

    __slots__ = (
        "can_nan",  # a float that may be NaN: comparisons must check
        "children",
        "constant",  # a vector of length 1, when the value is the same for every row
        "fallible",  # may add to null_errors
        "field",  # the name, when the node is a plain column
        "key",  # canonical text: nodes with equal keys have the same meaning
        "mask",
        "needs",  # comparisons of a column with a constant that must all be true where this predicate is
        "nullable",
        "range",  # for integers: no value lies outside, which makes overflow checks unnecessary
        "run",
        "sets_float_flags",  # numpy would warn, unless floating-point flags are ignored
        "test",  # this predicate as a ColumnTest, when it is no more than that
        "type",  # None for a bare NULL, which takes the type of its context
    )

    def __init__(
        self,
        key: str,
        type: Type | None,
        run: Run,
        children: tuple[Node, ...] = (),
        *,
        nullable: bool | None = None,
        fallible: bool = False,
        sets_float_flags: bool = False,
        can_nan: bool = True,
        range: Range | None = None,
        mask: RunMask | None = None,
    ) -> None:
        self.key = bounded_key(key)
        self.type = type
        self.run = run
        self.children = children
        self.nullable: bool = fallible or any(c.nullable for c in children) if nullable is None else nullable
        self.fallible: bool = fallible or any(c.fallible for c in children)
        self.sets_float_flags: bool = sets_float_flags or any(c.sets_float_flags for c in children)
        self.can_nan = can_nan
        self.range = range
        self.constant: Vector | None = None
        self.field: str | None = None
        self.test: ColumnTest | None = None
        self.needs: tuple[ColumnTest, ...] = ()
        self.mask: RunMask = mask if mask is not None else self._plain_mask

    def _plain_mask(self, scope: Scope) -> Mask | None:
        vector = self.run(scope)
        return vector.values if vector.valid is None else vector.values & vector.valid

    @property
    def value_range(self) -> Range:
        """Return the bounds of an integer node."""
        assert self.type is not None
        return self.range or INTEGER_RANGE[self.type]

    @property
    def is_null(self) -> bool:
        """Whether this is a constant NULL."""
        return self.constant is not None and self.constant.valid is not None

    @property
    def value(self) -> Any:
        """Return the value of a constant as a Python object; None for NULL."""
        assert self.constant is not None
        if self.is_null:
            return None
        raw = self.constant.values[0].item()
        return self.constant.pool.values[raw] if self.constant.pool is not None else raw

    def walk(self) -> Iterator[Node]:
        """Yield this node and every node below, each once. A node may have several parents (``abs(x)`` uses x twice);
        following every path would take time exponential in the depth."""
        seen: set[int] = set()
        stack = [self]
        while stack:
            node = stack.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                stack.extend(node.children)


def bounded_key(key: str) -> str:
    """Replace a long key by its digest. A child that occurs twice in its parent's key would double it at each level."""
    if len(key) <= MAX_KEY_CHARS:
        return key
    return f"#{hashlib.blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=24).hexdigest()}"


def constant(value: Any, type: Type | None) -> Node:
    """Make the node of a literal, or of a folded value; None is NULL."""
    pool = StringPool([value if value is not None else ""]) if type is Type.STRING else None
    dtype = type.dtype if type is not None else np.dtype(np.bool_)
    raw = 0 if value is None or pool is not None else value
    valid = np.zeros(1, np.bool_) if value is None else None
    return constant_vector(Vector(np.array([raw], dtype), valid, pool), type)


def constant_vector(vector: Vector, type: Type | None) -> Node:
    """Make the node of a vector of length 1."""
    for array in (vector.values, vector.valid):
        if array is not None:
            array.flags.writeable = False  # every train shares it
    nullable = vector.valid is not None
    node = Node("", type, lambda scope: vector, nullable=nullable, can_nan=False)
    node.constant = vector
    value = node.value
    node.can_nan = isinstance(value, float) and value != value
    node.key = bounded_key(f"null:{type}" if value is None else f"{value!r}:{type}")
    if type in INTEGER_RANGE:
        node.range = (value, value) if value is not None else (0, 0)
    if type is Type.BOOLEAN and value is not None:
        node.mask = _never if not value else _always
    return node


def _always(scope: Scope) -> Mask | None:
    return None


def _never(scope: Scope) -> Mask | None:
    return np.zeros(scope.count, np.bool_)


def folded(node: Node) -> Node:
    """Replace a node by its value when all children are constant. A node that fails stays, because failures are counted
    at run time."""
    if node.type is None or any(c.constant is None for c in node.children) or not node.children:
        return node
    scope = Scope(None, count=1)
    with np.errstate(all="ignore"):
        vector = node.run(scope)
    if scope.null_errors:
        return node
    if vector.valid is not None:
        vector = Vector(vector.values, None if vector.valid[0] else np.zeros(1, np.bool_), vector.pool)
    return constant_vector(Vector(vector.values.copy(), vector.valid, vector.pool), node.type)


def share(roots: Iterable[Node]) -> None:
    """Memoise, within a scope, every subexpression that occurs more than once below these roots.

    Occurrences are counted by key. The parts of a shared node are not counted again: they run once anyway. Every
    expression is shared with itself when it is compiled, which keeps its running time linear in its size.
    """
    roots = list(roots)
    seen: Counter[str] = Counter()
    for root in roots:
        _count(root, seen)
    for root in roots:
        for node in root.walk():
            if node.children and node.constant is None and seen[node.key] > 1 and not _is_memoised(node):
                node.run = _memoised(node.key, node.run, node.fallible)
                node.mask = _memoised_mask(node)


def _count(root: Node, seen: Counter[str]) -> None:
    stack = [root]
    while stack:
        node = stack.pop()
        seen[node.key] += 1
        if seen[node.key] == 1:
            stack.extend(node.children)


def _memoised(key: str, inner: Run, fallible: bool) -> Run:
    def run(scope: Scope) -> Vector:
        found = scope.memo.get(key)
        if found is None:
            found = scope.memo[key] = inner(scope)
        return found

    def run_fallible(scope: Scope) -> Vector:
        found = scope.memo.get(key)
        if found is None:
            before = scope.active, scope.collected
            scope.active, scope.collected = None, []
            try:
                found = scope.memo[key] = inner(scope)
                scope.failures[key] = scope.collected
            finally:
                scope.active, scope.collected = before
        failures = scope.failures[key]
        if failures:
            scope.failures[key] = _counted_failures(scope, failures)
        return found

    made = run_fallible if fallible else run
    made.memoised = True  # type: ignore[attr-defined]
    return made


def _counted_failures(scope: Scope, failures: list[Mask]) -> list[Mask]:
    """Count the failures of a shared subexpression among the rows that are active now; return the others."""
    for bad in failures:
        scope.add_failures(bad)
    active = scope.active
    return [] if active is None else [bad & ~active for bad in failures]


def _memoised_mask(node: Node) -> RunMask:
    """Memoise a mask that is not computed by ``run``, too. Such a node cannot fail."""
    inner = node.mask
    if getattr(inner, "__func__", None) is Node._plain_mask:
        return inner
    assert not node.fallible
    key = f"mask of {node.key}"

    def mask(scope: Scope) -> Mask | None:
        found = scope.memo.get(key)
        if found is None:
            out = inner(scope)
            if out is None:
                return None
            found = scope.memo[key] = Vector(out)
        return found.values

    return mask


def _is_memoised(node: Node) -> bool:
    return getattr(node.run, "memoised", False)
