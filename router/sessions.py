"""Senders that number their batches: from what they say (``session.py``) to the desk that keeps account.

The desk is the engine's: with a data_dir it is the log and its table of admission, without one a table in memory. A
session offers each batch to it before it is decoded, so a batch that was sent again costs a comparison. One connection
speaks for a source: when a client comes back before the server has noticed that its old connection is dead, the new one
takes over and the old one is closed.

Batches of a session are decoded one after another, the large ones on the decode thread with reading paused meanwhile,
as for plain connections. Everything else runs on the I/O thread; ``told`` comes from another and hops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from router.codecs.base import Reason, Received, Reject
from router.session import Batch, SessionError, SourceFramer, SourceHello, line
from storage.admission import Entry, Verdict
from storage.train import Train

if TYPE_CHECKING:
    from router.connection import SourceConnection
    from router.server import Server

WAITING_AT_MOST = 64
"""Batches that are framed and wait for the one before them to be decoded; beyond that reading pauses."""


class Desk(Protocol):
    """Who keeps account of numbered batches."""

    @property
    def refusal(self) -> str:
        """Why no batch can be taken now; empty when one can."""

    def greet(self, stream: int, hello: SourceHello) -> int | str:
        """The last sequence that is safe, or why this client cannot be served."""

    def offer(self, stream: int, entry: Entry) -> Verdict: ...

    def retract(self, stream: int, entry: Entry) -> None:
        """It was offered, was new, and cannot be used."""

    def submit(self, stream: int, train: Train, entry: Entry) -> None:
        """To be acknowledged through ``Server.told``."""

    def standing(self, stream: int, source: str, epoch: int) -> tuple[int, int]:
        """The last sequences received and committed."""


class SourceSession:
    def __init__(self, server: Server, connection: SourceConnection, desk: Desk) -> None:
        self._server = server
        self._connection = connection
        self._desk = desk
        self._port = connection.port
        self._framer = SourceFramer(server.limits.batch_bytes)
        self._waiting: deque[tuple[Batch, int]] = deque()
        self._decoding: tuple[Batch, Entry] | None = None
        self._acked = 0
        self.hello: SourceHello | None = None

    @property
    def key(self) -> tuple[int, str]:
        assert self.hello is not None
        return self._port.stream.number, self.hello.source

    @property
    def is_busy(self) -> bool:
        return self._decoding is not None or bool(self._waiting)

    def receive(self, data: bytes, arrival_ns: int) -> None:
        try:
            for said in self._framer.receive(data):
                if isinstance(said, SourceHello):
                    self._greet(said)
                else:
                    self._waiting.append((said, arrival_ns))
        except SessionError as error:
            self._end(str(error))
        self._pump()

    # -- hello --------------------------------------------------------------------------------------------------------

    def _greet(self, hello: SourceHello) -> None:
        answer = self._desk.greet(self._port.stream.number, hello)
        if isinstance(answer, str):
            raise SessionError(answer)
        self.hello = hello
        self._acked = answer
        self._server.speaks_for(self)
        self._connection.has_spoken = True
        self._say(line(_welcome={"sequence": answer, "ack": hello.ack}))

    # -- batches ------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        while self._waiting and self._decoding is None and not self._connection.is_closing:
            self._take(*self._waiting.popleft())
        self._connection.wait(self._decoding is not None and len(self._waiting) >= WAITING_AT_MOST)

    def _take(self, batch: Batch, arrival_ns: int) -> None:
        assert self.hello is not None
        stream = self._port.stream.number
        entry = Entry(self.hello.source, self.hello.epoch, batch.sequence)
        verdict = self._desk.offer(stream, entry)
        if verdict is Verdict.NEW:
            if why := self._desk.refusal:
                self._desk.retract(stream, entry)
                self._refuse(batch, why)
            else:
                self._decode(batch, entry, arrival_ns)
        elif verdict is Verdict.DUPLICATE:
            self._port.received += batch.tuples
            self._port.duplicates += batch.tuples
            self._acknowledge_again()
        elif verdict is Verdict.GAP:
            # Where those before it were just refused, that is why; the word of it may still be on its way.
            self._refuse(batch, self._desk.refusal or "the batches before it have not come")
        else:
            self._refuse(batch, f"the source is {verdict.value}")
            self._end("another client speaks for this source with a newer epoch")

    def _decode(self, batch: Batch, entry: Entry, arrival_ns: int) -> None:
        decoder = self._port.make_decoder()
        self._decoding = (batch, entry)

        def work() -> Received:
            first, rest = decoder.receive(batch.payload, arrival_ns), decoder.end(arrival_ns)
            received = Received([*first.trains, *rest.trains], [*first.rejects, *rest.rejects])
            if decoder.received != batch.tuples:
                message = f"batch {batch.sequence} has {decoder.received} tuples and not {batch.tuples}"
                return Received([], [Reject(Reason.MALFORMED, 0, 0, message, tuples=batch.tuples, fatal=True)])
            return received

        if len(batch.payload) < self._server.decode_beside_bytes:
            self._decoded(work())
        else:
            self._server.decode_beside(work, self._decoded_beside)

    def _decoded_beside(self, received: Received) -> None:
        self._decoded(received)
        self._pump()
        self._connection.finish_if_ended()

    def _decoded(self, received: Received) -> None:
        assert self._decoding is not None and self.hello is not None
        batch, entry = self._decoding
        self._decoding = None
        self._port.received += batch.tuples
        self._server.take_rejects(self._connection, received)
        stream = self._port.stream
        if received.fatal:
            self._desk.retract(stream.number, entry)
            self._end(received.rejects[-1].message)
            return
        # All good tuples of a batch are one train: it is in the log whole or not at all.
        train = Train.concat(received.trains) if received.trains else Train.empty(stream.schema)
        self._server.submit(stream.number, train, entry)
        if self.hello.ack == "memory":
            self._say(line(_ack=entry.sequence, on="memory"))

    def _refuse(self, batch: Batch, why: str) -> None:
        self._port.received += batch.tuples
        self._port.rejected[Reason.REFUSED] = self._port.rejected.get(Reason.REFUSED, 0) + batch.tuples
        self.refused(batch.sequence, why)

    # -- what the desk says -------------------------------------------------------------------------------------------

    def committed(self, epoch: int, sequence: int) -> None:
        assert self.hello is not None
        if epoch == self.hello.epoch and sequence > self._acked:
            self._acked = sequence
            if self.hello.ack == "disk":
                self._say(line(_ack=sequence, on="disk"))

    def refused(self, sequence: int, why: str) -> None:
        assert self.hello is not None
        received, _ = self._desk.standing(self._port.stream.number, self.hello.source, self.hello.epoch)
        self._say(line(_refused=sequence, reason=why, expected=received + 1))

    def _acknowledge_again(self) -> None:
        """A client that sends again has not seen the acknowledgement."""
        assert self.hello is not None
        _, committed = self._desk.standing(self._port.stream.number, self.hello.source, self.hello.epoch)
        self._acked = max(self._acked, committed)
        if committed:
            self._say(line(_ack=committed, on="disk" if self.hello.ack == "disk" else "memory"))

    def replaced(self) -> None:
        self._end("another connection speaks for this source now")

    def _end(self, why: str) -> None:
        self._waiting.clear()
        self._say(line(_error=why))
        self._connection.close()

    def _say(self, text: bytes) -> None:
        transport = self._connection.transport
        if transport is not None and not transport.is_closing():
            transport.write(text)


def newest(committed: Sequence[tuple[int, Entry]]) -> dict[tuple[int, str], Entry]:
    """By stream and source the last of these batches: an acknowledgement is for all before it."""
    return {(stream, entry.source): entry for stream, entry in committed}
