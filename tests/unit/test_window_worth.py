"""P3: a box with windows is ready when a window's worth waits. No result comes later by it."""

from __future__ import annotations

import pytest

from engine.run.core import Engine
from engine.run.network_file import read_network
from scheduler.events import Claimed, Dispatched, Enqueued, Finished, MemoryShort
from scheduler.plan import Plan, Step
from scheduler.policies import make_index, policies
from scheduler.state import SchedulerSettings, SchedulerState
from scheduler.window_worth import WindowWorth
from storage.queue import ALL
from storage.train import NO_WATERMARK, Train

S = 10**9
NETWORK = """
http: {listen: "off"}
streams: {s: {schema: {n: int}}, t: {schema: {n: int}}}
boxes:
  counted: {aggregate: s, window: {tumbling: 10s, offset: 2s}, select: {c: "count(*)"}}
  other: {filter: t, where: "n > 0"}
outputs: {o: {from: counted}, p: {from: other}}
"""
COUNTED, OTHER = 0, 1


def worth_state(policy: str = "fcfs") -> SchedulerState:
    """The box has taken a watermark of 3 s: its window ends at 12 s. The other box runs, so that the rule counts."""
    network = read_network(NETWORK)
    state = SchedulerState(network, SchedulerSettings(window_worth=True))
    state.follow(make_index(policies()[policy]))
    came(state, COUNTED, 5, 3 * S)
    assert list(state.ready), "before the first watermark nothing is known"
    run(state, COUNTED)
    came(state, OTHER, 1)
    return state


def came(state: SchedulerState, box: int, tuples: int, watermark_ns: int = NO_WATERMARK) -> None:
    arcs = state.network.boxes[box].in_arcs
    state.apply(Enqueued(arcs, tuples, 0, 0, 0, watermark_ns))


def run(state: SchedulerState, box: int) -> None:
    plan = Plan((Step(box, ALL),))
    state.apply(Dispatched(plan))
    arc = state.network.boxes[box].in_arcs[0]
    state.apply(Claimed(arc, state.arcs[arc].tuples, len(state.arcs[arc].entries)))
    state.apply(Finished(plan))


@pytest.mark.parametrize("policy", ["fcfs", "round_robin", "chain"])
def test_a_box_waits_until_the_end_of_a_window_is_on_its_queue(policy: str) -> None:
    state = worth_state(policy)
    for watermark_ns in (4 * S, NO_WATERMARK, 12 * S - 1):
        came(state, COUNTED, 7, watermark_ns)
        assert list(state.ready) == [state.unit_of[OTHER]] and list(state.unripe) == [COUNTED]
    came(state, COUNTED, 0, 12 * S)  # a punctuation closes the window: time alone does it
    assert set(state.ready) == {state.unit_of[OTHER], state.unit_of[COUNTED]} and not state.unripe
    run(state, COUNTED)
    came(state, COUNTED, 7, 21 * S)
    assert list(state.unripe) == [COUNTED], "the next window ends at 22 s"


def test_a_whole_train_or_a_shortage_of_memory_is_enough() -> None:
    state = worth_state()
    came(state, COUNTED, state.auto_tuples[COUNTED] - 1, 4 * S)
    assert list(state.unripe) == [COUNTED]
    came(state, COUNTED, 1, 4 * S)
    assert not state.unripe and state.unit_of[COUNTED] in state.ready
    state = worth_state()
    came(state, COUNTED, 1, 4 * S)
    state.apply(MemoryShort(True))
    assert not state.unripe and state.unit_of[COUNTED] in state.ready


def test_at_rest_nothing_waits_for_a_window() -> None:
    state = worth_state()
    came(state, COUNTED, 1, 4 * S)
    assert list(state.unripe) == [COUNTED]
    run(state, OTHER)  # the last thing that there was to do
    assert list(state.ready) == [state.unit_of[COUNTED]] and not state.unripe
    run(state, COUNTED)
    came(state, COUNTED, 1, 5 * S)
    assert list(state.ready) == [state.unit_of[COUNTED]] and not state.unripe


@pytest.mark.parametrize(
    ("box", "follows", "expected"),
    [
        ("window: {tumbling: 10s, offset: 3s}", "", (10 * S, 3 * S)),
        ("window: {sliding: 25s, advance: 10s, offset: 1s}", "", (10 * S, 6 * S)),
        ("window: {session: 10s}", "", None),
        ("window: {count: 10}", "", None),
        ("window: {tumbling: 10s}, emit: update", "", None),
        ("window: {tumbling: 10s}, timeout: 1s", "", None),
        ("window: {tumbling: 10s}", "late: {filter: b.late, where: 'n > 0'}", None),
        ("window: {tumbling: 10s}", "more: {aggregate: b, window: {tumbling: 60s}, select: {c: 'count(*)'}}", None),
    ],
)
def test_the_rule_holds_only_where_nothing_happens_before_the_end_of_a_window(
    box: str, follows: str, expected: tuple[int, int] | None
) -> None:
    last = "more" if follows.startswith("more") else "b"
    extra = "  p: {from: late}\n" if follows.startswith("late") else ""
    network = read_network(
        'http: {listen: "off"}\nstreams: {s: {schema: {n: int}}}\nboxes:\n'
        f"  b: {{aggregate: s, {box}, select: {{c: 'count(*)'}}}}\n  {follows}\n"
        f"outputs:\n  o: {{from: {last}}}\n{extra}"
    )
    worth = WindowWorth(network)
    assert worth._grids.get(network.box("b").number) == expected


def test_windows_close_on_the_engine() -> None:
    """Both boxes have work; the windows to 2 s, 12 s and 22 s close with their watermarks."""
    network = read_network(NETWORK)
    got: list[int] = []
    outlets = [lambda train: got.extend(train.columns[-1].tolist()), lambda train: None]
    settings = SchedulerSettings(window_worth=True, idle_fast_path=False)
    engine = Engine(network, outlets, workers=1, settings=settings)
    engine.start()
    try:
        schema = network.stream("s").schema
        with engine.loop.paused():
            for second in range(25):
                engine.ingress.admit(1, Train.from_pylists(schema, {"n": [1]}, second * S))
                engine.ingress.admit(0, Train.from_pylists(schema, {"n": [1]}, second * S).with_watermark(second * S))
        assert engine.drain(60)
    finally:
        engine.stop()
    assert got == [2, 10, 10]
