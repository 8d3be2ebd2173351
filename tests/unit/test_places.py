"""Where tuples may be dropped."""

from __future__ import annotations

from engine.run.network_file import read_network
from load_shedder.decide.places import find_places, hulled_outputs

HEAD = """
http: {listen: "off"}
streams:
  s: {schema: {ts: timestamp, k: string, x: double}, time: ts, overload: shed}
  quiet: {schema: {ts: timestamp, k: string, x: double}, time: ts, overload: block}
"""
LOSSY = "qos: {lossy: 30%}"


def places(boxes: str, outputs: str) -> dict[str, tuple[str, list[str], int]]:
    """By the arc's name: manner, outputs touched, seconds of the span."""
    network = read_network(f"{HEAD}boxes:\n{boxes}\noutputs:\n{outputs}\n")
    return {
        network.arcs[p.arc].name: (p.manner, [network.outputs[o].name for o in p.outputs], p.window_ns // 10**9)
        for p in find_places(network)
    }


def test_a_chain_is_dropped_from_at_its_beginning_only() -> None:
    found = places("  a: {filter: s, where: x > 1}\n  b: {filter: a, where: x > 2}", f"  o: {{from: b, {LOSSY}}}")
    assert found == {"s->a": ("random", ["o"], 0)}


def test_a_split_makes_places_behind_it_beside_the_one_before() -> None:
    found = places("  a: {filter: s, where: x > 1}", f"  o: {{from: a, {LOSSY}}}\n  p: {{from: a, {LOSSY}}}")
    assert found == {"s->a": ("random", ["o", "p"], 0), "a->o": ("random", ["o"], 0), "a->p": ("random", ["p"], 0)}


def test_an_output_without_a_loss_graph_is_never_shed_and_the_other_one_behind_the_split_is() -> None:
    found = places(
        "  a: {filter: s, where: x > 1}", f"  o: {{from: a, {LOSSY}}}\n  p: {{from: a, qos: {{deadline: 1s}}}}"
    )
    assert found == {"a->o": ("random", ["o"], 0)}


def test_nothing_of_a_stream_that_blocks_is_dropped_not_even_behind_a_union() -> None:
    found = places("  u: {union: [s, quiet]}\n  f: {filter: u, where: x > 1}", f"  o: {{from: f, {LOSSY}}}")
    assert found == {"s->u.0": ("random", ["o"], 0)}


def test_before_windows_whole_windows_are_dropped_of_a_span_that_fits_all_of_them() -> None:
    boxes = """
  f: {filter: s, where: x > 1}
  two: {aggregate: f, window: {tumbling: 2s}, select: {n: "count(*)"}}
  three: {aggregate: f, window: {tumbling: 3s}, select: {n: "count(*)"}}"""
    found = places(boxes, f"  o: {{from: two, {LOSSY}}}\n  p: {{from: three, {LOSSY}}}")
    assert found == {
        "s->f": ("windows", ["o", "p"], 6),
        "f->two": ("windows", ["o"], 2),
        "f->three": ("windows", ["p"], 3),
    }


def test_a_window_by_count_may_lose_nothing_but_its_results_may_be_dropped() -> None:
    boxes = '  c: {aggregate: s, window: {count: 10}, select: {n: "count(*)"}}\n  f: {filter: c, where: n > 1}'
    assert places(boxes, f"  o: {{from: f, {LOSSY}}}") == {"c->f": ("random", ["o"], 0)}


def test_windows_are_cut_before_a_map_that_passes_their_time_on() -> None:
    boxes = """
  m: {map: s, select: {ts: ts, x: x}}
  w: {aggregate: m, window: {tumbling: 1s}, select: {c: "count(*)"}}"""
    assert places(boxes, f"  o: {{from: w, {LOSSY}}}") == {"s->m": ("windows", ["o"], 1)}
    renamed = boxes.replace("{ts: ts,", "{at: ts,")
    assert places(renamed, f"  o: {{from: w, {LOSSY}}}") == {"m->w": ("windows", ["o"], 1)}


def test_a_place_is_semantic_where_the_value_can_be_seen() -> None:
    value = "qos: {value: {y: [[0, 0], [100, 1]]}}"
    boxes = "  m: {map: s, select: {y: x * 2}}\n  f: {filter: m, where: y > 1}"
    assert places(boxes, f"  o: {{from: f, {value}}}") == {
        "s->m": ("random", ["o"], 0),
        "m->f": ("semantic", ["o"], 0),
    }


def test_a_graph_that_is_not_concave_is_found() -> None:
    outputs = "  o: {from: s, qos: {loss: [[100%, 1], [90%, 0.2], [0%, 0]]}}\n  p: {from: s, qos: {lossy: 30%}}"
    assert [o.name for o in hulled_outputs(read_network(f"{HEAD}boxes: {{}}\noutputs:\n{outputs}\n"))] == ["o"]
