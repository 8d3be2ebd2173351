"""When the monitor may doze, and what the first train after a rest finds."""

from __future__ import annotations

from catalog.readings import Readings, StreamReading
from engine.daemon.monitor.doze import Doze
from tests.unit.test_event_time_engine import NOW, Running, S, running


class Rig:
    def __init__(self, it: Running) -> None:
        self.it = it
        self.is_fine = True
        self.woken = 0
        self.doze = Doze(it.engine, it.event_time, it.ticker, lambda: self.is_fine)

    def wake(self) -> None:
        self.woken += 1

    def begins(self) -> bool:
        return self.doze.begin(self.wake)


def test_open_windows_wait_for_time_until_silence_has_closed_them() -> None:
    with running() as it:
        rig = Rig(it)
        assert rig.begins(), "nothing has come yet"
        it.feed("trades", NOW)
        assert rig.woken == 1 and it.engine.ingress.alarm is None
        assert not rig.begins(), "a window is open, and its stream moves on in silence"
        it.wait(20)
        assert it.out["windows"] and rig.begins()
        rig.doze.end()
        assert it.engine.ingress.alarm is None


def test_the_first_train_after_a_rest_finds_the_event_time_of_now() -> None:
    """Nobody has ticked for a minute. The watermark is where the ticks would have moved it."""
    with running() as it:
        rig = Rig(it)
        it.feed("trades", NOW)
        it.wait(20)
        assert rig.begins()
        it.clock.run(60 * S)
        it.feed("trades", NOW + 80 * S)
        assert rig.woken == 1 and it.engine.runtimes[0].watermark_ns == NOW + 79 * S
        it.feed("trades", NOW + 80 * S)
        assert rig.woken == 1, "the alarm rings once"


def test_a_moving_tuple_and_overload_keep_the_monitor_awake() -> None:
    with running() as it:
        rig = Rig(it)
        received = [Readings(streams=(StreamReading("trades", received=n),)) for n in (0, 1)]
        assert [rig.doze.is_quiet(received[n]) for n in (0, 0, 1, 1)] == [False, True, False, True]
        rig.is_fine = False
        assert not rig.doze.is_quiet(received[1])
