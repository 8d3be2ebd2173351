"""Read an output without missing a row.

A reader has a name, and the server remembers its place under that name. Iterate over the reader: each batch has its
rows and the number of its first row. ``ack`` says that the batch is processed; after a crash of either side the reader
continues behind the last acknowledged batch. If you store the place yourself, next to your results, give it as
``after``: that is exact.

A reader without a name gets the rows that the output emits while it is connected, and needs no ``data_dir`` on the
server. Nothing is repeated for it: rows that are emitted while it reconnects are gone. ``first`` and ``last`` count its
own rows, and ``ack`` does nothing.

``is_repeat``: these rows may have been delivered before under other numbers. That happens only after a crash of the
server with a network whose results depend on the time of day. ``missing``: the number of rows before this batch that
are lost, because this reader was away for longer than the server keeps them, or (without a name) was too slow.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from aurorad_client.events import DeliveredRows
from aurorad_client.link import Link
from aurorad_client.rows import Rows
from aurorad_client.settings import Auth, Tls, make_endpoint, make_reader_protocol


class Batch:
    """Rows with consecutive numbers, ``first`` to ``last``. See the module for ``is_repeat`` and ``missing``."""

    __slots__ = ("_reader", "first", "is_repeat", "last", "missing", "rows")

    def __init__(self, reader: Reader, delivered: DeliveredRows) -> None:
        self._reader = reader
        self.first = delivered.first
        self.last = delivered.last
        self.rows: Rows = delivered.rows
        self.is_repeat = delivered.is_repeat
        self.missing = delivered.missing

    def ack(self) -> None:
        """Acknowledge this batch and all before it."""
        self._reader.ack(self.last)


class Reader:
    """An endless iterator over the batches of an output. It reconnects by itself."""

    def __init__(
        self,
        host: str,
        port: int,
        name: str | None = None,
        *,
        after: int | None = None,
        format: str = "ndjson",
        timeout_s: float = 60.0,
        idle_s: float | None = None,
        auth: Auth = None,
        tls: Tls = False,
    ) -> None:
        """Connect and wait for the server's welcome. From then on the server keeps the output for ``name``.

        ``timeout_s``: how long to try to reach the server. ``idle_s``: end after this time without a batch.
        ``auth``: a token, or a name and a password. ``tls``: True, or a context.
        """
        self._name = name
        self._protocol = make_reader_protocol(name, after, format, auth)
        self._idle_s = idle_s
        self._link = Link(make_endpoint(host, port, timeout_s, tls), self._protocol)
        self._link.reconnect()

    @property
    def after(self) -> int:
        """The number of the last row that the caller has got."""
        return self._protocol.after or 0

    @property
    def reconnects(self) -> int:
        return self._link.reconnects

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the batches, until ``close`` or until ``idle_s`` passes without one."""
        self._link.check_open()
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        while not self._link.is_closed:
            event = self._protocol.next_event()
            if isinstance(event, DeliveredRows):
                yield Batch(self, event)
            elif event is None:
                try:
                    if not self._link.receive(self._idle_s):
                        return
                except OSError:
                    if not self._link.recover():
                        return

    def ack(self, number: int) -> None:
        """Acknowledge all rows up to this number."""
        data = self._protocol.ack(number)
        if not data:
            return  # a reader without a name has no place to store
        try:
            self._link.send(data)
        except OSError:
            pass  # the next connection repeats it after its welcome

    def forget(self) -> None:
        """Give the name up and close: the server keeps nothing for it any more."""
        self._link.check_open()
        if self._name is None:
            raise ValueError("this reader has no name")
        try:
            self._link.send(self._protocol.forget())
            while self._link.receive(None):
                pass  # the server closes when it has forgotten the name
        except ConnectionError:
            pass
        self.close()

    def close(self) -> None:
        """Close. A loop over this reader ends; the server keeps the place of its name."""
        self._link.close()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
