"""Random typed expression trees, each made three times at once: as our text, as DuckDB's, and as a Python function.

The Python function is a second, independent definition of Spark's meaning, one value at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

Row = dict[str, Any]
Value = Any
FIELDS = {
    "i": "int?",
    "j": "int",
    "n": "bigint?",
    "m": "bigint",
    "x": "double?",
    "y": "double",
    "b": "boolean?",
    "c": "boolean",
    "s": "string?",
    "t": "string",
    "ts": "timestamp?",
    "at": "timestamp",
}
INT_MAX, BIG_MAX = 2**31 - 1, 2**63 - 1
LIMITS = {"int": INT_MAX, "bigint": BIG_MAX}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Tree(NamedTuple):
    ours: str
    duck: str
    value: Callable[[Row], Value]


# -- rows -----------------------------------------------------------------------------------------------------------

ints = st.one_of(st.integers(-9, 9), st.sampled_from([INT_MAX, -INT_MAX - 1, 65_536, -46_341, 1_000_000]))
bigs = st.one_of(st.integers(-9, 9), st.sampled_from([BIG_MAX, -BIG_MAX - 1, 2**53 + 1, 3_037_000_500, -(2**32)]))
doubles = st.one_of(
    st.sampled_from([0.0, -0.0, 0.5, -1.5, 2.675, 1e300, -1e300, 1e-7, math.nan, math.inf, -math.inf, 3.0, -7.0]),
    st.floats(-1e6, 1e6),
)
texts = st.text("aB% _é😀", max_size=5)
stamps_us = st.one_of(st.integers(-(10**15), 4 * 10**15), st.sampled_from([0, -1, 951_782_400_000_000]))
values = {
    "int": ints,
    "bigint": bigs,
    "double": doubles,
    "boolean": st.booleans(),
    "string": texts,
    "timestamp": stamps_us,
}


def rows() -> st.SearchStrategy[list[Row]]:
    columns = {
        name: st.none() | values[kind[:-1]] if kind.endswith("?") else values[kind] for name, kind in FIELDS.items()
    }
    return st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=9)


# -- the meaning, one value at a time -------------------------------------------------------------------------------


def strict(function: Callable[..., Value]) -> Callable[..., Callable[[Row], Value]]:
    """Make a function return NULL for a NULL argument."""

    def lifted(*parts: Tree) -> Callable[[Row], Value]:
        def value(row: Row) -> Value:
            args = [part.value(row) for part in parts]
            return None if any(a is None for a in args) else function(*args)

        return value

    return lifted


def fits(kind: str) -> Callable[[int], int | None]:
    return lambda value: value if -LIMITS[kind] - 1 <= value <= LIMITS[kind] else None


def order(a: Value) -> Any:
    """Return a key that sorts in Spark's order: NaN is the greatest."""
    return (a != a, 0 if a != a else a) if isinstance(a, float) else a


COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "=": lambda a, b: order(a) == order(b),
    "<>": lambda a, b: order(a) != order(b),
    "<": lambda a, b: order(a) < order(b),
    ">": lambda a, b: order(a) > order(b),
    "<=": lambda a, b: order(a) <= order(b),
    ">=": lambda a, b: order(a) >= order(b),
}


def both(a: bool | None, b: bool | None) -> bool | None:
    return False if a is False or b is False else None if a is None or b is None else True


def negated(a: bool | None) -> bool | None:
    return None if a is None else not a


def remainder(a: float, b: float) -> float | None:
    if b == 0:
        return None
    return math.nan if math.isinf(a) or a != a or b != b else math.fmod(a, b)


def integer_remainder(a: int, b: int) -> int | None:
    return None if b == 0 else abs(a) % abs(b) * (1 if a >= 0 else -1)


def quotient(a: float, b: float) -> float | None:
    return None if b == 0 else float(a) / float(b)


def floored(a: float) -> int | None:
    return whole("bigint")(math.floor(a)) if math.isfinite(a) else None


def truncated(a: int, b: int) -> int | None:
    if b == 0:
        return None
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return fits("bigint")(quotient)


def whole(kind: str) -> Callable[[float], int | None]:
    return lambda a: fits(kind)(int(a)) if math.isfinite(a) else None


def rounded(a: float, digits: int) -> float:
    if not math.isfinite(a):
        return a
    return float(Decimal(repr(a)).quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP)) if abs(a) < 1e15 else a


def like(text: str, pattern: str) -> bool:
    """Match LIKE by recursion, independently of the engine."""
    if not pattern:
        return not text
    if pattern[0] == "%":
        return like(text, pattern[1:]) or (text != "" and like(text[1:], pattern))
    return text != "" and pattern[0] in ("_", text[0]) and like(text[1:], pattern[1:])


def moment(us: int) -> datetime:
    return EPOCH + timedelta(microseconds=us)


