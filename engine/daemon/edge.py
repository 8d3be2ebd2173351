"""The edge of the daemon: every way in and out for tuples. Sockets, files and standard streams, Spark.

All of them admit through the engine's ingress, and the outlets of the outputs feed them. The edge opens, stops and
closes them together, in the order that a start and a stop need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from catalog.network import Network
from engine.daemon.ending.run_end import EndOfRun
from engine.daemon.process.descriptors import DescriptorShares
from engine.daemon.process.io_loop import IoLoop
from engine.run.ingress import Ingress
from load_shedder.apply.limits import edge_waits_ns
from router.access.access import Access
from router.access.tcp_door import doors_of
from router.boundary import OutputGate, OutputHistory
from router.codecs.base import Reject
from router.dead_letters import DeadLetters
from router.files.pipeline import FilePipeline
from router.limits import Limits
from router.server import Server
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
        access: Access,
    ) -> None:
        self._io = io
        self._dead_letters = dead_letters
        self._now_ns = now_ns
        limits = Limits.of(network.config.limits, shares.data, shares.backlog, network.config.engine.memory_bytes)
        self.server = Server(
            network,
            wake,
            ingress,
            outlets,
            limits=limits,
            now_ns=now_ns,
            dead_letters=dead_letters,
            edge_wait_ns=edge_waits_ns(network),
            doors=doors_of(access),
        )
        self._block = block
        self._histories = histories
        self._ends = ends
        self._shares = shares
        self._access = access
        self.spark = self._make_spark(network, ingress, spark)
        self.files = self._make_files(network, ingress)
        for number, sink in self.spark.sinks.items():
            if sink.queue is not None:
                outlets[number].subscribe(sink.queue.deliver, "spark")
        for number, writer in self.files.writers.items():
            if writer.queue is not None:
                outlets[number].subscribe(writer.queue.deliver, "file")

    def _make_spark(self, network: Network, ingress: Ingress, host: SparkHost | None) -> SparkPipeline:
        return SparkPipeline(
            network,
            ingress,
            self._block,
            self._keep_rejects,
            self._now_ns,
            histories=self._histories,
            data_dir=network.config.engine.data_dir,
            host=host,
            connections=self._shares.spark,
            access=self._access,
            batch_end=self._ends.spark_is_read if self._ends.is_finite else None,
        )

    def _make_files(self, network: Network, ingress: Ingress) -> FilePipeline:
        ends = self._ends
        return FilePipeline(
            network,
            self.server.ports,
            ingress,
            self._block,
            self._keep_rejects,
            self._now_ns,
            run_end=ends.files_are_read if ends.is_finite else None,
            on_broken=ends.end,
            closes=ends.is_finite and network.config.engine.at_stop == "close",
            histories=self._histories,
            data_dir=network.config.engine.data_dir,
        )

    def adopt(
        self,
        network: Network,
        ingress: Ingress,
        outlets: Sequence[Outlet],
        streams: Mapping[int, int],
        histories: Sequence[OutputHistory] | None,
    ) -> None:
        """Serve another network, which has no files and no Spark, as the one before has none (``change.obstacle``).

        ``streams`` leads from its numbers to the present ones. On the I/O thread.
        """
        self._histories = histories
        self.server.adopt(network, ingress, outlets, streams, edge_waits_ns(network))
        self.spark = self._make_spark(network, ingress, self.spark.host)
        self.files = self._make_files(network, ingress)

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
