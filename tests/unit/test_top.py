"""The drawing of ``top``, a pure function of the daemon's answer."""

from __future__ import annotations

import socket
from threading import Thread
from typing import Any

import pytest
from rich.console import Console

from catalog.catalog import Epoch
from engine.cli.remote import Remote, RemoteError
from engine.cli.views.numbers import count, duration, size
from engine.cli.views.stats import draw, one_line, rows_left
from qos_monitor.conservation import residuals
from qos_monitor.report import stats_json
from qos_monitor.sampler import Sampler, enrich
from tests.unit.monitored import busy, diamond, idle

NETWORK = diamond()


def stats(**lost: int) -> dict[str, Any]:
    epoch = Epoch.of(NETWORK)
    sampler = Sampler(epoch)
    sampler.fold(idle(NETWORK))
    readings = busy(NETWORK)
    sample = sampler.fold(readings)
    return stats_json(enrich(readings, sample, epoch), sample, epoch, residuals(readings) | lost)


def drawn(data: dict[str, Any], boxes: int = 100, width: int = 140) -> str:
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(data, boxes))
    return capture.get()


def line_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(name))


def test_outputs_boxes_and_header() -> None:
    text = drawn(stats())
    header = text.splitlines()[0]
    for part in ("1.2.3", "load 3%", "of 512MiB", "round_robin superbox", "up 1.0s"):
        assert part in header
    alerts = line_of(text, "alerts")
    for part in ("20.0ms", "900ms", "2.0s", "3.0s", "0.880", "20.0%", "10", "200"):
        assert part in alerts.split(), part
    assert "98.0%" in line_of(text, "others").split() or "20.0%" in line_of(text, "others").split()
    split = line_of(text, "split").split()
    assert split[1] == "case"
    assert "2.0%" in split
    assert split[-1] == "50"


def test_a_narrow_terminal_shows_fewer_columns_and_these_whole() -> None:
    wide, narrow = drawn(stats()), drawn(stats(), width=80)
    assert "…" not in narrow and all(len(line) <= 80 for line in narrow.splitlines())
    for name in ("output", "alerts", "box", "split"):
        kept = line_of(narrow, name).split()
        assert len(kept) < len(line_of(wide, name).split()) and set(kept) <= set(line_of(wide, name).split())
    assert {"p50", "p99", "utility", "readers"} <= set(line_of(narrow, "output").split())


def test_a_long_network_shows_where_most_waits() -> None:
    data = stats()
    data["boxes"] = [dict(data["boxes"][0], name=f"b{i}", queue_tuples=i) for i in range(50)]
    text = drawn(data, rows_left(data, 24))
    assert "b49" in text
    assert "b10 " not in text
    assert "boxes with shorter queues" in text
    assert len(text.splitlines()) <= 24


def test_all_outputs_together_and_where_the_time_went() -> None:
    data = stats()
    a, b = data["outputs"] = data["outputs"][:2]
    a["slowdown"], b["slowdown"] = {"mean": 2.0, "max": 3.0, "l2": 30.0}, {"mean": 4.0, "max": 9.0, "l2": 40.0}
    a["emitted"], b["emitted"] = 300, 100
    a["latency"]["window_tuples"], b["latency"]["window_tuples"] = 30, 10
    a["latency"]["mean_ns"], b["latency"]["mean_ns"] = 1e6, 5e6
    together = line_of(drawn(data), "(all)").split()
    for part in ("2.0ms", "2.5", "9", "50"):  # mean latency; slowdown as mean, most and l2 norm
        assert part in together, (part, together)
    for name, ns in (("scheduler", 5), ("storage", 10), ("worker", 15)):
        data["scheduler"][f"{name}_ns"] = ns
    data["boxes"] = [dict(data["boxes"][0], cost_ns=70)]
    assert "overhead scheduler 5% storage 10% worker 15%" in drawn(data)


def test_queue_memory_over_time() -> None:
    console = Console(width=200, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(draw(stats(), 5, [0, 2**20, 2**19]))
    assert "queues  █▄ most 1.0MiB" in capture.get()


def test_what_is_lost_is_said_loudly() -> None:
    assert "unaccounted" not in drawn(stats())
    assert "unaccounted for: 3 tuples" in drawn(stats(arc=3))
    assert "UNACCOUNTED 3" in one_line(stats(arc=3))


def test_one_line_for_a_log() -> None:
    text = one_line(stats())
    assert "\n" not in text
    assert text.startswith("load 3% | memory 9.8KiB | dropped 200 shed | alerts ")
    assert "p50 20.0ms p99 900ms utility 0.88" in text


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0"), (0.5, "0.5"), (12.0, "12"), (99.94, "99.9"), (1234, "1,234"), (56_700, "56.7k"), (8.9e6, "8.9M"),
     (3e9, "3.0G")],
)  # fmt: skip
def test_counts(n: float, text: str) -> None:
    assert count(n) == text


@pytest.mark.parametrize(
    ("ns", "text"),
    [(0, "-"), (850, "850ns"), (12_340, "12.3us"), (4.5e6, "4.5ms"), (123e6, "123ms"), (1.2e9, "1.2s"),
     (200e9, "3m20s"), (18_130e9, "5h02m")],
)  # fmt: skip
def test_durations(ns: float, text: str) -> None:
    assert duration(ns) == text


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0B"), (1023, "1023B"), (2048, "2.0KiB"), (5 * 2**20, "5.0MiB"), (2**31, "2.0GiB")]
)
def test_sizes(n: int, text: str) -> None:
    assert size(n) == text


def test_addresses() -> None:
    assert Remote("127.0.0.1:9400").url == "http://127.0.0.1:9400"
    assert Remote("http://[::1]:9400/").url == "http://[::1]:9400"
    for bad in ("ftp://x", "http://", "http://h:port"):
        with pytest.raises(RemoteError, match="is not an address"):
            Remote(bad)


@pytest.mark.parametrize(
    "answer",
    [b"SSH-2.0-OpenSSH\r\n", b"", *(b"HTTP/1.0 200 OK\r\n\r\n" + body for body in (b"<html>", b"{}", b"[]", b""))],
)
def test_whoever_answers_otherwise_is_no_aurorad(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        with pytest.raises(RemoteError) as error:
            Remote(f"127.0.0.1:{server.getsockname()[1]}").json("/api/v1/stats")
        thread.join(10)
    assert "\n" not in str(error.value) and "aurorad" in f"{error.value} {error.value.hint}"
