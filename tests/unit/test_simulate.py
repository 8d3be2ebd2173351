"""The simulator: arrivals, trains as counts, the arithmetic of a run against queueing theory, reports and bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from catalog.network import Network
from catalog.qos import QoS, QoSGraph
from catalog.stats import Statistics
from engine.cli import make_app
from engine.run.declared_costs import declared_costs, unknown_selectivities
from engine.run.network_file import read_network
from engine.simulate.arrivals import PROCESSES, READS_PER_S, TraceError, arrivals, read_trace
from engine.simulate.core import Simulation
from engine.simulate.experiment import Experiment, capacity_rates, knee, run_experiment
from engine.simulate.learned_costs import CostsError, learned_costs
from engine.simulate.overheads import Overheads
from engine.simulate.quality import DeliveryRecorder
from engine.simulate.report import as_json, parse_loads, text
from engine.simulate.sketch import NetworkSketch
from engine.simulate.storage import SimulatedStorage, SimulatedTrain, join
from engine.simulate.uncertainty import median_ranges
from scheduler.policies import policies
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule

FREE = Overheads(0.0, 0.0, 0.0, 0.0)
SECOND = 1_000_000_000


def chains(count: int, length: int, cost_ns: float, qos: QoS | None = None) -> tuple[Network, Statistics]:
    sketch = NetworkSketch()
    for _ in range(count):
        sketch.output(sketch.chain(sketch.stream(), length, cost_ns), qos)
    network = sketch.network()
    statistics = Statistics(network)
    statistics.cost_per_call_ns[:] = 0.0
    return network, statistics


# -- arrivals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", PROCESSES)
def test_arrivals_keep_their_rate_their_order_and_their_seed(process: str) -> None:
    times, counts = arrivals(process, 7, 0, 200.0, 400 * SECOND)
    again, _ = arrivals(process, 7, 0, 200.0, 400 * SECOND)
    other, _ = arrivals(process, 8, 0, 200.0, 400 * SECOND)
    assert (times == again).all() and not np.array_equal(times, other)
    assert (np.diff(times) >= 0).all() and times[0] >= 0 and times[-1] < 400 * SECOND
    assert counts.sum() == pytest.approx(80_000, rel=0.1)


def test_bursts_cluster_and_a_ramp_rises() -> None:
    def per_tenth(process: str) -> np.ndarray:
        times, _ = arrivals(process, 3, 0, 300.0, 100 * SECOND)
        return np.histogram(times, 1_000, (0, 100 * SECOND))[0]

    assert per_tenth("bursty").std() > 3 * per_tenth("poisson").std()
    assert per_tenth("uniform").std() < 1
    halves = per_tenth("ramp").reshape(2, -1).sum(axis=1)
    assert halves[1] / halves[0] == pytest.approx(3.0, rel=0.1)


def test_many_tuples_come_several_to_a_read() -> None:
    times, counts = arrivals("poisson", 1, 0, 1e6, 10 * SECOND)
    assert len(times) == pytest.approx(READS_PER_S * 10, rel=0.1)
    assert counts.sum() == pytest.approx(1e7, rel=0.1)


def test_a_trace_is_read_and_its_bad_rows_are_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("seconds,stream,tuples\n0.5,b,3\n0.25,a,\n1,b,1\n")
    trace = read_trace(path, {"a": 0, "b": 1})
    assert trace[0][0].tolist() == [250_000_000] and trace[1][1].tolist() == [3, 1]
    for bad, found in (
        ("0.5,c,1", "no stream is called 'c'"),
        ("x,a,1", "seconds must be a number, and 'x' is not"),
        ("1,a,2.5", "tuples must be a whole number, and '2.5' is not"),
        ("1,a,0", "tuples 1 to"),
        ("1,a,99999999999999999999", "tuples 1 to"),
        ("-1,a,1", "seconds must be 0 or more"),
    ):
        path.write_text(f"seconds,stream,tuples\n0,a,1\n{bad}\n")
        with pytest.raises(TraceError, match=found) as error:
            read_trace(path, {"a": 0, "b": 1})
        assert ":3:" in str(error.value)
    for written, found in (("time,stream\n", "seconds and stream"), ("seconds,stream\n", "has no rows")):
        path.write_text(written)
        with pytest.raises(TraceError, match=found):
            read_trace(path, {"a": 0})


# -- trains as counts -------------------------------------------------------------------------------------------------


def test_split_and_join_keep_counts_and_times() -> None:
    train = SimulatedTrain(11, 0, 1_000, 500)
    head, rest = train.split(4)
    assert (head.count, head.first_ns, head.last_ns) == (4, 0, 300)
    assert (rest.count, rest.first_ns, rest.last_ns) == (7, 400, 1_000)
    both = join([head, rest, SimulatedTrain(9, 5_000, 5_000, 5_000)])
    assert (both.count, both.first_ns, both.last_ns) == (20, 0, 5_000)
    assert both.mean_ns == pytest.approx((4 * 150 + 7 * 700 + 9 * 5_000) / 20, abs=1)
    left, right = both.split(11)
    assert (left.count, right.count) == (11, 9) and left.last_ns <= 1_000 and right.first_ns >= 1_000


def test_a_train_of_many_pieces_stays_small() -> None:
    joined = join([SimulatedTrain(3, i, i, i) for i in range(1_000)])
    assert joined.count == 3_000 and len(joined.pieces) <= 8
    assert (joined.first_ns, joined.last_ns) == (0, 999) and joined.mean_ns == pytest.approx(499.5, abs=2)


def test_storage_takes_as_the_engine_does() -> None:
    """A train is cut only when nothing else could be taken."""
    storage = SimulatedStorage([8.0])
    for count in (3, 5):
        storage.enqueue((0,), SimulatedTrain(count, 0, 0, 0))
    taken, count, whole = storage.take(0, 6, 2)
    assert ([t.count for t in taken], count, whole) == ([3], 3, 1)
    taken, count, whole = storage.take(0, 2, 1)
    assert ([t.count for t in taken], count, whole) == ([2], 2, 0)
    assert storage.expire(0, 2, 1) == ([], 2, 0)
    assert (storage.tuples, storage.nbytes, storage.expired) == (1, 8.0, [2])


def test_quality_by_hand() -> None:
    recorder = DeliveryRecorder(
        QoS(QoSGraph(((0.0, 1.0), (10.0, 1.0), (30.0, 0.0))), deadline_ns=10), ideal_ns=5.0, from_ns=0
    )
    for latency_ns in (5, 10, 20, 40):
        recorder.deliver(SimulatedTrain(1, 100, 100, 100), 100 + latency_ns)
    recorder.expired = 1
    quality = recorder.quality()
    assert quality.tuples == 4 and quality.mean_ns == 18.75 and quality.max_ns == 40
    assert quality.utility == pytest.approx((1 + 1 + 0.5 + 0) / 5)
    assert (quality.missed, quality.sdmr) == (3, 0.6)
    assert quality.slowdown_mean == pytest.approx(3.75) and quality.slowdown_max == 8
    assert quality.slowdown_l2 == pytest.approx((1 + 4 + 16 + 64) ** 0.5)


def test_a_graph_that_falls_from_the_start_has_no_deadline_to_miss() -> None:
    recorder = DeliveryRecorder(QoS(QoSGraph(((0.0, 1.0), (30.0, 0.0))), deadline_ns=0), ideal_ns=5.0, from_ns=0)
    recorder.deliver(SimulatedTrain(1, 100, 100, 100), 115)
    assert recorder.quality().missed == 0


# -- a run ------------------------------------------------------------------------------------------------------------


def test_one_box_is_an_m_d_1_queue() -> None:
    """Poisson arrivals, one server, constant service: the mean wait is rho/(2(1 - rho)) services, by theory."""
    network, statistics = chains(1, 1, 1e7)
    settings = SchedulerSettings(train=TrainRule("tuples", 1))
    for load in (0.3, 0.7):
        trains = {0: arrivals("poisson", 5, 0, load * 100, 500 * SECOND)}
        policy = policies()["fcfs"]
        run = Simulation(network, policy, trains, statistics=statistics, settings=settings, overheads=FREE)
        run.run()
        wait = run.recorders[0].quality().mean_ns / 1e7 - 1
        assert wait == pytest.approx(load / (2 * (1 - load)), rel=0.08)


def test_overheads_are_counted_where_they_are_spent() -> None:
    network, statistics = chains(1, 3, 1_000.0)
    trains = {0: (np.array([0]), np.array([10]))}
    overheads = Overheads(step_ns=100.0, claim_ns=10.0, plan_ns=20.0, call_ns=5.0)
    run = Simulation(network, policies()["round_robin"], trains, statistics=statistics, overheads=overheads)
    run.run()
    totals = run.totals
    assert (totals.plans, totals.calls, totals.box_ns) == (1, 3, 30_000.0)
    assert (totals.scheduler_ns, totals.storage_ns, totals.worker_ns) == (100.0, 10.0, 35.0)
    assert run.recorders[0].quality().max_ns == 30_145


def test_box_at_a_time_pays_for_queues_and_steps() -> None:
    network, statistics = chains(1, 3, 1_000.0)
    trains = {0: (np.array([0]), np.array([10]))}
    settings = SchedulerSettings(unit="box")
    overheads = Overheads(step_ns=100.0, claim_ns=10.0, plan_ns=20.0, call_ns=5.0)
    run = Simulation(
        network, policies()["round_robin"], trains, statistics=statistics, settings=settings, overheads=overheads
    )
    run.run()
    assert (run.totals.plans, run.totals.calls) == (3, 3)
    assert (run.totals.scheduler_ns, run.totals.storage_ns, run.totals.worker_ns) == (300.0, 50.0, 75.0)


def test_workers_share_the_work() -> None:
    network, statistics = chains(2, 1, 1e6)
    trains = {s: (np.array([0]), np.array([10])) for s in range(2)}
    ends = []
    for workers in (1, 2):
        run = Simulation(
            network, policies()["round_robin"], trains, statistics=statistics, workers=workers, overheads=FREE
        )
        run.run()
        ends.append(run.now_ns)
    assert ends == [20_000_000, 10_000_000]


def test_qos_beats_round_robin_where_graphs_differ() -> None:
    """P0 figure 11 in small: tight and loose graphs at high load."""
    sketch = NetworkSketch()
    for i in range(10):
        graph = ((0.0, 1.0), (1e6, 1.0), (1e9, 0.0)) if i % 2 else ((0.0, 1.0), (4e9, 1.0), (5e9, 0.0))
        sketch.output(sketch.chain(sketch.stream(), 3, 1e6), QoS(QoSGraph(graph)))
    network = sketch.network()
    settings = SchedulerSettings(unit="box", train=TrainRule("tuples", 1))
    experiment = Experiment(
        network, declared_costs(network), ("qos", "round_robin"), (0.93,), duration_ns=10 * SECOND, settings=settings
    )
    qos, round_robin = run_experiment(experiment)
    assert 1 - qos.overall.utility < 0.5 * (1 - round_robin.overall.utility), "less than half is lost"


def test_deadlines_that_cannot_be_met_are_dropped_under_overload() -> None:
    network, statistics = chains(3, 2, 1e6, QoS(deadline_ns=300_000_000))
    experiment = Experiment(network, statistics, ("bts", "bts1", "ats1"), (1.5,), duration_ns=10 * SECOND)
    runs = {r.policy: r for r in run_experiment(experiment)}
    assert runs["bts"].expired == 0 and runs["bts1"].expired > 0 and runs["ats1"].expired > 0
    assert runs["bts1"].overall.sdmr < 0.6 < runs["bts"].overall.sdmr


# -- the experiment and its report ------------------------------------------------------------------------------------


def small_experiment(**changes: object) -> Experiment:
    network, statistics = chains(4, 2, 1e6, QoS(QoSGraph(((0.0, 1.0), (1e8, 1.0), (1e9, 0.0))), deadline_ns=10**8))
    defaults = {"duration_ns": 5 * SECOND, "seed": 7, "policies": ("qos", "round_robin"), "loads": (0.5, 0.9, 1.5)}
    return Experiment(network, statistics, **{**defaults, **changes})  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_bytes() -> None:
    first, second = (orjson.dumps(as_json(e, run_experiment(e))) for e in (small_experiment(), small_experiment()))
    assert first == second
    other = small_experiment(seed=8)
    assert orjson.dumps(as_json(other, run_experiment(other))) != first


def test_the_knee_lies_at_capacity_and_the_report_names_it() -> None:
    experiment = small_experiment()
    runs = run_experiment(experiment)
    for name in experiment.policies:
        held, lost = knee([r for r in runs if r.policy == name])
        assert (held, lost) == (0.9, 1.5)
    report = text(runs)
    assert "qos: the knee is between load 0.9 and 1.5" in report
    assert "output out0" in report and "p50 latency over load" in report
    for column in ("mean", "p99", "max", "utility", "slowdown", "worst", "l2", "missed", "expired", "queues", "sched"):
        assert column in report.splitlines()[1].split()
    assert "queue memory over time" in report
    data = as_json(experiment, runs)
    assert set(data["runs"][0]["outputs"]) == {"out0", "out1", "out2", "out3"}
    assert data["knee"]["qos"] == {"held": 0.9, "lost": 1.5}
    shares = data["runs"][0]["overhead"]
    assert sum(shares[k] for k in ("boxes", "scheduler", "storage", "worker")) == pytest.approx(1.0)


def test_the_report_says_how_far_the_medians_near_the_knee_may_be_off() -> None:
    """Errors of the costs are loads that are off: the ends of a range are the medians at those loads."""
    experiment = small_experiment(policies=("qos",), loads=(0.5, 0.9, 3.0))
    ranges = median_ranges(experiment, run_experiment(experiment))
    assert [(r.load, r.output) for r in ranges] == [(0.9, f"out{i}") for i in range(4)], "0.5 and 3 are far from it"
    [low, high] = run_experiment(small_experiment(policies=("qos",), loads=(0.81, 0.99)))
    for i, found in enumerate(ranges):
        assert found.low_ns <= found.p50_ns <= found.high_ns
        assert {low.outputs[i][1].p50_ns, high.outputs[i][1].p50_ns} <= {found.low_ns, found.p50_ns, found.high_ns}
    assert max(r.high_ns / r.low_ns for r in ranges) > 1.5
    report = text(run_experiment(experiment), ranges)
    assert "near the knee: p50 if all costs are off by up to 10%" in report
    assert as_json(experiment, (), ranges[:1])["p50_ranges"][0]["output"] == "out0"


def test_load_one_is_what_the_boxes_alone_can_do() -> None:
    network, statistics = chains(2, 5, 1e6)
    assert capacity_rates(network, statistics, 2, FREE).tolist() == pytest.approx([200.0, 200.0])
    statistics.rate_per_s[:] = (3.0, 1.0)
    assert capacity_rates(network, statistics, 1, FREE).tolist() == pytest.approx([150.0, 50.0])


@pytest.mark.parametrize(
    ("written", "loads"),
    [
        ("0.8", (0.8,)),
        ("2,0.5", (0.5, 2.0)),
        ("0.5..1:0.25", (0.5, 0.75, 1.0)),
        ("0.5..3", (0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0)),
        ("1..1", (1.0,)),
    ],
)
def test_loads(written: str, loads: tuple[float, ...]) -> None:
    assert parse_loads(written) == pytest.approx(loads)


@pytest.mark.parametrize("written", ["", "x", "3..1", "0..1", "-1", "1..2:0", "1..2:-1", "1..", "0.1..1:1e-9", "1e9"])
def test_loads_that_make_no_sense(written: str) -> None:
    with pytest.raises(ValueError, match=r"load"):
        parse_loads(written)


def test_a_range_that_goes_down_is_turned_round() -> None:
    with pytest.raises(ValueError, match=r"goes down: write 0\.5\.\.3"):
        parse_loads("3..0.5")


def test_boxes_of_which_nothing_is_known_are_told() -> None:
    network = read_network(
        """
