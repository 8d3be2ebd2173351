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

from engine.lab.bench.harness import free_ports
from engine.lab.processes import command, end, shipped, spawn


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
    assert re.search(r"[1-9][\d,]* tuples in; out: .*tape [1-9].*unaccounted for: 0$", said[-2])


def test_a_port_in_use_is_told_and_not_waited_for(network: tuple[Path, int]) -> None:
    file, _ = network
    with demo(file) as first:
        lines_until(first, "load ")
        with demo(file) as second:
            assert second.wait(timeout=60) != 0
        assert first.poll() is None
