"""The end of a log line about a loss: an example, the settings that matter, and where to look.

Each method returns text that begins with "; ", or "". It runs only when a line is written.
"""

from __future__ import annotations

from catalog.config.units import format_duration, format_duration_roughly
from catalog.network import BoxNode, Network, Stream
from catalog.readings import GONE, Readings
from engine.run.core import Engine
from router.dead_letters import DeadLetters

READERS_SHOWN = 3
TEXT_AT_MOST = 300


class LossDetails:
    def __init__(self, network: Network, engine: Engine, dead_letters: DeadLetters, connections: int) -> None:
        self._network = network
        self._engine = engine
        self._dead_letters = dead_letters
        self._connections = connections

    def refused(self, stream: str) -> str:
        """Quote the last dead letter of a stream."""
        letter = self._dead_letters.last.get(stream)
        if letter is None:
            return ""
        reject = letter.reject
        line = f"line {reject.line}" if reject.line else ""
        place = " ".join(filter(None, (line, f"from {letter.peer}" if letter.peer else "")))
        last = f"the last one, {place}" if place else "the last one"
        return f"; {last}: {_printable(reject.message)}{self._where()}"

    def _where(self) -> str:
        return "; /api/v1/dead_letters shows them" if self._network.config.http.listen is not None else ""

    def late(self, box: str, readings: Readings) -> str:
        """Say how late, and name the settings that decide it, or the port where the late tuples leave."""
        node = self._network.box(box)
        streams = self._streams_before(node)
        late_ns = max((b.late_by_ns for b in readings.boxes if b.name == box), default=0)
        for port, arcs in zip(node.ports, node.out_arcs, strict=True):
            if port == "late" and arcs:
                return f", by up to {format_duration_roughly(late_ns)}; they leave by {box}.late"
        slacks = ", ".join(f"{s.name}: {format_duration(s.slack_ns)}" for s in streams)
        text = f", by up to {format_duration_roughly(late_ns)}; more `slack` waits longer for disorder (now {slacks})"
        idles = ", ".join(f"{s.name}: {format_duration(s.options.idle_ns)}" for s in streams if _idle_ns(s) is not None)
        if idles:
            text += f"; a stream that is silent for its `idle` goes on with the clock (now {idles})"
        if idles and late_ns > min(s.options.max_skew_ns for s in streams if _idle_ns(s) is not None):
            text += (
                "; these times are older than `max_skew`: to send old data with pauses, set a longer `idle` or `off`"
            )
        return text

    def dead(self, box: str) -> str:
        """Say why a box could not process its last dead tuple."""
        runtime = self._engine.runtimes[self._network.box(box).number]
        rows = runtime.box.dead_rows(runtime.state)
        if rows:
            return f"; the last one: {_printable(rows[-1].why)}{self._where()}"
        return f"; {runtime.box.dead_because}" if runtime.box.dead_because else ""

    def slow_readers(self, output: str, readings: Readings) -> str:
        """Name the readers that lost the most."""
        [reading] = [o for o in readings.outputs if o.name == output]
        worst = sorted((s for s in reading.subscribers if s.dropped), key=lambda s: -s.dropped)[:READERS_SHOWN]
        names = ", ".join(f"{'readers that left' if s.name == GONE else s.name} {s.dropped:,}" for s in worst)
        return f"; by reader: {names}; see `buffer` and `when_slow` of its sink"

    def sink(self, output: str, readings: Readings) -> str:
        [reading] = [s for s in readings.sinks if s.output == output]
        return f"; {reading.error}" if reading.error else ""

    def unplanned(self, arc: str, readings: Readings) -> str:
        engine = readings.engine
        return f"; queues hold {engine.memory_used:,} of {engine.memory_budget:,} bytes (`engine.memory`)"

    def connections(self) -> str:
        return f"; `limits.connections` is {self._connections:,}"

    def _streams_before(self, node: BoxNode) -> list[Stream]:
        """Return the streams whose tuples reach a box."""
        boxes, ahead = {node.number}, [node.number]
        while ahead:
            new = set(self._network.feeders[ahead.pop()]) - boxes
            boxes |= new
            ahead += new
        return [s for s in self._network.streams if not boxes.isdisjoint(self._network.consumers(s.arcs))]


def _idle_ns(stream: Stream) -> int | None:
    idle_ns: int | None = getattr(stream.options, "idle_ns", None)
    return idle_ns


def _printable(text: str) -> str:
    """Return text that may contain a sender's bytes as one line without control characters."""
    clean = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:TEXT_AT_MOST])
    return clean + "..." * (len(text) > TEXT_AT_MOST)
