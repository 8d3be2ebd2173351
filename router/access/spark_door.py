"""The door of the Spark port: every request has a token, and needs the right to the stream or output that it names.

The token is that of the network file (``spark.token``), which may do everything on this port, or that of a user. The
daemon's own jobs use the first; where the file has users and no such token, the daemon makes one up. A client
certificate takes the place of a token.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable

from catalog.errors import AuroraError
from router.access.access import Access
from router.access.logins import DENIED, Credentials, LoginError
from router.access.tls import ServerTls, peer_names
from router.access.users import ANYONE, User
from router.spark.daemon.request import PortRequest
from router.spark.wire.peer import Peer, PortError

TOKEN_CHARACTERS = 10_000
OF_A_JOB = ("push", "expect", "progress", "end")
OF_A_STREAM = ("begin", "stage", "commit")
OF_THE_DAEMON = ("ingest", "ingest_state", "ingest_stop")
"""Requests by which the daemon reads files and databases with its own rights."""
OF_AN_OUTPUT = ("offsets", "read", "release")


class SparkDoor:
    """``stream_of_job`` returns the name of the stream that a bulk job fills. Any thread."""

    def __init__(self, access: Access | None, token: str, stream_of_job: Callable[[str], str]) -> None:
        self._access = access
        self._has_users = access is not None and not access.is_open
        self.token = token or (secrets.token_hex(32) if self._has_users else "")
        self._stream_of_job = stream_of_job
        self.tls: ServerTls | None = None
        if access is not None and access.tls is not None:
            files = access.tls.files
            # Executors have a token and no certificate.
            asks = "none" if files.client_ca_file is None else "request"
            self.tls = ServerTls(files._replace(client_auth=asks), "access.tls")

    def admit(self, peer: Peer, request: PortRequest) -> None:
        """Let a request in, or raise PortError."""
        token = request.text("token", "", TOKEN_CHARACTERS)
        if self.token and hmac.compare_digest(token.encode(), self.token.encode()):
            return
        if not self._has_users:
            if self.token:
                self._refuse_token(peer, token)
            return
        user = self._user(peer, token)
        try:
            is_allowed = user is ANYONE or self._may(user, request)
        except AuroraError:
            is_allowed = False  # a field is wrong, or names what does not exist: no hint of it
        if not is_allowed:
            assert self._access is not None
            self._access.audit.note("request denied", listener="spark", user=user.name, peer=peer.name)
            raise PortError(DENIED)

    def _refuse_token(self, peer: Peer, token: str) -> None:
        """Refuse a wrong ``spark.token``. It is noted and slowed down like any failed login."""
        if self._access is not None:
            try:
                self._access.logins.check(Credentials(token=token) if token else None, _address(peer), "spark")
            except LoginError as error:
                if error.retry_s:
                    raise PortError(str(error)) from None
        raise PortError("the token is wrong")

    def _user(self, peer: Peer, token: str) -> User:
        assert self._access is not None
        names = peer_names(peer.ssl_socket, None if self.tls is None else self.tls.files)
        if not token and (user := self._access.logins.by_certificate(names)) is not None:
            return user
        credentials = Credentials(token=token) if token else None
        try:
            return self._access.logins.check(credentials, _address(peer), "spark")
        except LoginError as error:
            raise PortError(str(error)) from None

    def _may(self, user: User, request: PortRequest) -> bool:
        assert self._access is not None
        do = request.text("do", "")
        if do in OF_THE_DAEMON:
            return user.is_admin
        if do in OF_A_JOB:
            return user.may("publish", self._stream_of_job(request.text("job")))
        if do in OF_A_STREAM:
            return user.may("publish", request.text("stream"))
        if do in OF_AN_OUTPUT:
            output, reader = request.text("output"), request.text("reader", "")
            return user.may("subscribe", output) and self._access.may_use_name(user, "reader", output, reader)
        if do == "describe":
            right, what = ("publish", "stream") if "stream" in request else ("subscribe", "output")
            return user.may(right, request.text(what))
        return do == "abort" and bool(user.model.publish or user.is_admin)


def _address(peer: Peer) -> str:
    return peer.name.rpartition(":")[0]
