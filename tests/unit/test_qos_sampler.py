"""The monitor's tick as a function of two readings."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import numpy as np
import pytest

from catalog.build import build_network
from catalog.catalog import Catalog, Epoch
from catalog.loss import ValueCells
from catalog.readings import ArcReading, Readings
from engine.operators.boxes import box_kinds
from qos_monitor.loop import DOZE_AFTER_TICKS, Monitor, rest_ns, run_ticks
from qos_monitor.report import stats_json
from qos_monitor.sampler import Sampler, enrich
from tests.unit.monitored import SECOND_NS, busy, diamond, idle

NETWORK = diamond()
ALERTS, OTHERS, RAW = (NETWORK.output(name).number for name in ("alerts", "others", "raw"))
SPLIT = NETWORK.box("split").number


def folded() -> tuple[Epoch, Sampler]:
    epoch = Epoch.of(NETWORK)
    sampler = Sampler(epoch)
    assert sampler.fold(idle(NETWORK)) is None, "one reading says nothing about rates"
    return epoch, sampler


def test_two_readings_give_rates_costs_and_load() -> None:
    epoch, sampler = folded()
    sample = sampler.fold(busy(NETWORK))
    assert sample is not None
    assert sample.elapsed_ns == SECOND_NS
    assert sample.stream_rates.tolist() == [10_000.0]  # admitted, not refused
    assert epoch.stats.port_selectivity[epoch.stats.port_start[SPLIT]] == pytest.approx(0.1, abs=0.01)
    assert epoch.stats.effective_cost_ns()[SPLIT] == pytest.approx(2_000, rel=0.1)
    assert sample.output_rates.tolist() == [5_000.0] * 3
    assert sample.box_rates[SPLIT] == 10_000.0
    assert sample.box_busy[SPLIT] == pytest.approx(0.02)
    # 4 us for big, 2 us for split and 0.2 us for the half that reaches both, at 10,000 a second on two workers
    assert sample.load_ratio == pytest.approx(10_000 * 6.1e-6 / 2, rel=0.1)
    assert sample.output_utilities[ALERTS] == pytest.approx(0.88)
    assert sample.output_ideal_ns[RAW] == 0


def test_what_is_shed_upstream_is_missing_downstream() -> None:
    arc, joined, reader = 9_950 / 10_000, (3_950 + 950) / 5_000, 4_960 / 5_000
    queued = busy(NETWORK)
    # Inside a superbox tuples pass an arc without being put into its queue: only those are known to it that were shed.
    passed = queued._replace(arcs=[a._replace(enqueued=50, dequeued=0, tuples=0) for a in queued.arcs])
    for readings in (queued, passed):
        _, sampler = folded()
        sample = sampler.fold(readings)
        assert sample is not None
        assert sample.output_shares[RAW] == pytest.approx(reader)
        assert sample.output_shares[OTHERS] == pytest.approx(arc * reader)
        assert sample.output_shares[ALERTS] == pytest.approx(arc * joined * reader, rel=1e-3)


def test_a_loss_is_judged_by_what_the_tuples_were_worth() -> None:
    """As the load shedder does: half of the tuples may go, if they are those that nobody prefers."""
    network = build_network(
        """
