"""Move all ports of a network at once (``--port-base``), so that a second daemon can run beside the first.

The lowest port of the file moves to the base, and every other port keeps its distance from it. Port 0 stays: the system
chooses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from catalog.config.units import Address, parse_address
from catalog.errors import NetworkError, Problem

DEFAULT_HTTP = Address("127.0.0.1", 9400)
HIGHEST_PORT = 65_535


def move_ports(data: dict[str, Any], base: int, name: str) -> None:
    """Move the ports in the data of a file. An address that cannot be read stays for the validation to report.

    Raises NetworkError when a port would be above the highest one.
    """
    if data.get("http") is None:
        data["http"] = {}
    if isinstance(data["http"], dict):
        data["http"].setdefault("listen", str(DEFAULT_HTTP))
    found = [(below, key, at) for below, key in _places(data) if (at := _address(below[key])) is not None and at.port]
    lowest = min((at.port for _, _, at in found), default=base)
    for below, key, at in found:
        port = base + at.port - lowest
        if port > HIGHEST_PORT:
            highest = HIGHEST_PORT - max(at.port for _, _, at in found) + lowest
            raise NetworkError([Problem((), f"--port-base {base} moves {at} to port {port}: at most {highest}")], name)
        below[key] = str(Address(at.host, port))


def _places(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each mapping and key that may have an address to listen on."""
    for section in ("http", "spark"):
        if isinstance(below := data.get(section), dict) and "listen" in below:
            yield below, "listen"
    for section, end in (("streams", "source"), ("outputs", "sink")):
        named = data.get(section)
        for entry in named.values() if isinstance(named, dict) else ():
            below = entry.get(end) if isinstance(entry, dict) else None
            if isinstance(below, dict) and "tcp" in below:
                yield below, "tcp"


def _address(value: object) -> Address | None:
    try:
        return parse_address(value)
    except ValueError:
        return None  # "off", or an error that the validation reports
