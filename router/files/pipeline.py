"""All sources and sinks of a network that are files, standard input or standard output, and the end of a run.

A run ends with its input when it has a ``run_end``: then every file that is not followed, and standard input, brings
all rows that there will ever be, and the run is over when all of them are read. Without ``run_end`` other streams go
on, and a stream whose file was read holds nobody up.

``closes``: the end of a stream closes its windows. Otherwise (``engine.stop: keep``, the default with a data_dir) a
later run may bring more of the file, and finds the windows open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from catalog.config.models import FileSink, FileSource, StdinSource, StdoutSink
from catalog.network import Network, Output
from catalog.readings import SinkReading
from router.boundary import OutputGate, OutputHistory, StreamEntrance
from router.codecs import CODECS
from router.codecs.base import Encoder
from router.files.inputs import FileError, FileInput
from router.files.marks import SinkMarks
from router.files.reader import FileReader, KeepRejects
from router.files.targets import FileTarget, StdoutTarget
from router.files.writer import FileWriter
from router.server import SourcePort

STOP_SECONDS = 5.0


class RunEnd(Protocol):
    def __call__(self) -> None:
        """Every source has come to its end or has failed, or the run cannot go on. Called on any thread."""


def is_finite(network: Network) -> bool:
    """Tell whether a run of this network ends by itself: it has sources, and all are files or standard input."""
    sources = [stream.source for stream in network.streams if stream.source is not None]
    return bool(sources) and all(_ends(source) for source in sources)


def _ends(source: object) -> bool:
    return isinstance(source, StdinSource) or (isinstance(source, FileSource) and not source.follow)


class FilePipeline:
    """``run_end`` is called when all sources of a run that ends by itself are read, ``on_broken`` when a sink cannot go
    on. ``histories`` and ``data_dir`` are there together."""

    def __init__(
        self,
        network: Network,
        ports: Sequence[SourcePort],
        entrance: StreamEntrance,
        gate: OutputGate,
        keep_rejects: KeepRejects,
        now_ns: Callable[[], int],
        *,
        run_end: RunEnd | None,
        on_broken: RunEnd,
        closes: bool,
        histories: Sequence[OutputHistory] | None = None,
        data_dir: str | None = None,
    ) -> None:
        self._entrance = entrance
        self._gate = gate
        self._run_end = run_end
        self._on_broken = on_broken
        self._closes = closes
        self._histories = histories
        self._data_dir = data_dir
        self.readers = [
            FileReader(
                port,
                FileInput(source.file if isinstance(source, FileSource) else None),
                entrance,
                keep_rejects,
                self,
                now_ns,
                follow=isinstance(source, FileSource) and source.follow and run_end is None,
            )
            for port in ports
            if isinstance(source := port.stream.source, FileSource | StdinSource)
        ]
        self.writers = {
            output.number: self._make_writer(output, output.sink)
            for output in network.outputs
            if isinstance(output.sink, FileSink | StdoutSink)
        }

    def _make_writer(self, output: Output, sink: FileSink | StdoutSink) -> FileWriter:
        is_file = isinstance(sink, FileSink) and self._data_dir is not None
        marks = SinkMarks(Path(str(self._data_dir), "files", f"{output.name}.json") if is_file else None)
        history = self._histories[output.number] if self._histories is not None and is_file else None
        return FileWriter(
            output,
            _make_encoder(output, sink),
            _make_target(sink, marks),
            self._gate,
            self,
            buffer_bytes=sink.buffer_bytes,
            can_wait=self._run_end is None,
            marks=marks,
            history=history,
        )

    # -- life ---------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open all files: the sinks before any tuple can be emitted. Raises FileError."""
        for writer in self.writers.values():
            _named(f"output {writer.output.name}", writer.output.sink, writer.open)
        for reader in self.readers:
            _named(f"stream {reader.stream.name}", reader.stream.source, reader.open)

    def start(self) -> None:
        """Start to read, each source on a thread of its own."""
        for reader in self.readers:
            reader.thread.start()

    def stop_reading(self) -> None:
        for reader in self.readers:
            reader.stop()

    @property
    def is_reading(self) -> bool:
        return any(reader.is_reading for reader in self.readers)

    def flush(self, timeout_s: float) -> bool:
        """Write every tuple that was emitted. False when time ran out."""
        deadline = time.monotonic() + timeout_s
        flushed = [writer.flush(max(0.0, deadline - time.monotonic())) for writer in self.writers.values()]
        return all(flushed)

    def close(self) -> None:
        self.stop_reading()
        for reader in self.readers:
            if reader.is_reading:
                reader.thread.join(STOP_SECONDS)
        for writer in self.writers.values():
            writer.close()

    # -- the end of a run ---------------------------------------------------------------------------------------------

    def source_is_read(self, stream: int) -> None:
        (self._entrance.end if self._closes else self._entrance.source_exhausted)(stream)

    def source_has_ended(self) -> None:
        if self._run_end is not None and all(reader.is_ended for reader in self.readers):
            self._run_end()

    def sink_has_ended(self) -> None:
        self._on_broken()

    # -- readings -----------------------------------------------------------------------------------------------------

    @property
    def failures(self) -> list[str]:
        """Why sources and sinks failed, one line each."""
        sources = [f"stream {r.stream.name}: {r.error}" for r in self.readers if r.error]
        return sources + [f"output {w.output.name}: {w.error}" for w in self.writers.values() if w.error]

    @property
    def pending(self) -> int:
        """Tuples that wait for a slow target."""
        return sum(writer.pending for writer in self.writers.values())

    def not_finite(self, output: int) -> int:
        """Return how many NaN and infinite values of an output were written without a number for them."""
        writer = self.writers.get(output)
        return 0 if writer is None else writer.not_finite

    def sink_readings(self) -> list[SinkReading]:
        return [writer.reading() for writer in self.writers.values()]


def _make_encoder(output: Output, sink: FileSink | StdoutSink) -> Encoder:
    if sink.codec == "table":
        from router.files.table import TableEncoder

        return TableEncoder(output.schema, sink.timestamps, sink.nan)
    return CODECS[sink.codec].encoder(output.schema, sink.timestamps, sink.nan)


def _make_target(sink: FileSink | StdoutSink, marks: SinkMarks) -> FileTarget | StdoutTarget:
    if isinstance(sink, StdoutSink):
        return StdoutTarget()
    mark = marks.read()
    return FileTarget(sink.file, sink.mode, sink.codec, None if mark is None else (mark.inode, mark.nbytes))


def _named(what: str, model: object, open_it: Callable[[], None]) -> None:
    file = getattr(model, "file", None) or ("standard input" if isinstance(model, StdinSource) else "standard output")
    try:
        open_it()
    except OSError as error:
        raise FileError(f"{what}: cannot open {file}: {error.strerror or error}") from error
