"""``bench overload --soak``: too much for minutes, and then the books are opened.

While it lasts the resident size of the daemon and the residuals of the laws of conservation are read twice a second. At
the end the senders stop, the daemon works off what it has, and every tuple is looked for:

- what was sent has been received;
- what the boxes (or streams) before a box gave is what it took, what was dropped on the way, and what waits there;
- what an output emitted has come to its reader;
- and from outside, by what is due to the tuple (``expect``): what is missing at the outputs is what was dropped. It is
  counted where each dropped tuple would have become one result; behind a filter nobody can say without asking it.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from catalog.network import Arc, Network
from engine.bench.harness import BenchError, child
from engine.bench.overload.arrivals import Shape
from engine.bench.overload.expect import total_due
from engine.bench.overload.run import CLIENT, Overload

EVERY_S = 0.5
DRAIN_S = 60.0
RESIDUAL = re.compile(r'aurorad_conservation_residual\{law="(\w+)"\} ([0-9.e+-]+)')


class Soak(NamedTuple):
    seconds: float
    offered: int
    resident: tuple[int, ...]  # bytes, all along
    worst_residual: int  # of all laws together, at any look
    looks: int
    not_received: int  # sent, and not seen by the daemon
    astray: int  # between two elements of the network, absolute values added
    not_read: int  # emitted, and not with the reader
    dropped: dict[str, int]  # by reason
    missing: int  # due at the outputs that can be counted, and not there
    counted: int  # tuples dropped on the way to them

    @property
    def growth(self) -> float:
        """The last third of the time over the one before: 1 is flat."""
        third = max(1, len(self.resident) // 3)
        return max(self.resident[-third:]) / max(self.resident[third : 2 * third] or self.resident)


class Watch(threading.Thread):
    """Reads the daemon from outside until it is told to stop."""

    def __init__(self, pid: int, http_port: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._url = pid, f"http://127.0.0.1:{http_port}/metrics"
        self._stop_it = threading.Event()
        self.resident: list[int] = []
        self.residuals: list[int] = []

    def run(self) -> None:
        while not self._stop_it.wait(EVERY_S):
            self.resident.append(resident_bytes(self._pid))
            with urllib.request.urlopen(self._url, timeout=10) as answer:  # noqa: S310 - our own, on loopback
                found = RESIDUAL.findall(answer.read().decode())
            self.residuals.append(sum(round(float(value)) for _, value in found))

    def end(self) -> None:
        self._stop_it.set()
        self.join()


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


def soak(experiment: Overload, load: float, seconds: float) -> Soak:
    shape = Shape("uniform", load, seconds)
    with experiment.daemon("shed", None) as process, experiment.readers(seconds, 0.0) as readers:
        watch = Watch(process.pid, experiment.scenario.http_port)
        spec = experiment.send_spec("shed", shape)
        with child(CLIENT, "send", experiment.write("send", spec)) as sender:
            sender.answer()
            begun_ns = time.time_ns() + 50_000_000
            readers.say(str(begun_ns))
            sender.say(str(begun_ns))
            watch.start()
            sent = sender.answer()
        stats = _drained(experiment, process, int(sent["offered"]))
        watch.end()
        readers.say("0")
        answers = readers.answer()["outputs"]
    return _books(experiment, shape, sent, stats, answers, watch)


def _drained(experiment: Overload, process: subprocess.Popen[bytes], offered: int) -> dict[str, Any]:
    """What the daemon says once all of it is in and nothing moves any more."""
    before: list[int] = []
    for _ in range(round(DRAIN_S / EVERY_S)):
        time.sleep(EVERY_S)
        stats = experiment.stats()
        moved = [b["tuples_in"] for b in stats["boxes"]] + [o["emitted"] for o in stats["outputs"]]
        if sum(s["received"] for s in stats["streams"]) >= offered and moved == before and not _waiting(stats):
            return stats
        before = moved
    raise BenchError(f"the daemon (process {process.pid}) did not come to rest within {DRAIN_S:g} s")


def _waiting(stats: Mapping[str, Any]) -> int:
    arcs = sum(int(a["tuples"]) + int(a["spilled_tuples"]) for a in stats["arcs"])
    return arcs + sum(int(s["pending"]) for o in stats["outputs"] for s in o["subscribers"])


def _books(
    experiment: Overload,
    shape: Shape,
    sent: Mapping[str, Any],
    stats: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    watch: Watch,
) -> Soak:
    network = experiment.network
    read = {a["name"]: int(a["tuples"]) for a in answers}
    emitted = {o["name"]: int(o["emitted"]) for o in stats["outputs"]}
    reasons: dict[str, int] = {}
    for arc in stats["arcs"]:
        for reason, count in arc["shed"].items():
            reasons[reason] = reasons.get(reason, 0) + int(count)
    countable = countable_outputs(network, stats)
    due = {o.name: total_due(experiment.sums, sent["by_stream"], o.name) for o in network.outputs}
    names = [network.outputs[o].name for o in countable]
    to_them = [a.number for a in network.arcs if countable.intersection(_outputs(network, a))]
    return Soak(
        seconds=shape.seconds,
        offered=int(sent["offered"]),
        resident=tuple(watch.resident),
        worst_residual=max(watch.residuals, default=0),
        looks=len(watch.residuals),
        not_received=int(sent["offered"]) - sum(int(s["received"]) for s in stats["streams"]),
        astray=sum(abs(n) for n in between(network, stats).values()),
        not_read=sum(abs(emitted[name] - read.get(name, 0)) for name in emitted),
        dropped={reason: count for reason, count in reasons.items() if count},
        missing=sum(due[name] - read.get(name, 0) for name in names),
        counted=sum(sum(stats["arcs"][a]["shed"].values()) for a in to_them),
    )


def between(network: Network, stats: Mapping[str, Any]) -> dict[str, int]:
    """By box and output: what came out before it, less what it took and what was dropped or waits on the way."""
    boxes, streams, outputs = stats["boxes"], stats["streams"], stats["outputs"]
    found = {box["name"]: -int(box["tuples_in"]) for box in boxes}
    found |= {f"output {o['name']}": -int(o["emitted"]) for o in outputs}
    for arc in network.arcs:
        state = stats["arcs"][arc.number]
        if arc.source.stream is not None:
            came = int(streams[arc.source.stream]["admitted"])
        else:
            box = boxes[arc.source.box]
            came = int((box["tuples_out_by_port"] or [box["tuples_out"]])[arc.source.port])
        name = f"output {outputs[arc.output]['name']}" if arc.output is not None else boxes[arc.box]["name"]
        dropped = sum(int(n) for n in state["shed"].values())
        found[name] += came - dropped - int(state["tuples"]) - int(state["spilled_tuples"])
    return found


def countable_outputs(network: Network, stats: Mapping[str, Any]) -> set[int]:
    """Those whose missing results are the tuples dropped on the way, one for one."""
    single = one_for_one(network, stats)
    drops = [sum(arc["shed"].values()) > 0 for arc in stats["arcs"]]
    found = set(range(len(network.outputs)))
    for _ in network.outputs:  # an arc that leads to one that cannot be counted spoils the others behind it
        for arc in network.arcs:
            outputs = set(_outputs(network, arc))
            if drops[arc.number] and not (single[arc.number] and outputs <= found):
                found -= outputs
    return found


def one_for_one(network: Network, stats: Mapping[str, Any]) -> list[bool]:
    """By arc: whether each tuple there becomes one result. No filter, no window and no copy lies behind it."""
    boxes = stats["boxes"]
    single = [False] * len(network.arcs)
    for arc in sorted(network.arcs, key=lambda a: len(network.boxes) if a.box is None else a.box, reverse=True):
        if arc.box is None:
            single[arc.number] = True
            continue
        node, state = network.boxes[arc.box], boxes[arc.box]
        keeps = bool(state["row_wise"]) and not int(state["filtered"]) and not int(state["dead"])
        single[arc.number] = keeps and all(len(arcs) == 1 and single[arcs[0]] for arcs in node.out_arcs)
    return single


def _outputs(network: Network, arc: Arc) -> tuple[int, ...]:
    return (arc.output,) if arc.output is not None else network.box_outputs[arc.box] if arc.box is not None else ()
