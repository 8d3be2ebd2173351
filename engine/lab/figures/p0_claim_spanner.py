"""P0, section 4.1.1: the top-k spanner, which the paper describes and does not measure.

A static superbox is a whole application (AAAT). The top-k spanner identifies, at run time, the tree that is rooted at
the output box and spans the k boxes of highest priority. The paper names it, relies on static superboxes in its
experiments, and so makes no claim. We ask what it would have had to show: does scheduling only the most urgent part of
a tree give more QoS than scheduling all of it?

Five applications of depth four and fan-out three get tuples in bursts, so that the boxes of one tree differ in urgency.
All have the tight graph of figure 11 with a fall of their own. The policy is the p-tuple.
"""

from __future__ import annotations

from random import Random

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from engine.lab.figures.figure import REAL, SIMULATED, Check, Figure, FigureData, FigureVerdict, Panel, Unprinted
from engine.lab.figures.lab import Lab
from engine.lab.figures.p0_testbed import SPEED, TESTBED, costs_ns, even, trees
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

APPLICATIONS, DEPTH = 5, 4
SECOND_NS = 1e9
SPANS = (1, 2, 4, 8, 16, 27)
WHOLE = "the whole application (AAAT)"
SPANNER = "top-k spanner"
FIGURE = Figure(
    title="The top-k spanner",
    claim=(
        "(A question that the paper leaves open.) Superboxes that span only the k boxes of highest priority give at "
        "least the "
        "QoS of whole applications."
    ),
    printed={**TESTBED, "policy": "p-tuple, superboxes", "fan-out": "3"},
    unprinted={
        "speed": SPEED,
        "load": Unprinted(0.8, "of the boxes alone: high, so that the choice matters", (0.6, 0.9)),
        "burst": Unprinted(4, "tuples that come together on a stream"),
        "fall_s": Unprinted(1.0, "a graph falls for a tenth of this time of the paper up to all of it"),
        "seconds": Unprinted(4.0, "length of a run, in seconds of the paper"),
    },
    findings=dict.fromkeys(
        (REAL, SIMULATED),
        "On this workload k hardly matters: between two plans of an application few of its boxes get tuples, so the "
        "tree that spans the "
        "most urgent ones is nearly the tree of all busy ones. The differences are within the scatter of the runs. "
        "The paper's choice "
        "of static superboxes costs nothing here.",
    ),
)


def network(lab: Lab) -> Network:
    random, speed = Random(lab.seed), lab.number("speed")
    graphs = []
    for _ in range(APPLICATIONS):
        fall_ns = random.uniform(0.1, 1.0) * lab.number("fall_s") * SECOND_NS / speed
        graphs.append(QoS(QoSGraph(((0.0, 1.0), (0.001 * SECOND_NS / speed, 1.0), (fall_ns, 0.0)))))
    return trees(APPLICATIONS, depth=DEPTH, cost_ns=costs_ns(speed), qos=graphs, seed=lab.seed)


def measure(lab: Lab) -> FigureData:
    applications = network(lab)
    length_ns = int(lab.number("seconds") * SECOND_NS / lab.number("speed") * lab.choose(lab.by_engine(1.0, 3.0), 1.0))
    trains = even(applications, lab.number("load"), length_ns, burst=lab.count("burst"), seed=lab.seed)

    def utility(spanner: int) -> tuple[float, int]:
        settings = SchedulerSettings(spanner=spanner, train=TrainRule("all"))
        run = lab.run(applications, trains, policy="qos", settings=settings)
        return run.utility, run.calls

    whole, whole_calls = utility(0)
    found = {k: utility(k) for k in SPANS}
    return FigureData(
        (
            Panel(
                "k, boxes of highest priority",
                "average QoS",
                {SPANNER: [(float(k), u) for k, (u, _) in found.items()], WHOLE: [(float(k), whole) for k in SPANS]},
                log_x=True,
                dashed=(WHOLE,),
            ),
            Panel(
                "k, boxes of highest priority",
                "box calls",
                {
                    SPANNER: [(float(k), float(c)) for k, (_, c) in found.items()],
                    WHOLE: [(float(k), float(whole_calls)) for k in SPANS],
                },
                log_x=True,
                dashed=(WHOLE,),
            ),
        )
    )


def verdict(measured: FigureData) -> FigureVerdict:
    qos, calls = measured.curve(SPANNER), measured.curve(SPANNER, 1)
    whole = next(iter(measured.curve(WHOLE).values()))
    best, few = max(qos, key=qos.__getitem__), min(qos)
    return FigureVerdict(
        (
            Check(
                "some k gives at least the QoS of the whole",
                qos[best] >= whole - 0.002,
                f"k = {best:g}: {qos[best]:.3f}, whole {whole:.3f}",
            ),
            Check(
                "the smallest k does",
                qos[few] >= whole - 0.002,
                f"k = {few:g}: {qos[few]:.3f}, with {calls[few] / calls[max(calls)]:.1f} times the calls",
            ),
        ),
        "best_qos",
        qos[best],
        whole,
    )
