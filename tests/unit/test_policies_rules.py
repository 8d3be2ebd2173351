"""Rules that hold for every policy, one event at a time; and the commands that show them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from engine.cli import make_app
from engine.simulate.sketch import NetworkSketch
from scheduler.events import Claimed, Clock, Dispatched, Enqueued, Finished, OutputBlocked, OutputFreed, StatisticsMoved
from scheduler.plan import Plan
from scheduler.policies import make_index, policies, policy_infos
from scheduler.state import SchedulerSettings, SchedulerState

NAMES = sorted(policies())
UNITS = ("superbox", "box", "tuple")


def network() -> Network:
    sketch = NetworkSketch()
    for i in range(3):
        graph = QoSGraph(((0.0, 1.0), (1e6 * (i + 1), 1.0), (1e9, 0.0)))
        sketch.output(sketch.chain(sketch.stream(), 2, 1e3 * (i + 1)), QoS(graph, deadline_ns=10**6 * (i + 1)))
    return sketch.network()


def following(name: str, unit: str = "superbox") -> SchedulerState:
    state = SchedulerState(network(), SchedulerSettings(unit=unit))
    state.follow(make_index(policies()[name]))
    return state


def decide(state: SchedulerState, name: str, now_ns: int) -> Plan | None:
    state.apply(Clock(now_ns))
    return policies()[name](state, now_ns)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_do_is_nothing_decided(name: str, unit: str) -> None:
    assert decide(following(name, unit), name, 1) is None


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("name", NAMES)
def test_what_feeds_a_blocked_output_rests(name: str, unit: str) -> None:
    state = following(name, unit)
    last = {b for b in range(6) if not state.network.fed[b]}
    for box in sorted(last):
        state.apply(Enqueued((state.network.boxes[box].in_arcs[0],), 1, 0, 0, 0))
    for output in range(3):
        state.apply(OutputBlocked(output))
    assert decide(state, name, 5) is None
    state.apply(OutputFreed(1))
    plan = decide(state, name, 6)
    assert plan is not None and state.network.box_outputs[plan.boxes[0]] == (1,)


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_that_runs_is_not_chosen_again_until_it_has_finished(name: str) -> None:
    state = following(name)
    for arc in (0, 2, 4):
        state.apply(Enqueued((arc,), 4, arc, arc, 0))
    running: list[Plan] = []
    while (plan := decide(state, name, 10)) is not None:
        state.apply(Dispatched(plan))
        running.append(plan)
    assert len(running) == 3 and len({p.boxes[0] for p in running}) == 3
    state.apply(Enqueued((0,), 1, 20, 20, 0))
    assert decide(state, name, 30) is None
    state.apply(Finished(next(p for p in running if 0 in p.boxes)))
    again = decide(state, name, 40)
    assert again is not None and again.boxes[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_can_take_over_while_things_wait(name: str) -> None:
    """Built from what waits, an index chooses as one that was there from the start."""
    early, late = following(name), SchedulerState(network(), SchedulerSettings())
    for state in (early, late):
        for arc, arrival_ns in ((0, 30), (2, 10), (4, 20)):
            state.apply(Enqueued((arc,), 2, arrival_ns, arrival_ns, 0))
    late.follow(make_index(policies()[name]))
    assert repr(decide(early, name, 10**6)) == repr(decide(late, name, 10**6))


@pytest.mark.parametrize("name", NAMES)
def test_punctuations_alone_make_a_plan_that_takes_them(name: str) -> None:
    state = following(name)
    state.apply(Enqueued((0,), 0, 0, 0, 0))
    plan = decide(state, name, 10**18)
    assert plan is not None and plan.boxes[0] == 0 and not plan.expired
    state.apply(Dispatched(plan))
    state.apply(Claimed(0, 0, 1))
    state.apply(StatisticsMoved())
    state.apply(Finished(plan))
    assert decide(state, name, 10**18 + 1) is None


def test_the_list_of_policies() -> None:
    result = CliRunner().invoke(make_app(), ["policies"])
    assert result.exit_code == 0
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert set(lines) == {*NAMES, "auto"}
    assert "needs deadlines" in lines["ats"]
    one = CliRunner().invoke(make_app(), ["policies", "hnr"])
    assert "V = S / (C T)" in one.stdout and policy_infos()["hnr"].when in one.stdout
    assert "forecasts" in CliRunner().invoke(make_app(), ["policies", "auto"]).stdout
    assert CliRunner().invoke(make_app(), ["policies", "hnx"]).exit_code == 2


@pytest.mark.parametrize(
    ("policy", "said"),
    [("ats", "goes by deadlines"), ("qos", "goes by latency graphs"), ("edff", "did you mean 'edf'")],
)
def test_validate_says_what_is_missing_and_offers_the_nearest(tmp_path: Path, policy: str, said: str) -> None:
    path = tmp_path / "network.yaml"
    path.write_text(
        f"scheduler: {{policy: {policy}}}\nstreams:\n  s: {{schema: {{x: int}}}}\n"
        'boxes:\n  b: {filter: s, where: "x > 1"}\noutputs:\n  o: {from: b}\n'
    )
    result = CliRunner().invoke(make_app(), ["validate", str(path)])
    assert result.exit_code == 78
    shown = result.stdout + result.stderr
    assert said in shown and "1:21" in shown
    assert policy == "edff" or "or use fcfs" in shown
