"""Feed a case to an engine whose clock only the case moves, and collect what comes out.

The engine is the one of the daemon: the same ingress, boxes and deliveries, with one worker. Rows pass the ndjson
decoder, so a row that does not fit is refused with the same words as one from a socket. The engine comes to rest after
every step, so the answer does not depend on timing.

The clock. With ``clock`` it begins there and only ``advance`` and ``at`` move it. Without, it is never behind the
newest row: rows come when they happen, and none is refused as being from the future.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import orjson

from catalog.config.units import parse_duration_ns
from catalog.errors import AuroraError
from catalog.network import Network, Stream
from engine.run.cases.case_file import NetworkCase
from engine.run.core import Engine
from engine.run.settings import scheduler_settings
from engine.run.ticker import Ticker
from router.codecs import CODECS
from router.codecs.base import Decoder, Intake, Reject
from router.codecs.decode.values import timestamp_ns
from router.event_time import EventTime
from storage.train import NO_WATERMARK, Train

DRAIN_SECONDS = 60.0
BEGIN_NS = 1_767_225_600 * 10**9  # 2026-01-01, for networks without event time
Row = dict[str, Any]
NO_FORMATS: Mapping[str, str] = MappingProxyType({})


class CaseError(AuroraError):
    """A case cannot be played: its clock would go back, or the engine failed."""


@dataclass
class Played:
    """What came out of a case."""

    rows: dict[str, list[Row]] = field(default_factory=dict)  # by output; a timestamp is an int of nanoseconds
    refused: dict[str, list[Reject]] = field(default_factory=dict)  # by stream
    refused_tuples: dict[str, int] = field(default_factory=dict)  # by stream, those from the future included
    late: dict[str, int] = field(default_factory=dict)  # by box
    dead: dict[str, int] = field(default_factory=dict)  # by box


class CaseClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_ns: int) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def move_to(self, now_ns: int) -> None:
        if now_ns < self.now_ns:
            raise CaseError(f"the clock would go back by {(self.now_ns - now_ns) / 1e9:g} s")
        self.now_ns = now_ns


def play(network: Network, case: NetworkCase, formats: Mapping[str, str] = NO_FORMATS) -> Played:
    """Play a case on an engine of its own. Raises CaseError.

    ``formats``: the streams whose rows in the case are lines of text, each with the format of these.
    """
    return _Player(network, case, formats).play()


class _Player:
    def __init__(self, network: Network, case: NetworkCase, formats: Mapping[str, str]) -> None:
        self._network = network
        self._case = case
        self._clock = CaseClock(_begin_ns(network, case))
        self._event_time = EventTime(network, self._clock)
        self._played = Played({output.name: [] for output in network.outputs})
        self._failures: list[Exception] = []
        self._newest_ns = [NO_WATERMARK] * len(network.streams)  # event time of the rows so far
        self._engine = Engine(
            network,
            [self._collector(output.name) for output in network.outputs],
            workers=1,
            settings=scheduler_settings(network.config.scheduler),
            event_time=self._event_time,
            now_ns=self._clock,
            on_failure=self._failures.append,
        )
        self._engine.expire(False)  # the clock of a case says nothing about how long a tuple has waited
        self._ticker = Ticker(self._engine, self._event_time)
        self._decoders: dict[str, Decoder] = {
            s.name: CODECS[formats.get(s.name, "ndjson")].decoder(
                Intake(s.schema, unit=getattr(s.source, "timestamps", "ns"))
            )
            for s in network.streams
        }

    def _collector(self, output: str) -> Callable[[Train], None]:
        rows = self._played.rows[output]

        def collect(train: Train) -> None:
            rows.extend(dict(zip(train.schema.names, values, strict=True)) for values in train.to_rows())

        return collect

    def play(self) -> Played:
        self._engine.start()
        try:
            for step in self._case.input:
                for key, value in step.items():
                    self._take(key, value)
                    self._rest()
            if self._case.close:
                for stream, clock in enumerate(self._event_time.clocks):
                    if clock is not None:
                        self._engine.ingress.end(stream)
                self._rest()
        finally:
            self._engine.stop()
        self._count()
        return self._played

    def _take(self, key: str, value: Any) -> None:
        streams = {stream.name: stream for stream in self._network.streams}
        if key in streams:
            for row in value:
                self._feed(streams[key], row)
        elif key == "heartbeat":
            for name, time in value.items():
                self._engine.ingress.heartbeat(streams[name].number, timestamp_ns(str(time), 1))
        else:
            moved_ns = timestamp_ns(str(value), 1) if key == "at" else self._clock() + parse_duration_ns(value)
            self._clock.move_to(moved_ns)
            self._ticker.tick(moved_ns)

    def _feed(self, stream: Stream, row: Row | str) -> None:
        """Feed one row. Before a row that is out of order the engine comes to rest, so that no queue joins it with the
        rows before it: whether it is late depends on those alone."""
        line = row.encode() if isinstance(row, str) else orjson.dumps(row)
        received = self._decoders[stream.name].receive(line + b"\n", self._clock())
        for train in received.trains:
            if train.count and stream.time_field is not None:
                at_ns = int(train.columns[stream.schema.index(stream.time_field)][0])
                if at_ns < self._newest_ns[stream.number]:
                    self._rest()
                self._newest_ns[stream.number] = max(at_ns, self._newest_ns[stream.number])
                if self._case.clock is None:
                    self._clock.move_to(max(at_ns, self._clock()))
            if train.count:
                self._engine.ingress.admit(stream.number, train, timeout_s=DRAIN_SECONDS)
        if received.rejects:
            self._played.refused.setdefault(stream.name, []).extend(received.rejects)

    def _rest(self) -> None:
        if not self._engine.drain(DRAIN_SECONDS):
            raise CaseError(str(self._failures[0]) if self._failures else "the engine did not come to rest")

    def _count(self) -> None:
        played, ingress = self._played, self._engine.ingress
        for runtime in self._engine.runtimes:
            reading = runtime.reading()
            played.late[reading.name], played.dead[reading.name] = reading.late, reading.dead
        for stream in self._network.streams:
            rejects = played.refused.get(stream.name, [])
            played.refused_tuples[stream.name] = sum(r.tuples for r in rejects) + ingress.rejected_skew[stream.number]


def _begin_ns(network: Network, case: NetworkCase) -> int:
    """Return where the clock begins: where the case says, or early enough that its first row can move it."""
    if case.clock is not None:
        return timestamp_ns(case.clock, 1)
    return 0 if any(stream.time_field is not None for stream in network.streams) else BEGIN_NS
