"""The tasks of P4 on the real engine.

A task that an operator filters out leaves no trace at the output, so the share of late tasks of a query is that of its
results. A task is in time if it was run and is not among the late ones. The overhead is the processor time of the
engine outside box calls, by one clock.
"""

from __future__ import annotations

from engine.lab.figures.lab import Deliveries
from engine.lab.figures.p4_deadlines import NAMES, DeadlineResult, DeadlineSetup, arrivals, end_ns, rule
from engine.lab.figures.real_engine import ProcessorClock, TimeLedger, drive, make_engine
from engine.run.declared_costs import declared_costs
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule


def run_real_tasks(setup: DeadlineSetup) -> DeadlineResult:
    network, clock = setup.network(), ProcessorClock()
    statistics = declared_costs(network)
    deliveries = Deliveries(network, statistics, clock)
    settings = SchedulerSettings(train=TrainRule("all"), batch=rule(setup))
    engine = make_engine(network, deliveries.outlets, NAMES[setup.policy], settings, statistics, clock, one_by_one=True)
    trains = arrivals(network, setup)
    ledger = TimeLedger(engine, boxes_only=True)
    begun_ns = clock.busy_ns()
    elapsed_ns = drive(engine, trains, clock, ledger, until_ns=end_ns(setup))
    busy_ns = clock.busy_ns() - begun_ns
    came = sum(int(counts.sum()) for stream, (_, counts) in trains.items() if network.streams[stream].arcs)
    in_time = 0.0
    for stream in network.streams:
        for arc in stream.arcs:
            box = network.arcs[arc].box
            assert box is not None
            in_time += engine.runtimes[box].tuples_in * (1 - deliveries.late_share(network, _output_of(setup, box)))
    overhead_ns = ledger.read(busy_ns)["worker_ns"]
    return DeadlineResult(1 - in_time / came, overhead_ns / 1e9, min(1.0, busy_ns / max(elapsed_ns, 1)), 0.0)


def _output_of(setup: DeadlineSetup, box: int) -> int:
    """Return the output of the query whose first box this is: queries are chains."""
    network = setup.network()
    while network.fed[box]:
        box = network.fed[box][0]
    return next(o.number for o in network.outputs if network.arcs[o.arc].source.box == box)