http: {listen: "off"}
streams: {s: {schema: {x: double}}}
boxes:
  all: {map: s, add: {y: "x + 1"}}
  some: {filter: all, where: "x > 0"}
  half: {filter: some, where: "x > 1", selectivity: 0.5}
outputs: {o: {from: half}}
"""
    )
    assert unknown_selectivities(network) == ["some"]


def test_costs_from_a_running_daemon() -> None:
    network, _ = chains(1, 2, 1e6)
    learned = {
        "calls": 5,
        "cost_per_call_ns": 10.0,
        "cost_per_tuple_ns": 2.0,
        "selectivity": 0.5,
        "mean_train_tuples": 7.0,
        "tuples_out_by_port": [3],
    }
    boxes = [{**learned, "name": b.name} for b in network.boxes]
    statistics = learned_costs(network, {"boxes": boxes, "streams": [{"name": "s0", "rate_per_s": 9.0}]}, "here")
    assert statistics.cost_per_tuple_ns.tolist() == [2.0, 2.0] and statistics.port_selectivity.tolist() == [0.5, 0.5]
    assert statistics.rate_per_s.tolist() == [9.0]
    with pytest.raises(CostsError, match="b1"):
        learned_costs(network, {"boxes": boxes[:1]}, "here")


def test_a_call_that_looks_dear_because_all_trains_were_long_is_charged_to_the_tuples() -> None:
    network, _ = chains(1, 1, 1e6)
    fit = {"calls": 5, "cost_per_call_ns": 5e6, "cost_per_tuple_ns": 1_000.0, "selectivity": 1.0}
    boxes = [{**fit, "name": "b0", "mean_train_tuples": 1_000.0, "tuples_out_by_port": [1]}]
    learned = learned_costs(network, {"boxes": boxes}, "here")
    assert learned.cost_per_call_ns[0] < 5e6 / 100
    at_that_length = learned.cost_per_tuple_ns[0] + learned.cost_per_call_ns[0] / 1_000
    assert at_that_length == pytest.approx(6_000.0)


# -- the command ------------------------------------------------------------------------------------------------------

NETWORK = """
http: {listen: "off"}
scheduler: {policy: round_robin}
streams:
  s: {schema: {x: int}}
