"""The door of HTTP: every request passes it before the app sees it.

- A request must name this daemon in its Host header: by an IP address, as localhost, by the name of this machine, or by
  a name of ``http.hosts``. A page of somebody else whose DNS name points here (DNS rebinding) names itself, and gets
  nothing.
- A request with both Content-Length and Transfer-Encoding is refused: a proxy before the daemon may have taken the
  other one for the end of the request, and what follows for a request of another user.
- A request that changes something must not come from a page of another origin.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from starlette.types import Receive, Scope, Send

from router.http_answers import RequestError, plain_answer

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class InnerApp(Protocol):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


class HttpDoor:
    """``hosts``: the names, beside its own, under which this daemon is reached."""

    def __init__(self, app: InnerApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check_form(scope)
        except RequestError as error:
            await plain_answer(error.status, str(error), error.hint, close=True)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def close(self) -> None:
        self._app.close()

    def _check_form(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise RequestError(400, "a request has Content-Length or Transfer-Encoding, not both")
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            raise RequestError(421, "this host is not known here", "add it to http.hosts of the network file")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if scope["method"] not in SAFE_METHODS and origin and urlsplit(origin).netloc.lower() != host.lower():
            raise RequestError(403, "a page of another origin may not change anything")

    def _is_ours(self, host: str) -> bool:
        """Tell whether a Host header names this daemon. HTTP/1.0 has none."""
        if not host:
            return True
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._hosts or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True
