"""A change that would harm the outputs that are there is refused, with the figures, unless it is forced."""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic, sleep

import pytest

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from router.http.change import ChangeRefusedError
from storage.train import Train

TEXT = """
http: {listen: "off"}
engine: {workers: 1}
admission: {min_utility: 0.9}
streams: {s: {schema: {n: bigint}, overload: shed}}
boxes:
  a: {universal: s, cost: 20us}
outputs:
  o: {from: a, qos: {deadline: 50ms, dead: 200ms, lossy: 50%}}
"""
DEAR = "boxes: {dear: {universal: s, cost: 3ms}}\noutputs: {p: {from: dear, qos: {deadline: 50ms}}}\n"


def test_a_dear_query_is_refused_and_may_be_forced() -> None:
    daemon = Daemon(read_network(TEXT, {}), text=TEXT)
    daemon.start()
    ended = Event()

    def feed() -> None:  # without a pause: the rate falls within a second
        schema = daemon.network.stream("s").schema
        while not ended.wait(0.03):
            daemon.ingress.admit(0, Train.from_pylists(schema, {"n": list(range(100))}, daemon.now_ns()))

    feeder = Thread(target=feed)
    try:
        assert "forecast" not in daemon.changes.add_query(DEAR, dry_run=True), "nothing is known without tuples"
        feeder.start()
        deadline = monotonic() + 60
        while daemon.catalog.stats.rate_per_s[0] < 1_000 or not daemon.catalog.stats.observed_calls.all():
            assert monotonic() < deadline
            sleep(0.05)
        with pytest.raises(ChangeRefusedError, match=r"o: utility .* -> 0\.\d\d, p99") as refused:
            daemon.changes.add_query(DEAR, dry_run=False)
        assert refused.value.status == 409 and refused.value.plan is not None
        assert refused.value.plan["forecast"]["load"][1] > 2
        assert [output.name for output in daemon.network.outputs] == ["o"]
        assert daemon.changes.add_query(DEAR, dry_run=False, force=True)["applied"]
    finally:
        ended.set()
        feeder.join()
        daemon.stop(0.0)
