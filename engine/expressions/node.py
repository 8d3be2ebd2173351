"""A node: one compiled subexpression. The tree of nodes is all that an expression is at run time.

``run`` is a closure over the child nodes, made by a kernel factory for exactly the operand types at hand, so nothing
about types is decided per train. It calls ``child.run`` through the node and not through a captured function, because
``share`` replaces ``run`` of nodes that occur more than once by a memoised one.

``mask`` is the same for a boolean node read as a filter: True where true, NULL counted as not true, None for all true.
Filters use it because AND and OR need no three-valued logic there.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from catalog.schema import Type
from engine.expressions.vector import Mask, Scope, Vector
from storage.strings import StringPool

Run = Callable[[Scope], Vector]
RunMask = Callable[[Scope], "Mask | None"]
Range = tuple[int, int]


class _Interval:
    """A type that exists only inside expressions, no member of Type: checks for a real type fail on it."""

    is_numeric = False
    is_integer = False
    dtype = np.dtype(np.int64)

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name


INTERVAL = cast(Type, _Interval("interval"))  # nanoseconds: what lies between two timestamps
MONTHS = cast(Type, _Interval("interval of months"))  # calendar months, which have no length

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
    """``column op constant`` on plain values: what a fused chain can do on the raw column, without a scope."""

    field: str
    ufunc: Any
    value: Any  # a numpy scalar
    flip: bool  # the mask is the opposite of what the ufunc says


class Node:
    """One subexpression. Constant after compiling, apart from ``share``; used by any number of threads."""

    __slots__ = (
        "can_nan",  # a float that may be NaN: comparisons must look
        "children",
        "constant",  # its one value as a vector of length 1, when it is the same for every row
        "fallible",  # may add to null_errors
        "field",  # the name, when it is a plain column
        "key",  # canonical text, equal for equal meaning
        "mask",
        "noisy",  # may set floating-point flags: numpy must be told not to warn
        "nullable",
        "range",  # for integers: no value lies outside; spares overflow checks
        "run",
        "test",  # this predicate as a ColumnTest, when it is nothing more
        "type",  # None for a bare NULL, which takes the type of its surroundings
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
        noisy: bool = False,
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
        self.noisy: bool = noisy or any(c.noisy for c in children)
        self.can_nan = can_nan
        self.range = range
        self.constant: Vector | None = None
        self.field: str | None = None
        self.test: ColumnTest | None = None
        self.mask: RunMask = mask if mask is not None else self._plain_mask

    def _plain_mask(self, scope: Scope) -> Mask | None:
        vector = self.run(scope)
        return vector.values if vector.valid is None else vector.values & vector.valid

    @property
    def value_range(self) -> Range:
        """Bounds of an integer node."""
        assert self.type is not None
        return self.range or INTEGER_RANGE[self.type]

    @property
    def is_null(self) -> bool:
        """A constant NULL."""
        return self.constant is not None and self.constant.valid is not None

    @property
    def value(self) -> Any:
        """The value of a constant as Python has it; None for NULL."""
        assert self.constant is not None
        if self.is_null:
            return None
        raw = self.constant.values[0].item()
        return self.constant.pool.values[raw] if self.constant.pool is not None else raw

    def walk(self) -> Iterator[Node]:
        """Every node below and this one, each once: a node may have several parents (``abs(x)`` looks at x twice), and
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
    """A long key by its digest: a node that stands in its parent's key twice would double it at each level."""
    if len(key) <= MAX_KEY_CHARS:
        return key
    return f"#{hashlib.blake2b(key.encode('utf-8', 'surrogatepass'), digest_size=24).hexdigest()}"


def constant(value: Any, type: Type | None) -> Node:
    """A literal, or what constant folding left."""
    pool = StringPool([value if value is not None else ""]) if type is Type.STRING else None
    dtype = type.dtype if type is not None else np.dtype(np.bool_)
    raw = 0 if value is None or pool is not None else value
    valid = np.zeros(1, np.bool_) if value is None else None
    return constant_vector(Vector(np.array([raw], dtype), valid, pool), type)


def constant_vector(vector: Vector, type: Type | None) -> Node:
    for array in (vector.values, vector.valid):
        if array is not None:
            array.flags.writeable = False  # shared by every train
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
    """The node, or its value when no row can change it. What fails is left to run time, where failures are counted."""
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

    Counted by key. Below a shared node nothing further is counted twice: its parts run once anyway. Each expression is
    shared with itself when it is compiled, which also keeps its running time linear in its size.
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
            scope.failures[key] = _booked(scope, failures)
        return found

    made = run_fallible if fallible else run
    made.memoised = True  # type: ignore[attr-defined]
    return made


def _booked(scope: Scope, failures: list[Mask]) -> list[Mask]:
    """Count the failures of a shared subexpression among the rows that are active now; what is left of them."""
    for bad in failures:
        scope.book(bad)
    active = scope.active
    return [] if active is None else [bad & ~active for bad in failures]


def _memoised_mask(node: Node) -> RunMask:
    """Some nodes have masks that do not come by ``run``; those are remembered too. None of them can fail."""
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
