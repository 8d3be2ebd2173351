"""The arguments of senders and readers, checked once for the sync and the async forms."""

from __future__ import annotations

import time

from aurorad_client.patience import Endpoint
from aurorad_client.reader_protocol import PlainProtocol, ReaderProtocol
from aurorad_client.rows import check_format
from aurorad_client.sender_protocol import SenderProtocol


def make_endpoint(host: str, port: int, timeout_s: float) -> Endpoint:
    if not 0 < port < 65_536:
        raise ValueError(f"port must be from 1 to 65535, not {port}")
    if timeout_s <= 0:
        raise ValueError(f"timeout_s must be above 0, not {timeout_s}")
    return Endpoint(host, port, timeout_s)


def make_sender_protocol(source: str, epoch: int | None, ack: str, format: str, window: int) -> SenderProtocol:
    check_format(format)
    if not source:
        raise ValueError("source must not be empty: the server knows a sender by it")
    if ack not in ("disk", "memory"):
        raise ValueError(f"ack must be disk or memory, not {ack!r}")
    if window < 1:
        raise ValueError(f"window must be at least 1, not {window}")
    return SenderProtocol(source, int(time.time()) if epoch is None else epoch, ack, format)


def make_reader_protocol(name: str | None, after: int | None, format: str) -> ReaderProtocol | PlainProtocol:
    check_format(format)
    if name:
        return ReaderProtocol(name, after, format)
    if name is not None:
        raise ValueError("name must not be empty: the server keeps the place of a reader under it")
    if after is not None:
        raise ValueError("only a reader with a name can begin behind a row: give name as well as after")
    if format != "ndjson":
        raise ValueError("only a reader with a name can read arrow: give name as well")
    return PlainProtocol()
