"""Ports: all of a network move together, and a taken one is named with its process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from catalog.config.checks import listeners
from catalog.config.overrides import Overrides
from catalog.config.units import Address
from catalog.errors import NetworkError
from engine.run.network_file import read_network
from router.ports import holder_of, why_taken

NETWORK = """
http: {listen: 127.0.0.1:9400}
streams: {s: {schema: {a: int}, source: {tcp: "0.0.0.0:9401", insecure: true}, overload: block}}
outputs:
  near: {from: s, sink: {tcp: 127.0.0.1:9411}}
  any: {from: s, sink: {tcp: 127.0.0.1:0}}
"""


def moved(text: str, base: int) -> dict[str, str]:
    network = read_network(text, {}, overrides=Overrides(port_base=base))
    return {str(place[1] if place[0] != "http" else "http"): str(at) for place, at in listeners(network.config)}


def test_the_lowest_port_moves_to_the_base_and_the_others_keep_their_distance() -> None:
    assert moved(NETWORK, 20_000) == {
        "http": "127.0.0.1:20000", "s": "0.0.0.0:20001", "near": "127.0.0.1:20011", "any": "127.0.0.1:0",
    }  # fmt: skip


@pytest.mark.parametrize("http", ["", "http:"])
def test_the_default_port_of_http_moves_too(http: str) -> None:
    assert moved(NETWORK.replace("http: {listen: 127.0.0.1:9400}", http), 20_000)["http"] == "127.0.0.1:20000"


def test_without_http_the_lowest_port_is_that_of_a_stream() -> None:
    found = moved(NETWORK.replace("{listen: 127.0.0.1:9400}", "{listen: off}"), 20_000)
    assert found["s"] == "0.0.0.0:20000"
    assert "http" not in found


def test_a_base_without_room_for_the_others_is_refused() -> None:
    with pytest.raises(NetworkError, match="65536: at most 65524"):
        moved(NETWORK, 65_525)


def test_a_wrong_address_is_reported_as_without_a_base() -> None:
    with pytest.raises(NetworkError, match="nowhere"):
        moved(NETWORK.replace("127.0.0.1:9411", "nowhere"), 20_000)


def test_the_process_on_a_port_is_named() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        port = listener.getsockname()[1]
        name = Path("/proc/self/comm").read_text().strip()
        assert holder_of(port) == f"{name} (pid {os.getpid()})"
        for host in ("127.0.0.1", "0.0.0.0"):
            assert why_taken(Address(host, port)) == f"the port is in use by {name} (pid {os.getpid()})"
    assert holder_of(port) == ""
    assert why_taken(Address("127.0.0.1", port)) == ""