boxes:
  a: {filter: s, where: "x > 1", cost: 1ms, selectivity: 0.5}
  b: {map: a, select: {x: x}, cost: 1ms}
outputs:
  o: {from: b, qos: {deadline: 200ms}}
"""


def command(tmp_path: Path, *arguments: str) -> tuple[int, str, str]:
    path = tmp_path / "network.yaml"
    path.write_text(NETWORK)
    result = CliRunner().invoke(make_app(), ["simulate", str(path), *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_twice(tmp_path: Path) -> None:
    arguments = ("--load", "0.5..1:0.25", "--policy", "qos,fcfs", "--seed", "7", "--for", "2s", "--json")
    code, first, _ = command(tmp_path, *arguments)
    assert code == 0 and first == command(tmp_path, *arguments)[1]
    assert [(r["policy"], r["load"]) for r in orjson.loads(first)["runs"]][:2] == [("qos", 0.5), ("qos", 0.75)]
    code, shown, _ = command(tmp_path, "--load", "0.5", "--for", "1s")
    assert code == 0 and "policy round_robin" in shown and "output o" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--policy", "qso"), "unknown policy 'qso'; did you mean 'qos'"),
        (("--load", "3..1"), "is not a load"),
        (("--load", "1e9"), "at most 1000"),
        (("--seed", "-1"), "greater than or equal to 0"),
        (("--contract", "--check"), "not both"),
        (("--for", "10"), "is not a duration"),
        (("--for", "2d"), "at most 1d"),
        (("--arrivals", "nope"), "there is no file nope"),
    ],
)
def test_the_command_refuses(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = command(tmp_path, *arguments)
    assert code == 2 and said in err
