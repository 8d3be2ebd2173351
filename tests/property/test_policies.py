"""Every policy, on every shape of network: deterministic, safe, work-conserving, loses and reorders nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import time_ns
from typing import Any

import numpy as np
import pytest

from catalog.load import LoadModel
from catalog.network import Network
from engine.run.core import Engine
from engine.simulate.arrivals import arrivals
from engine.simulate.core import Simulation
from engine.simulate.overheads import Overheads
from engine.simulate.sketch import SCHEMA
from scheduler.calendar_queue import CalendarQueue
from scheduler.claims import QueuedPlan
from scheduler.events import Clock, Event, Finished, StatisticsMoved
from scheduler.plan import Plan
from scheduler.policies import make_index, policies, policy_infos
from scheduler.state import BatchRule, SchedulerSettings, SchedulerState
from scheduler.trains import TrainRule
from storage.train import Train, constant_ns
from tests.property.policy_networks import SHAPES, Witness, random_network

NAMES = sorted(policies())
DROPPING = {name for name, info in policy_infos().items() if info.drops}
DURATION_NS = 600_000_000
LOOK_EVERY = 16  # decisions: comparing all of the state takes a hundred times as long as a decision
LOAD = 0.7

TRAINS = (TrainRule("auto"), TrainRule("all"), TrainRule("tuples", 3), TrainRule("fraction", 0.5))
TRAVERSALS = ("min_cost", "min_latency", "min_memory", "auto")


UNITS = ("superbox", "box", "tuple", "vpipe")


def settings_for(seed: int, turn: int = 0) -> SchedulerSettings:
    """Every unit, traversal and train rule comes up over the seeds and turns."""
    return SchedulerSettings(
        unit=UNITS[(seed + turn) % 4],
        traversal=TRAVERSALS[seed % 4],
        train=TRAINS[seed // 2 % 4],
        spanner=2 if seed % 5 == 0 else 0,
        batch=BatchRule(basic_ns=50_000_000, k=1 + seed % 2),
        seed=seed,
    )


class Checked(Simulation):
    """A simulation that looks at every decision."""

    def __init__(self, network: Network, name: str, seed: int, load: float = LOAD, turn: int = 0) -> None:
        rates = rates_for(network, load)
        trains = {s: arrivals("poisson", seed, s, r, DURATION_NS) for s, r in enumerate(rates)}
        overheads = Overheads(1_000.0, 500.0, 1_000.0, 1_000.0)
        super().__init__(
            network, self.decide, trains, settings=settings_for(seed, turn), workers=1 + seed % 2, overheads=overheads
        )
        self.statistics.cost_per_call_ns[:] = 0.0
        self.policy = policies()[name]
        self.decisions: list[tuple[int, str]] = []
        self.running: set[int] = set()
        self._watch_ends()
        self.state.follow(make_index(self.policy))

    def decide(self, state: SchedulerState, now_ns: int) -> Plan | None:
        look = len(self.decisions) % LOOK_EVERY == 0
        before = snapshot(state) if look else None
        plan = self.policy(state, now_ns)
        if look:
            assert snapshot(state) == before, "the state is left as it was found"
            assert repr(self.policy(state, now_ns)) == repr(plan), "the same state, the same decision"
        assert (plan is None) == (not state.ready), "something is ready iff something is decided"
        if len(self.decisions) % 50 == 49:
            self.learn()
        if plan is not None:
            assert plan.claims or plan.expired
            self.decisions.append((now_ns, f"{plan!r} {plan.takes}"))
        return plan

    def learn(self) -> None:
        """The statistics move while things wait, as they do in the daemon."""
        count = len(self.decisions)
        box = count % len(self.network.boxes)
        self.statistics.cost_per_tuple_ns[box] *= 0.5 + count % 3
        self.statistics.rate_per_s[:] = count % 7
        self.state.apply(StatisticsMoved())
        self.state.apply(Clock(self.now_ns))

    def _begin(self, work: QueuedPlan, begun_ns: int) -> None:
        assert work.plan is not None and not self.running.intersection(work.plan.boxes), "no box runs twice at once"
        self.running.update(work.plan.boxes)
        super()._begin(work, begun_ns)

    def _watch_ends(self) -> None:
        apply = self.state.apply

        def watched(event: Event) -> None:
            if isinstance(event, Finished):
                self.running.difference_update(event.plan.boxes)
            apply(event)

        self.state.apply = watched  # type: ignore[method-assign]


def rates_for(network: Network, load: float) -> list[float]:
    costs = np.array([b.cost_ns for b in network.boxes], np.float64)
    selectivity = np.array([b.selectivity for b in network.boxes], np.float64)
    work = LoadModel(network).coefficients(costs, selectivity).streams
    return [load * 1e9 / len(work) / w if w else 0.0 for w in work.tolist()]


def snapshot(state: SchedulerState) -> Any:
    """Everything that a policy could have changed, caches left out."""
    index = {} if state.index is None else vars(state.index)
    arcs = [(a.tuples, a.nbytes, a.arrival_total_ns, tuple(a.entries)) for a in state.arcs]
    moves = vars(index["_moves"]) if isinstance(index.get("_moves"), CalendarQueue) else None
    plain = {k: v for k, v in index.items() if isinstance(v, list | dict | int | float) and k != "_tables"}
    return repr((arcs, state.waiting, state.held, list(state.ready), state.outstanding, state.dispatched, plain, moves))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_every_policy_is_safe_fair_and_deterministic(name: str, shape: str) -> None:
    for seed in range(3):
        network = random_network(shape, seed)
        turn = SHAPES.index(shape)
        run, twin = Checked(network, name, seed, turn=turn), Checked(network, name, seed, turn=turn)
        run.run(DURATION_NS)
        waiting = [a.entries[0].first_arrival_ns for a in run.state.arcs if a.entries]
        assert min(waiting, default=DURATION_NS) > DURATION_NS / 2, "nobody waits for half of the run at this load"
        run.run()
        assert run.state.is_quiet() and run.storage.is_empty()
        assert run.storage.tuples == 0 and run.state.waiting_tuples == 0
        twin.run(DURATION_NS)
        twin.run()
        assert run.decisions == twin.decisions and run.decisions
        qualities = [r.quality() for r in run.recorders]
        assert qualities == [r.quality() for r in twin.recorders]
        expired = sum(run.storage.expired)
        assert not expired or name in DROPPING
        if not expired:
            assert_delivered(network, run)


@pytest.mark.parametrize("name", NAMES)
def test_no_policy_loses_a_tuple_above_the_knee(name: str) -> None:
    """At three times the capacity of one worker a policy may let units wait, which is how it protects the others. When
    the arrivals end, it works everything off."""
    for seed, shape in enumerate(SHAPES):
        network = random_network(shape, seed)
        run = Checked(network, name, seed, load=3.0)
        run.run(DURATION_NS)
        assert run.state.waiting_tuples, "the load is above the knee"
        run.run()
        assert run.state.is_quiet() and run.storage.is_empty() and run.state.waiting_tuples == 0
        if not sum(run.storage.expired):
            assert_delivered(network, run)


def assert_delivered(network: Network, run: Simulation) -> None:
    """Nothing is lost: each output has what the exact selectivities of the boxes on the way leave of the arrivals."""
    came = {("stream", s): 0 for s in range(len(network.streams))}
    for stream, (_, counts) in run.came_since(0).items():
        came["stream", stream] = int(counts.sum())
    for node in network.boxes:
        taken = 0
        for a in node.in_arcs:
            source = network.arcs[a].source
            taken += came["stream", source.stream] if source.box is None else came["box", source.box]
        came["box", node.number] = int(np.floor(taken * node.selectivity))
    for output, recorder in zip(network.outputs, run.recorders, strict=True):
        source = network.arcs[output.arc].source
        expected = came["stream", source.stream] if source.box is None else came["box", source.box]
        assert recorder.quality().tuples == expected, output.name


# -- on the real engine -----------------------------------------------------------------------------------------------


def witnesses(network: Network) -> Network:
    boxes = []
    for node in network.boxes:
        parameters = node.box.parameters.model_copy(update={"cost": 0})
        boxes.append(replace(node, box=Witness(parameters)))
    return replace(network, boxes=tuple(boxes))


def numbered(start: int, count: int, arrival_ns: int) -> Train:
    return Train(SCHEMA, (np.arange(start, start + count), np.zeros(count)), constant_ns(arrival_ns, count))


def feeds(seed: int, streams: int) -> Iterator[tuple[int, int, int]]:
    """(stream, first number, tuples), some trains of one and some longer than a plan takes."""
    random = np.random.default_rng(seed)
    sent = [0] * streams
    for _ in range(40):
        stream, count = int(random.integers(streams)), int(random.choice([1, 2, 7, 30]))
        yield stream, sent[stream], count
        sent[stream] += count


@pytest.mark.parametrize("name", NAMES)
def test_no_arc_loses_or_reorders_a_tuple_on_the_engine(name: str) -> None:
    """What is put on an arc is what its consumer takes from it, in that order; expired tuples excepted."""
    for seed, shape in enumerate(SHAPES):
        network = witnesses(random_network(shape, seed))
        delivered: list[list[int]] = [[] for _ in network.outputs]
        outlets = [lambda t, got=got: got.extend(t.columns[0].tolist()) for got in delivered]
        engine = Engine(network, outlets, workers=2, policy=name, settings=settings_for(seed, turn=NAMES.index(name)))
        fed: list[list[int]] = [[] for _ in network.streams]
        engine.start()
        try:
            for stream, start, count in feeds(seed, len(network.streams)):
                fed[stream].extend(range(start, start + count))
                assert engine.ingress.admit(stream, numbered(start, count, time_ns()), timeout_s=10.0)
            assert engine.drain(20.0), f"{name} on {shape} does not finish"
        finally:
            engine.stop()
        for node in network.boxes:
            assert node.box.most_inside <= 1, "no box runs twice at once"
        for arc in network.arcs:
            source = arc.source
            sent = fed[source.stream] if source.box is None else network.boxes[source.box].box.emitted
            if arc.output is not None:
                assert delivered[arc.output] == sent, arc.name
                continue
            assert arc.box is not None
            got = network.boxes[arc.box].box.received.get(arc.port, [])
            queue = engine.storage.queues[arc.number]
            assert queue.residual == 0 and queue.tuples == 0
            assert len(got) + queue.expired == len(sent), arc.name
            assert not queue.expired or name in DROPPING
            assert is_subsequence(got, sent), arc.name


def is_subsequence(part: list[int], whole: list[int]) -> bool:
    rest = iter(whole)
    return all(item in rest for item in part)


def test_policies_take_turns_on_a_running_engine() -> None:
    """Another policy may take over at any time: nothing is lost, nothing waits for ever."""
    network = witnesses(random_network("shared", 2))
    engine = Engine(network, [lambda train: None] * len(network.outputs), workers=2)
    engine.start()
    try:
        for turn, (stream, start, count) in enumerate(feeds(5, len(network.streams))):
            engine.loop.follow(policies()[NAMES[turn % len(NAMES)]])
            assert engine.ingress.admit(stream, numbered(start, count, time_ns() + 10**12), timeout_s=10.0)
        assert engine.drain(20.0)
    finally:
        engine.stop()
    for queue in engine.storage.queues:
        assert queue.residual == 0 and queue.tuples == 0 and queue.expired == 0
