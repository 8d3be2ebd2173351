"""The verdict as a function of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from catalog.catalog import Catalog, Epoch
from catalog.load_verdict import LoadVerdict
from engine.daemon.monitor.monitoring import make_overload
from engine.run.core import Engine
from engine.run.network_file import read_network
from load_shedder.decide.places import shed_arcs
from load_shedder.decide.shedder import Shedder
from qos_monitor.levels import may_wait_ns
from qos_monitor.sampler import Sample
from qos_monitor.verdict import HEADROOM, Terms, judge
from scheduler.policies import runs_urgent_first

NETWORK = read_network("""
http: {listen: "off"}
streams:
  shed: {schema: {x: double}, overload: shed}
  wait: {schema: {x: double}, overload: block}
boxes:
  a: {universal: shed, cost: 10us}
  b: {universal: wait, cost: 10us}
outputs:
  quick: {from: a, qos: {deadline: 100ms, lossy: 50%}}
  slow: {from: b}
""")
EPOCH = Epoch.of(NETWORK)
TERMS = Terms.of(NETWORK, shed_arcs(NETWORK), urgent_first=False)
COEFFICIENTS = EPOCH.load.coefficients(np.full(2, 10_000.0), np.ones(2))
TICK_NS = 100_000_000
AT_CAPACITY = 100_000.0  # tuples a second of 10 us each on one worker


def sample(at: int, rate: float, **changes: Any) -> Sample:
    rates = np.array([rate, 0.0])
    same = Sample(
        at * TICK_NS, TICK_NS, 0.0, COEFFICIENTS, rates, rates, rates, rates, np.ones(2), np.ones(2), np.ones(2),
        np.ones(2), np.ones(2), rates, np.zeros(4), np.zeros(4), 0.0, 0.0,
    )  # fmt: skip
    return same._replace(**changes)


def backlog(seconds: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([seconds * 1e9 if arc.source.stream == 0 else 0.0 for arc in NETWORK.arcs])


def after(ticks: int, rate: float, before: LoadVerdict | None = None, **changes: Any) -> LoadVerdict:
    verdict = before or LoadVerdict(headroom_ratio=1.0)
    first = round(verdict.at_ns / TICK_NS) + 1
    for at in range(first, first + ticks):
        verdict = judge(verdict, sample(at, rate, **changes), TERMS, 1)
    return verdict


def test_half_of_the_load_is_fine_and_nearly_all_is_close() -> None:
    fine, close = after(20, 0.5 * AT_CAPACITY), after(20, 0.93 * AT_CAPACITY)
    assert (fine.state, close.state) == ("fine", "close")
    assert fine.load_ratio == pytest.approx(0.5)
    assert fine.excess_ns == pytest.approx((0.5 - HEADROOM) * 1e9)


def test_overload_begins_with_a_backlog_and_ends_with_the_load() -> None:
    asked = after(20, 2 * AT_CAPACITY)
    assert asked.state == "close", "nothing waits: who says so has measured something wrong"
    begun = after(1, 2 * AT_CAPACITY, asked, backlog_ns=backlog(0.1))
    assert begun.state == "overloaded"
    assert begun.excess_ns > (2 - HEADROOM) * 1e9, "and what waits is to be worked off too"
    shed = after(20, 2 * AT_CAPACITY, begun)
    assert shed.state == "overloaded", "nothing waits any more because the rest is shed"
    assert after(20, 0.5 * AT_CAPACITY, shed).state == "fine"


def test_what_may_wait_follows_from_the_deadlines() -> None:
    assert TERMS.wait_ns == 50_000_000
    verdict = after(20, 0.8 * AT_CAPACITY, backlog_ns=backlog(0.04))
    assert verdict.state == "fine" and verdict.wait_ns == pytest.approx(40e6)


def test_capacity_is_what_was_done_in_the_time_that_was_worked() -> None:
    verdict = after(50, 2 * AT_CAPACITY, work_ns=0.6e9, busy_ratio=1.0)
    assert verdict.headroom_ratio == pytest.approx(0.6, rel=0.01)
    room = after(50, 0.5 * AT_CAPACITY, work_ns=0.4e9, busy_ratio=0.5)
    assert room.headroom_ratio == pytest.approx(0.8, rel=0.01)
    idle = after(50, 0.1 * AT_CAPACITY, verdict, work_ns=0.1e9, busy_ratio=0.05)
    assert idle.headroom_ratio == verdict.headroom_ratio, "too little to learn from"


def test_what_is_done_for_streams_that_can_wait_is_capacity_that_the_others_lack() -> None:
    taken = np.array([30_000.0 if arc.source.stream == 1 else 0.0 for arc in NETWORK.arcs])
    waiting = np.array([5e9 if arc.source.stream == 1 else 0.0 for arc in NETWORK.arcs])
    verdict = after(50, 0.5 * AT_CAPACITY, taken_rates=taken, backlog_ns=waiting)
    assert verdict.capacity_ns == pytest.approx(0.7e9, rel=0.01)
    assert verdict.backlog_ns == 0.0 and verdict.state == "fine"


def test_rates_rise_fast_and_fall_slowly() -> None:
    before = after(20, 0.5 * AT_CAPACITY)
    up = after(3, 3 * AT_CAPACITY, before)
    assert up.load_ratio > 2.5 and up.trend_per_s > 0
    assert after(3, 0.5 * AT_CAPACITY, after(20, 3 * AT_CAPACITY, before)).load_ratio > 1.3


def test_who_suffers_is_named() -> None:
    assert after(1, 1.0).suffering == ()
    assert after(1, 1.0, output_utilities=np.array([0.9, 1.0])).suffering == (0,)
    assert after(1, 1.0, output_loss_utilities=np.array([1.0, 0.5])).suffering == (1,)


def test_a_call_that_lost_its_core_is_no_overload() -> None:
    """Coefficients fifty times too high for half a second: what was done says that they are."""
    dear = EPOCH.load.coefficients(np.full(2, 500_000.0), np.ones(2))
    usual = after(20, 0.6 * AT_CAPACITY, work_ns=0.6e9, priced_ns=0.6e9, busy_ratio=0.6)
    verdict, worst = usual, 0.0
    for _ in range(5):
        verdict = after(
            1, 0.6 * AT_CAPACITY, verdict, coefficients=dear, work_ns=0.6e9, priced_ns=30e9, busy_ratio=0.6,
            backlog_ns=backlog(0.002) * 50,
        )  # fmt: skip
        worst = max(worst, verdict.load_ratio)
        assert verdict.state == "fine"
    assert worst < 0.8


def test_a_tuple_that_really_costs_more_is_believed_within_a_second() -> None:
    dear = EPOCH.load.coefficients(np.full(2, 30_000.0), np.ones(2))
    verdict = after(20, 0.5 * AT_CAPACITY, work_ns=0.5e9, priced_ns=0.5e9, busy_ratio=0.5)
    verdict = after(15, 0.5 * AT_CAPACITY, verdict, coefficients=dear, work_ns=1e9, priced_ns=1e9, busy_ratio=1.0)
    assert verdict.load_ratio > 1.1


def test_an_overload_fills_the_workers_to_a_short_queue() -> None:
    begun = after(1, 2 * AT_CAPACITY, after(20, 2 * AT_CAPACITY), backlog_ns=backlog(0.1))
    idle = after(20, 2 * AT_CAPACITY, begun)
    assert idle.trim > 0.05, "nothing waits: more can be taken"
    assert idle.excess_ns < begun.load_ns - HEADROOM * begun.capacity_ns
    assert after(10, 2 * AT_CAPACITY, idle, backlog_ns=backlog(0.1)).trim < 0.02, "that was too much"
    assert after(20, 0.5 * AT_CAPACITY, idle).trim == 0.0


@pytest.mark.parametrize(
    ("deadline_ms", "wait_ms"), [(None, 1_000), (10, 20), (150, 75), (600, 300), (2_000, 1_500), (60_000, 2_000)]
)
def test_tuples_may_wait_for_half_of_their_deadline_or_all_but_half_a_second(
    deadline_ms: int | None, wait_ms: int
) -> None:
    assert may_wait_ns(None if deadline_ms is None else deadline_ms * 10**6) == wait_ms * 10**6


def test_idle_workers_get_more_work_the_faster_the_more_idle_they_are() -> None:
    full = after(20, 2 * AT_CAPACITY, busy_ratio=1.0, work_ns=1e9)
    begun = after(1, 2 * AT_CAPACITY, full, busy_ratio=1.0, work_ns=1e9, backlog_ns=backlog(0.1))
    half, nearly = (after(10, 2 * AT_CAPACITY, begun, busy_ratio=busy, work_ns=busy * 1e9) for busy in (0.5, 0.9))
    assert half.trim > 0.25, "half of the time is free: a second must be enough to use much of it"
    assert nearly.trim < half.trim / 2


LEVELS = """
http: {listen: "off"}
scheduler: {policy: POLICY}
streams:
  s: {schema: {x: double}, overload: shed}
