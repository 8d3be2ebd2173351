"""The HTTP client of a running daemon, for ``top``, ``tap``, ``explain``, ``names``, ``savepoint``, ``ingest``,
``simulate`` and ``demo``.

A daemon with users wants a login: a token in a file (never on the command line, where every process could read it), or
a client certificate. Each comes from an option or from the environment.

http.client (which imports email and ssl) is imported where it is used: other commands would wait 25 ms for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn
from urllib.parse import urlencode, urlsplit

import orjson
import typer

from catalog.printable import printable

if TYPE_CHECKING:
    from http.client import HTTPConnection, HTTPResponse

DEFAULT_URL = "http://127.0.0.1:9400"
EXIT_USAGE = 2  # the daemon refuses the question: there is no such output, a wrong expression
EXIT_UNAVAILABLE = 1  # no daemon answers
TIMEOUT_S = 5.0
CHANGE_TIMEOUT_S = 60.0


TOKEN_FILE, CACERT, CERT = "AURORAD_TOKEN_FILE", "AURORAD_CACERT", "AURORAD_CERT"
UrlOption = Annotated[str, typer.Option(envvar="AURORAD_URL", help="The daemon's http.listen.")]
TokenFileOption = Annotated[
    Path | None, typer.Option("--token-file", envvar=TOKEN_FILE, help="A file with the token of a user.")
]
CacertOption = Annotated[
    Path | None, typer.Option("--cacert", envvar=CACERT, help="The authority that the daemon's certificate is from.")
]


class RemoteError(Exception):
    """The daemon does not answer, or refuses. ``status`` is that of HTTP, or 0 without an answer."""

    def __init__(self, message: str, hint: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.hint, self.status = hint, status


class Remote:
    """A daemon, by its URL. Each request opens a connection of its own: no command asks often."""

    def __init__(self, url: str, token_file: Path | None = None, cacert: Path | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            port = parts.port
        except ValueError as error:
            raise RemoteError(f"'{url}' is not an address: {error}", status=400) from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RemoteError(f"'{url}' is not an address", f"write {DEFAULT_URL}", status=400)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._secure = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, port, parts.path.rstrip("/")
        self.is_here = _is_loopback(parts.hostname)  # on this machine, so it sees the same files
        self._token_file = str(token_file or os.environ.get(TOKEN_FILE, ""))
        self._cacert = str(cacert or os.environ.get(CACERT, ""))
        if self._token_file and not self._secure and not _is_loopback(parts.hostname):
            raise RemoteError("a token is not sent without TLS to another machine", "write https://", status=400)

    def json(
        self, path: str, query: Mapping[str, object] | None = None, *, has: str = "engine", timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Ask, and return the answer: an object that ``has`` this key."""
        with self.get(path, query, timeout_s=timeout_s) as response:
            body = response.read()
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict) or has not in answer:
            raise RemoteError(f"{self.url}{path} answered with something else", "is that an aurorad?")
        return answer

    def change(self, method: str, path: str, query: Mapping[str, object], body: str) -> tuple[int, Any]:
        """Ask for a change, and return the status of the answer with its object: that of a refusal too."""
        with self._open(method, path, query, body.encode(), CHANGE_TIMEOUT_S) as (response, _):
            raw = response.read()
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise RemoteError(f"{self.url}{path} answered {response.status}", "is that an aurorad?", response.status)
        return response.status, answer

    def do(self, method: str, path: str, query: Mapping[str, object], timeout_s: float = TIMEOUT_S) -> Any:
        """Have the daemon do something, and return its answer."""
        with self.get(path, query, timeout_s=timeout_s, method=method) as response:
            return orjson.loads(response.read())

    @contextmanager
    def get(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        forever: bool = False,
        timeout_s: float = TIMEOUT_S,
        method: str = "GET",
    ) -> Iterator[HTTPResponse]:
        """Ask, and yield the open response. ``forever``: the body may take any time once it has begun."""
        with self._open(method, path, query, None, timeout_s) as (response, connection):
            if response.status != 200:
                raise _refused(response, path)
            if forever and connection.sock is not None:
                connection.sock.settimeout(None)
            yield response

    @contextmanager
    def _open(
        self, method: str, path: str, query: Mapping[str, object] | None, body: bytes | None, timeout_s: float
    ) -> Iterator[tuple[HTTPResponse, HTTPConnection]]:
        from http.client import HTTPException

        connection = self._connection(timeout_s)
        try:
            what = f"{self._prefix}{path}{'?' + urlencode(query) if query else ''}"
            connection.request(method, what, body, headers=self._headers())
            yield connection.getresponse(), connection
        except (OSError, HTTPException) as error:
            raise RemoteError(
                f"no aurorad answers at {self.url}: {str(error).strip() or type(error).__name__}",
                "is `aurorad run` running, and is this its http.listen? another address: --url or AURORAD_URL",
            ) from error
        finally:
            connection.close()

    def _connection(self, timeout_s: float) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        if not self._secure:
            return HTTPConnection(self._host, self._port, timeout=timeout_s)
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._cacert or None)
            if cert := os.environ.get(CERT):
                context.load_cert_chain(cert)
        except OSError as error:
            raise RemoteError(f"the certificates cannot be read: {error}", status=400) from error
        return HTTPSConnection(self._host, self._port, timeout=timeout_s, context=context)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self._token_file else {}

    @property
    def token(self) -> str:
        """The token of the user; "" without one."""
        if not self._token_file:
            return ""
        try:
            return Path(self._token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RemoteError(f"the token cannot be read: {error}", status=400) from error


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _refused(response: HTTPResponse, path: str) -> RemoteError:
    if response.status in (401, 403):
        why = "the daemon wants a login" if response.status == 401 else "this user may not do that"
        return RemoteError(why, "--token-file or AURORAD_TOKEN_FILE names a file with a token", response.status)
    try:
        answer = orjson.loads(response.read())
        return RemoteError(answer["error"], answer.get("hint", ""), response.status)
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return RemoteError(
            f"{path} answered {response.status} {response.reason}", "is that an aurorad?", response.status
        )


def fail(error: RemoteError) -> NoReturn:
    """Print the message and its hint to standard error, and exit."""
    typer.echo(f"aurorad: {printable(str(error))}", err=True)
    if error.hint:
        typer.echo(f"  {printable(error.hint)}", err=True)
    raise typer.Exit(EXIT_USAGE if 400 <= error.status < 500 else EXIT_UNAVAILABLE)
