"""The door of the data ports: connections of senders and readers that must log in first.

A client logs in with its first line, ``AUTH Bearer TOKEN`` or ``AUTH Basic BASE64``, or in the client protocol with the
field ``auth`` of its hello, or by its certificate, which takes no word at all. What follows the line is what a
connection without a login would carry. A client that is not let in gets one line without a reason, and the end of the
connection.

``LoginFramer`` is the protocol without a socket: bytes in, an attempt out. The connections below are those of
``router/connection.py`` with a login before them; a port without users does not use them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from router.access.access import WAITING_LOGINS, Access
from router.access.logins import DENIED, Credentials, LoginError, parse_credentials
from router.access.tls import peer_names
from router.access.users import User
from router.client_protocol import HELLO, SessionError, encode_line
from router.connection import SourceConnection, peer_name
from router.reader_connection import SinkConnection
from router.server import ConnectionDoors, Server, SourcePort
from router.subscribers import Outlet

LINE_BYTES = 8 * 1024
LOGIN_SECONDS = 10.0
AUTH = b"AUTH "


class LoginAttempt(NamedTuple):
    """``rest``: the bytes that follow the login. A hello is both a login and the first line of its protocol."""

    credentials: Credentials | None
    rest: bytes
    is_hello: bool = False


class LoginFramer:
    """The first line of a connection."""

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes, *, at_end: bool = False) -> LoginAttempt | None:
        """Return the attempt when it is complete; None while more bytes are needed."""
        self._data += data
        got = self._data
        begins = any(got[: len(word)] == word[: len(got)] for word in (AUTH, HELLO))
        if not begins:
            return LoginAttempt(None, got) if got else None
        end = got.find(b"\n", 0, LINE_BYTES + 1)  # a longer line is none, however its bytes arrive
        if end < 0:
            return LoginAttempt(None, b"") if len(got) > LINE_BYTES or at_end else None
        if got.startswith(AUTH):
            return LoginAttempt(parse_credentials(got[len(AUTH) : end].decode("latin-1")), got[end + 1 :])
        auth = _hello(got[:end]).get("auth")
        return LoginAttempt(parse_credentials(auth) if isinstance(auth, str) else None, got, True)


def _hello(line: bytes) -> dict[str, Any]:
    try:
        message = orjson.loads(line)
    except orjson.JSONDecodeError:
        return {}
    hello = message.get("_hello") if isinstance(message, dict) else None
    return hello if isinstance(hello, dict) else {}


class Login:
    """The login of one connection. ``accept`` gets the user and the attempt, ``refuse`` the line to send."""

    def __init__(
        self,
        access: Access,
        listener: str,
        accept: Callable[[User, LoginAttempt], None],
        refuse: Callable[[bytes], None],
    ) -> None:
        self._access = access
        self._listener = listener
        self._accept = accept
        self._refuse = refuse
        self._framer = LoginFramer()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(LOGIN_SECONDS, self._refuse, b"")
        self.by_certificate: User | None = None
        self.address = ""
        self.user: User | None = None
        self.is_checking = False
        self._has_ended = False

    def begin(self, transport: asyncio.BaseTransport) -> None:
        """Look at who the peer is by its address and certificate."""
        self.address = peer_name(transport).rpartition(":")[0]
        tls = self._access.tls
        names = peer_names(transport.get_extra_info("ssl_object"), None if tls is None else tls.files)
        self.by_certificate = self._access.logins.by_certificate(names)

    def receive(self, data: bytes, *, at_end: bool = False) -> None:
        """Take the first bytes of the connection."""
        attempt = self._framer.receive(data, at_end=at_end)
        if attempt is None or self.is_checking:
            return
        if attempt.credentials is None and self.by_certificate is not None:
            self._let_in(self.by_certificate, attempt)
        elif attempt.credentials is None or self._access.logins.is_quick(attempt.credentials):
            self._check(attempt)
        else:
            self.is_checking = True
            self._loop.create_task(self._check_on_thread(attempt))

    def _check(self, attempt: LoginAttempt) -> None:
        try:
            user = self._access.logins.check(attempt.credentials, self.address, self._listener)
        except LoginError as error:
            self._deny(attempt, str(error))
        else:
            self._let_in(user, attempt)

    async def _check_on_thread(self, attempt: LoginAttempt) -> None:
        access = self._access
        if access.waiting >= WAITING_LOGINS:
            self._deny(attempt, "too many logins at once; try again later")
            return
        access.waiting += 1
        try:
            user = await self._loop.run_in_executor(
                access.login_thread, access.logins.check, attempt.credentials, self.address, self._listener
            )
        except LoginError as error:
            self._deny(attempt, str(error))
        else:
            self._let_in(user, attempt)
        finally:
            access.waiting -= 1
            self.is_checking = False

    def _let_in(self, user: User, attempt: LoginAttempt) -> None:
        kind, _, place = self._listener.partition(" ")
        right = "publish" if kind == "stream" else "subscribe"
        if self._has_ended:
            return
        if not user.may(right, place):
            self._access.audit.note(f"{right} denied", user=user.name, peer=self.address, listener=self._listener)
            self._deny(attempt, DENIED)
        elif user.connections >= user.model.connections:
            self._deny(attempt, "too many connections of this user")
        else:
            self._timer.cancel()
            user.connections += 1
            self.user = user
            self._accept(user, attempt)

    def check_name(self, name: str) -> None:
        """Refuse the name of a source or a reader that belongs to somebody else. Raises SessionError."""
        assert self.user is not None
        kind, _, place = self._listener.partition(" ")
        of = "source" if kind == "stream" else "reader"
        if not self._access.may_use_name(self.user, of, place, name):
            facts = {"user": self.user.name, "peer": self.address, "name": name}
            self._access.audit.note(f"{of} denied", listener=self._listener, **facts)
            raise SessionError(DENIED)

    def _deny(self, attempt: LoginAttempt, why: str) -> None:
        self._timer.cancel()
        self._refuse(encode_line(_error=why) if attempt.is_hello else b"error: " + why.encode() + b"\n")

    def end(self) -> None:
        """The connection has ended."""
        self._has_ended = True
        self._timer.cancel()
        user, self.user = self.user, None
        if user is not None:
            user.connections -= 1


class GuardedSource(SourceConnection):
    """The connection of a sender that must log in."""

    def __init__(self, server: Server, port: SourcePort, access: Access) -> None:
        super().__init__(server, port)
        self._login = Login(access, f"stream {port.stream.name}", self._let_in, self._turn_away)
        self._ends_after_login = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._login.begin(transport)

    def receive(self, data: bytes, arrival_ns: int) -> None:
        user = self._login.user
        if user is None:
            self._login.receive(bytes(data))
            self.set_held(self._login.is_checking)
            return
        super().receive(data, arrival_ns)
        if user.bytes_pace is not None and (wait_s := user.bytes_pace.take(len(data))) > 0:
            self.set_held(True)
            asyncio.get_running_loop().call_later(wait_s, self.set_held, False)

    def _let_in(self, user: User, attempt: LoginAttempt) -> None:
        self.set_held(False)
        if attempt.rest:
            self.receive(attempt.rest, self._server.now_ns())
        if self._ends_after_login:
            super().eof_received()

    def _turn_away(self, line: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(line)
            self.transport.close()

    def eof_received(self) -> bool:
        if self._login.user is not None:
            return super().eof_received()
        if not self._login.is_checking:
            self._login.receive(b"", at_end=True)
        self._ends_after_login = self._login.is_checking
        return self._ends_after_login

    def finish(self) -> None:
        if self._login.user is not None:
            super().finish()

    def check_name(self, name: str) -> None:
        self._login.check_name(name)

    def connection_lost(self, exc: Exception | None) -> None:
        self._login.end()
        super().connection_lost(exc)


class GuardedSink(SinkConnection):
    """The connection of a reader that must log in. It gets nothing before."""

    def __init__(self, server: Server, outlet: Outlet, access: Access) -> None:
        super().__init__(server, outlet)
        self._login = Login(access, f"output {outlet.name}", self._let_in, self._turn_away)
        self.is_silent = True  # until it has logged in: it may lose its place

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._login.begin(transport)
        if self._login.by_certificate is not None and not transport.is_closing():
            self._login.receive(_NO_WORDS)

    def attach(self) -> None:
        """Attach later: when the reader is let in."""

    def data_received(self, data: bytes) -> None:
        if self._login.user is None:
            self._login.receive(data)
        else:
            super().data_received(data)

    def _let_in(self, user: User, attempt: LoginAttempt) -> None:
        self.is_silent = False
        if not attempt.is_hello:
            super().attach()
        if attempt.rest and attempt.rest != _NO_WORDS:
            super().data_received(attempt.rest)

    def _turn_away(self, line: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(line)
            self.transport.close()

    def eof_received(self) -> bool:
        if self._login.user is None and not self._login.is_checking:
            return False
        return super().eof_received()

    def check_name(self, name: str) -> None:
        self._login.check_name(name)

    def connection_lost(self, exc: Exception | None) -> None:
        self._login.end()
        super().connection_lost(exc)


_NO_WORDS = b"\n"
"""Stands for the words of a reader that says nothing: its certificate has said who it is."""


def doors_of(access: Access) -> ConnectionDoors:
    """Return the connections of the data ports: with a login where there are users."""
    if access.is_open:
        return ConnectionDoors(tls=access.tls)
    return ConnectionDoors(
        source=lambda server, port: GuardedSource(server, port, access),
        sink=lambda server, outlet: GuardedSink(server, outlet, access),
        tls=access.tls,
    )
