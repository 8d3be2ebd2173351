"""What the boxes of time and order refuse, and at which key they say so; and that their examples can be loaded."""

from __future__ import annotations

import importlib
import re
from textwrap import dedent
from typing import Any

import pytest
from pydantic import ValidationError

from catalog.build import build_network
from catalog.errors import BindError, NetworkError
from catalog.schema import Schema
from engine.operators.boxes import box_kinds
from engine.operators.boxes.base import LOST_TIME

ONE = Schema.of(ts="timestamp", k="string", x="double", n="int", rank_="int")
TWO = Schema.of(ts="timestamp", k="string", y="double", on="timestamp")

JOIN = {"on": "l.k = r.k", "within": "1s"}
RESAMPLE = {"on": "l.k = r.k", "within": "1s", "fields": ["y"]}
TOP = {"n": 1, "of": "x", "window": {"tumbling": "1s"}}

REFUSED: list[tuple[str, dict[str, Any], tuple[Any, ...], str]] = [
    ("join", {"on": "l.k = r.k"}, ("within",), "needs within"),
    ("join", JOIN | {"on": "l.k = r.nothing"}, ("on",), "no field r.nothing"),
    ("join", JOIN | {"on": "l.k = "}, ("on",), ""),
    ("join", JOIN | {"on": "l.k + 1"}, ("on",), ""),
    ("join", JOIN | {"on": "l.ts = r.y"}, ("on",), "compare"),
    ("join", JOIN | {"on": "l.x"}, ("on",), "boolean"),
    ("join", JOIN | {"on": "k = 'a'"}, ("on",), "ambiguous"),
    ("join", JOIN | {"select": {"a": "l.x + nothing"}}, ("select", "a"), "no field nothing"),
    ("join", JOIN | {"asof": True, "type": "full"}, ("type",), "inner or left"),
    ("join", JOIN | {"asof": True, "on": "l.k = r.k and l.x > r.y"}, ("on",), "equalities"),
    ("join", JOIN | {"asof": True, "within": {"before": "1s", "after": "2s"}}, ("within",), "looks back"),
    ("resample", RESAMPLE | {"fields": ["nothing"]}, ("fields", 0), "no field nothing"),
    ("resample", RESAMPLE | {"fields": ["k"], "method": "mean"}, ("fields", 0), "needs a number"),
    ("resample", RESAMPLE | {"on": "l.k = r.k and l.x > r.y"}, ("on",), "equalities"),
    ("resample", RESAMPLE | {"within": None}, ("within",), "needs within"),
    ("bsort", {"by": "nothing", "slack": 3}, ("by",), "no field"),
    ("bsort", {"by": "k", "slack": 3}, ("by",), "numbers and timestamps"),
    ("bsort", {"by": "n", "slack": "1s"}, ("slack",), "needs a timestamp"),
    ("dedup", {"by": ["k", "nothing"], "within": "1s"}, ("by", 1), "no field nothing"),
    ("dedup", {"by": ["k", "k"], "within": "1s"}, ("by", 1), "twice"),
    ("latest", {"by": ["nothing"]}, ("by", 0), "no field"),
    ("latest", {"by": ["k"], "changes": ["nothing"]}, ("changes", 0), "no field"),
    ("top", TOP | {"of": "x + nothing"}, ("of",), "no field nothing"),
    ("top", TOP | {"of": "k"}, ("of",), "numbers and timestamps"),
    ("top", TOP | {"by": ["nothing"]}, ("by", 0), "no field"),
    ("python", {"call": "no_such_module:f", "schema": {"a": "int"}}, ("call",), "there is no module no_such_module"),
    ("python", {"call": "math:no_such", "schema": {"a": "int"}}, ("call",), "the module math has no function no_such"),
    ("python", {"call": "math:pi", "schema": {"a": "int"}}, ("call",), "not a function"),
    ("python", {"call": "math:sqrt", "schema": {"a": "integer"}}, ("schema", "a"), "unknown type"),
    ("python", {"call": "math:sqrt", "schema": {"a": "int"}, "time": "b"}, ("time",), "no field"),
    ("python", {"call": "math:sqrt", "schema": {"a": "int"}, "time": "a"}, ("time",), "timestamp"),
]


def bind(kind: str, parameters: dict[str, Any], times: tuple[str | None, ...] = ("ts", "ts")) -> Any:
    cls = box_kinds()[kind]
    box = cls(cls.parameters_model(**parameters))
    inputs = (ONE, TWO)[: cls.max_inputs]
    return box, box.bind(inputs, times[: cls.max_inputs])


@pytest.mark.parametrize(("kind", "parameters", "key", "says"), REFUSED)
def test_refused_at_its_key(kind: str, parameters: dict[str, Any], key: tuple[Any, ...], says: str) -> None:
    with pytest.raises(BindError) as refusal:
        bind(kind, parameters)
    assert refusal.value.key == key and says in refusal.value.message


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("join", JOIN | {"within": 100}),
        ("join", JOIN | {"within": {"before": "1s", "until": "2s"}}),
        ("join", JOIN | {"type": "outer"}),
        ("bsort", {"slack": 0}),
        ("bsort", {"slack": -1}),
        ("bsort", {"slack": True}),
        ("dedup", {"by": [], "within": "1s"}),
        ("dedup", {"by": ["k"], "within": "0s"}),
        ("top", TOP | {"n": 0}),
        ("top", TOP | {"window": {"tumbling": "1s", "count": 3}}),
        ("top", TOP | {"window": {}}),
        ("python", {"call": "import os; os", "schema": {"a": "int"}}),
        ("python", {"call": "math:sqrt", "schema": {}}),
    ],
)
def test_wrong_parameters(kind: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        bind(kind, parameters)


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("join", JOIN),
        ("resample", RESAMPLE),
        ("bsort", {"slack": "1s"}),
        ("dedup", {"by": ["k"], "within": "1s"}),
        ("latest", {"by": ["k"]}),
        ("top", TOP),
    ],
)
def test_without_its_time_a_box_says_so(kind: str, parameters: dict[str, Any]) -> None:
    with pytest.raises(BindError, match="event time"):
        bind(kind, parameters, (LOST_TIME, "ts"))
    if box_kinds()[kind].max_inputs == 2:
        with pytest.raises(BindError, match="input 2"):
            bind(kind, parameters, ("ts", LOST_TIME))


