"""What the daemon does with each sample of the monitor, ten times a second or once while it dozes, on its thread.

1. Move the watermarks of silent streams, and wake boxes with time-outs (``ticker``).
2. Record which boxes kept the workers busy, for ``aurorad explain``.
3. Let the overload control decide on a new shed plan, and the edge control on the shares that are decoded.
4. Post to the scheduler which share of each output's tuples missed its deadline.
5. Log losses (``loss_log``).
6. Keep the resident size below its line (``resident``).
"""

from __future__ import annotations

import logging
from time import thread_time_ns

from catalog.catalog import Catalog
from catalog.readings import Readings
from engine.daemon.monitor.doze import Doze
from engine.daemon.monitor.edge_control import EdgeControl
from engine.daemon.monitor.loss_log import LossLog
from engine.daemon.monitor.readings import DaemonReadings
from engine.daemon.monitor.resident import ResidentKeeper
from engine.run.core import Engine
from engine.run.ticker import Ticker
from load_shedder.control_loop import OverloadControl
from load_shedder.decide.places import shed_arcs
from qos_monitor.bills import Ledger
from qos_monitor.busy import BusyHistory
from qos_monitor.histogram import LatencyRecorder
from qos_monitor.loop import Monitor
from qos_monitor.sampler import Sample
from qos_monitor.verdict import LoadJudge
from scheduler.events import MissedShares
from scheduler.policies import runs_urgent_first

log = logging.getLogger("aurorad")

DOZING_TICK_NS = 10_000_000_000


class Monitoring:
    """Owner: the monitor's thread, which ``monitor`` starts and stops."""

    def __init__(
        self,
        catalog: Catalog,
        engine: Engine,
        readings: DaemonReadings,
        recorders: list[LatencyRecorder],
        overload: OverloadControl[Sample],
        ticker: Ticker,
        losses: LossLog,
        edge: EdgeControl,
        doze: Doze,
        ledger: Ledger | None,
    ) -> None:
        self._engine = engine
        self._overload = overload
        self._ticker = ticker
        self._losses = losses
        self._edge = edge
        self.read_counts = readings.read_counts
        self._resident = ResidentKeeper()
        self._reported = [(0, 0)] * len(recorders)  # tuples and missed deadlines that the scheduler knows of
        self.busy = BusyHistory()
        self.monitor = Monitor(
            catalog,
            readings.read,
            recorders,
            values=lambda: overload.values,
            on_sample=self._on_sample,
            on_error=_monitor_failed,
            rest=doze,
            ledger=ledger,
        )
        self._advanced_ns = 0  # when the ticker ticked last

    def _on_sample(self, sample: Sample, readings: Readings) -> None:
        self._let_time_pass()
        self.busy.note(sample)
        read = [output.readers > 0 for output in readings.outputs]
        # Without any reader the graphs alone decide.
        overload, edge = self._overload, self._edge
        overload.on_sample(sample, read if any(read) else (), self._engine.shedding.book.errors(), edge.share_before)
        edge.on_readings(readings, overload.floors)
        self._engine.press(not self._overload.is_fine)
        self._engine.refresh_losses()
        self._report_missed(readings)
        self._losses.note(readings)
        self._resident.look(self._engine.storage)

    def _let_time_pass(self) -> None:
        """Move silent streams on. While the monitor dozes that brings nothing out, but frees what boxes remember."""
        now_ns = self._engine.now_ns()
        if not self.monitor.is_dozing or now_ns - self._advanced_ns >= DOZING_TICK_NS:
            self._advanced_ns = now_ns
            self._ticker.tick(now_ns)

    def begin(self) -> None:
        """Take what is counted before the first tuple comes as known: it was restored from a checkpoint."""
        self._losses.skip(self.read_counts())

    def end(self) -> None:
        """Log the last losses. The caller has stopped the monitor and closed the sockets."""
        self._losses.flush(self.read_counts())

    def _report_missed(self, readings: Readings) -> None:
        """Post the share of tuples that missed their deadline since the last tick, by output; -1 where none came."""
        shares: list[float] = []
        for number, output in enumerate(readings.outputs):
            tuples, missed = output.latency.tuples, output.latency.missed
            tuples_before, missed_before = self._reported[number]
            news = tuples - tuples_before
            shares.append((missed - missed_before) / news if news > 0 else -1.0)
            self._reported[number] = (tuples, missed)
        if max(shares, default=-1.0) >= 0:
            self._engine.post(MissedShares(tuple(shares)))


def make_overload(catalog: Catalog, engine: Engine) -> OverloadControl[Sample]:
    """Return the overload control of an engine. Its cost is measured in processor time of the monitor's thread."""
    network, shedding = engine.network, engine.shedding
    return OverloadControl(
        catalog.epoch,
        LoadJudge(
            network,
            shed_arcs(network),
            network.config.engine.sure_workers,
            urgent_first=lambda: runs_urgent_first(engine.choice.policy),
            units=engine.state.unit_boxes,
        ),
        engine.shed,
        semantic_arcs=shedding.valuations.semantic_arcs,
        values=shedding.values,
        clock_ns=thread_time_ns,
        units=engine.state.unit_boxes,
    )


def _monitor_failed(error: BaseException) -> None:
    log.error("the monitor failed and has ended: statistics and metrics no longer change", exc_info=error)
