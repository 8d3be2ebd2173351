"""The load shedder in the simulator: what is promised at a load, and how a step is answered."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from catalog.network import Network
from engine.run.declared_costs import declared_costs
from engine.run.network_file import read_network
from engine.simulate.contract import Contract, contract_json, contract_text, run_contracts
from engine.simulate.core import Simulation
from engine.simulate.experiment import Experiment, capacity_rates
from engine.simulate.monitor import SimulatedMonitor
from engine.simulate.overheads import Overheads
from scheduler.policies import policies

TEXT = """
http: {listen: "off"}
engine: {workers: 1}
streams:
  s: {schema: {k: string, x: double}, overload: shed}
boxes:
  cut: {filter: s, where: "x > 0", cost: 2us, selectivity: 0.5}
  strict: {universal: cut, cost: 20us}
  free: {universal: cut, cost: 60us}
  other: {universal: cut, cost: 60us}
outputs:
  kept: {from: strict, qos: {deadline: 100ms, dead: 1s}}
  lossy: {from: free, qos: {deadline: 500ms, lossy: 60%}}
  linear: {from: other, qos: {deadline: 500ms, loss: [[100%, 1], [0%, 0]]}}
"""
SECOND = 1_000_000_000


def network(text: str = TEXT) -> Network:
    return read_network(text)


def experiment(loads: tuple[float, ...], process: str = "uniform", text: str = TEXT, seed: int = 1) -> Experiment:
    made = network(text)
    return Experiment(
        made, declared_costs(made), ("round_robin",), loads, seed=seed, duration_ns=4 * SECOND, process=process
    )


def promise(c: Contract, name: str) -> float:
    return next(o.share for o in c.outputs if o.name == name)


def test_below_the_knee_everything_is_promised() -> None:
    [found] = run_contracts(experiment((0.5,)))
    assert not found.drops and found.plans == 0
    assert [o.share for o in found.outputs] == pytest.approx([1.0, 1.0, 1.0], abs=0.01)
    assert found.utility == pytest.approx(3.0, abs=0.03)


@pytest.mark.parametrize("process", ["uniform", "poisson"])
def test_at_twice_the_load_what_has_no_loss_graph_keeps_all_and_is_in_time(process: str) -> None:
    """Of 72 us a tuple about half may be spent: 12 on what is kept whole, 12 on the 40 % that the lossy one needs, and
    of the linear one's 30 what then is left. Load 1 has room for the engine's own work at short trains; in an overload
    trains are long and the worker has all of its time for boxes: the linear one gets less than what that leaves."""
    [found] = run_contracts(experiment((2.0,), process))
    kept = found.outputs[0]
    assert kept.share == pytest.approx(1.0, abs=0.01)
    assert kept.deadline_ns is not None and kept.p99_ns < kept.deadline_ns
    assert promise(found, "lossy") == pytest.approx(0.4, abs=0.03)
    a_tuple_ns = 1e9 / found.rate_per_s
    assert 0.1 < promise(found, "linear") < (a_tuple_ns - 12_000 - 0.4 * 30_000) / 30_000
    assert found.utility > 2.0


def test_the_same_seed_gives_the_same_contract_to_the_byte() -> None:
    first, second = (
        repr(contract_json(e, run_contracts(e))) for e in (experiment((2.0,), "poisson"), experiment((2.0,), "poisson"))
    )
    assert first == second


def test_a_contract_reads_as_a_table() -> None:
    text = contract_text(run_contracts(experiment((0.5,))))
    assert "rows/s of s, 0.5 times the knee" in text and "lossy" in text and text.endswith("dropped: nothing")


def test_streams_that_block_are_not_shed() -> None:
    [found] = run_contracts(experiment((2.0,), text=TEXT.replace("overload: shed", "overload: block")))
    assert not found.drops and found.utility < 1.0
    assert "of capacity: the backlog grows" in contract_text([found])


def test_an_output_that_cannot_be_saved_gets_what_is_left_in_time() -> None:
    """Nothing may be shed, and after 100 ms nobody wants a tuple: half of them are given up, the rest is in time."""
    text = """
streams: {s: {schema: {n: bigint}, source: {tcp: 127.0.0.1:9401}, overload: shed}}
boxes: {slow: {universal: s, cost: 1ms}}
outputs: {o: {from: slow, qos: {deadline: 20ms, dead: 100ms}, sink: {tcp: 127.0.0.1:9402}}}
"""
    [found] = run_contracts(experiment((2.0,), text=text))
    assert sum(d.share for d in found.drops) + found.outputs[0].share == pytest.approx(1.0, abs=0.05)
    assert found.outputs[0].share == pytest.approx(0.5, abs=0.1)
    assert found.outputs[0].latency_utility > 0.9
    assert "of s->slow" in contract_text([found])


INCURABLE = """
engine: {workers: 2}
streams: {rows: {schema: {n: bigint}, source: {tcp: 127.0.0.1:9401}, overload: shed}}
boxes:
  model: {universal: rows, cost: 90us}
  cheap: {universal: rows, cost: 4us}
  light: {universal: rows, cost: 20us}
outputs:
  strict: {from: model, qos: {deadline: 200ms, dead: 2s}, sink: {tcp: 127.0.0.1:9402}}
  nearly_free: {from: cheap, qos: {deadline: 500ms, lossy: 20%}, sink: {tcp: 127.0.0.1:9403}}
  may_lose: {from: light, qos: {deadline: 300ms, lossy: 50%}, sink: {tcp: 127.0.0.1:9404}}
