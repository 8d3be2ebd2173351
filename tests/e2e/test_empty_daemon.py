"""`aurorad run` without a file: it runs, a draft of ten rows is tried and deployed over HTTP, and rows come through."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.lab.processes import command
from tests.e2e.daemon import WAIT_SECONDS, RunningDaemon, connect, free_ports, is_ready, lines, wait_for
from tests.e2e.test_live import ask

ROWS = "city,temp,at\nBonn,3.5,2026-01-01T00:00:00Z\nBonn,4.5,2026-01-01T00:00:05Z\nKiel,x,2026-01-01T00:00:30Z\n"


@contextmanager
def empty(tmp_path: Path) -> Iterator[RunningDaemon]:
    [http] = free_ports(1)
    log = tmp_path / "log.json"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            command("run", "--http", f"127.0.0.1:{http}", "--log-format", "json"), stderr=sink, stdout=sink
        )
    daemon = RunningDaemon(process, log, http)
    try:
        wait_for(lambda: process.poll() is not None or is_ready(daemon), "the daemon is ready", 3 * WAIT_SECONDS)
        assert process.poll() is None, log.read_text()
        yield daemon
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def post(daemon: RunningDaemon, path: str, **asked: Any) -> Any:
    status, answer = ask(daemon, "POST", path, json.dumps(asked))
    assert status == 200, answer
    return answer


@pytest.mark.timeout(300)
def test_an_empty_daemon_becomes_one_with_a_network(tmp_path: Path) -> None:
    with empty(tmp_path) as daemon:
        stats = daemon.stats()
        assert (stats["streams"], stats["outputs"], stats["totals"]["outputs"]) == ([], [], 0)
        assert b"aurorad_memory_used_bytes 0.0" in daemon.get("/metrics")
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: any("no network file to read again" in x["message"] for x in daemon.log), "SIGHUP is answered")

        draft = post(daemon, "draft", rows=ROWS.replace("x", "1"), name="weather")
        played = post(daemon, "trial", file=draft["file"], rows={"weather": ROWS})
        [output] = played["outputs"]
        assert [(r["rows"], r["avg_temp"]) for r in output["rows"]] == [(2, 4.0)], "one window of CSV rows"
        assert output["rows"][0]["window_start"] == "2026-01-01T00:00:00.000000000Z"
        assert [r["reason"] for r in played["refused"]["weather"]] == ["wrong_type"]

        text = post(daemon, "merge", file=draft["file"])["file"]
        assert text == draft["file"], "an empty network leaves the draft as it is, with its comments"
        status, plan = ask(daemon, "PUT", "network?dry_run=true", text)
        assert (status, plan["applied"]) == (200, False)
        assert ask(daemon, "PUT", "network", text)[1]["applied"] is True
        up_ns = daemon.stats()["engine"]["uptime_ns"]
        assert up_ns >= stats["engine"]["uptime_ns"], "a change is no start"

        host, _, port = draft["serve"].rpartition(":")
        assert host == "127.0.0.1"
        with connect(int(port)) as reader:
            assert post(daemon, "feed", stream="weather", rows=ROWS) == {"stream": "weather", "lines": 4}
            [row] = lines(reader, 1)
            assert (row["city"], row["rows"], row["avg_temp"]) == ("Bonn", 2, 4.0)
        weather = daemon.stream("weather")
        assert (weather["received"], sum(weather["rejected"].values())) == (3, 1)

        second = post(daemon, "draft", rows='{"n": 1}\n', name="numbers")
        assert {second["listen"], second["serve"]}.isdisjoint({draft["listen"], draft["serve"]}), "other ports"
        both = post(daemon, "merge", file=second["file"])["file"]
        assert ask(daemon, "PUT", "network", both)[1]["applied"] is True
        assert [s["name"] for s in daemon.stats()["streams"]] == ["weather", "numbers"]
        status, refused = ask(daemon, "POST", "merge", json.dumps({"file": second["file"].replace("bigint", "int")}))
        assert status == 400 and "another 'numbers'" in refused["error"]
        for path, asked in (("feed", {"stream": "nothing", "rows": "1"}), ("feed", {"stream": "numbers", "rows": " "})):
            assert ask(daemon, "POST", path, json.dumps(asked))[0] == 400
        status, refused = ask(daemon, "POST", "draft", json.dumps({"rows": ROWS, "name": "--help"}))
        assert status == 400 and "name" in refused["error"]
        assert daemon.end() == 0


@pytest.mark.parametrize("option", [["--once"], ["--stdin", "s"], ["--on", "spark"]])
def test_what_needs_a_file_says_so(option: list[str]) -> None:
    done = subprocess.run(command("run", *option), capture_output=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "need a network file" in " ".join(re.findall(r"[\w,-]+", done.stderr.decode())), done.stderr.decode()
