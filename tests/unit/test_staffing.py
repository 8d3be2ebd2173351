"""How many workers are at work: a second one stays only where two do more than one."""

from __future__ import annotations

import pytest

from catalog.errors import NetworkError
from engine.lab.bench.chain import Countdown, prepare
from engine.lab.bench.workload import chain_network
from engine.run.core import Engine
from engine.run.network_file import read_network
from scheduler.staffing import FIRST_REST_NS, Staffing

MS = 1_000_000
S = 1_000_000_000


class Plant:
    """Workers that take 1 ms for a plan of 100 tuples. Two at once do ``gain`` times as much."""

    def __init__(self, gain: float, most: int = 2) -> None:
        self.gain = gain
        self.at_work = 1
        self.now_ns = 0
        self.counts: dict[int, int] = {}  # ms by number of workers
        self.staffing = Staffing(most, self._employ)

    def _employ(self, workers: int) -> None:
        self.at_work = workers

    def run(self, ms: int, *, busy: float = 1.0, more_waits: bool = True) -> None:
        for _ in range(ms):
            self.now_ns += MS
            self.counts[self.at_work] = self.counts.get(self.at_work, 0) + 1
            done = 100 * (1.0 if self.at_work == 1 else self.gain) * busy
            for _ in range(self.at_work):
                self.staffing.finished((0,), round(done / self.at_work), round(MS * busy))
            self.staffing.look(self.now_ns, [10_000.0], more_waits)


@pytest.mark.parametrize(("gain", "workers"), [(1.8, 2), (1.2, 2), (1.02, 1), (0.6, 1)])
def test_a_second_worker_stays_where_it_pays(gain: float, workers: int) -> None:
    plant = Plant(gain)
    plant.run(1_000)
    assert plant.staffing.settled == workers and plant.staffing.trials >= 1
    plant.run(60_000)
    assert plant.staffing.settled == workers
    other = plant.counts[3 - workers]
    assert other < 0.02 * sum(plant.counts.values()), "trials are short and become rare"


def test_what_does_not_pay_is_found_out_with_one_window() -> None:
    plant = Plant(0.6)
    plant.run(1_000)
    assert plant.staffing.trials == 1 and plant.counts[2] <= 12


def test_a_load_that_changes_is_tried_again() -> None:
    plant = Plant(1.8)
    plant.run(1_000)
    assert plant.at_work == 2
    plant.gain = 0.6
    plant.run(5 * FIRST_REST_NS // MS)
    assert plant.staffing.settled == 1


def test_there_is_no_trial_while_one_worker_is_enough_or_nothing_more_waits() -> None:
    plant = Plant(1.8)
    plant.run(5_000, busy=0.5)
    plant.run(5_000, more_waits=False)
    assert plant.staffing.trials == 0 and plant.counts == {1: 10_000}


def test_a_second_worker_goes_when_the_load_falls() -> None:
    plant = Plant(1.8)
    plant.run(1_000)
    plant.run(200, busy=0.2, more_waits=False)
    assert plant.staffing.settled == plant.at_work == 1


def test_under_overload_the_shedder_keeps_queues_short_and_a_trial_is_made_all_the_same() -> None:
    plant = Plant(1.8)
    plant.staffing.is_pressed = True
    plant.run(1_000, busy=0.8, more_waits=False)
    assert plant.staffing.settled == 2


def test_each_further_worker_has_to_pay() -> None:
    plant = Plant(1.8, most=4)  # three and four do no more than two
    plant.run(30_000)
    assert plant.staffing.settled == 2


def test_a_trial_is_given_up_when_the_queues_run_empty() -> None:
    plant = Plant(1.8)
    while plant.staffing.trials == 0:
        plant.run(1)
    plant.run(1, more_waits=False)
    assert plant.at_work == plant.staffing.settled == 1


def test_workers_come_and_go_while_the_engine_runs() -> None:
    network, finish = read_network(chain_network(4), {}), Countdown(4)
    outlets = [lambda train, number=number: finish.outlet(number, train) for number in range(4)]
    engine = Engine(network, outlets, workers=3, is_staffed=True)
    assert engine.workers_at_work == engine.loop.workers == 1
    engine.start()
    for workers in (1, 3, 2, 1, 3):
        with engine.loop.paused():
            engine._employ(workers)
        trains, expected = prepare(4, 100, 5_000)
        finish.expect(expected)
        for train in trains:
            assert engine.ingress.admit(0, train, timeout_s=60)
        assert finish.done.wait(60)
    with engine.loop.paused():
        engine._employ(1)
    assert engine.drain(60)
    engine.stop()
    assert engine.pool.alive == 0 and sum(engine.pool.plans) > 0


@pytest.mark.parametrize(("text", "sure", "is_staffed"), [("auto", 1, True), ("3", 3, False)])
def test_the_file_says_auto_or_a_number(text: str, sure: int, is_staffed: bool) -> None:
    section = read_network(chain_network(1).replace("workers: 1", f"workers: {text}"), {}).config.engine
    assert (section.sure_workers, section.is_staffed) == (sure, is_staffed) and section.most_workers >= sure
    for wrong in ("0", "many", "true", "1.5"):
        with pytest.raises(NetworkError, match="auto or a whole number from 1 to 256"):
            read_network(chain_network(1).replace("workers: 1", f"workers: {wrong}"), {})
