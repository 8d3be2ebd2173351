"""``bench overload --soak``: overload for minutes, then an account of every tuple.

During the run the benchmark samples the daemon's resident size and the residuals of its conservation laws twice a
second. At the end the senders stop, the daemon drains, and every tuple is accounted for:

- the daemon has received every tuple that was sent;
- the tuples that the feeders of a box emitted are those that it took, that were dropped on the way, or that wait there;
- the reader has received every tuple that an output emitted;
- and from outside, by the results that are due (``due_results``): the results missing at the outputs are the tuples
  dropped. This holds only for arcs where each dropped tuple would have become one result; behind a filter the number
  is unknown.
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
from engine.lab.bench.harness import BenchError, child
from engine.lab.bench.overload.arrivals import ArrivalShape
from engine.lab.bench.overload.due_results import total_due
from engine.lab.bench.overload.experiment import CLIENT, OverloadBench

EVERY_S = 0.5
DRAIN_S = 60.0
RESIDUAL = re.compile(r'aurorad_conservation_residual\{law="(\w+)"\} ([0-9.e+-]+)')


class SoakReport(NamedTuple):
    seconds: float
    offered: int
    resident: tuple[int, ...]  # bytes, at each sample
    worst_residual: int  # of all laws together, at any sample
    looks: int
    not_received: int  # sent, but not received by the daemon
    astray: int  # lost between two elements of the network; sum of absolute values
    not_read: int  # emitted, but not received by the reader
    dropped: dict[str, int]  # by reason
    missing: int  # due at the outputs that can be counted, but not received
    counted: int  # tuples dropped on the way to them

    @property
    def growth(self) -> float:
        """The maximum of the last third of the run over that of the second third: 1 is flat."""
        third = max(1, len(self.resident) // 3)
        return max(self.resident[-third:]) / max(self.resident[third : 2 * third] or self.resident)


class SoakWatch(threading.Thread):
    """Sample the daemon's memory and residuals from outside until ``end``."""

    def __init__(self, pid: int, http_port: int) -> None:
        super().__init__(daemon=True)
        self._pid, self._url = pid, f"http://127.0.0.1:{http_port}/metrics"
        self._stopped = threading.Event()
        self.resident: list[int] = []
        self.residuals: list[int] = []

    def run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self.resident.append(resident_bytes(self._pid))
            with urllib.request.urlopen(self._url, timeout=10) as answer:  # noqa: S310 - our own, on loopback
                found = RESIDUAL.findall(answer.read().decode())
            self.residuals.append(sum(round(float(value)) for _, value in found))

    def end(self) -> None:
        self._stopped.set()
        self.join()


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024


def soak(experiment: OverloadBench, load: float, seconds: float) -> SoakReport:
    shape = ArrivalShape("uniform", load, seconds)
    with experiment.daemon("shed", None) as process, experiment.readers(seconds, 0.0) as readers:
        watch = SoakWatch(process.pid, experiment.scenario.http_port)
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
    return _account(experiment, shape, sent, stats, answers, watch)


def _drained(experiment: OverloadBench, process: subprocess.Popen[bytes], offered: int) -> dict[str, Any]:
    """Wait until the daemon has received all tuples and none moves any more; return its statistics."""
    before: list[int] = []
    for _ in range(round(DRAIN_S / EVERY_S)):
        time.sleep(EVERY_S)
        stats = experiment.stats()
        moved = [b["tuples_in"] for b in stats["boxes"]] + [o["emitted"] for o in stats["outputs"]]
        if sum(s["received"] for s in stats["streams"]) >= offered and moved == before and not _waiting(stats):
            return stats
        before = moved
    raise BenchError(f"the daemon (process {process.pid}) did not drain within {DRAIN_S:g} s")


def _waiting(stats: Mapping[str, Any]) -> int:
    arcs = sum(int(a["tuples"]) + int(a["spilled_tuples"]) for a in stats["arcs"])
    return arcs + sum(int(s["pending"]) for o in stats["outputs"] for s in o["subscribers"])


def _account(
    experiment: OverloadBench,
    shape: ArrivalShape,
    sent: Mapping[str, Any],
    stats: Mapping[str, Any],
    answers: Sequence[Mapping[str, Any]],
    watch: SoakWatch,
) -> SoakReport:
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
    return SoakReport(
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
    """Compute by box and output: tuples emitted before it, less those that it took, that were dropped, or that wait."""
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
    """Find the outputs whose missing results are the tuples dropped on the way, one for one."""
    single = one_for_one(network, stats)
    drops = [sum(arc["shed"].values()) > 0 for arc in stats["arcs"]]
    found = set(range(len(network.outputs)))
    for _ in network.outputs:  # an arc to an output that cannot be counted excludes the other outputs behind it
        for arc in network.arcs:
            outputs = set(_outputs(network, arc))
            if drops[arc.number] and not (single[arc.number] and outputs <= found):
                found -= outputs
    return found


def one_for_one(network: Network, stats: Mapping[str, Any]) -> list[bool]:
    """Tell by arc whether each tuple becomes exactly one result: no filter, window or copy is behind it."""
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