def test_top_by_count_needs_no_time() -> None:
    box, _ = bind("top", TOP | {"window": {"count": 3}}, (LOST_TIME,))
    assert box.time_out((LOST_TIME,)) == (LOST_TIME,)


def test_bsort_by_arrival_needs_a_field() -> None:
    with pytest.raises(BindError, match="in order"):
        bind("bsort", {"slack": "1s"}, (None,))


def test_names_that_clash() -> None:
    _, (schema,) = bind("join", JOIN)
    assert schema.names == ("l_ts", "l_k", "x", "n", "rank_", "r_ts", "r_k", "y", "on")
    cls = box_kinds()["join"]
    box = cls(cls.parameters_model(within="1s"))
    with pytest.raises(BindError, match="two fields"):
        box.bind((Schema.of(ts="timestamp", l_ts="int"), Schema.of(ts="timestamp")), ("ts", "ts"))
    with pytest.raises(BindError, match="rank"):
        box_kinds()["top"](box_kinds()["top"].parameters_model(**TOP)).bind(
            (Schema.of(ts="timestamp", x="int", rank="int"),), ("ts",)
        )


@pytest.mark.parametrize(
    ("parameters", "nullable", "time", "delay_ns"),
    [
        (JOIN, (False, False), "l_ts", 10**9),
        (JOIN | {"type": "left"}, (False, True), "l_ts", 10**9),
        (JOIN | {"type": "right"}, (True, False), "r_ts", 10**9),
        (JOIN | {"type": "full"}, (True, True), LOST_TIME, 0),
        (JOIN | {"within": {"before": "3s", "after": "1s"}}, (False, False), "l_ts", 10**9),
        (JOIN | {"type": "right", "within": {"before": "3s", "after": "1s"}}, (True, False), "r_ts", 3 * 10**9),
        (JOIN | {"asof": True}, (False, False), "l_ts", 0),
        (JOIN | {"asof": True, "type": "left"}, (False, True), "l_ts", 0),
    ],
)
def test_what_time_and_nulls_a_join_gives(
    parameters: dict[str, Any], nullable: tuple[bool, bool], time: str, delay_ns: int
) -> None:
    box, (schema,) = bind("join", parameters)
    assert (schema["l_ts"].nullable, schema["r_ts"].nullable) == nullable
    assert box.time_out(("ts", "ts")) == (time,)
    if time != LOST_TIME:
        assert box.out_watermark_ns(box.new_state(), 10**12) == 10**12 - delay_ns


def test_a_selected_time_is_still_the_time() -> None:
    box, _ = bind("join", JOIN | {"select": {"at": "r.ts", "k": "l.k"}})
    assert box.time_out(("ts", "ts")) == ("at",)
    box, _ = bind("join", JOIN | {"select": {"k": "l.k"}})
    assert box.time_out(("ts", "ts")) == (LOST_TIME,)


# -- the examples at the head of each box -------------------------------------------------------------------------

STREAMS = """
streams:
  trades: &t {time: ts, schema: {ts: timestamp, symbol: string, price: double, size: int, seq: bigint}}
  nyse: *t
  arca: *t
  quotes: {time: ts, schema: {ts: timestamp, symbol: string, bid: double, ask: double}}
  alerts: {time: ts, schema: {ts: timestamp, host: string, rule: int}}
"""
EXAMPLE = re.compile(r"^ {4}(\w+: \{.*?\})(?: +#.*)?$", re.MULTILINE)


@pytest.mark.parametrize("kind", ["join", "bsort", "resample", "dedup", "latest", "top", "python"])
def test_the_examples_of_a_kind_load(kind: str) -> None:
    text = importlib.import_module(f"engine.operators.boxes.{kind}").__doc__
    assert text is not None
    examples = [e.replace("models:score", "math:sqrt") for e in EXAMPLE.findall(text)]
    assert examples
    for example in examples:
        name = example.partition(":")[0]
        network = f"{STREAMS}boxes:\n  {example}\noutputs: {{out: {{from: {name}}}}}\n".replace("&t ", "")
        network = network.replace("*t", network.split("trades: ")[1].split("\n")[0])
        assert build_network(dedent(network), box_kinds(), {}).box(name).kind == kind


def test_a_time_that_is_no_field_is_an_error_and_no_traceback_where_a_window_follows() -> None:
    text = """
streams: {s: {schema: {n: int, t: timestamp}, time: tt, overload: block}}
boxes: {w: {aggregate: s, window: {tumbling: 1s}, select: {c: count(*)}}}
outputs: {o: {from: w}}
"""
    with pytest.raises(NetworkError, match="the schema has no field 'tt'"):
        build_network(text, box_kinds(), {})
