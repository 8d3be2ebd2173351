"""``aurorad demo`` as ``make run`` starts it, on ports of its own: lines without a terminal, and a clean end."""

from __future__ import annotations

import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from catalog.config.units import Address
from engine.lab.processes import command, end, shipped, spawn
from router.ports import why_taken
from tests.e2e.daemon import free_ports, running


@pytest.fixture
def network(tmp_path: Path) -> tuple[Path, int]:
    """Write the demo's network with free ports; return the file and the port of HTTP."""
    text = shipped("demo.yaml").read_text()
    old = sorted(set(re.findall(r":(94\d\d)\"", text)))
    new = free_ports(len(old))
    for a, b in zip(old, new, strict=True):
        text = text.replace(f':{a}"', f':{b}"')
    file = tmp_path / "demo.yaml"
    file.write_text(text)
    return file, new[old.index("9400")]


@contextmanager
def demo(file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    process = spawn(command("demo", "--file", str(file), *options), stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        end(process)


def lines_until(process: subprocess.Popen[bytes], pattern: str) -> list[str]:
    """Read lines up to the first one that matches. The test's time limit applies."""
    assert process.stdout is not None
    said: list[str] = []
    for raw in process.stdout:
        said.append(raw.decode().rstrip())
        if re.search(pattern, said[-1]):
            return said
    pytest.fail(f"no line like {pattern!r} in {said}")


def test_says_where_to_feed_and_shows_every_output(network: tuple[Path, int]) -> None:
    file, http = network
    with demo(file) as process:
        said = "\n".join(lines_until(process, r"load .*alerts .*spreads .*tape .*dark "))
        for name in ("trades", "quotes"):
            assert re.search(rf"feed {name} +nc 127.0.0.1 \d+", said)
        for name in ("alerts", "spreads", "tape", "dark"):
            assert re.search(rf"read {name} +nc 127.0.0.1 \d+", said)
        assert f"http://127.0.0.1:{http}/metrics" in said
        with urllib.request.urlopen(f"http://127.0.0.1:{http}/metrics", timeout=10) as response:
            assert b"aurorad_tuples_in_total" in response.read()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_ends_cleanly_and_has_lost_nothing(network: tuple[Path, int], how: signal.Signals) -> None:
    file, _ = network
    with demo(file, "--rate", "2000") as process:
        lines_until(process, r"tape [1-9]")
        process.send_signal(how)
        said = lines_until(process, r"^ended$")
        assert process.wait() == 0
    assert re.search(r"[1-9][\d,]* tuples in; [\d,]+ dropped; out: .*tape [1-9].*unaccounted for: 0$", said[-2])


def test_a_second_demo_names_the_first_before_its_banner_and_feeds_nothing(network: tuple[Path, int]) -> None:
    file, _ = network
    with demo(file) as first:
        lines_until(first, "load ")
        second = subprocess.run(command("demo", "--file", str(file)), capture_output=True, timeout=60, check=False)
        assert second.returncode == 69
        assert second.stdout == b"", "no banner"
        holder = re.search(r"http.listen .*: the port is in use by aurorad \(pid (\d+)\)", second.stderr.decode())
        assert holder is not None, second.stderr
        assert holder[1] in _children(first.pid)
        assert second.stderr.count(b"is in use by") == 7, "every port of the network"
        assert b"--port-base" in second.stderr
        assert first.poll() is None


def test_a_stranger_on_one_port_gets_no_trade(tmp_path: Path) -> None:
    """Somebody else's daemon listens where the demo would feed. The demo says so, and feeds nothing."""
    base = _free_base()
    http = free_ports(1)[0]
    stranger = f"""
streams:
  mine: {{schema: {{ts: timestamp, symbol: string, price: double, size: int, venue: string?}},
         source: {{tcp: 127.0.0.1:{base + 1}}}, overload: block}}
outputs: {{all: {{from: mine}}}}
"""
    with running(tmp_path, stranger, http) as other:
        done = subprocess.run(
            command("demo", "--port-base", str(base), "--seconds", "5"), capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 69
        assert done.stdout == b""
        holder = f"aurorad (pid {other.process.pid})"
        told = f"streams.trades.source.tcp 127.0.0.1:{base + 1}: the port is in use by {holder}"
        assert told in done.stderr.decode()
        stream = other.stream("mine")
        assert (stream["received"], stream["connections"]) == (0, 0)


def test_port_base_moves_every_port_and_the_addresses_that_are_told() -> None:
    base = _free_base()
    process = spawn(command("demo", "--port-base", str(base), "--rate", "500"), stdout=subprocess.PIPE)
    try:
        said = "\n".join(lines_until(process, r"load .*alerts .*spreads .*tape .*dark "))
    finally:
        end(process)
    told = {int(port) for port in re.findall(r"(?:nc 127.0.0.1 |http://127.0.0.1:)(\d+)", said)}
    assert told == {base + offset for offset in (0, 1, 2, 11, 12, 13, 14)}


def _free_base() -> int:
    """Return a port with the demo's other ports behind it free: the lowest of a range of fifteen."""
    for base in free_ports(50):
        if not any(why_taken(Address("127.0.0.1", base + offset)) for offset in range(15)):
            return base
    pytest.fail("no range of fifteen free ports")


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
