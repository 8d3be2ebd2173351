"""The session of a sender that numbers its batches: from its messages (``client_protocol.py``) to the ingress.

The table of numbers (``storage/source_numbers.py``) is part of the log where there is a data_dir; without one it lives
in memory. A session compares each batch with the table before it decodes it, so a repeated batch costs only a
comparison. One connection serves a source at a time. When a client reconnects before the server has noticed that its
old connection is dead, the new connection takes over and the server closes the old one.

A session decodes its batches one after another, the large ones on the decode thread. When too many batches wait for
that, reading pauses. Everything else runs on the I/O thread. The log's thread reports the outcome of a batch through
``Server.batches_settled``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from router.boundary import StreamEntrance
from router.client_protocol import (
    SessionError,
    SourceBatch,
    SourceFramer,
    SourceHello,
    check_epoch,
    check_format,
    encode_line,
)
from router.codecs.base import Reason, Received, Reject
from storage.admission import AdmissionVerdict, BatchNumber
from storage.source_numbers import SourceNumbers
from storage.train import Train

if TYPE_CHECKING:
    from router.connection import SourceConnection
    from router.server import Server

WAITING_AT_MOST = 64
"""Complete batches that may wait for the decode thread. At this number, or at the bytes of one largest batch, reading
pauses."""
A_TURN = 256
"""Batches that a session takes in one turn of the event loop. A peer can put 30,000 empty ones into one read."""


class SourceSession:
    """One connection of a source. Owner: the I/O thread."""

    def __init__(self, server: Server, connection: SourceConnection) -> None:
        self._server = server
        self._connection = connection
        self._port = connection.port
        self._framer = SourceFramer(server.limits.batch_bytes)
        self._waiting: deque[tuple[SourceBatch, int]] = deque()  # batches and their times of arrival
        self._waiting_bytes = 0
        self._goes_on = False  # in the next turn of the event loop
        self._decoding: tuple[SourceBatch, BatchNumber] | None = None
        self._acked = 0  # the last sequence that the client knows to be on disk
        self.hello: SourceHello | None = None

    @property
    def _entrance(self) -> StreamEntrance:
        return self._server.entrance  # asked each time: a change of the network replaces it

    @property
    def _numbers(self) -> SourceNumbers:
        return self._server.entrance.numbers

    @property
    def key(self) -> tuple[int, str]:
        assert self.hello is not None
        return self._port.stream.number, self.hello.source

    @property
    def is_gone(self) -> bool:
        """Whether a change of the network has removed the stream."""
        return self._port.is_gone

    @property
    def is_busy(self) -> bool:
        """Whether a batch waits or is being decoded."""
        return self._decoding is not None or bool(self._waiting)

    @property
    def undecoded_bytes(self) -> int:
        """Return the bytes of batches that wait, are being decoded or are incomplete."""
        decoding = 0 if self._decoding is None else len(self._decoding[0].payload)
        return self._framer.held_bytes + self._waiting_bytes + decoding

    def receive(self, data: bytes, arrival_ns: int) -> None:
        try:
            for message in self._framer.receive(data):
                if isinstance(message, SourceHello):
                    self._welcome(message)
                else:
                    self._waiting.append((message, arrival_ns))
                    self._waiting_bytes += len(message.payload)
        except SessionError as error:
            self.close_with_error(str(error))
        self._pump()

    # -- hello --------------------------------------------------------------------------------------------------------

    def _welcome(self, hello: SourceHello) -> None:
        if hello.ack == "disk" and not self._entrance.keeps_batches:
            raise SessionError('"ack": "disk" needs engine.data_dir; without it, use "ack": "memory"')
        check_format(hello.format, self._port.format, "stream")
        self._connection.check_name(hello.source)
        known, _ = self._numbers.newest(self._port.stream.number, hello.source)
        check_epoch(hello.epoch, known, self._server.now_ns())
        answer = self._numbers.greet(self._port.stream.number, hello.source, hello.epoch)
        if isinstance(answer, str):
            raise SessionError(answer)
        self.hello = hello
        self._acked = answer
        self._server.claim_source(self)
        self._connection.is_silent = False
        refused = self._port.rejections.for_welcome(hello.source, hello.epoch, answer)
        limit = self._server.limits.batch_bytes
        self._write(encode_line(_welcome={"sequence": answer, "ack": hello.ack, "batch_bytes": limit, **refused}))

    # -- batches ------------------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Take the batches that wait, until one is on the decode thread or others have to have a turn."""
        for _ in range(A_TURN):
            if not self._waiting or self._decoding is not None or self._connection.is_closing:
                break
            batch, arrival_ns = self._waiting.popleft()
            self._waiting_bytes -= len(batch.payload)
            self._take(batch, arrival_ns)
        is_cut = bool(self._waiting) and self._decoding is None and not self._connection.is_closing
        if is_cut and not self._goes_on:
            self._goes_on = True
            self._server.later(0.0, self._go_on)
        is_much = len(self._waiting) >= WAITING_AT_MOST or self._waiting_bytes >= self._server.limits.batch_bytes
        self._connection.set_paused_by_session(is_cut or (self._decoding is not None and is_much))

    def _go_on(self) -> None:
        self._goes_on = False
        self._pump()
        self._connection.note_undecoded()
        self._connection.finish_if_ended()

    def _take(self, batch: SourceBatch, arrival_ns: int) -> None:
        assert self.hello is not None
        stream = self._port.stream.number
        number = BatchNumber(self.hello.source, self.hello.epoch, batch.sequence)
        verdict = self._numbers.offer(stream, number)
        if verdict is AdmissionVerdict.NEW:
            if why := self._entrance.refusal:
                self._numbers.take_back(stream, number)
                self._refuse(batch, why)
            else:
                self._decode(batch, number, arrival_ns)
        elif verdict is AdmissionVerdict.DUPLICATE:
            self._port.received += batch.tuples
            self._port.duplicates += batch.tuples
            self._repeat_ack()
        elif verdict is AdmissionVerdict.GAP:
            # If the batches before it were just refused, give that reason: their refusals may still be on their way.
            self._refuse(batch, self._entrance.refusal or "a batch before it is missing")
        else:
            self._refuse(batch, f"the source is {verdict.value}")
            self.close_with_error("another client uses this source with a newer epoch")

    def _decode(self, batch: SourceBatch, number: BatchNumber, arrival_ns: int) -> None:
        decoder = self._port.make_decoder()
        self._decoding = (batch, number)

        def work() -> Received:
            first, rest = decoder.receive(batch.payload, arrival_ns), decoder.end(arrival_ns)
            received = Received([*first.trains, *rest.trains], [*first.rejects, *rest.rejects])
            if received.fatal:  # the batch is refused as a whole, so all of its tuples are
                last = received.rejects[-1]
                return Received([], [last._replace(tuples=decoder.received)])
            if decoder.received != batch.tuples:
                message = f"batch {batch.sequence} has {decoder.received} tuples instead of {batch.tuples}"
                return Received([], [Reject(Reason.MALFORMED, 0, 0, message, tuples=decoder.received, fatal=True)])
            return received

        if len(batch.payload) < self._server.decode_thread_bytes:
            self._decoded(work())
        else:
            self._server.decode_on_thread(work, self._decoded_on_thread)

    def _decoded_on_thread(self, received: Received) -> None:
        self._decoded(received)
        self._pump()
        self._connection.note_undecoded()
        self._connection.finish_if_ended()

    def _decoded(self, received: Received) -> None:
        assert self._decoding is not None and self.hello is not None
        batch, number = self._decoding
        self._decoding = None
        if self._port.is_gone:  # the stream was removed while this batch was decoded
            return
        came = received.rejects[-1].tuples if received.fatal else batch.tuples
        self._port.received += came
        self._server.record_rejects(self._connection, received)
        stream = self._port.stream
        if received.fatal:
            self._numbers.take_back(stream.number, number)
            self.close_with_error(received.rejects[-1].message)
            return
        if received.rejects:
            self._port.rejections.add(number.source, number.epoch, number.sequence, received.rejects)
        # All good tuples of a batch are one train, because the log must hold all of them or none.
        train = Train.concat(received.trains) if received.trains else Train.empty(stream.schema)
        self._server.admit(stream.number, train, self._connection.origin.numbered(number))
        if self.hello.ack == "memory":
            self._write_ack(number.sequence)

    def _refuse(self, batch: SourceBatch, why: str) -> None:
        self._port.received += batch.tuples
        self._port.rejected[Reason.REFUSED] = self._port.rejected.get(Reason.REFUSED, 0) + batch.tuples
        self.send_refusal(batch.sequence, why)

    # -- answers to the client ----------------------------------------------------------------------------------------

    def send_ack(self, epoch: int, sequence: int) -> None:
        """Acknowledge the batches up to this one, which are on disk."""
        assert self.hello is not None
        if epoch == self.hello.epoch and sequence > self._acked:
            self._acked = sequence
            if self.hello.ack == "disk":
                self._write_ack(sequence)

    def send_refusal(self, sequence: int, why: str) -> None:
        """Refuse a batch, and tell the client with which sequence to resume."""
        assert self.hello is not None
        received, _ = self._numbers.standing(self._port.stream.number, self.hello.source, self.hello.epoch)
        self._write(encode_line(_refused=sequence, reason=why, expected=received + 1))

    def _repeat_ack(self) -> None:
        """Send the last acknowledgement again: a client that repeats a batch has not seen it."""
        assert self.hello is not None
        _, committed = self._numbers.standing(self._port.stream.number, self.hello.source, self.hello.epoch)
        self._acked = max(self._acked, committed)
        if committed:
            self._write_ack(committed)

    def _write_ack(self, sequence: int) -> None:
        assert self.hello is not None
        refused = self._port.rejections.settle(self.hello.source, self.hello.epoch, sequence)
        self._write(encode_line(_ack=sequence, on=self.hello.ack, **refused))

    def close_as_replaced(self) -> None:
        self.close_with_error("another connection serves this source now")

    def close_with_error(self, why: str) -> None:
        """Tell the client why its connection ends, and close it."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._write(encode_line(_error=why))
        self._connection.close()

    def _write(self, text: bytes) -> None:
        transport = self._connection.transport
        if transport is not None and not transport.is_closing():
            transport.write(text)


def last_of_each_source(committed: Sequence[tuple[int, BatchNumber]]) -> dict[tuple[int, str], BatchNumber]:
    """Return the last of these batches by stream and source. Its acknowledgement covers all before it."""
    return {(stream, number.source): number for stream, number in committed}
