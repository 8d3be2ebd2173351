"""``max_error``: the plan keeps the share that the error needs, sheds elsewhere, and says when nothing else is left."""

from __future__ import annotations

import logging
from random import Random

import numpy as np
import pytest

from catalog.catalog import Epoch
from catalog.edge_load import EdgeLoad, StreamEdge
from catalog.errors import NetworkError
from catalog.load_verdict import LoadVerdict
from engine.operators.windows.error_bars import needed_for_count, quantile_of
from engine.run.network_file import read_network
from load_shedder.control_loop import OverloadControl
from load_shedder.decide.edge import FULL, StreamShare, steer_edge
from load_shedder.decide.graphs import WALL, GraphPiece, with_floor
from load_shedder.decide.shedder import Shedder
from load_shedder.record.error_limits import MARGIN, UNKNOWN, ErrorLimit, OutputError
from tests.unit.shed_harness import SECOND, shedder

NET = """
streams: {s: {schema: {ts: timestamp, k: int, v: double}, time: ts, overload: shed}}
boxes:
  u: {universal: s, cost: 10us}
  a: {aggregate: u, window: {tumbling: 1s}, by: [k], approximate: {confidence: 95%%}, select: {%s}}
  w: {universal: s, cost: 10us}
outputs:
  rough: {from: a, qos: {deadline: 1s, %s}}
  rows: {from: w, qos: {deadline: 1s, lossy: 20%%}}
"""
COUNTS = "n: count(*)"


