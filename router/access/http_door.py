"""The door of HTTP: every request passes it before the app sees it.

- A request must name this daemon in its Host header: by an IP address, as localhost, by the name of this machine, or by
  a name of ``http.hosts``. A page of somebody else whose DNS name points here (DNS rebinding) names itself, and gets
  nothing.
- A request with both Content-Length and Transfer-Encoding is refused: a proxy before the daemon may have taken the
  other one for the end of the request, and what follows for a request of another user.
- A request that changes something must not come from a page of another origin.
- Where there are users, every request but the probes needs a login: ``Authorization: Bearer`` or ``Basic``, or a client
  certificate. Without one the answer is 401 at every address, whether there is anything or not. A user without the
  right gets 403, also for what does not exist. A user has a number of requests a second and at once.
- Everything that changes something is in the audit log.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Protocol
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Receive, Scope, Send

from router.access.access import WAITING_LOGINS, Access
from router.access.logins import DENIED, LoginError, parse_credentials
from router.access.users import ANYONE, User
from router.http.answers import RequestError, plain_answer
from router.http.server import CERTIFICATE, PROBES

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
ADMIN_PATHS = ("/api/v1/names", "/api/v1/savepoint")
QUERY_PATH = "/api/v1/queries/"
FILE_PATHS = ("/api/v1/network/file", "/api/v1/revisions/")  # may hold secrets: for those who may change it
USER = "aurorad.user"
CHALLENGE = 'Bearer realm="aurorad", Basic realm="aurorad", charset="UTF-8"'


class InnerApp(Protocol):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self) -> None: ...


def user_of(request: Request) -> User | None:
    """Return who asks. None: a probe without a login, where there are users."""
    user: User | None = request.scope.get(USER, ANYONE)
    return user


class HttpDoor:
    """``hosts``: the names, beside its own, under which this daemon is reached."""

    def __init__(self, app: InnerApp, hosts: Iterable[str] = (), access: Access | None = None) -> None:
        self._app = app
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self._access = access
        self._headers = {} if access is None else access.web.http_server_config.headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._headers:
            send = self._with_headers(send)
        user: User | None = ANYONE
        try:
            self._check_form(scope)
            if self._access is not None and not self._access.is_http_open:
                user = await self._login(self._access, scope)
                _check_rights(user, scope)
        except RequestError as error:
            self._note_denial(error, user, scope)
            answer = plain_answer(error.status, str(error), error.hint, close=True)
            answer.headers.update(_more_headers(error))
            await answer(scope, receive, send)
            return
        if scope["method"] not in SAFE_METHODS and self._access is not None:
            send = self._audited(self._access, user, scope, send)
        await self._serve(user, scope, receive, send)

    async def _serve(self, user: User | None, scope: Scope, receive: Receive, send: Send) -> None:
        if user is ANYONE:
            await self._app(scope, receive, send)
            return
        scope[USER] = user
        if user is None:
            await self._app(scope, receive, send)
            return
        user.connections += 1
        try:
            await self._app(scope, receive, send)
        finally:
            user.connections -= 1

    def close(self) -> None:
        self._app.close()

    # -- login --------------------------------------------------------------------------------------------------------

    async def _login(self, access: Access, scope: Scope) -> User | None:
        """Return the user; None for a probe without credentials. Raises RequestError."""
        headers = dict(scope["headers"])
        text = headers.get(b"authorization", b"").decode("latin-1")
        if not text:
            if (user := access.http_logins.by_certificate(scope.get("state", {}).get(CERTIFICATE, []))) is not None:
                return user
            if scope["path"] in PROBES:
                return None
        credentials = parse_credentials(text)
        client = scope.get("client")
        arguments = (credentials, client[0] if client else "", "http")
        try:
            if credentials is None or access.http_logins.is_quick(credentials):
                return access.http_logins.check(*arguments)
            if access.waiting >= WAITING_LOGINS:
                raise RequestError(503, "too many logins at once; try again later")
            access.waiting += 1
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(access.login_thread, access.http_logins.check, *arguments)
            finally:
                access.waiting -= 1
        except LoginError as error:
            if error.retry_s:
                raise TooManyError(str(error), error.retry_s) from None
            raise RequestError(401, DENIED) from None

    def _note_denial(self, error: RequestError, user: User | None, scope: Scope) -> None:
        if error.status == 403 and self._access is not None and user is not None:
            client = scope.get("client")
            path = scope["path"][:200]
            peer = client[0] if client else ""
            self._access.audit.note("request denied", listener="http", user=user.name, peer=peer, path=path)

    def _audited(self, access: Access, user: User | None, scope: Scope, send: Send) -> Send:
        client = scope.get("client")
        facts = {"user": "" if user is None else user.name, "peer": client[0] if client else "",
                 "path": scope["path"][:200]}  # fmt: skip

        async def note(message: Message) -> None:
            if message["type"] == "http.response.start":
                access.audit.note(f"{scope['method']} request", listener="http", **facts, status=message["status"])
            await send(message)

        return note

    def _with_headers(self, send: Send) -> Send:
        async def add(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            await send(message)

        return add

    # -- form ---------------------------------------------------------------------------------------------------------

    def _check_form(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise RequestError(400, "a request has Content-Length or Transfer-Encoding, not both")
        host = headers.get(b"host", b"").decode("latin-1")
        if not self._is_ours(host):
            raise RequestError(421, "this host is not known here", "add it to http.hosts of the network file")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if scope["method"] not in SAFE_METHODS and origin and _netloc(origin) != host.lower():
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


def _netloc(origin: str) -> str:
    """Return the host and port of an origin; empty when it is none, such as ``http://[``."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


class TooManyError(RequestError):
    """The peer or the user must wait."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(429, message)
        self.retry_s = retry_s


def _more_headers(error: RequestError) -> dict[str, str]:
    if isinstance(error, TooManyError):
        return {"Retry-After": str(max(1, round(error.retry_s)))}
    return {"WWW-Authenticate": CHALLENGE} if error.status == 401 else {}


def _check_rights(user: User | None, scope: Scope) -> None:
    """Refuse what this user may not do at all. The app asks for the rights to single streams, boxes and outputs."""
    if user is None:
        return
    if user.connections >= user.model.connections or not user.requests_pace.may_take():
        raise TooManyError("too many requests of this user", 1.0)
    if scope["path"] in PROBES:
        return
    is_change = scope["method"] not in SAFE_METHODS or scope["path"].startswith(FILE_PATHS)
    if scope["path"].startswith(ADMIN_PATHS):
        is_allowed = user.is_admin
    elif is_change and scope["method"] == "DELETE" and scope["path"].startswith(QUERY_PATH):
        is_allowed = user.may("change", scope["path"].removeprefix(QUERY_PATH))
    elif is_change:
        is_allowed = user.may("change", "*")  # what is added to a network can read files and run Python
    else:
        is_allowed = user.may_view
    if not is_allowed:
        raise RequestError(403, DENIED)
