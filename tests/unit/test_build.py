"""From the file to the network: numbers, names of arcs, times, loops, listeners, and what goes nowhere."""

from __future__ import annotations

import random

import pytest

from catalog.build import build_network
from catalog.config.order import find_cycles, topological
from catalog.config.overrides import Overrides
from catalog.errors import ExpressionError, NetworkError, Problem
from catalog.network import Network, PortRef
from catalog.schema import Schema
from tests.unit.network_kinds import KINDS

HEAD = """\
streams:
  trades: {schema: {ts: timestamp, price: double, size: int}, time: ts, slack: 200ms}
  quotes: {schema: {ts: timestamp, price: double, size: int}}
"""


def build(boxes: str, outputs: str, **words: object) -> Network:
    return build_network(HEAD + boxes + outputs, KINDS, {}, **words)  # type: ignore[arg-type]


def refused(boxes: str, outputs: str = "outputs: {out: {from: trades}}\n", **words: object) -> list[Problem]:
    with pytest.raises(NetworkError) as caught:
        build(boxes, outputs, **words)
    return [p for p in caught.value.problems if not p.warning]


BOXES = """\
boxes:
  last: {merge: [parts.small, both]}
  both: {merge: [big, quotes]}
  big: {pick: trades, where: price}
  parts: {split: trades, when: {small: price, large: size}, otherwise: rest}
"""
OUTPUTS = """\
outputs:
  all: {from: last, qos: {deadline: 200ms}}
  raw: {from: trades}
  large: {from: parts.large}
  rest: {from: parts.rest}
"""


def test_numbers_names_and_arcs() -> None:
    network = build(BOXES, OUTPUTS)
    assert [b.name for b in network.boxes] == ["big", "both", "parts", "last"], "topological, ties by the file"
    assert [a.name for a in network.arcs] == [
        "trades->big",
        "big->both.0",
        "quotes->both.1",
        "trades->parts",
        "parts.small->last.0",
        "both->last.1",
        "last->all",
        "trades->raw",
        "parts.large->large",
        "parts.rest->rest",
    ]
    assert [a.number for a in network.arcs] == list(range(10))
    trades = network.stream("trades")
    assert (trades.arcs, trades.time_field, trades.slack_ns, trades.overload) == ((0, 3, 7), "ts", 200_000_000, "block")
    parts = network.box("parts")
    assert (parts.ports, parts.in_arcs, parts.out_arcs) == (("small", "large", "rest"), (3,), ((4,), (8,), (9,)))
    assert network.box("last").in_arcs == (4, 5)
    assert network.arcs[8].source == PortRef(box=parts.number, port=1)
    assert (network.arcs[5].box, network.arcs[5].port) == (network.box("last").number, 1)
    assert [network.arcs[o.arc].output for o in network.outputs] == [0, 1, 2, 3]
    assert network.output("all").qos.deadline_ns == 200_000_000
    assert network.output("raw").schema == trades.schema
    assert not network.warnings


def test_the_network_agrees_with_itself() -> None:
    network = build(BOXES, OUTPUTS)
    for arc in network.arcs:
        if arc.box is not None:
            assert network.boxes[arc.box].in_arcs[arc.port] == arc.number
            assert network.boxes[arc.box].in_schemas[arc.port] == arc.schema
        if arc.source.stream is not None:
            assert arc.number in network.streams[arc.source.stream].arcs
        else:
            feeder = network.boxes[arc.source.box or 0]
            assert arc.number in feeder.out_arcs[arc.source.port]
            assert feeder.out_schemas[arc.source.port] == arc.schema
            assert arc.box is None or feeder.number < arc.box


def test_an_arc_is_timed_when_a_window_lies_behind_it() -> None:
    boxes = """\
boxes:
  big: {pick: trades, where: price}
  per: {window: big, size: {tumbling: 5}}
  rest: {pick: big, where: size}
  late: {pick: per.late, where: price}
"""
    network = build(boxes, "outputs: {o1: {from: per}, o2: {from: rest}, o3: {from: late}, o4: {from: quotes}}\n")
    assert {a.name for a in network.arcs if a.timed} == {"trades->big", "big->per"}
    assert network.output("o1").schema == Schema.of(n="bigint")
    assert not network.warnings, "nobody has to read a port beside the default one"