streams: {s: {schema: {n: bigint}, source: {tcp: 127.0.0.1:9401}}}
boxes: {b: {filter: s, where: "n > 0"}}
outputs: {o: {from: b, qos: {lossy: 30%, prefer: "n > 9"}}}
""",
        box_kinds(),
        {},
    )
    sampler = Sampler(Epoch.of(network))
    sampler.fold(idle(network))
    sampler.values = {0: ValueCells((0.5, 0.5), (0.1, 1.0))}
    now = idle(network, SECOND_NS)
    sample = sampler.fold(
        now._replace(
            streams=[now.streams[0]._replace(received=1_000, admitted=1_000)],
            arcs=[ArcReading("s->b", 0, 0, 1_000, 500, {"semantic": 500}), *now.arcs[1:]],
        )
    )
    assert sample is not None
    assert sample.output_shares[0] == pytest.approx(0.5)
    assert sample.output_values[0] == pytest.approx(1 / 1.1)
    assert sample.output_loss_utilities[0] == 1.0


def test_enriched_readings_carry_what_only_the_monitor_knows() -> None:
    epoch, sampler = folded()
    raw = busy(NETWORK)
    sample = sampler.fold(raw)
    assert sample is not None
    rich = enrich(raw, sample, epoch)
    alerts = rich.outputs[ALERTS]
    assert rich.engine.load_ratio == sample.load_ratio
    assert rich.streams[0].rate_per_s == 10_000.0
    assert alerts.share_delivered == sample.output_shares[ALERTS]
    assert alerts.loss_utility == pytest.approx(alerts.share_delivered), "the graph is the diagonal there"
    assert rich.outputs[RAW].loss_utility == 1.0, "no graph asks for nothing"
    assert enrich(raw, None, epoch) is raw


def test_a_reading_of_another_network_or_moment_is_left_out() -> None:
    _, sampler = folded()
    assert sampler.fold(Readings()) is None
    assert sampler.fold(idle(NETWORK, now_ns=0)) is None
    assert sampler.fold(busy(NETWORK)) is not None


def test_a_counter_that_falls_has_begun_anew() -> None:
    epoch, sampler = folded()
    sampler.fold(busy(NETWORK))
    sample = sampler.fold(idle(NETWORK, now_ns=2 * SECOND_NS))
    assert sample is not None
    assert (epoch.stats.selectivity >= 0).all()
    assert (sample.output_shares <= 1).all()
    assert (sample.output_rates >= 0).all()


def test_the_report_says_it_all_as_plain_data() -> None:
    epoch, sampler = folded()
    raw = busy(NETWORK)
    sample = sampler.fold(raw)
    report = stats_json(enrich(raw, sample, epoch), sample, epoch, {"arc": 0})
    alerts = report["outputs"][ALERTS]
    assert alerts["sdmr"] == 0.2
    assert alerts["slowdown"] == {"mean": 10.0, "max": 300.0, "l2": 800.0}
    assert alerts["queue_tuples"] == 4 * 50, "two arcs into both, one into each of the boxes before it"
    assert report["outputs"][RAW]["queue_tuples"] == 0
    assert report["boxes"][SPLIT]["queue_tuples"] == 50
    assert report["boxes"][SPLIT]["mean_train_tuples"] == pytest.approx(100)
    assert_plain(report)
    assert_plain(raw.to_json())


def assert_plain(value: object) -> None:
    if isinstance(value, dict):
        assert all(type(k) is str for k in value)
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            assert_plain(item)
    else:
        assert value is None or type(value) in (str, int, float, bool), repr(value)


class Recorder:
    ideal_ns = 0.0


def test_the_monitor_publishes_and_sets_the_ideal_times() -> None:
    script = [idle(NETWORK), busy(NETWORK), busy(NETWORK, 2 * SECOND_NS)]
    recorders = [Recorder() for _ in NETWORK.outputs]
    heard: list[float] = []
    monitor = Monitor(
        Catalog(NETWORK), lambda: script.pop(0) if len(script) > 1 else script[0], recorders,
        on_sample=lambda sample, _: heard.append(sample.load_ratio),
    )  # fmt: skip
    assert monitor.tick() is None
    assert monitor.tick() is not None
    assert heard == [monitor.sample.load_ratio if monitor.sample else None]
    assert recorders[ALERTS].ideal_ns > recorders[RAW].ideal_ns == 1_000.0
    assert monitor.readings().engine.load_ratio == heard[0]
    assert monitor.stats()["engine"]["load_ratio"] == heard[0]


def test_a_new_network_begins_a_new_count() -> None:
    catalog = Catalog(NETWORK)
    script = [idle(NETWORK), busy(NETWORK), idle(NETWORK, 2 * SECOND_NS), busy(NETWORK, 3 * SECOND_NS)]
    monitor = Monitor(catalog, lambda: script.pop(0))
    monitor.tick()
    monitor.tick()
    catalog.replace(diamond())
    assert monitor.tick() is None
    assert monitor.sample is None
    assert monitor.tick() is not None


def test_the_loop_ticks_and_rests_until_told() -> None:
    clock = iter(np.arange(0, 10**9, 10**6).tolist())  # each look at the clock is 1 ms after the last
    rests: list[float] = []
    ticks: list[int] = []

    def wait(seconds: float) -> bool:
        rests.append(seconds)
        return len(rests) == 3

    run_ticks(lambda: ticks.append(1), wait, lambda: next(clock), 100_000_000)
    assert len(ticks) == 3
    assert rests == pytest.approx([0.099] * 3)


def test_a_dear_tick_is_followed_by_a_long_rest() -> None:
    assert rest_ns(1_000_000, 100_000_000) == 99_000_000
    assert rest_ns(10_000_000, 100_000_000) == 500_000_000
    assert rest_ns(10**10, 100_000_000) == 2_000_000_000


class Quiet:
    """An engine at rest, until ``is_moving``."""

    def __init__(self) -> None:
        self.is_moving = False
        self.begun = self.ended = 0

    def is_quiet(self, readings: Readings) -> bool:
        return not self.is_moving

    def begin(self, wake: Callable[[], None]) -> bool:
        self.begun += 1
        return self.begun > 1  # at first something waits for time

    def end(self) -> None:
        self.ended += 1


def test_the_monitor_dozes_at_rest_until_it_is_woken() -> None:
    rest, yields, clock = Quiet(), [0], count(1)

    def release_gil() -> None:
        yields[0] += 1

    monitor = Monitor(
        Catalog(NETWORK),
        lambda: idle(NETWORK, next(clock) * SECOND_NS),
        rest=rest,
        yield_gil=release_gil,
        tick_ns=10**6,
    )
    waits: list[float] = []
    monitor._bell = Bell(waits)  # type: ignore[assignment]
    for _ in range(DOZE_AFTER_TICKS):
        assert not monitor.is_dozing
        monitor.tick()
        monitor._wait(0.1)
    assert rest.begun == 1 and not monitor.is_dozing, "it looks again after as many quiet ticks"
    for _ in range(DOZE_AFTER_TICKS):
        monitor.tick()
        monitor._wait(0.1)
    assert waits == [0.1] * 19 + [1.0] and monitor.is_dozing and rest.ended == 1
    before = yields[0]
    monitor.tick()
    assert yields[0] == before, "no thread waits for the GIL"
    monitor.wake()
    monitor._wait(0.1)
    assert not monitor.is_dozing and waits[-1] == 0.1
    rest.is_moving = True
    for _ in range(2 * DOZE_AFTER_TICKS):
        monitor.tick()
        monitor._wait(0.1)
    assert not monitor.is_dozing and yields[0] > before


class Bell:
    """Notes how long it is waited for, and waits for nothing."""

    def __init__(self, waits: list[float]) -> None:
        self._waits = waits

    def wait(self, seconds: float) -> bool:
        self._waits.append(seconds)
        return False

    def set(self) -> None: ...

    def clear(self) -> None: ...


def test_a_tick_that_fails_is_reported_and_ends_the_thread() -> None:
    errors: list[BaseException] = []

    def broken() -> Readings:
        raise ZeroDivisionError("from the engine")

    monitor = Monitor(Catalog(NETWORK), broken, on_error=errors.append)
    monitor.start()
    monitor.stop()
    assert [str(e) for e in errors] == ["from the engine"]
