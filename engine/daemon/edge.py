"""The edge of the daemon: every way in and out for tuples. Sockets, files and standard streams, Spark.

All of them admit through the engine's ingress, and the outlets of the outputs feed them. The edge opens, stops and
closes them together, in the order that a start and a stop need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catalog.network import Network
from engine.daemon.descriptors import DescriptorShares
from engine.daemon.io_loop import IoLoop
from engine.daemon.run_end import EndOfRun
from engine.run.ingress import Ingress
from load_shedder.apply.limits import edge_waits_ns
from router.boundary import OutputGate, OutputHistory
from router.codecs.base import Reject
from router.dead_letters import DeadLetters
from router.files.pipeline import FilePipeline
from router.server import Limits, Server
from router.spark.daemon.host import SparkHost
from router.spark.daemon.pipeline import SparkPipeline
from router.subscribers import Outlet, Wake


class Edge:
    """``block`` stops and resumes an output whose reader or sink is full. ``histories``: of a data_dir, by output."""

    def __init__(
        self,
        network: Network,
        io: IoLoop,
        wake: Wake,
        outlets: Sequence[Outlet],
        ingress: Ingress,
        block: OutputGate,
        dead_letters: DeadLetters,
        now_ns: Callable[[], int],
        *,
        histories: Sequence[OutputHistory] | None,
        ends: EndOfRun,
        spark: SparkHost | None,
        shares: DescriptorShares,
    ) -> None:
        self._io = io
        self._dead_letters = dead_letters
        self._now_ns = now_ns
        limits = Limits.of(network.config.limits, shares.data, shares.backlog)
        self.server = Server(
            network,
            wake,
            ingress,
            outlets,
            limits=limits,
            now_ns=now_ns,
            dead_letters=dead_letters,
            edge_wait_ns=edge_waits_ns(network),
        )
        data_dir = network.config.engine.data_dir
        self.spark = SparkPipeline(
            network,
            ingress,
            block,
            self._keep_rejects,
            now_ns,
            histories=histories,
            data_dir=data_dir,
            host=spark,
            connections=shares.spark,
            batch_end=ends.spark_is_read if ends.is_finite else None,
        )
        self.files = FilePipeline(
            network,
            self.server.ports,
            ingress,
            block,
            self._keep_rejects,
            now_ns,
            run_end=ends.files_are_read if ends.is_finite else None,
            on_broken=ends.end,
            closes=ends.is_finite and network.config.engine.at_stop == "close",
            histories=histories,
            data_dir=data_dir,
        )
        for number, sink in self.spark.sinks.items():
            if sink.queue is not None:
                outlets[number].subscribe(sink.queue.deliver, "spark")
        for number, writer in self.files.writers.items():
            if writer.queue is not None:
                outlets[number].subscribe(writer.queue.deliver, "file")

    def open(self) -> None:
        """Open every listener and every file; read nothing yet from files and Spark. Raises ListenError, FileError."""
        self.spark.open()
        self.files.open()
        self._io.run(self.server.start())

    def start(self) -> None:
        """Begin to read from Spark and from files."""
        self.spark.start()
        self.files.start()

    def stop_reading(self) -> None:
        self._io.call(self.server.stop_reading)
        self.spark.stop_reading()
        self.files.stop_reading()

    def close_sinks(self) -> None:
        """Close files and Spark. Sockets go on delivering until ``close``."""
        self.spark.close()
        self.files.close()

    def close(self) -> None:
        self._io.run(self.server.close())

    def _keep_rejects(self, stream: str, sender: str, rejects: Sequence[Reject]) -> None:
        """Keep refused rows of Spark and of files as dead letters."""
        self._dead_letters.add(self._now_ns(), stream, sender, rejects)