def test_one_stream_on_both_inputs() -> None:
    network = build(
        "boxes: {twice: {merge: [trades, trades]}}\n", "outputs: {out: {from: twice}, o2: {from: quotes}}\n"
    )
    assert [a.name for a in network.arcs][:2] == ["trades->twice.0", "trades->twice.1"]


def test_loops_are_shown_as_a_way() -> None:
    boxes = """\
boxes:
  a: {pick: c, where: price}
  b: {pick: a, where: price}
  c: {merge: [b, trades]}
  self: {merge: [self, trades]}
  behind: {pick: c, where: nonsense}
"""
    found = refused(boxes)
    assert [(p.place, p.message) for p in found] == [
        ("boxes.a.pick", "a loop: a -> b -> c -> a"),
        ("boxes.self.merge.0", "a loop: self -> self"),
    ]


def test_loops_and_order_against_random_graphs() -> None:
    """Either everything is in order, or what is left out contains loops that are loops."""
    dice = random.Random(7)
    for _ in range(200):
        names = [f"b{i}" for i in range(dice.randint(1, 9))]
        feeders = {n: dice.sample(names, dice.randint(0, min(2, len(names)))) for n in names}
        order = topological(feeders)
        place = {n: i for i, n in enumerate(order)}
        assert all(place[f] < place[n] for n in order for f in feeders[n])
        cycles = find_cycles(feeders)
        assert bool(cycles) == (len(order) < len(names))
        for cycle in cycles:
            assert all(a in feeders[b] for a, b in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
            assert len(set(cycle)) == len(cycle)


@pytest.mark.parametrize(
    ("boxes", "place", "message", "hint"),
    [
        ("b: {pick: trads, where: price}", "boxes.b.pick", "no stream or box 'trads'", "did you mean 'trades'?"),
        ("b: {merge: [trades, quots]}", "boxes.b.merge.1", "no stream or box 'quots'", "did you mean 'quotes'?"),
        ("b: {pick: trades.x, where: price}", "boxes.b.pick", "is a stream and has no port", "write 'trades'"),
        ("b: {pick: out, where: price}", "boxes.b.pick", "'out' is an output", "read its input instead: 'trades'"),
        (
            "b: {split: trades, when: {x: a, y: b}}\n  c: {pick: b, where: price}",
            "boxes.c.pick",
            "several ports",
            "b.x, b.y",
        ),
        ("b: {split: trades, when: {xx: a}}\n  c: {pick: b.x, where: price}", "boxes.c.pick", "no port 'x'", "'xx'"),
        ("b: {merge: [trades]}", "boxes.b.merge", "takes 2 to 9 inputs, not 1", ""),
        ("b: {merge: [trades, w]}\n  w: {window: trades, size: {}}", "boxes.b.merge", "the inputs differ", ""),
        (
            "trades: {pick: quotes, where: price}",
            "boxes.trades",
            "'trades' is already the name of a stream",
            "trades_box",
        ),
        ("out: {pick: quotes, where: price}", "outputs.out", "'out' is already the name of a box", "out_out"),
    ],
)
def test_names_that_mean_nothing(boxes: str, place: str, message: str, hint: str) -> None:
    [problem] = refused(f"boxes:\n  {boxes}\n")
    assert problem.place == place
    assert message in problem.message
    assert hint in problem.hint


def test_two_listeners_on_one_port_are_both_named() -> None:
    text = """\
http: {listen: 127.0.0.1:9401}
streams:
  a: {schema: {x: int}, source: {tcp: 127.0.0.1:9401}, overload: block}
  b: {schema: {x: int}, source: {tcp: 0.0.0.0:9402, insecure: true}, overload: block}
  c: {schema: {x: int}, source: {tcp: 127.0.0.1:0}, overload: block}
outputs:
  o: {from: a, sink: {tcp: localhost:9402}}
  p: {from: b, sink: {tcp: 127.0.0.1:0}}
  q: {from: c, sink: {tcp: 127.0.0.1:9400}}
"""
    with pytest.raises(NetworkError) as caught:
        build_network(text, KINDS, {})
    found = [(p.place, p.line, p.message) for p in caught.value.problems]
    assert found == [
        ("streams.a.source.tcp", 3, "streams.a.source.tcp and http.listen both listen on 127.0.0.1:9401"),
        ("outputs.o.sink.tcp", 7, "outputs.o.sink.tcp and streams.b.source.tcp both listen on localhost:9402"),
    ]


def test_the_default_of_http_counts_as_a_listener() -> None:
    text = "streams: {a: {schema: {x: int}, source: {tcp: 9400}, overload: block}}\noutputs: {o: {from: a}}\n"
    with pytest.raises(NetworkError, match=r"http\.listen both listen") as caught:
        build_network(text, KINDS, {})
    assert "by default" in caught.value.problems[0].hint


def test_warnings_for_what_goes_nowhere() -> None:
    boxes = """\
boxes:
  parts: {split: trades, when: {small: price, large: size}}
  dead: {pick: trades, where: price}
  deader: {split: dead, when: {x: price, y: size}}
"""
    network = build(boxes, "outputs: {out: {from: parts.small}}\n")
    assert [(w.place, w.line, w.message) for w in network.warnings] == [
        ("streams.quotes", 3, "nothing reads the stream 'quotes'"),
        ("boxes.parts", 5, "nothing reads the port 'parts.large': its tuples are dropped"),
        ("boxes.dead", 6, "the box 'dead' leads to no output"),
        ("boxes.deader", 7, "the box 'deader' leads to no output"),
    ]
    assert all(w.warning for w in network.warnings)


def test_qos_is_held_against_the_schema_of_the_output() -> None:
    def check(text: str, schema: Schema) -> None:
        if text not in schema:
            raise ExpressionError(f"no field '{text}'", text, 0, "look again")

    outputs = """\
outputs:
  a: {from: trades, qos: {value: {prise: [[0, 1]]}}}
  b: {from: trades, qos: {value: {ts: [[0, 1]]}}}
  c: {from: trades, qos: {prefer: sise}}
  d: {from: trades, qos: {prefer: size}}
"""
    found = refused("", outputs, check_predicate=check)
    assert [(p.place, p.message, p.hint) for p in found] == [
        ("outputs.a.qos.value.prise", "the output has no field 'prise'", "did you mean 'price'?"),
        ("outputs.b.qos.value.ts", "'ts' is a timestamp; a value graph needs a number", ""),
        ("outputs.c.qos.prefer", "no field 'sise'", "look again"),
    ]
    assert build("", "outputs: {d: {from: trades, qos: {prefer: anything}}}\n").output("d").qos.prefer == "anything"


def test_consequences_are_not_reported() -> None:
    boxes = """\
boxes:
  first: {pick: trades, where: nonsense}
  second: {pick: first, where: nonsense}
  third: {merge: [second, trades]}
"""
    assert [p.place for p in refused(boxes, "outputs: {out: {from: third}}\n")] == ["boxes.first.where"]


def test_a_thousand_boxes() -> None:
    lines = [f"  b{i}: {{pick: {'trades' if i % 5 == 0 else f'b{i - 1}'}, where: price}}" for i in range(1000)]
    outputs = [f"  o{i}: {{from: b{i}}}" for i in range(4, 1000, 5)]
    text = "boxes:\n" + "\n".join(lines) + "\n", "outputs:\n" + "\n".join(outputs) + "\n"
    network = build(*text, overrides=Overrides({"engine": {"share": False}}))
    assert (len(network.boxes), len(network.outputs), len(network.arcs)) == (1000, 200, 1200)
    assert len(network.stream("trades").arcs) == 200
    network = build(*text)  # equal boxes are one
    assert (len(network.boxes), len(network.outputs), len(network.arcs)) == (5, 200, 205)


def test_a_socket_that_does_not_say_what_overload_means_is_told_what_will_happen() -> None:
    text = "http: {listen: 'off'}\nstreams:\n  a: {schema: {x: int}, source: {tcp: 9400}}\n  b: {schema: {x: int}}\n"
    network = build_network(text + "outputs: {o: {from: a}, p: {from: b}}\n", KINDS, {})
    [warning] = network.warnings
    assert (warning.place, warning.line) == ("streams.a", 3)
    assert "its senders wait" in warning.message
    assert "overload: block" in warning.hint
    assert network.stream("a").overload == "block"