@pytest.mark.parametrize(
    ("select", "qos", "message"),
    [
        ("n: count(*), top: max(v)", "max_error: 2%", "a: the error of top has no bound: only count, sum"),
        ("n: count(*), r: sum(v) / count(*)", "max_error: 2%", "the error of r has no bound"),
        ("n: count(distinct v), m: avg(v)", "max_error: 2%", "the error of n has no bound"),
        (COUNTS, "max_error: 0%", "above 0%"),
        (COUNTS, "max_error: 100%", "below 100%"),
    ],
)  # fmt: skip
def test_what_no_plan_can_keep_is_refused(select: str, qos: str, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        read_network(NET % (select, qos), {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{confidence: 95%}", "true"), "it has no confidence"),
        (("approximate: {confidence: 95%}, ", "approximate: {confidence: 95%}, emit: update, "), "not complete"),
        (("approximate: {confidence: 95%}, ", ""), "no approximate aggregate leads to this output"),
    ],
)
def test_an_output_without_an_error_cannot_limit_it(change: tuple[str, str], message: str) -> None:
    text = NET % (COUNTS, "max_error: 2%")
    assert change[0] in text
    with pytest.raises(NetworkError, match=message):
        read_network(text.replace(*change), {})


def test_the_floor_follows_from_the_windows_that_closed() -> None:
    """4,000 tuples a window in four keys: the floor is that of a count of a thousand."""
    random = Random(3)
    columns = {
        "ts": [i * SECOND // 4_000 for i in range(16_000)],
        "k": [i % 4 for i in range(16_000)],
        "v": [random.uniform(50, 60) for _ in range(16_000)],
    }
    with shedder(NET % ("n: count(*), m: avg(v)", "max_error: 5%")) as engine:
        book = engine.engine.shedding.book
        assert book.errors() == {0: OutputError(0.05, UNKNOWN, None)}
        engine.feed("s", columns, watermark="ts")
        assert engine.engine.drain(20)
        found = book.errors()[0]
        needed = float(needed_for_count(np.array([1_000.0]), quantile_of(0.95), MARGIN * 0.05)[0])
        assert found.floor == pytest.approx(needed, rel=0.01) and found.error == 0.0 and found.is_kept
        engine.shed({"s->u": ("random", 1 - needed / 2)})
        later = columns | {"ts": [ts + 4 * SECOND for ts in columns["ts"]]}
        engine.feed("s", later, watermark="ts")
        engine.close()
        short = book.errors()[0]
        assert short.floor == pytest.approx(needed, rel=0.15), "known from a sample too"
        assert short.error is not None and short.error > 0.05 and not short.is_kept


def test_a_key_of_a_few_tuples_does_not_forbid_every_drop() -> None:
    limit = ErrorLimit(0.02)
    limit.note(np.ones(5), np.ones(5), 0.95)
    assert limit.reading() == OutputError(0.02, UNKNOWN, None), "the first window may be a part of one"
    limit.note(np.array([0.3] * 99 + [1.0]), np.ones(100), 0.95)
    assert limit.reading() == OutputError(0.02, 0.3, 0.0)
    for _ in range(3):
        limit.note(np.array([0.1]), np.array([0.1]), 0.95)
    assert limit.reading() == OutputError(0.02, 0.1, pytest.approx(MARGIN * 0.02))


def verdict(at_s: float, share: float, late: tuple[int, ...] = ()) -> LoadVerdict:
    """The share of the work that is excess."""
    return LoadVerdict(
        at_ns=int(at_s * SECOND), state="overloaded", load_ns=2e9, capacity_ns=1e9, load_ratio=2.0,
        excess_ns=2e9 * share, late=late,
    )  # fmt: skip


def made(qos: str) -> tuple[Shedder, dict[str, int]]:
    epoch = Epoch.of(read_network(NET % (COUNTS, qos), {}))
    epoch.stats.rate_per_s[:] = 100_000.0
    return Shedder(epoch.network, epoch.stats), {a.name: a.number for a in epoch.network.arcs}


@pytest.mark.parametrize("share", [0.1, 0.3, 0.45, 0.6, 0.9])
@pytest.mark.parametrize("floor", [0.3, 0.7, 1.0])
def test_no_plan_goes_below_the_floor(floor: float, share: float) -> None:
    found, arcs = made("lossy: 60%, max_error: 2%")
    plan = found.step(verdict(1.0, share), floors={0: floor})
    kept = plan.kept_on_arc if plan is not None else {}
    assert kept.get(arcs["s->u"], 1.0) >= floor - 1e-6
    free, _ = made("lossy: 60%, max_error: 2%")
    loose = free.step(verdict(1.0, share), floors={})
    assert loose is not None
    if share <= 0.3:  # the other output can give all that is missing
        assert plan is not None and plan.saved_ns == pytest.approx(loose.saved_ns, rel=0.02), "it is shed elsewhere"
        assert kept.get(arcs["s->w"], 1.0) <= loose.kept_on_arc.get(arcs["s->w"], 1.0) + 1e-9


def test_the_error_alone_says_how_much_may_be_lost() -> None:
    found, arcs = made("max_error: 2%")
    plan = found.step(verdict(1.0, 0.3), floors={0: 0.25})
    assert plan is not None and plan.kept_on_arc[arcs["s->u"]] < 0.7 and plan.loss == pytest.approx(0.0, abs=1e-6)


def test_when_nothing_else_is_left_it_is_given_up_and_told(caplog: pytest.LogCaptureFixture) -> None:
    network = read_network(NET % (COUNTS, "lossy: 60%, max_error: 2%"), {})
    epoch = Epoch.of(network)
    epoch.stats.rate_per_s[:] = 100_000.0
    verdicts = [verdict(0.1 * i, 0.9, late=(0, 1)) for i in range(1, 12)]
    control: OverloadControl[LoadVerdict] = OverloadControl(
        epoch, lambda v: v, lambda plan: None, semantic_arcs=None, values=dict, clock_ns=lambda: 0
    )
    errors = {0: OutputError(0.02, 0.7, 0.01)}
    arc = next(a.number for a in network.arcs if a.name == "s->u")
    with caplog.at_level(logging.INFO, "aurorad.overload"):
        control.on_sample(verdicts[0], errors=errors)
        assert control.plan.kept_on_arc.get(arc, 1.0) >= 0.7 and control.floors == {0: 0.7}
        for v in verdicts[1:]:
            control.on_sample(v, errors=errors)
        assert control.plan.kept_on_arc[arc] < 0.3 and control.floors == {}
        control.on_sample(verdict(1.3, 0.9, late=(0, 1)), errors={0: OutputError(0.02, 0.7, 0.05)})
        easy = {0: OutputError(0.02, 0.1, 0.01)}
        for i in range(14, 50):
            control.on_sample(verdict(0.1 * i, 0.3), errors=easy)
        assert control.floors == {0: 0.1} and 0 in control.plan.outputs, "it loses no more than it may"
    said = [r.message for r in caplog.records]
    assert "max_error of rough cannot be kept: nothing else is left to shed" in said
    assert any("off by up to 5%, max_error is 2%" in line and "nothing else is left" in line for line in said)


def test_a_wall_replaces_the_graph_below_the_floor() -> None:
    graph = (GraphPiece(0.5, 0.0), GraphPiece(0.0, 2.0))
    assert with_floor(graph, 0.0) == graph
    assert with_floor(graph, 0.7) == (GraphPiece(0.7, 0.0), GraphPiece(0.0, WALL))
    assert with_floor(graph, 0.5) == (GraphPiece(0.5, 0.0), GraphPiece(0.0, WALL))
    assert with_floor(graph, 0.2) == (GraphPiece(0.5, 0.0), GraphPiece(0.2, 2.0), GraphPiece(0.0, WALL))
    assert with_floor(graph, 1.0) == (GraphPiece(0.0, WALL),)


def test_the_edge_keeps_the_floor_and_takes_from_the_others() -> None:
    def load(at_s: float) -> EdgeLoad:
        both = [StreamEdge(1e6, 1e3, sheds=True, is_late=True) for _ in range(2)]
        return EdgeLoad(at_ns=int(at_s * SECOND), streams=tuple(both))

    shares: tuple[StreamShare, ...] = ()
    for i in range(1, 40):
        shares = steer_edge(shares, load(i / 10), [False, False], [0.8, 0.0])
    assert shares[0].share == pytest.approx(0.8) and 0.05 < shares[1].share <= FULL - 0.8 + 1e-9
