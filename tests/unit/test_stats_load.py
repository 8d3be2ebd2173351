"""Load coefficients and flows against plain walks over random networks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.load import LoadModel, load_ratio
from catalog.network import Arc, BoxNode, Network, Output, PortRef, Stream
from catalog.qos import QoS
from catalog.schema import Schema
from catalog.stats import Statistics
from engine.run.network_file import read_network
from tests.unit.monitored import diamond

SCHEMA = Schema.of(x="bigint")


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """DAGs with fan-out, several ports, joins of paths, two streams, outputs anywhere."""
    count = draw(st.integers(1, 8))
    ports = [draw(st.integers(1, 3)) for _ in range(count)]
    arcs: list[Arc] = []

    def connect(source: PortRef, box: int | None = None, port: int = 0, output: int | None = None) -> None:
        arcs.append(Arc(len(arcs), f"a{len(arcs)}", source, SCHEMA, box, port, output))

    def origin(below: int) -> PortRef:
        at = draw(st.integers(-2, below - 1))
        return PortRef(stream=at + 2) if at < 0 else PortRef(box=at, port=draw(st.integers(0, ports[at] - 1)))

    inputs = [draw(st.integers(1, 2)) for _ in range(count)]
    for box in range(count):
        for port in range(inputs[box]):
            connect(origin(box), box, port)
    outputs = draw(st.integers(1, 3))
    for output in range(outputs):
        connect(origin(count), output=output)
    return Network(
        tuple(
            Stream(s, f"s{s}", SCHEMA, tuple(a.number for a in arcs if a.source.stream == s), None, 0, "block", None)
            for s in range(2)
        ),
        tuple(
            BoxNode(
                b, f"b{b}", "filter", None, tuple(a.number for a in arcs if a.box == b),
                tuple(
                    tuple(a.number for a in arcs if a.source.box == b and a.source.port == p) for p in range(ports[b])
                ),
                tuple(str(p) for p in range(ports[b])), (SCHEMA,) * inputs[b], (SCHEMA,) * ports[b],
            )
            for b in range(count)
        ),
        tuple(arcs),
        tuple(
            Output(o, f"o{o}", SCHEMA, next(a.number for a in arcs if a.output == o), QoS(), None)
            for o in range(outputs)
        ),
    )  # fmt: skip


def walk(network: Network, arc: int, cost: list[float], selectivity: list[float], start: list[int]) -> float:
    """The work of one tuple on an arc, by following every path."""
    box = network.arcs[arc].box
    if box is None:
        return 0.0
    behind = 0.0
    for port, arcs in enumerate(network.boxes[box].out_arcs):
        behind += selectivity[start[box] + port] * sum(walk(network, a, cost, selectivity, start) for a in arcs)
    return cost[box] + behind


@given(networks(), st.integers(0, 10_000))
def test_coefficients_are_the_sum_over_all_paths(network: Network, seed: int) -> None:
    stats, rng = Statistics(network), np.random.default_rng(seed)
    cost, selectivity = rng.uniform(1, 100, len(network.boxes)), rng.uniform(0, 1.5, stats.port_start[-1])
    found = LoadModel(network).coefficients(cost, selectivity)
    args = (cost.tolist(), selectivity.tolist(), stats.port_start.tolist())
    assert found.arcs == pytest.approx([walk(network, a.number, *args) for a in network.arcs])
    assert found.streams == pytest.approx([sum(walk(network, a, *args) for a in s.arcs) for s in network.streams])


@given(networks(), st.integers(0, 10_000))
def test_load_is_the_same_from_the_streams_and_from_the_boxes(network: Network, seed: int) -> None:
    """Sum of coefficient times rate = sum of cost times flow into the box."""
    stats, rng = Statistics(network), np.random.default_rng(seed)
    cost, selectivity = rng.uniform(1, 100, len(network.boxes)), rng.uniform(0, 1.5, stats.port_start[-1])
    rates = rng.uniform(0, 1_000, 2)
    model = LoadModel(network)
    coefficients, flow = model.coefficients(cost, selectivity), model.flow(rates, selectivity)
    assert float(coefficients.streams @ rates) == pytest.approx(float(cost @ flow.boxes))
    assert flow.outputs == pytest.approx([flow.arcs[o.arc] for o in network.outputs])
    assert load_ratio(coefficients, rates, 4) == pytest.approx(float(cost @ flow.boxes) / 4e9)


@given(networks(), st.integers(0, 10_000))
def test_shares_delivered(network: Network, seed: int) -> None:
    stats, rng = Statistics(network), np.random.default_rng(seed)
    model, rates = LoadModel(network), rng.uniform(1, 1_000, 2)
    selectivity = rng.uniform(0.1, 1.0, stats.port_start[-1])
    whole = np.ones(len(network.arcs))
    half = np.array([1.0 if arc.source.box is not None else 0.5 for arc in network.arcs])  # right behind the streams
    assert model.share_delivered(rates, selectivity, whole) == pytest.approx(1.0)
    assert model.share_delivered(rates, selectivity, half) == pytest.approx(0.5)
    shares = model.share_delivered(rates, selectivity, rng.uniform(0, 1, len(network.arcs)))
    assert ((shares >= 0) & (shares <= 1)).all()


def test_the_ideal_time_is_that_of_the_longest_path() -> None:
    network = diamond()
    model = LoadModel(network)
    per_call = np.zeros(3)
    per_tuple = np.zeros(3)
    for name, a, b in (("big", 10.0, 1.0), ("split", 100.0, 5.0), ("both", 1_000.0, 50.0)):
        per_call[network.box(name).number], per_tuple[network.box(name).number] = a, b
    ideal = dict(zip(("alerts", "others", "raw"), model.ideal_ns(per_call, per_tuple).tolist(), strict=True))
    assert ideal == {"alerts": 1_155.0, "others": 105.0, "raw": 0.0}


def test_a_network_without_boxes() -> None:
    arc = Arc(0, "s->o", PortRef(stream=0), SCHEMA, output=0)
    stream = Stream(0, "s", SCHEMA, (0,), None, 0, "block", None)
    network = Network((stream,), (), (arc,), (Output(0, "o", SCHEMA, 0, QoS(), None),))
    stats, model = Statistics(network), LoadModel(network)
    stats.observe_boxes(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0), 10**8)
    assert model.coefficients(np.zeros(0), stats.port_selectivity).streams.tolist() == [0.0]
    assert model.flow(np.array([7.0]), stats.port_selectivity).outputs.tolist() == [7.0]
    assert model.ideal_ns(np.zeros(0), np.zeros(0)).tolist() == [0.0]


JOIN = """
http: {listen: "off"}
streams:
  fast: {schema: {k: string, v: double}}
  slow: {schema: {k: string, v: double}}