def hour_start(us: int) -> int:
    return us // 3_600_000_000 * 3_600_000_000


# -- the trees ------------------------------------------------------------------------------------------------------

NUMBERS = ("int", "bigint", "double")


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@cache
def leaf(kind: str) -> st.SearchStrategy[Tree]:
    names = [name for name, declared in FIELDS.items() if declared.rstrip("?") == kind]
    columns = st.sampled_from([Tree(name, f'"{name}"', lambda row, name=name: row[name]) for name in names])
    if kind == "int":
        literals = st.integers(0, 9).map(lambda v: Tree(str(v), f"{v}::int", lambda row: v))
    elif kind == "bigint":
        literals = st.integers(0, 9).map(lambda v: Tree(f"{v}L", f"{v}::bigint", lambda row: v))
    elif kind == "double":
        literals = st.sampled_from([0.0, 0.5, 2.0, 100.25]).map(lambda v: Tree(f"{v}D", f"{v}::double", lambda row: v))
    elif kind == "string":
        literals = st.text("aB%é", max_size=3).map(lambda v: Tree(quote(v), quote(v), lambda row: v))
    elif kind == "boolean":
        literals = st.booleans().map(lambda v: Tree(str(v).lower(), str(v).lower(), lambda row: v))
    else:
        literals = st.just(
            Tree("timestamp '2020-02-29 10:00:00'", "timestamp '2020-02-29 10:00:00'", lambda row: 1582970400 * 10**6)
        )
    null = st.just(
        Tree(f"cast(null as {kind})", f"cast(null as {'varchar' if kind == 'string' else kind})", lambda row: None)
    )
    return st.one_of(columns, columns, columns, literals, null)


@cache
def tree(kind: str, depth: int, duck: bool) -> st.SearchStrategy[Tree]:
    """Draw a tree of a type; ``duck`` leaves out the operations that differ in DuckDB."""
    if depth == 0:
        return leaf(kind)
    sub = lambda k: tree(k, depth - 1, duck)  # noqa: E731
    makers = [leaf(kind), *_conditional(kind, sub), *_OF_KIND[kind](sub, duck)]
    return st.one_of(makers)


def _conditional(kind: str, sub: Any) -> list[st.SearchStrategy[Tree]]:
    def case(condition: Tree, yes: Tree, no: Tree) -> Tree:
        value = lambda row: yes.value(row) if condition.value(row) is True else no.value(row)  # noqa: E731
        text = "case when {} then {} else {} end"
        return Tree(
            text.format(condition.ours, yes.ours, no.ours), text.format(condition.duck, yes.duck, no.duck), value
        )

    def coalesce(a: Tree, b: Tree) -> Tree:
        value = lambda row: b.value(row) if a.value(row) is None else a.value(row)  # noqa: E731
        return Tree(f"coalesce({a.ours}, {b.ours})", f"coalesce({a.duck}, {b.duck})", value)

    def nullif(a: Tree, b: Tree) -> Tree:
        def value(row: Row) -> Value:
            left, right = a.value(row), b.value(row)
            return None if left is None or (right is not None and order(left) == order(right)) else left

        return Tree(f"nullif({a.ours}, {b.ours})", f"nullif({a.duck}, {b.duck})", value)

    def extreme(name: str, a: Tree, b: Tree) -> Tree:
        def value(row: Row) -> Value:
            present = [v for v in (a.value(row), b.value(row)) if v is not None]
            return (max if name == "greatest" else min)(present, key=order, default=None)

        return Tree(f"{name}({a.ours}, {b.ours})", f"{name}({a.duck}, {b.duck})", value)

    return [
        st.builds(case, sub("boolean"), sub(kind), sub(kind)),
        st.builds(coalesce, sub(kind), sub(kind)),
        st.builds(nullif, sub(kind), sub(kind)),
        st.builds(extreme, st.sampled_from(["greatest", "least"]), sub(kind), sub(kind)),
    ]


def call(ours: str, duck: str, function: Callable[..., Value]) -> Callable[..., Tree]:
    """Make a node; ``ours`` and ``duck`` are formats with a place for each operand."""

    def make(*parts: Tree) -> Tree:
        texts = (ours.format(*(p.ours for p in parts)), duck.format(*(p.duck for p in parts)))
        return Tree(*texts, strict(function)(*parts))

    return make


