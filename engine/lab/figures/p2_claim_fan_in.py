"""P2, sections 2.1 and 5: a join or union with many inputs, Chain against VPipe.

The paper argues that the wait of inputs for each other (input delay synchronization) becomes worse for Chain the more
inputs an operator has, and measures two (figures 11 and 12). Here two to sixteen streams meet, at one load of the
server. A tuple takes a unit in its own segment and n units in the join and its successors.

Chain follows the rule of figure 9 for many inputs, and releases a stopped tuple as soon as nothing older waits: the
kindest reading for Chain. VPipe is the engine's own: ``unit: vpipe`` with ``policy: vpipe``.

On the real engine a third curve is Chain as a user of the engine has it: ``policy: chain`` on superboxes, and the
streams meet in a ``union`` with ``order: time``, which keeps a tuple until the watermarks of all inputs have passed it.
Heartbeats move the watermarks of streams that are silent. They cost a plan each, so a stream has fewer of them the more
streams there are.

Memory is the mean number of tuples in the engine: waiting, held in the union, or in service.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from catalog.network import Network
from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, Unprinted
from engine.lab.figures.lab import Lab
from engine.lab.figures.p2_server import LINE, REAL_UNIT_NS, Served, arriving, serve, statistics_of
from engine.lab.figures.p2_systems import ChainInOrder, ordered_join
from engine.run.network_file import read_network
from engine.simulate.arrivals import Trains
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

CHAIN, VPIPE, UNION = "Chain, rule of figure 9", "VPipe", "Chain, order: time with heartbeats"
FAN_INS = (2, 4, 8, 16)
ORDERED = SchedulerSettings(train=TrainRule("tuples", 1))
FIGURE = Figure(
    title="Chain and VPipe at an operator with many inputs",
    claim=(
        "Waiting for the slower inputs breaks Chain's pipelines, the more so the larger the fan-in; VPipe, which "
        "needs no "
        "synchronization, has the lower response time and needs less memory."
    ),
    printed={
        "network": "segments that meet in an operator that takes tuples in the order of time",
        "arrivals": "Poisson",
    },
    unprinted={
        "load": Unprinted(0.7, "of the server: below saturation, with queues", (0.5, 0.85)),
        "n": Unprinted(20.0, "units of the join and its successors"),
        "variation": Unprinted(1.0, "coefficient of variation of the services", (0.0, 0.5)),
        "heartbeat": Unprinted(
            25.0, "units between two heartbeats of a stream on the engine: about the service of a tuple"
        ),
        "tuples": Unprinted(4_000, "of a run, over all streams"),
    },
    findings={
        REAL: "Against Chain that knows what waits in every queue (the rule of figure 9, released at once) VPipe "
        "gains nothing: the two are within some per cent of each other, and a plan of the line takes longer than one "
        "of "
        "two boxes. Against Chain on an operator that knows only time stamps the gain is large "
        "and grows with the "
        "fan-in: a tuple is held until every other input has passed its time, by a tuple or by a heartbeat, and "
        "heartbeats cost plans. "
        "So the paper is right about operators that synchronize by time, and its own rule hides it.",
        SIMULATED: "A server that releases tuples as soon as order allows does the same work under both policies. "
        "Then the mean response "
        "over all tuples depends on the order alone: VPipe gains about one per cent, and at high variation that is "
        "within the noise.",
    },
)


def measure(lab: Lab) -> FigureData:
    names = lab.by_engine((CHAIN, VPIPE, UNION), (CHAIN, VPIPE))
    response: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    memory: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    stopped = []
    n, variation = lab.number("n"), lab.number("variation")
    total = round(lab.number("tuples") * lab.choose(lab.by_engine(0.12, 1.0), 0.4))
    for fan_in in lab.choose(FAN_INS, (2, 8)):
        rate = lab.number("load") * lab.by_engine(0.85, 1.0) / (1 + n) / fan_in
        trains = {s: arriving(lab, rate, total // fan_in, s) for s in range(fan_in)}
        means = (*[1.0] * fan_in, n)
        network = ordered_join(fan_in, n)
        rule = ChainInOrder(network, at_once=True)
        runs = {
            CHAIN: serve(lab, network, rule, trains, means, variation),
            VPIPE: serve(lab, network, "vpipe", trains, means, variation, LINE),
        }
        stopped.append((float(fan_in), rule.broken / rule.fetched))
        if lab.is_real:
            runs[UNION] = on_engine(lab, fan_in, trains, n)
        for name, run in runs.items():
            response[name].append((float(fan_in), run.response()))
            memory[name].append((float(fan_in), run.response() * len(run.times[0]) / run.length()))
    curves = {"first stream": stopped}
    return FigureData(
        (
            Panel("inputs", "mean response, units of service", response, log_x=True, title="response time (figure 11)"),
            Panel("inputs", "tuples in the engine, mean", memory, log_x=True, title="memory"),
            Panel("inputs", "share of tuples stopped", curves, log_x=True, title="broken pipelines (figure 12)"),
        )
    )


def union_network(fan_in: int) -> Network:
    """Make the network from a file: universal boxes, a union, and the join as a universal box behind it."""
    streams = "\n".join(f"  s{i}: {{schema: {{seq: bigint, value: double}}}}" for i in range(fan_in))
    boxes = "\n".join(f"  o{i}: {{universal: s{i}}}" for i in range(fan_in))
    inputs = ", ".join(f"o{i}" for i in range(fan_in))
    text = (
        f'http: {{listen: "off"}}\nstreams:\n{streams}\nboxes:\n{boxes}\n'
        f"  both: {{union: [{inputs}], order: time}}\n  join: {{universal: both}}\noutputs:\n  out: {{from: join}}\n"
    )
    return read_network(text)


def on_engine(lab: Lab, fan_in: int, trains: dict[int, Trains], n: float) -> Served:
    from engine.lab.figures.p2_server import DrawnBox, Draws
    from engine.lab.figures.real_engine import ProcessorClock, drive, make_engine
    from router.event_time import EventTime

    network = union_network(fan_in)
    nodes = []
    for node in network.boxes:
        if node.kind == "universal":
            box = DrawnBox(node.box.parameters)
            mean = n if node.name == "join" else 1.0
            box.mean_ns, box.draws = mean * REAL_UNIT_NS, Draws(lab.number("variation"), lab.seed, node.number)
            node = replace(node, box=box, cost_ns=box.mean_ns)
        nodes.append(node)
    network = replace(network, boxes=tuple(nodes))
    clock = ProcessorClock()
    rows: list[tuple[int, Any]] = []
    engine = make_engine(
        network,
        [lambda train: rows.append((clock(), train.arrival_ns)) if train.count else None],
        "chain",
        ORDERED,
        statistics_of(network),
        clock,
        event_time=EventTime(network, clock),
        one_by_one=True,
    )
    beats_ns = int(lab.number("heartbeat") * fan_in * REAL_UNIT_NS)
    drive(engine, trains, clock, beats_ns=beats_ns)
    arrivals = np.concatenate([arrived for _, arrived in rows])
    begun_ns = int(arrivals.min()) - min(int(t[0]) for t, _ in trains.values())
    times = [
        ((a - begun_ns) / REAL_UNIT_NS, (at - begun_ns) / REAL_UNIT_NS)
        for at, arrived in rows
        for a in arrived.tolist()
    ]
    return Served([times], [])


def verdict(measured: FigureData) -> FigureVerdict:
    chain, vpipe = measured.curve(CHAIN), measured.curve(VPIPE)
    chain_memory, vpipe_memory = measured.curve(CHAIN, 1), measured.curve(VPIPE, 1)
    few, many = min(chain), max(chain)
    gain = {x: chain[x] / vpipe[x] - 1 for x in chain}
    return FigureVerdict(
        (
            Check(
                "VPipe has the lower response time at every fan-in",
                all(g > 0 for g in gain.values()),
                "Chain is above it by " + ", ".join(f"{g:.1%} ({x:g})" for x, g in gain.items()),
            ),
            Check(
                "and needs less memory",
                all(vpipe_memory[x] < chain_memory[x] for x in chain),
                f"at {many:g} inputs {vpipe_memory[many]:.2f} tuples against {chain_memory[many]:.2f}",
            ),
            Check(
                "the difference grows with the fan-in",
                gain[many] > gain[few],
                f"from {gain[few]:.1%} to {gain[many]:.1%}",
            ),
        ),
        "mean_response_units",
        vpipe[many],
        chain[many],
    )