boxes:
  urgent: {universal: s, cost: 10us}
  patient: {universal: s, cost: 10us}
outputs:
  now: {from: urgent, qos: {deadline: 50ms}}
  later: {from: patient, qos: {deadline: 5s, lossy: 50%}}
"""


@pytest.mark.parametrize(("policy", "begins"), [("qos", False), ("round_robin", True)])
def test_what_can_wait_does_where_the_policy_runs_the_urgent_first(policy: str, begins: bool) -> None:
    network = read_network(LEVELS.replace("POLICY", policy))
    epoch = Epoch.of(network)
    terms = Terms.of(network, shed_arcs(network), runs_urgent_first(policy))
    coefficients = epoch.load.coefficients(np.full(2, 10_000.0), np.ones(2))
    waiting = np.array([0.1e9 if a.name == "s->patient" else 0.0 for a in network.arcs])
    busy = sample(1, 0.0)._replace(
        coefficients=coefficients, offered_rates=np.array([60_000.0]), taken_rates=np.zeros(4), backlog_ns=waiting
    )
    verdict = judge(LoadVerdict(headroom_ratio=1.0), busy, terms, 1)
    assert (verdict.state == "overloaded") is begins
    assert verdict.catch_up_ns > 0, "and it is to be gone, at leisure or soon"


def test_under_auto_the_policy_that_decides_now_sets_the_levels() -> None:
    network = read_network(LEVELS.replace("POLICY", "auto"))
    engine = Engine(network, [lambda train: None] * 2, policy="auto")
    assert engine.choice.policy == "qos", "the graphs differ"
    coefficients = Epoch.of(network).load.coefficients(np.full(2, 10_000.0), np.ones(2))
    waiting = np.array([0.1e9 if a.name == "s->patient" else 0.0 for a in network.arcs])
    busy = sample(1, 0.0)._replace(
        coefficients=coefficients, offered_rates=np.array([60_000.0]), taken_rates=np.zeros(4), backlog_ns=waiting
    )

    before, after_change = (make_overload(Catalog(network), engine) for _ in range(2))
    before.on_sample(busy, [True, True])
    assert before.verdict.state != "overloaded", "the patient output can wait, because qos runs the urgent one first"
    engine.follow("round_robin", "for the test")
    after_change.on_sample(busy, [True, True])
    assert after_change.verdict.state == "overloaded", "now every tuple waits for every other one"


BURST = """
http: {listen: "off"}
streams:
  s: {schema: {x: double}, overload: shed}
