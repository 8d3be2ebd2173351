"""``policy: auto``: the choice from the network, from forecasts, and when it looks at all."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.stats import Statistics
from engine.simulate.chooser import FIRST_LOOKS, LONGEST_NS, Chooser, waiting_worth
from engine.simulate.overheads import Overheads
from engine.simulate.quality import DeliveryRecorder, mean_by_output
from engine.simulate.sketch import NetworkSketch
from engine.simulate.storage import SimulatedTrain
from engine.simulate.what_if import Snapshot, WaitingTuples, WhatIf, waiting_now
from load_shedder.shed_plan import Drop, DropPlace, ShedPlan
from scheduler.choice import (
    MARGIN,
    FeltLevel,
    Forecast,
    Pressure,
    candidates,
    finalists,
    first_choice,
    next_choice,
)
from scheduler.events import Enqueued
from scheduler.policies import policies, policy_infos, requirements
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.trains import TrainRule

SECOND = 1_000_000_000
TIGHT = QoSGraph(((0.0, 1.0), (1e6, 1.0), (1e9, 0.0)))
LOOSE = QoSGraph(((0.0, 1.0), (4e9, 1.0), (5e9, 0.0)))


def chains(*graphs: QoSGraph | None, cost_ns: float = 1e6) -> Network:
    sketch = NetworkSketch()
    for graph in graphs:
        qos = QoS() if graph is None else QoS(graph, deadline_ns=int(graph.points[1][0]))
        sketch.output(sketch.chain(sketch.stream(), 2, cost_ns), qos)
    return sketch.network()


def said(*found: tuple[str, float] | tuple[str, float, float]) -> list[Forecast]:
    """Policy, utility and, unless it is 1 ms, mean latency in ms."""
    return [Forecast(f[0], f[1], (f[2] if len(f) > 2 else 1.0) * 1e6) for f in found]  # type: ignore[misc]


def test_the_network_alone_decides_at_first() -> None:
    assert first_choice(chains(None, None)).policy == "round_robin"
    assert first_choice(chains(TIGHT, TIGHT)).policy == "fcfs"
    assert first_choice(chains(TIGHT, LOOSE)).policy == "qos"
    assert first_choice(chains(*[TIGHT, LOOSE] * 500)).policy == "qos_buckets"


@pytest.mark.parametrize("graphs", [(None,), (TIGHT, LOOSE), (None, TIGHT)])
def test_candidates_fit_the_network_and_lose_nothing(graphs: tuple[QoSGraph | None, ...]) -> None:
    network = chains(*graphs)
    names = candidates(network)
    assert len(set(names)) == len(names) >= 4 and set(names) <= set(policies())
    assert not any(requirements(name, network) for name in names)
    assert not [name for name in names if policy_infos()[name].drops]


def test_the_policy_changes_only_for_a_margin() -> None:
    assert next_choice("qos", []) is None
    assert next_choice("qos", said(("qos", 0.9), ("hr", 0.9 + MARGIN / 2))) is None
    changed = next_choice("qos", said(("qos", 0.9), ("hr", 0.950), ("edf", 0.951)))
    assert changed is not None and changed.policy == "hr", "as good as the best, and preferred"
    assert "utility 0.950" in changed.reason and "qos: utility 0.900" in changed.reason
    given_up = next_choice("edf", said(("qos", 0.5)))
    assert given_up is not None and given_up.policy == "qos" and "edf: not forecast" in given_up.reason


def test_among_equals_the_quicker_one_if_it_is_clearly_so() -> None:
    assert next_choice("qos", said(("qos", 0.998, 12.0), ("fcfs", 1.0, 10.0))) is None
    changed = next_choice("qos", said(("qos", 0.998, 40.0), ("fcfs", 1.0, 10.0), ("hr", 0.7, 1.0)))
    assert changed is not None and changed.policy == "fcfs"


def test_candidates_follow_what_the_engine_is_short_of() -> None:
    network, bare = chains(TIGHT, LOOSE), chains(None, None)
    assert not {"chain", "hnr", "ats"} & set(candidates(network))
    assert "chain" in candidates(network, Pressure(memory=0.6))
    assert "ats" in candidates(network, Pressure(missed=0.1)) and "ats" not in candidates(bare, Pressure(missed=0.1))
    assert "hnr" in candidates(bare, Pressure(slowdown=20.0))
    for pressure in (Pressure(0.9, 50.0, 0.5), Pressure()):
        for net in (network, bare):
            assert not any(requirements(name, net) for name in candidates(net, pressure))


def test_among_equals_the_criterion_decides_that_the_engine_is_short_of() -> None:
    found = [
        Forecast("qos", 0.9, 1e6, slowdown=9.0, memory_bytes=8e6),
        Forecast("chain", 0.899, 2e6, slowdown=20.0, memory_bytes=1e6),
        Forecast("hnr", 0.9, 2e6, slowdown=2.0, memory_bytes=8e6),
        Forecast("fcfs", 0.5, 1.0, slowdown=1.0, memory_bytes=1.0),
    ]
    assert next_choice("qos", found) is None
    memory, slowdown = (next_choice("qos", found, Pressure(m, s).short_of) for m, s in ((0.6, 1.0), (0.1, 9.0)))
    assert memory is not None and memory.policy == "chain" and "1 MB; qos" in memory.reason
    assert slowdown is not None and slowdown.policy == "hnr" and "slowdown 2; qos" in slowdown.reason


def test_a_change_is_measured_and_taken_back_if_it_gave_less() -> None:
    network = chains(TIGHT, LOOSE)
    better = said(("qos", 0.5), ("hr", 0.9))
    for after, load, stays in ((0.5, 100.0, False), (0.68, 100.0, True), (0.5, 150.0, True)):
        chooser = Chooser(network, Judge(better, better), first_looks=0)
        now_ns = 0
        for _ in range(10):
            now_ns += SECOND // 10
            assert chooser.feel(now_ns, FeltLevel(0.7, 100.0)) is None
        assert chooser.look(now_ns, 0.5, lambda: Snapshot(0, (), (), ()), Statistics(network)) is not None
        back = None
        for _ in range(35):
            now_ns += SECOND // 10
            back = chooser.feel(now_ns, FeltLevel(after, load)) or back
        assert (back is None) == stays, (after, load)
        assert chooser.choice.policy == ("hr" if stays else "qos")
        if not stays:
            asked: list[str] = []
            chooser._what_if.forecasts = lambda s, t, names, c, asked=asked: asked.extend(names) or []  # type: ignore
            chooser.look(now_ns, 0.5, lambda: Snapshot(0, (), (), ()), Statistics(network))
            assert "hr" not in asked and "qos" in asked, "barred for a while"


def test_forecasts_see_the_drops_of_the_plan_in_force() -> None:
    """One chain at twice its capacity drowns; with half of its tuples dropped it does not."""
    network = chains(TIGHT, TIGHT)
    snapshot = Snapshot(10 * SECOND, (), (1_000.0, 0.0), (1.0, 1.0))
    arc = network.boxes[0].in_arcs[0]
    plan = ShedPlan(number=1, drops=(Drop(DropPlace(arc, "random", (0,)), 0.7),))
    drowned, kept = (ask(network, s, ("fcfs",))["fcfs"] for s in (snapshot, snapshot._replace(plan=plan)))
    assert drowned < 0.5 < 0.95 < kept


def test_every_output_counts_the_same() -> None:
    busy, quiet = (DeliveryRecorder(QoS(TIGHT), 1.0, 0) for _ in range(2))
    busy.deliver(SimulatedTrain(1_000, 0, 0, 0), 0)
    quiet.deliver(SimulatedTrain(10, 0, 0, 0), 2 * SECOND)
    lost = DeliveryRecorder(QoS(TIGHT), 1.0, 0)
    lost.expired = 5
    idle = DeliveryRecorder(QoS(TIGHT), 1.0, 0)
    assert mean_by_output([busy, quiet, idle]) == pytest.approx(0.5)
    assert mean_by_output([busy, quiet, lost]) == pytest.approx(1 / 3)
    assert mean_by_output([idle]) == 1.0


def test_after_a_change_it_does_not_change_back() -> None:
    forecasts = said(("qos", 0.90), ("hr", 0.903), ("lsf", 0.907))
    first = next_choice("qos", forecasts)
    assert first is not None and next_choice(first.policy, forecasts) is None


def test_the_long_round_is_for_the_best_the_current_one_and_fcfs() -> None:
    found = said(("fcfs", 0.5), ("b", 0.9), ("c", 0.89), ("d", 0.1), ("e", 0.88), ("f", 0.87), ("g", 0.86))
    assert finalists("d", found) == ("fcfs", "b", "c", "d", "e")


class Judge(WhatIf):
    """Answers as told."""

    def __init__(self, *answers: list[Forecast]) -> None:
        self.answers = list(answers)

    def forecasts(self, *_: object) -> list[Forecast]:  # type: ignore[override]
        return self.answers.pop(0)


def test_it_looks_at_the_start_and_then_only_while_things_go_badly() -> None:
    network = chains(TIGHT, LOOSE)
    same, other = said(("qos", 0.9)), said(("qos", 0.5), ("hr", 0.9))
    chooser = Chooser(network, Judge(*[same] * FIRST_LOOKS, other))
    statistics = Statistics(network)
    snapshot = Snapshot(0, (), (0.0, 0.0), (1.0, 1.0))
    now_ns = 0
    for _ in range(FIRST_LOOKS + 5):
        now_ns += LONGEST_NS
        assert chooser.is_due(now_ns)
        assert chooser.look(now_ns, 1.0, lambda: snapshot, statistics) is None
    assert chooser.looks == FIRST_LOOKS, "all is well"
    now_ns += LONGEST_NS
    found = chooser.look(now_ns, 0.5, lambda: snapshot, statistics)
    assert found is not None and found.policy == chooser.choice.policy == "hr" and chooser.changes == 1
    assert [c.policy for c in chooser.history] == ["qos", "hr"] and chooser.history[1].at_ns == now_ns


def test_a_look_that_changes_nothing_puts_the_next_one_off() -> None:
    network = chains(TIGHT, LOOSE)
    chooser = Chooser(network, Judge(*[said(("qos", 0.9))] * 9))
    gaps, now_ns = [], SECOND
    for _ in range(9):
        chooser.look(now_ns, 0.5, lambda: Snapshot(0, (), (), ()), Statistics(network))
        begun_ns = now_ns
        while not chooser.is_due(now_ns):
            now_ns += 100_000_000
        gaps.append(now_ns - begun_ns)
    assert gaps == sorted(gaps) and gaps[-1] == LONGEST_NS
    chooser.not_before(now_ns + SECOND)
    assert not chooser.is_due(now_ns)


def test_what_waits_is_copied_with_its_times_and_what_it_is_worth() -> None:
    network = chains(TIGHT, LOOSE)
    state = SchedulerState(network)
    for i in range(100):
        state.apply(Enqueued(network.boxes[0].in_arcs, 2, i * 1_000, i * 1_000, 16))
    waiting = waiting_now(state)
    assert sum(w.tuples for w in waiting) == 200 and len(waiting) <= 64
    assert waiting[0].first_ns == 0 and {w.arc for w in waiting} == set(network.boxes[0].in_arcs)
    assert waiting_worth(state, 0) == 1.0
    assert waiting_worth(state, 500_000_000) == pytest.approx(0.5, abs=0.01)
    assert waiting_worth(SchedulerState(network), SECOND) == 1.0


def ask(network: Network, snapshot: Snapshot, names: tuple[str, ...]) -> dict[str, float]:
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    what_if = WhatIf(network, settings=SchedulerSettings(), workers=1, overheads=Overheads(), seed=3)
    return {f.policy: f.utility for f in what_if.forecasts(snapshot, statistics, names, "qos")}


def test_forecasts_tell_good_from_bad_and_are_the_same_twice() -> None:
    """Tight and loose outputs at 1.3 of capacity: who serves the oldest first loses the tight ones."""
    network = chains(*[TIGHT, LOOSE] * 5)
    snapshot = Snapshot(SECOND, (), (65.0,) * 10, (1.0,) * 10)
    found = ask(network, snapshot, ("fcfs", "qos", "edf"))
    assert found == ask(network, snapshot, ("fcfs", "qos", "edf"))
    assert found["edf"] > found["qos"] + 0.05 and found["qos"] > found["fcfs"] + 0.1


def test_forecasts_begin_with_what_waits() -> None:
    """Two seconds of work wait already: what comes behind it under fcfs is late."""
    network = chains(TIGHT, TIGHT)
    empty = Snapshot(10 * SECOND, (), (50.0, 50.0), (1.0, 1.0))
    arc = network.boxes[0].in_arcs[0]
    full = empty._replace(waiting=(WaitingTuples(arc, 1_000, 8 * SECOND, 9 * SECOND),))
    assert ask(network, empty, ("fcfs",))["fcfs"] > 0.9 > 0.7 > ask(network, full, ("fcfs",))["fcfs"]


def test_a_candidate_of_a_step_a_tuple_is_given_up_on_long_trains() -> None:
    network = chains(TIGHT, LOOSE, cost_ns=10.0)
    snapshot = Snapshot(SECOND, (), (5e6, 5e6), (10_000.0, 10_000.0))
    assert set(ask(network, snapshot, ("fcfs", "edf"))) == {"fcfs"}


def test_arrivals_are_as_fast_as_measured() -> None:
    from engine.simulate.what_if import arrivals_ahead

    snapshot = Snapshot(5 * SECOND, (), (1_000.0, 0.0), (10.0, 1.0))
    trains = arrivals_ahead(snapshot, 20 * SECOND, (1, 2))
    assert set(trains) == {0}
    times, counts = trains[0]
    assert times[0] >= 5 * SECOND and set(np.unique(counts)) == {10}
    assert counts.sum() == pytest.approx(20_000, rel=0.1)


def in_bursts(streams: int, every_ns: int, tuples: int) -> Snapshot:
    """A second and a half of bursts on all streams at once."""
    times = np.arange(0, 3 * SECOND // 2, every_ns)
    recent = {s: (times, np.full(len(times), tuples, np.int64)) for s in range(streams)}
    rate = tuples * 1e9 / every_ns
    return Snapshot(3 * SECOND // 2, (), (rate,) * streams, (float(tuples),) * streams, recent, 3 * SECOND // 2)


def test_a_round_too_short_to_see_a_tuple_rules_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.simulate.what_if.STEPS", (4, 4_000))
    network = chains(*[TIGHT, LOOSE] * 3)
    names = candidates(network)
    what_if = WhatIf(network, settings=SchedulerSettings(), workers=1, overheads=Overheads(), seed=3)
    found = what_if.forecasts(in_bursts(6, 300_000_000, 5), Statistics(network), names, "qos")
    assert {f.policy for f in found} == set(names) and all(f.latency_ns > 0 for f in found)


def test_what_was_given_up_tells_how_far_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """A train of 40 tuples is 80 steps here, and one was reckoned with: the second try is near enough."""
    monkeypatch.setattr("engine.simulate.what_if.STEPS", (400, 400))
    network = chains(TIGHT, LOOSE, cost_ns=1e5)
    settings = SchedulerSettings(unit="box", train=TrainRule("tuples", 1))
    what_if = WhatIf(network, settings=settings, workers=1, overheads=Overheads(), seed=3)
    found = what_if.forecasts(in_bursts(2, 20_000_000, 40), Statistics(network), ("qos", "fcfs", "hr"), "qos")
    assert [f.policy for f in found] == ["qos", "fcfs", "hr"]
