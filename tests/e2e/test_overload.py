"""The daemon under more than it can take: it sheds what may be shed, keeps the rest, and goes back to all of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from threading import Event, Thread

import pytest

from catalog.readings import Readings
from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from engine.simulate.samples import make_train

NETWORK = """
http: {listen: "off"}
engine: {workers: 1}
streams:
  s: {schema: {k: string, x: double}, overload: shed}
boxes:
  strict: {universal: s, cost: 2us}
  free: {universal: s, cost: 200us}
  unread: {universal: s, cost: 20us}
outputs:
  kept: {from: strict, qos: {deadline: 200ms, dead: 2s}}
  lossy: {from: free, qos: {deadline: 500ms, lossy: 50%}}
  nobody: {from: unread, qos: {deadline: 500ms, loss: [[100%, 1], [0%, 0]]}}
"""
TRAIN, EVERY_S = 100, 0.01  # 2.2 s of work a second: no machine takes that on one worker


class Feeder:
    """Tuples at a steady rate until it is told to stop."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon, self._stop = daemon, Event()
        self._thread = Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        schema = self._daemon.network.stream("s").schema
        while not self._stop.wait(EVERY_S):
            self._daemon.ingress.admit(
                self._daemon.network.stream("s").number,
                make_train(schema, TRAIN, seed=1, arrival_ns=self._daemon.now_ns()),
                timeout_s=1.0,
            )

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon(read_network(NETWORK))
    made.start()
    for name in ("kept", "lossy"):
        made.subscribe(name, lambda train: None)
    yield made
    made.stop(30)


def wait_for(daemon: Daemon, what: str, holds: Callable[[Readings], bool], limit_s: float = 60.0) -> Readings:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        readings = daemon.readings()
        if holds(readings):
            return readings
        time.sleep(0.05)
    raise AssertionError(f"not within {limit_s} s: {what}; {daemon.readings().overload}")


def test_too_much_is_shed_where_it_may_be_and_full_delivery_comes_back(daemon: Daemon) -> None:
    feeder = Feeder(daemon)
    try:
        wait_for(daemon, "a plan", lambda r: r.overload.shed_level > 0)
        readings = wait_for(
            daemon,
            "the load is known, and what nobody reads goes first",
            lambda r: r.engine.load_ratio > 1 and r.outputs[2].share_delivered < 0.9,
        )
        kept, _, nobody = readings.outputs
        assert kept.share_delivered == 1.0, "an output without a loss graph loses nothing"
        assert nobody.readers == 0
        wait_for(daemon, "then what may be lost", lambda r: r.outputs[1].share_delivered < 0.9)
    finally:
        feeder.stop()
    wait_for(daemon, "nothing is shed any more", lambda r: r.overload.shed_level == 0 and r.overload.state == "fine")
    assert daemon.engine.drain(30)
    readings = daemon.readings()
    dropped = {a.name: sum(a.shed.values()) for a in readings.arcs}
    boxes = {b.name: b.tuples_in for b in readings.boxes}
    fed = readings.streams[0].admitted
    assert dropped["s->strict"] == 0 and dropped["s->free"] > 0 and dropped["s->unread"] > 0
    for box in ("strict", "free", "unread"):
        assert boxes[box] + dropped[f"s->{box}"] == fed, "what is missing was dropped, to the tuple"


def test_a_call_that_lasts_leaves_nothing_unaccounted_for_while_it_does() -> None:
    """Longer than the readings that a residual must stand in: tuples inside a box are on no side of a law."""
    network = read_network("""
http: {listen: "off"}
streams: {s: {schema: {k: string, x: double}, overload: shed}}
boxes: {first: {filter: s, where: "x >= -1e9"}, slow: {universal: first, call_cost: 800ms}}
outputs: {o: {from: slow, qos: {deadline: 100ms, dead: 60s, lossy: 50%}}}
""")
    daemon = Daemon(network)
    daemon.start()
    try:
        daemon.subscribe("o", lambda train: None)
        daemon.ingress.admit(
            daemon.network.stream("s").number,
            make_train(network.stream("s").schema, 1_000, seed=1, arrival_ns=daemon.now_ns()),
            timeout_s=1.0,
        )
        begun, seen = time.monotonic(), set()
        while not daemon.readings().outputs[0].emitted:
            assert time.monotonic() < begun + 30
            seen.add(sum(daemon.monitor.residuals.values()))
            time.sleep(0.02)
        assert seen == {0}
    finally:
        daemon.stop(10)


def test_without_any_reader_the_loss_graphs_decide() -> None:
    """A daemon that nobody reads yet, such as a demo, must not drop at random what must not be lost."""
    daemon = Daemon(read_network(NETWORK))
    daemon.start()
    feeder = Feeder(daemon)
    try:
        readings = wait_for(daemon, "what may be lost", lambda r: r.outputs[1].share_delivered < 0.9)
        assert not any(output.readers for output in readings.outputs)
        assert {a.name: sum(a.shed.values()) for a in readings.arcs}["s->strict"] == 0
    finally:
        feeder.stop()
        daemon.stop(30)