boxes:
  urgent: {universal: s, cost: 10us}
  patient: {universal: s, cost: 10us}
outputs:
  now: {from: urgent, qos: {deadline: 100ms, lossy: 10%}}
  later: {from: patient, qos: {deadline: 2s, lossy: 50%}}
"""


def burst(urgent_s: float, patient_s: float, per_s: float, ticks: int = 6) -> tuple[LoadVerdict, dict[str, float]]:
    """Return the verdict and the shares dropped, when work of this many seconds waits before the two boxes."""
    network = read_network(BURST)
    epoch = Epoch.of(network)
    epoch.stats.cost_per_call_ns[:], epoch.stats.cost_per_tuple_ns[:] = 0.0, 10_000.0
    epoch.stats.rate_per_s[:] = per_s
    terms = Terms.of(network, shed_arcs(network), urgent_first=True)
    shedder = Shedder(network, epoch.stats)
    by_name = {"s->urgent": urgent_s * 1e9, "s->patient": patient_s * 1e9}
    verdict = LoadVerdict(headroom_ratio=1.0)
    for at in range(1, ticks + 1):
        now = sample(at, 0.0)._replace(
            coefficients=epoch.load.coefficients(np.full(2, 10_000.0), np.ones(2)),
            offered_rates=np.array([per_s]),
            backlog_ns=np.array([by_name.get(a.name, 0.0) for a in network.arcs]),
            box_ns=np.full(2, 10_000.0),
            port_selectivity=np.ones(2),
        )
        verdict = judge(verdict, now, terms, 1)
        shedder.step(verdict)
    return verdict, {network.arcs[d.place.arc].name: d.share for d in shedder.plan.drops}


def test_a_burst_that_fits_into_the_slack_of_the_patient_is_not_shed() -> None:
    verdict, dropped = burst(urgent_s=0.0, patient_s=0.6, per_s=90_000.0)  # 1.8 times the capacity
    assert [level.is_pressed for level in verdict.levels] == [False, False]
    assert verdict.levels[0].load_ns == pytest.approx(0.9e9) and verdict.levels[1].load_ns == pytest.approx(1.8e9)
    assert not dropped


def test_for_a_pressed_urgent_level_only_its_own_tuples_are_shed() -> None:
    verdict, dropped = burst(urgent_s=0.05, patient_s=0.3, per_s=160_000.0)
    assert [level.is_pressed for level in verdict.levels] == [True, False]
    assert dropped == {"s->urgent": pytest.approx(1 - 0.95 / 1.6, abs=0.03)}, "no tuple of it waits for a patient one"


def test_when_the_slack_is_used_up_the_rest_is_shed_where_it_costs_least() -> None:
    verdict, dropped = burst(urgent_s=0.0, patient_s=1.7, per_s=90_000.0)
    assert [level.is_pressed for level in verdict.levels] == [False, True]
    assert dropped["s->patient"] == pytest.approx(0.5), "as much as it may lose at no cost"
    assert dropped["s->urgent"] > 0.5, "its loss graph is the flatter one from there on"
