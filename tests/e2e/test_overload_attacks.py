"""Overload at its worst: a flood with the log on and a kill in it, all manners at once, no cure, a dead reader."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

from aurorad_client import Sender

from tests.e2e.daemon import RunningDaemon, connect, free_ports, ndjson, running, wait_for

SCHEMA = "{n: bigint}"


def rows(first: int, last: int) -> list[dict[str, int]]:
    return [{"n": n} for n in range(first, last)]


def flood(port: int, batches: int, tuples: int, every_s: float) -> int:
    """So many in all, at a steady pace; a sender that is pushed back waits."""
    with connect(port) as s:
        s.settimeout(60)
        begun = time.monotonic()
        for i in range(batches):
            s.sendall(ndjson(rows(i * tuples, (i + 1) * tuples)))
            time.sleep(max(0.0, begun + (i + 1) * every_s - time.monotonic()))
    return batches * tuples


def dropped(stats: dict[str, Any], arc: str) -> int:
    return sum(next(a for a in stats["arcs"] if a["name"] == arc)["shed"].values())


def taken(stats: dict[str, Any], box: str) -> int:
    return int(next(b for b in stats["boxes"] if b["name"] == box)["tuples_in"])


def at_rest(daemon: RunningDaemon) -> dict[str, Any]:
    """Return the stats once nothing waits on an arc and no plan holds tuples: a call may take a second."""
    found: list[dict[str, Any]] = []

    def is_still() -> bool:
        time.sleep(0.1)
        stats = daemon.stats()
        found.append(stats)
        left = {b["name"]: sum(a["dequeued"] for a in stats["arcs"] if a["name"].endswith(f"->{b['name']}"))
                for b in stats["boxes"]}  # fmt: skip
        waiting = sum(a["tuples"] + a["spilled_tuples"] for a in stats["arcs"])
        return not waiting and all(taken(stats, name) == tuples for name, tuples in left.items())

    wait_for(is_still, "the daemon is at rest", 60)
    return found[-1]


def balanced(stats: dict[str, Any], sent: int, *boxes: str, stream: str = "s") -> None:
    for box in boxes:
        assert taken(stats, box) + dropped(stats, f"{stream}->{box}") == sent, (box, sent)
    assert sum(stats["conservation_residual"].values()) == 0


def test_a_flood_with_the_log_on_is_shed_and_the_books_are_right_after_a_kill(tmp_path: Path) -> None:
    """Acknowledged is on disk, not delivered: what is then shed is shed as the graphs say. After a crash what was
    dropped since the last checkpoint comes back from the log, and counts again only if it is dropped again."""
    http, source, lossy, strict = free_ports(4)
    network = f"""
engine: {{workers: 1, data_dir: {tmp_path / "data"}, checkpoint: 300ms}}
streams: {{s: {{schema: {SCHEMA}, source: {{tcp: 127.0.0.1:{source}}}, overload: shed}}}}
boxes: {{heavy: {{universal: s, cost: 400us}}, light: {{filter: s, where: "n >= 0"}}}}
outputs:
  lossy: {{from: heavy, qos: {{deadline: 200ms, lossy: 90%}}, sink: {{tcp: 127.0.0.1:{lossy}}}}}
  strict: {{from: light, qos: {{deadline: 200ms, dead: 60s}}, sink: {{tcp: 127.0.0.1:{strict}}}}}
"""
    acknowledged = 0
    with running(tmp_path, network, http) as daemon, connect(lossy), connect(strict):
        begun = time.monotonic()
        with Sender("127.0.0.1", source, "x", epoch=1) as sender:
            while dropped(daemon.stats(), "s->heavy") < 300:
                assert time.monotonic() < begun + 30, "nothing is shed"
                for _ in range(10):
                    sender.send(rows(acknowledged, acknowledged + 50))
                    acknowledged += 50
                    time.sleep(0.01)
                sender.flush()
            time.sleep(0.4)  # a checkpoint with drops in it
            sender.send(rows(acknowledged, acknowledged + 500))
            sender.flush()
            acknowledged += 500
        daemon.end(signal.SIGKILL)
    with running(tmp_path, network, http) as daemon:
        stats = at_rest(daemon)
        assert daemon.stream("s")["admitted"] == acknowledged, "not one more, not one less"
        assert dropped(stats, "s->heavy") > 0, "what was dropped before the checkpoint stays dropped"
        assert dropped(stats, "s->light") == 0, "an output without a loss graph loses nothing, over a crash too"
        balanced(stats, acknowledged, "heavy", "light")


def test_a_network_that_sheds_blocks_and_spills_honours_each(tmp_path: Path) -> None:
    http, *ports = free_ports(4)
    names = dict(zip(("shed", "block", "spill"), ports, strict=True))
    streams = "".join(
        f"  {n}: {{schema: {SCHEMA}, source: {{tcp: 127.0.0.1:{port}}}, overload: {n}}}\n" for n, port in names.items()
    )
    boxes = "".join(f"  of_{n}: {{universal: {n}, cost: 150us}}\n" for n in names)
    outputs = "".join(f"  out_{n}: {{from: of_{n}, qos: {{deadline: 100ms, lossy: 90%}}}}\n" for n in names)
    network = f"""
