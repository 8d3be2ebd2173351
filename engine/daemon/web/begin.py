"""The daemon's answers to the view Begin: rows become a draft, a draft is tried, deployed, and gets rows.

A draft is ``aurorad new`` in a process of its own. A trial plays rows through a network on an engine of its own, under
a clock that only the rows move, as ``aurorad test`` does. Rows for a stream that runs go through the stream's own
listener, like those of any client.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from catalog.config.checks import listeners
from catalog.config.edit import merge_entries
from catalog.network import Network
from catalog.schema import Schema, Type
from engine.daemon.change import LiveChanges
from engine.daemon.web.command import ConsoleError, aurorad_command, plain_word
from router.codecs.encode.text import iso

TRIAL_ROWS = 2_000
FIRST_PORT, PORTS_TRIED = 9401, 200
FEED_SECONDS = 30.0

Feed = Callable[[str, bytes], None]
"""Send bytes to the listener of a stream of this name. Raises ConsoleError."""


class Begin:
    """Any thread."""

    def __init__(self, network: Callable[[], Network], changes: LiveChanges, send: Feed) -> None:
        self._network, self._changes, self._send = network, changes, send

    def draft(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Write a network file for rows, for this daemon: its ports are free now."""
        rows, name = str(asked.get("rows", "")), asked.get("name") or "rows"
        if not rows.strip():
            raise ConsoleError("there are no rows", "paste some rows of JSON or CSV")
        into, out = free_addresses(self._network(), self._changes.text)
        return {
            "file": aurorad_command(
                ["new", "-", "--name", plain_word(name, "name"), "--listen", into, "--serve", out], rows
            ),
            "listen": into,
            "serve": out,
        }

    def merge(self, file: str) -> Mapping[str, Any]:
        """Return the network file that runs with the streams, boxes and outputs of another one."""
        return {"file": merge_entries(self._changes.text, file)}

    def trial(self, file: str, rows: Mapping[str, str]) -> Mapping[str, Any]:
        """Play rows through a network file, and return what comes out of each output."""
        from engine.run.cases.case_file import NetworkCase
        from engine.run.cases.play import play

        network = self._changes.read(file if file.endswith("\n") else file + "\n")
        known = [stream.name for stream in network.streams]
        if unknown := [name for name in rows if name not in known]:
            raise ConsoleError(f"there is no stream '{unknown[0][:100]}'", f"the streams are {', '.join(known[:20])}")
        formats = {name: "csv" for name, text in rows.items() if not text.lstrip().startswith(("{", "["))}
        parsed: dict[str, Sequence[Any]] = {
            name: text.splitlines() if name in formats else _parse_rows(name, text) for name, text in rows.items()
        }
        if sum(map(len, parsed.values())) > TRIAL_ROWS:
            raise ConsoleError(f"a trial takes at most {TRIAL_ROWS:,} rows")
        case = NetworkCase(name="trial", input=[{name: list(each)} for name, each in parsed.items()])
        played = play(network, case, formats)
        return {
            "outputs": [
                {
                    "name": o.name,
                    "fields": list(o.schema.names),
                    "rows": [_readable(row, o.schema) for row in played.rows[o.name][:TRIAL_ROWS]],
                }
                for o in network.outputs
            ],
            "refused": {
                name: [{"reason": r.reason, "message": r.message} for r in rejects[:20]]
                for name, rejects in played.refused.items()
            },
            "late": {box: count for box, count in played.late.items() if count},
            "dead": {box: count for box, count in played.dead.items() if count},
        }

    def feed(self, stream: str, rows: str) -> Mapping[str, Any]:
        """Send rows to a stream of the network that runs."""
        lines = [line for line in rows.splitlines() if line.strip()]
        if not lines:
            raise ConsoleError("there are no rows", "paste some rows of JSON or CSV")
        self._send(stream, "".join(f"{line}\n" for line in lines).encode())
        return {"stream": stream, "lines": len(lines)}


def _readable(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return a row with times as text, as a reader of the output would get them."""
    times = {f.name for f in schema.fields if f.type is Type.TIMESTAMP}
    return {name: iso(value) if name in times and value is not None else value for name, value in row.items()}


def send_to(address: tuple[str, int], data: bytes) -> None:
    """Send bytes to a listener of this process, as a client does. Raises ConsoleError."""
    host, port = address
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104  (an address to connect to)
    try:
        with socket.create_connection((host, port), timeout=FEED_SECONDS) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            while client.recv(65_536):  # until the daemon has read it all
                pass
    except OSError as error:
        raise ConsoleError(f"the stream did not take the rows: {error}", "is it paused for lack of room?") from error


def free_addresses(network: Network, text: str) -> tuple[str, str]:
    """Return two loopback addresses that nothing listens on now, and that neither the network names nor its file, whose
    ports ``--port-base`` may have moved."""
    taken = {address.port for _, address in listeners(network.config)}
    taken |= {int(port) for port in re.findall(r":(\d{2,5})\b", text)}
    found: list[str] = []
    for first in (FIRST_PORT, FIRST_PORT + 10):
        port = next((p for p in range(first, first + PORTS_TRIED) if p not in taken and _is_free(p)), None)
        if port is None:
            raise ConsoleError(f"no port from {first} to {first + PORTS_TRIED} is free")
        taken.add(port)
        found.append(f"127.0.0.1:{port}")
    return found[0], found[1]


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _parse_rows(stream: str, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ConsoleError(f"{stream}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConsoleError(f"{stream}, line {number}: a row is a JSON object")
        found.append(row)
    return found
