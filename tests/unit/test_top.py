"""The drawing of ``top``, a pure function of the daemon's answer."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from rich.console import Console

import router
from catalog.catalog import Epoch
from catalog.legend import LEGEND
from catalog.readings import EdgeReading
from engine.cli.remote import Remote, RemoteError
from engine.cli.views.legend import legend_pages
from engine.cli.views.numbers import cost, count, duration, size
from engine.cli.views.stats import draw, one_line, rows_left
from qos_monitor.conservation import residuals
from qos_monitor.report import drops_before_outputs, stats_json
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
    assert "2%" in split
    assert split[-1] == "50"


def test_a_narrow_terminal_shows_fewer_columns_and_these_whole() -> None:
    wide, narrow = drawn(stats()), drawn(stats(), width=80)
    assert "…" not in narrow and all(len(line) <= 80 for line in narrow.splitlines())
    for name in ("output", "alerts", "box", "split"):
        kept = line_of(narrow, name).split()
        assert len(kept) < len(line_of(wide, name).split()) and set(kept) <= set(line_of(wide, name).split())
    assert {"p50", "p99", "utility", "readers"} <= set(line_of(narrow, "output").split())


def test_a_very_narrow_terminal_keeps_names_and_what_matters_whole() -> None:
    narrow = drawn(stats(), width=44)
    assert line_of(narrow, "output").split() == ["output", "delivered", "utility", "p99"]
    assert "alerts" in narrow


def test_the_header_breaks_between_its_parts() -> None:
    data = stats()
    data["workers"] = [dict(data["workers"][0], busy_ratio=0.25)] * 4
    for width in range(60, 140, 5):
        assert "workers busy 25% 25% 25% 25%" in drawn(data, width=width)


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
    together = line_of(drawn(data, width=160), "(all)").split()
    for part in ("2.0ms", "2.5", "9", "50"):  # mean latency; slowdown as mean, most and l2 norm
        assert part in together, (part, together)
    for name, ns in (("scheduler", 5), ("storage", 10), ("worker", 15)):
        data["scheduler"][f"{name}_ns"] = ns
    data["boxes"] = [dict(data["boxes"][0], cost_ns=70)]
    assert "overhead scheduler 5% storage 10% worker 15%" in drawn(data)


def test_what_was_dropped_and_which_share_was_delivered() -> None:
    """Drops on arcs count for the stream before and for each output behind them, and once for all."""
    data = stats()
    data["outputs"][0].update(share_delivered=0.4567, shed={"shed": 90, "expired": 10}, dropped=20)
    data["outputs"][1].update(share_delivered=0.99996, shed={}, dropped=0)
    data["outputs"][2].update(share_delivered=1.0, readers=0)
    text = drawn(data, width=170)
    columns = line_of(text, "output").split()
    row = dict(zip(columns, line_of(text, "alerts").split(), strict=True))
    assert (row["delivered"], row["dropped"]) == ("45.7%", "120")
    assert (
        dict(zip(columns, line_of(text, "others").split(), strict=True))["delivered"] == "99.9%"
    )  # never all by rounding
    raw = dict(zip(columns, line_of(text, "raw").split(), strict=True))
    assert (raw["delivered"], raw["readers"]) == ("100%", "none")
    assert stats()["streams"][0]["shed"] == {"shed": 200}
    stream = dict(zip(line_of(text, "stream").split(), line_of(text, "trades").split(), strict=True))
    assert (stream["received"], stream["refused"], stream["dropped"]) == ("10.1k", "30", "200")


def test_tuples_dropped_undecoded_count_before_each_output_and_once_in_all() -> None:
    """A bill, a row of the table and the sum over the whole say the same."""
    readings = busy(NETWORK)
    edge = EdgeReading(True, 0.5, {"overdue": 7})
    readings = readings._replace(streams=[s._replace(edge=edge) for s in readings.streams])
    found = stats_json(readings, None, Epoch.of(NETWORK), {})
    for output, lost in zip(found["outputs"], drops_before_outputs(readings, NETWORK), strict=True):
        assert output["shed"]["overdue"] == 7 and sum(output["shed"].values()) + output["dropped"] == lost
    assert found["totals"]["dropped"]["overdue"] == 7
    assert found["totals"]["dropped_tuples"] == sum(found["totals"]["dropped"].values())


def test_the_legend_explains_every_column_of_top() -> None:
    text, known = drawn(stats(), width=200), {(t.where, word) for t in LEGEND for word in t.word.split(", ")}
    for where in ("output", "stream", "box"):
        missing = [c for c in line_of(text, where).split() if c not in (where, "kind") and (where, c) not in known]
        assert not missing, (where, missing)


def test_the_manual_has_the_legend() -> None:
    manual = (Path(router.__file__).parents[1] / "docs" / "operations.md").read_text()
    assert [t for t in LEGEND if f"| {t.where} | {t.word} | {t.meaning} |" not in manual] == []


def test_the_legend_fits_the_screen_or_comes_in_pages() -> None:
    large, small = Console(width=150, height=50, color_system=None), Console(width=80, height=24, color_system=None)
    assert len(legend_pages(large)) == 1
    pages = legend_pages(small)
    assert len(pages) == 4 and all(len(small.render_lines(page)) <= 24 for page in pages)


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
    assert text.startswith("load 3% | memory 9.8KiB | dropped 200 shed, 120 slow reader | alerts ")
    assert "p50 20.0ms p99 900ms delivered 97% utility 0.88" in text


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
    ("ns", "text"), [(0, "-"), (854, "850ns"), (12_340, "12us"), (12_020, "12us"), (4.46e6, "4.5ms"), (1e9, "1s")]
)
def test_a_cost_has_two_digits_and_so_does_not_flicker(ns: float, text: str) -> None:
    assert cost(ns) == text


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