def _integers(kind: str) -> Callable[[Any, bool], list[st.SearchStrategy[Tree]]]:
    def makers(sub: Any, duck: bool) -> list[st.SearchStrategy[Tree]]:
        fit = fits(kind)
        two = (sub(kind), sub(kind))
        ops = {"+": lambda a, b: fit(a + b), "-": lambda a, b: fit(a - b), "*": lambda a, b: fit(a * b)}
        made = [st.builds(call(f"({{}} {op} {{}})", f"try({{}} {op} {{}})", f), *two) for op, f in ops.items()]
        made += [
            st.builds(
                call(
                    "({} % {})",
                    "({} % nullif({}, 0))",
                    lambda a, b: (
                        None
                        if b == 0
                        else int(math.fmod(a, b))
                        if abs(a) < 2**53 > abs(b)
                        else abs(a) % abs(b) * (1 if a >= 0 else -1)
                    ),
                ),
                *two,
            ),
            st.builds(call("(-{})", "try(-{})", lambda a: fit(-a)), sub(kind)),
            st.builds(call("abs({})", "try(abs({}))", lambda a: fit(abs(a))), sub(kind)),
            st.builds(call(f"cast({{}} as {kind})", f"try_cast(trunc({{}}) as {kind})", whole(kind)), sub("double")),
            st.builds(call(f"cast({{}} as {kind})", f"cast({{}} as {kind})", int), sub("boolean")),
        ]
        if kind == "int":
            made += [
                st.builds(call("length({})", "length({})::int", len), sub("string")),
                st.builds(
                    call("instr({}, {})", "instr({}, {})::int", lambda s, t: s.find(t) + 1),
                    sub("string"),
                    sub("string"),
                ),
                st.builds(call("cast({} as int)", "try_cast({} as int)", fit), sub("bigint")),
                st.builds(call("hour({})", "hour({})::int", lambda us: moment(us).hour), sub("timestamp")),
                st.builds(
                    call("dayofyear({})", "dayofyear({})::int", lambda us: moment(us).timetuple().tm_yday),
                    sub("timestamp"),
                ),
                st.builds(call("month({})", "month({})::int", lambda us: moment(us).month), sub("timestamp")),
            ]
        else:
            made += [
                st.builds(
                    call("({} + {})", "try({}::bigint + {})", lambda a, b: fit(a + b)), sub("int"), sub("bigint")
                ),
                st.builds(call("({} div {})", "try({} // nullif({}, 0))", truncated), *two),
                st.builds(
                    call(
                        "floor({})",
                        "try_cast(floor({}) as bigint)",
                        floored,
                    ),
                    sub("double"),
                ),
                st.builds(call("unix_millis({})", "epoch_ms({})", lambda us: us // 1_000), sub("timestamp")),
            ]
        return made

    return makers


def _doubles(sub: Any, duck: bool) -> list[st.SearchStrategy[Tree]]:
    def finite(function: Callable[[float, float], float]) -> Callable[[float, float], float]:
        return lambda a, b: function(float(a), float(b))

    two = (sub("double"), st.one_of(sub("double"), sub("int"), sub("bigint")))
    made = [
        st.builds(call("({} + {})", "({} + {}::double)", finite(lambda a, b: a + b)), *two),
        st.builds(call("({} - {})", "({} - {}::double)", finite(lambda a, b: a - b)), *two),
        st.builds(call("({} * {})", "({} * {}::double)", finite(lambda a, b: a * b)), *two),
        st.builds(
            call("({} / {})", "({} / nullif({}::double, 0))", quotient),
            *two,
        ),
        st.builds(
            call(
                "({} / {})",
                "({}::double / nullif({}::double, 0))",
                quotient,
            ),
            sub("int"),
            sub("bigint"),
        ),
        st.builds(call("(-{})", "(-{})", lambda a: -a), sub("double")),
        st.builds(call("abs({})", "abs({})", abs), sub("double")),
        st.builds(
            call("cast({} as double)", "cast({} as double)", float),
            st.one_of(sub("int"), sub("bigint"), sub("boolean")),
        ),
    ]
    if not duck:
        made += [
            st.builds(call("({} % {})", "", remainder), sub("double"), sub("double")),
            st.builds(call("sqrt({})", "", lambda a: math.sqrt(a) if a >= 0 else math.nan), sub("double")),
            st.builds(call("nanvl({}, 1)", "", lambda a: 1.0 if a != a else a), sub("double")),
            *(st.builds(call(f"round({{}}, {d})", "", lambda a, d=d: rounded(a, d)), sub("double")) for d in (0, 1, 3)),
        ]
    return made


def _booleans(sub: Any, duck: bool) -> list[st.SearchStrategy[Tree]]:
    made: list[st.SearchStrategy[Tree]] = []
    for kind in values:
        for op, function in COMPARE.items():
            made.append(st.builds(call(f"({{}} {op} {{}})", f"({{}} {op} {{}})", function), sub(kind), sub(kind)))

        def null_safe(a: Tree, b: Tree) -> Tree:
            def value(row: Row) -> bool:
                left, right = a.value(row), b.value(row)
                return left is right if left is None or right is None else order(left) == order(right)

            return Tree(f"({a.ours} <=> {b.ours})", f"({a.duck} is not distinct from {b.duck})", value)

        def is_null(a: Tree) -> Tree:
            return Tree(f"({a.ours} is null)", f"({a.duck} is null)", lambda row: a.value(row) is None)

        def member(a: Tree, items: list[Tree]) -> Tree:
            def value(row: Row) -> bool | None:
                left = a.value(row)
                if left is None:
                    return None
                rights = [item.value(row) for item in items]
                if any(r is not None and order(r) == order(left) for r in rights):
                    return True
                return None if any(r is None for r in rights) else False

            return Tree(
                f"({a.ours} in ({', '.join(t.ours for t in items)}))",
                f"({a.duck} in ({', '.join(t.duck for t in items)}))",
                value,
            )

        made += [
            st.builds(null_safe, sub(kind), sub(kind)),
            st.builds(is_null, sub(kind)),
            st.builds(member, sub(kind), st.lists(leaf(kind), min_size=1, max_size=6)),
        ]

    def logic(op: str, a: Tree, b: Tree) -> Tree:
        def value(row: Row) -> bool | None:
            left, right = a.value(row), b.value(row)
            return both(left, right) if op == "and" else negated(both(negated(left), negated(right)))

        return Tree(f"({a.ours} {op} {b.ours})", f"({a.duck} {op} {b.duck})", value)

    made += [st.builds(logic, st.sampled_from(["and", "or"]), sub("boolean"), sub("boolean"))] * 4
    made += [
        st.builds(call("(not {})", "(not {})", lambda a: not a), sub("boolean")),
        st.builds(
            call("({} between {} and {})", "({} between {} and {})", lambda a, b, c: b <= a <= c),
            sub("int"),
            st.sampled_from([Tree("0", "0", lambda row: 0)]),
            st.sampled_from([Tree("7", "7", lambda row: 7)]),
        ),
        *(
            st.builds(call(f"({{}} like '{p}')", f"({{}} like '{p}')", lambda text, p=p: like(text, p)), sub("string"))
            for p in ("a%", "%B", "%a%", "_", "a_%", "%é%a%", "")
        ),
    ]
    return made


def _strings(sub: Any, duck: bool) -> list[st.SearchStrategy[Tree]]:
    one, two = sub("string"), (sub("string"), sub("string"))
    made = [
        st.builds(call("upper({})", "upper({})", str.upper), one),
        st.builds(call("lower({})", "lower({})", str.lower), one),
        st.builds(call("trim({})", "trim({})", lambda t: t.strip(" ")), one),
        st.builds(call("reverse({})", "reverse({})", lambda t: t[::-1]), one),
        st.builds(call("concat({}, {})", "({} || {})", lambda a, b: a + b), *two),
        st.builds(call("replace({}, 'a', {})", "replace({}, 'a', {})", lambda a, b: a.replace("a", b)), *two),
        st.builds(call("substring({}, 2, 2)", "substring({}, 2, 2)", lambda t: t[1:3]), one),
        st.builds(call("left({}, 2)", "left({}, 2)", lambda t: t[:2]), one),
        st.builds(call("right({}, 2)", "right({}, 2)", lambda t: t[-2:]), one),
        st.builds(
            call("lpad({}, 4, 'xy')", "lpad({}, 4, 'xy')", lambda t: ("xyxy"[: max(0, 4 - len(t))] + t)[:4]), one
        ),
        st.builds(call("cast({} as string)", "cast({} as varchar)", str), st.one_of(sub("int"), sub("bigint"))),
        st.builds(call("cast({} as string)", "cast({} as varchar)", lambda v: str(v).lower()), sub("boolean")),
    ]

    def concat_ws(a: Tree, b: Tree) -> Tree:
        value = lambda row: "-".join(v for v in (a.value(row), b.value(row)) if v is not None)  # noqa: E731
        return Tree(f"concat_ws('-', {a.ours}, {b.ours})", f"concat_ws('-', {a.duck}, {b.duck})", value)

    return [*made, st.builds(concat_ws, *two)]


def _timestamps(sub: Any, duck: bool) -> list[st.SearchStrategy[Tree]]:
    day = lambda us: us // 86_400_000_000 * 86_400_000_000  # noqa: E731
    return [
        st.builds(call("date_trunc('hour', {})", "date_trunc('hour', {})", hour_start), sub("timestamp")),
        st.builds(call("date_trunc('day', {})", "date_trunc('day', {})::timestamp", day), sub("timestamp")),
        st.builds(
            call("({} + interval 90 seconds)", "({} + interval 90 seconds)", lambda us: us + 90_000_000),
            sub("timestamp"),
        ),
    ]


_OF_KIND: dict[str, Callable[[Any, bool], list[st.SearchStrategy[Tree]]]] = {
    "int": _integers("int"),
    "bigint": _integers("bigint"),
    "double": _doubles,
    "boolean": _booleans,
    "string": _strings,
    "timestamp": _timestamps,
}
