"""The one door out: what happens to a train that has reached an output, in order.

    log        with a data_dir the output's history takes the train; during a replay nothing else happens
    latency    the time from the tuples' arrival to now goes into the output's histogram, values to its value graph
    journey    a tuple that ``aurorad explain`` follows has arrived
    tap        clients that watch the output see the train
    readers    the train is encoded once and queued for each reader (``router/subscribers.py``)

Threads: any worker, or the I/O thread; one output's trains may come from several threads at once. When two threads add
to a count at the same moment, the count may be off by one train. Only the monitor reads these counts.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol

from catalog.network import Output
from engine.run.journeys.recorder import Journeys
from engine.run.taps import Taps, offer
from qos_monitor.histogram import LatencyRecorder
from storage.train import Train


class OutputLog(Protocol):
    """The histories of the outputs (``engine/daemon/durable``)."""

    @property
    def is_replaying(self) -> bool: ...

    def emit(self, output: int, train: Train) -> None:
        """Number an output's tuples, and keep them while some reader has given a name."""


class Delivery:
    """The way out for one output. ``readers`` takes each train. Without a ``recorder`` no latency is measured."""

    def __init__(
        self,
        output: Output,
        readers: Callable[[Train], None],
        *,
        recorder: LatencyRecorder | None,
        journeys: Journeys | None,
        taps: Taps,
        log: OutputLog | None,
        now_ns: Callable[[], int],
    ) -> None:
        self._number = output.number
        self._readers = readers
        self._recorder = recorder
        self._journeys = journeys
        self._taps = taps
        self._log = log
        self._now_ns = now_ns
        qos = output.qos
        self._value_column = None if qos.value is None else output.schema.index(qos.value_field)
        self.cost_ns = 0  # of delivering
        self.replayed = 0  # tuples of a replay, which go into the history and to no reader
        self.is_starting = False  # the output reads history: the age of its tuples is not a latency

    def deliver(self, train: Train) -> None:
        """Take a train that has reached the output."""
        if (log := self._log) is not None:
            log.emit(self._number, train)
            if log.is_replaying:  # no reader is connected, and a latency would say nothing
                self.replayed += train.count
                return
        recorder = self._recorder
        if recorder is None or self.is_starting:  # a bare engine: nobody asks for latencies or costs
            self._hand_over(train)
            return
        begun_ns, now_ns = perf_counter_ns(), self._now_ns()
        recorder.record(train.arrival_ns, now_ns)
        if (values := recorder.values) is not None and (column := self._value_column) is not None and train.count:
            values.record(train.columns[column], None if train.valid is None else train.valid[column], now_ns)
        if (journeys := self._journeys) is not None and (journeys.probed_plans or journeys.in_state):
            journeys.note_delivered(self._number, train, now_ns)
        self._hand_over(train)
        self.cost_ns += perf_counter_ns() - begun_ns

    def _hand_over(self, train: Train) -> None:
        """Show the train to taps, then to the readers."""
        if watches := self._taps.outputs.get(self._number):
            offer(watches, train)
        self._readers(train)
