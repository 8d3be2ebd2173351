"""The protocols between the boundary and the engine. Read this file before you add a kind of source, sink or client.

The router never imports the engine. A socket, the Spark port and a client session know the engine only by the protocols
below; ``engine/run`` and ``engine/daemon`` implement them.

    a train goes in      StreamEntrance.admit(stream, train, origin)        engine/run/ingress.py
    batches are numbered StreamEntrance.numbers                             storage/source_numbers.py
    a train comes out    Outlet.deliver (router/subscribers.py)             called by engine/run/delivery.py
    an output's history  OutputHistory                                      engine/daemon/durable/histories.py

``Origin`` says where a train comes from. It carries everything that the entrance must treat differently: whether the
caller waits for room, whether it may run short plans itself, whether the tuples are counted already, and the batch's
number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from catalog.errors import AuroraError
from storage.admission import BatchNumber
from storage.source_numbers import SourceNumbers
from storage.train import Train


class Origin(NamedTuple):
    """Where a train comes from."""

    name: str
    waits_for_room: bool = False  # the caller waits in ``admit``; other callers stop reading instead
    runs_idle_plans: bool = False  # the caller may take the idle fast path: the I/O thread does
    is_counted: bool = False  # the boundary has counted these tuples as received
    batch: BatchNumber | None = None  # the number that the client gave to this batch
    peer: str = ""  # the address of the sender, for its dead letters
    lost: int = 0  # rows around these that were dropped undecoded

    def numbered(self, batch: BatchNumber) -> Origin:
        return self._replace(batch=batch)


SOCKET = Origin("socket", runs_idle_plans=True, is_counted=True)
SPARK = Origin("spark", is_counted=True)
FILE = Origin("file", is_counted=True)
"""A file, a FIFO or standard input. Its reader waits for room before it admits."""
CODE = Origin("code", waits_for_room=True)
"""Code in this process: a test, a benchmark, an embedding program."""
TIME = Origin("time")
"""No tuples, only a watermark: a heartbeat, a silent stream, the end of a source."""


class StreamEntrance(Protocol):
    """The way into the network. Any thread."""

    numbers: SourceNumbers

    @property
    def refusal(self) -> str:
        """The reason why the log takes no numbered batch now; empty when it does."""

    @property
    def keeps_batches(self) -> bool:
        """Whether a batch is on disk before it is acknowledged."""

    def admit(self, stream: int, train: Train, origin: Origin = CODE, *, timeout_s: float | None = None) -> bool:
        """Take a train into the network, through the log where there is one."""

    def heartbeat(self, stream: int, event_ns: int) -> None:
        """Advance a stream's event time without a tuple."""

    def end(self, stream: int) -> None:
        """End a stream for good: close everything behind it. Only a batch run does that."""

    def source_exhausted(self, stream: int) -> None:
        """Note that a stream's source has nothing more for now. More may be brought to the stream later."""

    def may_read(self, stream: int) -> bool:
        """Tell whether there is room for more of this stream."""

    def has_bulk_room(self) -> bool:
        """Tell whether the queues are short enough for bulk rows. Live tuples have precedence over bulk rows."""

    def when_room(self, listener: Callable[[], None]) -> None:
        """Register a callable that the engine calls, on any thread, whenever there may be room again."""


class OutputGate(Protocol):
    """Blocks an output whose readers are too slow (``blocked``), and releases it later."""

    def __call__(self, output: int, blocked: bool) -> None: ...


class TooManyNamesError(AuroraError):
    """An output has as many named readers as it may have."""


class NumberedTrain(Protocol):
    """Tuples of a history. ``first`` and ``last`` are the numbers of the first and the last tuple."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def train(self) -> Train: ...

    @property
    def is_repeat(self) -> bool:
        """Whether the reader may have received these tuples before, under other numbers."""


class OutputHistory(Protocol):
    """One output's tuples in the log, numbered from 1. Any thread."""

    @property
    def newest(self) -> int:
        """The number of the last tuple emitted, on disk or not."""

    @property
    def readable(self) -> int:
        """The number of the last tuple that is on disk."""

    @property
    def oldest(self) -> int:
        """The number of the first tuple that the log still holds."""

    def subscribe(self, name: str, after: int | None, then: Callable[[str], None] | None = None) -> int:
        """Keep the history for a name from now on, and return the number of the tuple after which its reader resumes.

        That is ``after`` where it is given, else the last number that the name acknowledged, else (for a new name) the
        newest number. The history calls ``then`` with "" when the name is on disk, or with the reason why it cannot be.
        Raises TooManyNamesError.
        """

    def acknowledge(self, name: str, number: int) -> None:
        """Note that this name has received all tuples up to a number."""

    def forget(self, name: str) -> None:
        """Stop keeping the history for a name."""

    def read(self, name: str, after: int, limit_bytes: int) -> Sequence[NumberedTrain]:
        """Return the tuples on disk after a number. When the first one has a later number, the log has dropped the
        tuples in between."""
