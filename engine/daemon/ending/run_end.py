"""When a run ends by itself: the rule, and the count of what has come to its end.

A run is finite when every source of the network file is a file that is not followed, or standard input. With ``once``
it is finite whatever the sources are: then it ends when those that can end have ended, and does not wait for sockets. A
finite run is over when all of its files, standard input and Spark's sources are read. It is over too when the reader of
standard output has gone, or when a sink cannot write. A run that is not finite ends only by a signal, or when the
reader of standard output has gone.

Threads: any.
"""

from __future__ import annotations

from threading import Lock

from catalog.config.models import FileSource, SparkSource, StdinSource
from catalog.network import Network
from router.files.pipeline import RunEnd, is_finite


class EndOfRun:
    """``on_end`` is called once. None: a daemon in a test or a benchmark, whose owner stops it."""

    def __init__(self, network: Network, on_end: RunEnd | None, *, once: bool) -> None:
        self.is_finite = once or is_finite(network)
        self._on_end = on_end
        self._lock = Lock()
        self._is_over = False
        sources = [stream.source for stream in network.streams]
        self._reads_files = any(isinstance(source, FileSource | StdinSource) for source in sources)
        self._reads_spark = any(isinstance(source, SparkSource) for source in sources)

    def files_are_read(self) -> None:
        with self._lock:
            self._reads_files = False
        self._end_if_read()

    def spark_is_read(self) -> None:
        with self._lock:
            self._reads_spark = False
        self._end_if_read()

    def _end_if_read(self) -> None:
        if not self._reads_files and not self._reads_spark:
            self.end()

    def end(self) -> None:
        """End the run: nothing more can be read, or nothing more can be written."""
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if not was_over and self._on_end is not None:
            self._on_end()
