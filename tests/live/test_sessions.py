"""A client that numbers its batches sends on while its stream gets other numbers: no batch is lost or taken twice."""

from __future__ import annotations

from threading import Event, Thread
from time import monotonic, sleep

from aurorad_client import Sender

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from qos_monitor.conservation import breaches


def text(before: int) -> str:
    """Return a network with this number of streams before the one that the client feeds."""
    source = "overload: block, source: {tcp: '127.0.0.1:0'}"
    streams = "".join(f"  p{i}: {{schema: {{n: bigint}}, {source}}}\n" for i in range(before))
    own = f"  s: {{schema: {{n: bigint}}, {source}}}\n"
    return f"http: {{listen: off}}\nstreams:\n{streams}{own}outputs: {{o: {{from: s}}}}\n"


def test_a_session_goes_on_when_its_stream_gets_another_number() -> None:
    daemon = Daemon(read_network(text(2), {}))
    daemon.start()
    got: list[int] = []
    ended = Event()
    sent = 0

    def send() -> None:
        nonlocal sent
        with Sender(*daemon.server.address("stream s"), "client", ack="memory") as sender:
            while not ended.wait(0.001):
                sender.send([{"n": n} for n in range(sent, sent + 50)])
                sent += 50
            sender.flush()

    try:
        daemon.subscribe("o", lambda train: got.extend(row[0] for row in train.to_rows()))
        thread = Thread(target=send)
        thread.start()
        try:
            for change in range(15):
                daemon.changes.put(text(change % 3), dry_run=False, drop_state=False)
        finally:
            ended.set()
            thread.join()
        deadline = monotonic() + 60
        while len(got) < sent and monotonic() < deadline:
            sleep(0.005)
        assert sent and got == list(range(sent))
        assert not breaches(daemon.readings())
    finally:
        daemon.stop(0.0)