boxes:
  pairs: {join: [fast, slow], on: "l.k = r.k", within: 50ms, select: {v: "l.v"}}
  some: {filter: pairs, where: "v > 0"}
outputs:
  found: {from: some}
"""


def test_a_join_loses_pairs_by_the_product_of_what_its_inputs_keep() -> None:
    network = read_network(JOIN)
    model = LoadModel(network)
    rates, selectivity = np.array([900.0, 100.0]), np.array([2.0, 0.5])
    kept = np.array([{"fast->pairs.0": 0.5, "slow->pairs.1": 0.25}.get(a.name, 1.0) for a in network.arcs])
    assert model.flow(rates, selectivity).outputs.tolist() == [1_000.0]
    assert model.flow(rates, selectivity, kept).outputs.tolist() == [pytest.approx(125.0)]
    assert model.share_delivered(rates, selectivity, kept).tolist() == [pytest.approx(0.125)]


def test_the_selectivity_of_a_join_is_known_also_while_its_inputs_are_shed() -> None:
    network = read_network(JOIN)
    model = LoadModel(network)
    rates = np.array([900.0, 100.0])
    seen = np.array([1_000.0 / 550.0, 0.5])  # of 2,000 pairs a half, for the 550 tuples that are left
    factor = model.unshed_factor(rates, seen, np.array([2_000 / (900 * 100), np.nan]))
    assert factor.tolist() == [pytest.approx(1.1), 1.0]
    assert seen[0] * factor[0] == pytest.approx(2.0), "2,000 pairs for 1,000 tuples"
    assert model.unshed_factor(rates, seen, np.full(2, np.nan)).tolist() == [1.0, 1.0], "not known yet"


def test_a_plan_that_narrows_the_inputs_of_a_join_does_not_change_what_it_would_make_without() -> None:
    """A mean of the selectivity lags behind a plan; the pair rate does not move, whatever the plan drops."""
    network = read_network(JOIN)
    model, stats = LoadModel(network), Statistics(network)
    inputs = [a.number for a in network.arcs if a.name in ("fast->pairs.0", "slow->pairs.1")]
    rates, seen = np.array([900.0, 100.0]), []
    stats.rate_per_s[:] = rates
    for tick in range(80):
        kept = np.array([1.0, 1.0] if tick < 30 else [0.1, 0.5] if tick < 60 else [0.8, 0.2])
        came = rates * kept / 10
        made = 2_000 * kept.prod() / 10
        stats.observe_boxes(*(np.array(v) for v in ([9, 9], [came.sum(), made], [made, made], [1e6, 1e6])), 10**8)
        on_arcs = np.zeros(len(network.arcs))
        on_arcs[inputs] = came
        stats.observe_pairs([0], np.array([(came.prod() / 0.1)]), np.array([made]), 10**8)
        stats.observe_arcs(on_arcs, 10**8)
        stats.unshed_factor[:] = model.unshed_factor(rates, stats.port_selectivity, stats.pair_rate)
        if tick >= 20:
            seen.append(stats.unshed_selectivity()[0])
    assert max(seen) < 2.0 * 1.25 and min(seen) > 2.0 / 1.25, (min(seen), max(seen))
    present = stats.present_selectivity()[0]
    assert present == pytest.approx(2_000 * 0.8 * 0.2 / (900 * 0.8 + 100 * 0.2), rel=0.1), "what waits meets these"


def test_what_waits_passes_the_drops_behind_it() -> None:
    network = read_network(JOIN)
    model = LoadModel(network)
    cost_ns, passes = np.array([100.0, 1_000.0]), np.array([2.0, 0.5])
    kept = np.array([{"pairs->some": 0.25}.get(a.name, 1.0) for a in network.arcs])
    before_join = next(a.number for a in network.arcs if a.name == "fast->pairs.0")
    assert model.coefficients(cost_ns, passes).arcs[before_join] == pytest.approx(2_100.0)
    assert model.coefficients(cost_ns, passes, None, kept).arcs[before_join] == pytest.approx(600.0)
