"""The arguments of senders and readers, checked once for the sync and the async forms."""

from __future__ import annotations

import base64
import ssl
import time

from aurorad_client.patience import Endpoint
from aurorad_client.reader_protocol import PlainProtocol, ReaderProtocol
from aurorad_client.rows import check_format
from aurorad_client.sender_protocol import SenderProtocol

Auth = str | tuple[str, str] | None
"""How a client logs in: a token, or the name of a user and a password."""

Tls = bool | ssl.SSLContext
"""True: TLS with a server whose certificate an authority of this machine has signed. A context says it in detail."""


def make_auth(auth: Auth) -> str:
    """Return the credentials in the words of HTTP; "" without any."""
    if auth is None:
        return ""
    if isinstance(auth, str):
        if not auth or not auth.isascii() or not auth.isprintable() or " " in auth:
            raise ValueError("auth must be a token of printable ASCII characters, or a pair of name and password")
        return f"Bearer {auth}"
    name, password = auth
    if not name or ":" in name:
        raise ValueError("the name of a user must not be empty or contain a colon")
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def make_endpoint(host: str, port: int, timeout_s: float, tls: Tls = False) -> Endpoint:
    if not 0 < port < 65_536:
        raise ValueError(f"port must be from 1 to 65535, not {port}")
    if timeout_s <= 0:
        raise ValueError(f"timeout_s must be above 0, not {timeout_s}")
    context = tls if isinstance(tls, ssl.SSLContext) else ssl.create_default_context() if tls else None
    return Endpoint(host, port, timeout_s, context)


def make_sender_protocol(
    source: str, epoch: int | None, ack: str, format: str, window: int, auth: Auth = None
) -> SenderProtocol:
    check_format(format)
    if not source:
        raise ValueError("source must not be empty: the server knows a sender by it")
    if ack not in ("disk", "memory"):
        raise ValueError(f"ack must be disk or memory, not {ack!r}")
    if window < 1:
        raise ValueError(f"window must be at least 1, not {window}")
    return SenderProtocol(source, int(time.time()) if epoch is None else epoch, ack, format, make_auth(auth))


def make_reader_protocol(
    name: str | None, after: int | None, format: str, auth: Auth = None
) -> ReaderProtocol | PlainProtocol:
    check_format(format)
    if name:
        return ReaderProtocol(name, after, format, make_auth(auth))
    if name is not None:
        raise ValueError("name must not be empty: the server keeps the place of a reader under it")
    if after is not None:
        raise ValueError("only a reader with a name can begin behind a row: give name as well as after")
    if format != "ndjson":
        raise ValueError("only a reader with a name can read arrow: give name as well")
    return PlainProtocol(make_auth(auth))