"""


@pytest.mark.parametrize("policy", ["qos", "round_robin"])
def test_an_output_that_cannot_be_saved_does_not_take_the_others_down(policy: str) -> None:
    """A box of 90 us on every row, at three times what one worker can do. Without giving it up: 0.00 of 3."""
    made = read_network(INCURABLE)
    given = Experiment(made, declared_costs(made), (policy,), (3.0,), seed=2, duration_ns=5_000_000_000, workers=2)
    [found] = run_contracts(given)
    strict, nearly_free, may_lose = found.outputs
    assert nearly_free.utility > 0.95 and may_lose.utility > 0.9
    assert strict.utility > 0.2, "it gets what is left"
    assert strict.p99_ns < 200e6, "in time"


def test_a_step_to_three_times_the_load_is_answered_and_forgotten() -> None:
    """0.5 for 4 s, 3 for 6 s, 0.5 again: settled within 2 s, full delivery within 5 s, every tuple accounted for."""
    made = network()
    statistics = declared_costs(made)
    rate = float(capacity_rates(made, statistics, 1, Overheads())[0])
    gap_ns = 5_000_000
    times = np.arange(0, 18 * SECOND, gap_ns)
    load = np.where((times >= 4 * SECOND) & (times < 10 * SECOND), 3.0, 0.5)
    counts = np.maximum(1, np.round(load * rate * gap_ns / 1e9)).astype(np.int64)
    simulation = Simulation(made, policies()["round_robin"], {0: (times, counts)}, statistics=statistics)
    watch = SimulatedMonitor(simulation, 1)
    waits = []

    def tick() -> None:
        waits.append(
            (simulation.now_ns / 1e9, watch.overload.verdict.wait_ns / 1e9, dict(simulation.execution.drops.kept))
        )

    simulation.tickers.append(tick)
    simulation.run()
    assert not any(kept for at, _, kept in waits if at < 4.0), "nothing is shed before"
    assert all(wait < 0.1 for at, wait, _ in waits if 6.0 < at < 10.0), "the backlog of the step is gone"
    assert all(kept for at, _, kept in waits if 4.5 < at < 10.0)
    assert not any(kept for at, _, kept in waits if at > 15.0), "and nothing is shed after"
    counts, shed = simulation.execution.counts, simulation.execution.drops.shed
    passed = counts.out[0]
    for box in ("strict", "free", "other"):
        node = made.box(box)
        assert counts.tuples_in[node.number] + shed[node.in_arcs[0]] == passed
    assert simulation.arrived == counts.tuples_in[0] + shed[made.boxes[0].in_arcs[0]]


VALUED = """
http: {listen: "off"}
engine: {workers: 1}
streams:
  s: {schema: {x: double}, overload: shed}
boxes:
  work: {universal: s, cost: 200us}
outputs:
  o: {from: work, qos: {deadline: 500ms, loss: [[100%, 1], [0%, 0]], prefer: "x >= 60"}}
"""


def test_drops_by_value_leave_more_of_the_worth_than_of_the_tuples() -> None:
    """Of x from 0 to 100 two fifths are preferred and count four times the others: at twice the knee nearly half of the
    tuples stay, all of the preferred ones among them, and with them 0.4 of 0.55 of the worth and some more."""
    [found] = run_contracts(experiment((2.0,), text=VALUED))
    [output] = found.outputs
    assert 0.4 < output.share < 0.55
    assert output.value == pytest.approx((0.4 + 0.25 * (output.share - 0.4)) / 0.55, abs=0.03)
    assert output.utility == pytest.approx(output.value, abs=0.02)


def test_loads_are_counted_in_knees_whatever_the_engine_spends_on_itself() -> None:
    dear = replace(experiment((0.8,), text=VALUED), overheads=Overheads(2e6, 0.0, 0.0, 0.0))
    [found] = run_contracts(dear)
    assert found.rate_per_s < 0.8 * 1e9 / 200_000 * 0.99
    assert found.outputs[0].share > 0.99


BURST = """
http: {listen: "off"}
engine: {workers: 2}
streams: {s: {schema: {x: double}, overload: shed}}
boxes:
  u0: {universal: s, cost: 27us}
  u1: {universal: s, cost: 36us}
  u2: {universal: s, cost: 33us}
outputs:
  soon: {from: u0, qos: {deadline: 150ms, dead: 600ms, lossy: 15%}}
  later: {from: u1, qos: {deadline: 600ms, dead: 2400ms, lossy: 35%}}
  patient: {from: u2, qos: {deadline: 2s, dead: 8s, lossy: 10%}}
"""


def test_what_fits_into_the_slack_of_its_deadline_is_not_shed_in_a_burst() -> None:
    """Half a second at 3.7 times the capacity, then 0.37 of it. The work of the patient output may wait for 1 s."""
    made = network(BURST)
    tick_ns = SECOND // 100
    times = np.arange(0, 7 * SECOND, tick_ns)
    in_burst = (times >= 3 * SECOND) & (times < 3 * SECOND + SECOND // 2)
    counts = np.where(in_burst, 740, 74)
    asked = replace(
        experiment((1.0,), text=BURST), policies=("qos",), trace={0: (times, counts)}, workers=2, duration_ns=7 * SECOND
    )
    [found] = run_contracts(replace(asked, network=made, statistics=declared_costs(made)))
    by_name = {o.name: o for o in found.outputs}
    assert by_name["patient"].utility > 0.97 and by_name["later"].utility > 0.97
    assert by_name["soon"].utility > 0.8, "a part of it comes too late: one worker cannot do its burst in 150 ms"
