"""Random networks and boxes that bear witness, for the tests that hold every policy to the same rules."""

from __future__ import annotations

from random import Random
from typing import Any

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from engine.operators.boxes.base import Emit, Tally
from engine.operators.boxes.universal import Universal
from engine.simulate.sketch import NetworkSketch, SketchInput
from storage.train import Train

SHAPES = ("chains", "trees", "shared", "joins")


def random_qos(random: Random) -> QoS:
    end_ns = random.uniform(1e6, 2e9)
    graph = QoSGraph(((0.0, 1.0), (end_ns, 1.0), (end_ns * random.uniform(1.1, 5.0), 0.0)))
    return random.choice([QoS(latency=graph, deadline_ns=int(end_ns)), QoS(), QoS(latency=graph)])


def random_network(shape: str, seed: int, cost_ns: float = 1e6) -> Network:
    """Some ten boxes. At least one output has a graph and a deadline."""
    random = Random(f"{shape} {seed}")
    sketch = NetworkSketch()

    def box(*inputs: SketchInput, kind: str = "") -> SketchInput:
        selectivity = random.choice([1.0, 1.0, random.uniform(0.3, 1.0)])
        return sketch.box(*inputs, cost_ns=cost_ns * random.uniform(0.1, 2.0), selectivity=selectivity, kind=kind)

    if shape == "chains":
        for _ in range(random.randint(2, 4)):
            tap = sketch.stream()
            for _ in range(random.randint(1, 4)):
                tap = box(tap)
            sketch.output(tap, random_qos(random))
    elif shape == "trees":
        for _ in range(random.randint(1, 3)):
            taps = [box(sketch.stream()) for _ in range(random.randint(2, 4))]
            while len(taps) > 1:
                random.shuffle(taps)
                taps = [*taps[2:], box(*taps[:2])]
            sketch.output(taps[0], random_qos(random))
    elif shape == "shared":
        taps = [sketch.stream() for _ in range(2)]
        for _ in range(random.randint(5, 10)):
            taps.append(box(random.choice(taps)) if random.random() < 0.7 else box(*random.sample(taps, 2)))
        for tap in random.sample(taps, random.randint(2, 4)):
            sketch.output(tap, random_qos(random))
    else:
        sides = [sketch.chain(sketch.stream(), random.randint(0, 2), cost_ns) for _ in range(3)]
        joined = box(box(sides[0], sides[1], kind="join"), sides[2], kind="join")
        sketch.output(box(joined), random_qos(random))
        sketch.output(box(sides[0]), random_qos(random))
    sketch.output(box(sketch.stream()), QoS(QoSGraph(((0.0, 1.0), (1e8, 1.0), (1e9, 0.0))), deadline_ns=100_000_000))
    return sketch.network()


class Witness(Universal):
    """Passes tuples on as a universal box does, at no cost, and remembers what came and went, by port."""

    merges_inputs = False  # it wants to see by which input they come

    def new_state(self) -> Any:
        self.received: dict[int, list[int]] = {}
        self.emitted: list[int] = []
        self.inside = 0
        self.most_inside = 0
        return super().new_state()

    def run(self, state: list[int], port: int, train: Train, emit: Emit, tally: Tally) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.received.setdefault(port, []).extend(train.columns[0].tolist())

        def witnessed(out_port: int, out: Train) -> None:
            self.emitted.extend(out.columns[0].tolist())
            emit(out_port, out)

        super().run(state, port, train, witnessed, tally)
        self.inside -= 1
