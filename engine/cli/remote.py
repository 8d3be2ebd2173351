"""The HTTP client of a running daemon, for ``top``, ``tap``, ``explain``, ``ingest``, ``simulate`` and ``demo``.

http.client (which imports email and ssl) is imported where it is used: other commands would wait 25 ms for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn
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


class RemoteError(Exception):
    """The daemon does not answer, or refuses. ``status`` is that of HTTP, or 0 without an answer."""

    def __init__(self, message: str, hint: str = "", status: int = 0) -> None:
        super().__init__(message)
        self.hint, self.status = hint, status


class Remote:
    """A daemon, by its URL. Each request opens a connection of its own: no command asks often."""

    def __init__(self, url: str) -> None:
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

    @contextmanager
    def get(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        forever: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> Iterator[HTTPResponse]:
        """Ask, and yield the open response. ``forever``: the body may take any time once it has begun."""
        with self._open("GET", path, query, None, timeout_s) as (response, connection):
            if response.status != 200:
                raise _refused(response, path)
            if forever and connection.sock is not None:
                connection.sock.settimeout(None)
            yield response

    @contextmanager
    def _open(
        self, method: str, path: str, query: Mapping[str, object] | None, body: bytes | None, timeout_s: float
    ) -> Iterator[tuple[HTTPResponse, HTTPConnection]]:
        from http.client import HTTPConnection, HTTPException, HTTPSConnection

        make: type[HTTPConnection] = HTTPSConnection if self._secure else HTTPConnection
        connection = make(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, f"{self._prefix}{path}{'?' + urlencode(query) if query else ''}", body)
            yield connection.getresponse(), connection
        except (OSError, HTTPException) as error:
            raise RemoteError(
                f"no aurorad answers at {self.url}: {str(error).strip() or type(error).__name__}",
                "is `aurorad run` running, and is this its http.listen? another address: --url or AURORAD_URL",
            ) from error
        finally:
            connection.close()


def _refused(response: HTTPResponse, path: str) -> RemoteError:
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