engine: {{workers: 1, memory: 256KiB, data_dir: {tmp_path / "data"}}}
streams:
{streams}boxes:
{boxes}outputs:
{outputs}"""
    with running(tmp_path, network, http) as daemon:
        threads = [Thread(target=flood, args=(port, 60, 100, 0.015)) for port in ports]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        wait_for(lambda: sum(s["received"] for s in daemon.stats()["streams"]) == 18_000, "all are in", 60)
        stats = at_rest(daemon)
        assert dropped(stats, "shed->of_shed") > 0
        assert dropped(stats, "block->of_block") == dropped(stats, "spill->of_spill") == 0
        for name in names:
            balanced(stats, 6_000, f"of_{name}", stream=name)


def test_what_cannot_be_cured_is_said_once_and_a_reader_that_stops_delays_nobody(tmp_path: Path) -> None:
    """Only a tenth of the work may be shed: all of that goes, what is strict loses nothing and its sender waits."""
    http, source, lossy, strict = free_ports(4)
    network = f"""
engine: {{workers: 1, memory: 1MiB}}
streams: {{s: {{schema: {SCHEMA}, source: {{tcp: 127.0.0.1:{source}}}, overload: shed}}}}
boxes: {{most: {{universal: s, cost: 300us}}, little: {{universal: s, cost: 30us}}}}
outputs:
  strict: {{from: most, qos: {{deadline: 100ms, dead: 60s}}, sink: {{tcp: 127.0.0.1:{strict}}}}}
  lossy: {{from: little, qos: {{deadline: 100ms, loss: [[100%, 1], [0%, 0]]}},
           sink: {{tcp: 127.0.0.1:{lossy}, buffer: 4KiB}}}}
"""
    with running(tmp_path, network, http) as daemon, connect(lossy), connect(strict) as reader:
        got: list[bytes] = []

        def read() -> None:
            with suppress(OSError):  # the end of the test
                while data := reader.recv(1 << 16):
                    got.append(data)

        Thread(target=read, daemon=True).start()
        wait_for(lambda: daemon.output("strict")["readers"] and daemon.output("lossy")["readers"], "both are there")
        sent = flood(source, 100, 60, 0.01)
        wait_for(lambda: daemon.stream("s")["received"] == sent, "all are in", 60)
        stats = at_rest(daemon)
        said = [e for e in daemon.log if "may be shed: outputs without a loss graph" in str(e)]
        balanced(stats, sent, "most", "little")
        assert dropped(stats, "s->most") == 0 and dropped(stats, "s->little") > 0
        assert said, "a load that no shedding cures is worth a line"
        wait_for(lambda: b"".join(got).count(b"\n") == sent, "the reader that reads has all of it")


def test_an_output_that_no_plan_can_save_leaves_the_others_what_they_need(tmp_path: Path) -> None:
    """A box of 2 ms on 2,000 rows a second may lose nothing: that is four workers, and a unit has one. The cheap output
    beside it keeps everything, the dear one gets what is left, in time, and the log says so."""
    http, source, cheap, dear = free_ports(4)
    network = f"""
engine: {{workers: 2}}
streams: {{s: {{schema: {SCHEMA}, source: {{tcp: 127.0.0.1:{source}}}, overload: shed}}}}
boxes: {{most: {{universal: s, cost: 2ms}}, little: {{filter: s, where: "n >= 0"}}}}
outputs:
  strict: {{from: most, qos: {{deadline: 300ms, dead: 3s}}, sink: {{tcp: 127.0.0.1:{dear}}}}}
  lossy: {{from: little, qos: {{deadline: 300ms, dead: 30s, lossy: 10%}}, sink: {{tcp: 127.0.0.1:{cheap}}}}}
"""
    with running(tmp_path, network, http) as daemon, connect(cheap), connect(dear):
        wait_for(lambda: daemon.output("strict")["readers"] and daemon.output("lossy")["readers"], "both are there")
        sent, ended = [0], Event()

        def feed() -> None:
            with connect(source) as s:
                while not ended.wait(0.01):
                    s.sendall(ndjson(rows(sent[0], sent[0] + 20)))
                    sent[0] += 20

        feeder = Thread(target=feed, daemon=True)
        feeder.start()
        try:
            wait_for(lambda: any("strict cannot be saved" in str(e) for e in daemon.log), "the log says so", 60)
            wait_for(lambda: daemon.output("strict")["share_delivered"] < 0.8, "it gets what is left", 60)
            wait_for(lambda: daemon.output("lossy")["share_delivered"] > 0.9, "the other keeps all of it", 60)
            wait_for(lambda: daemon.output("strict")["utility"]["latency"] > 0.8, "what is left comes in time", 60)
        finally:
            ended.set()
            feeder.join()
        wait_for(lambda: daemon.stream("s")["received"] == sent[0], "all are in", 60)
        balanced(at_rest(daemon), sent[0], "most", "little")
