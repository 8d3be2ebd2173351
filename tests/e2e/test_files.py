"""Files as sources and sinks: the run that ends by itself, following, restarts, crashes, files that cannot be used."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from engine.lab.processes import command
from tests.e2e.daemon import WAIT_SECONDS, free_ports, running, wait_for

STREAM = "s: {schema: {ts: timestamp, k: string, v: int}, time: ts, source: SOURCE}"
WHOLE = "http: {listen: off}\nlog: {level: warning}\nstreams: {" + STREAM + "}\nENGINE"
WINDOW = """
boxes: {sums: {aggregate: s, window: {tumbling: 1s}, select: {n: "count(*)", total: "sum(v)"}}}
outputs: {out: {from: sums, sink: SINK}}
"""
ROWS = "\noutputs: {out: {from: s, sink: SINK}}\n"


def rows(count: int, begin: int = 0) -> list[dict[str, Any]]:
    return [{"ts": i * 10_000_000, "k": "xy"[i % 2], "v": i} for i in range(begin, begin + count)]


def write(path: Path, rows: list[dict[str, Any]], mode: str = "wb") -> None:
    with path.open(mode) as file:
        file.write(b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def network(tmp_path: Path, rest: str, source: str = "{file: in.ndjson}", sink: str = "{file: out.ndjson}",
            engine: str = "") -> Path:  # fmt: skip
    file = tmp_path / "net.yaml"
    text = (WHOLE + rest).replace("SOURCE", source).replace("SINK", sink).replace("ENGINE", engine)
    file.write_text(text)
    return file


def run(tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*command("run", "net.yaml")], cwd=tmp_path, capture_output=True, timeout=WAIT_SECONDS * 2,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip


def values(path: Path, key: str = "v") -> list[Any]:
    return [json.loads(line)[key] for line in path.read_text().splitlines()]


def test_from_file_to_file(tmp_path: Path) -> None:
    """The run ends after the file, the last window is closed, and a second run appends."""
    write(tmp_path / "in.ndjson", rows(250))
    network(tmp_path, WINDOW)
    done = run(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert values(tmp_path / "out.ndjson", "n") == [100, 100, 50]
    assert run(tmp_path).returncode == 0
    assert values(tmp_path / "out.ndjson", "n") == [100, 100, 50] * 2


def test_replace_and_other_formats(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("ts,v,k\n1,2,x\n3,4,y\n")
    network(tmp_path, ROWS, "{file: in.csv}", "{file: out.arrow, mode: replace}")
    for _ in range(2):
        done = run(tmp_path)
        assert (done.returncode, done.stderr) == (0, b"")
    import pyarrow.ipc

    table = pyarrow.ipc.open_stream((tmp_path / "out.arrow").read_bytes()).read_all()
    assert table.column("v").to_pylist() == [2, 4]
    network(tmp_path, ROWS, "{file: out.arrow}", "{file: back.csv, timestamps: ns}")
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "back.csv").read_text() == "ts,k,v\n1,x,2\n3,y,4\n"
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "back.csv").read_text() == "ts,k,v\n1,x,2\n3,y,4\n1,x,2\n3,y,4\n", "one header"


@pytest.mark.parametrize(
    ("source", "sink", "said"),
    [
        ("{file: none.ndjson}", "{file: out.ndjson}", "stream s: cannot open none.ndjson: No such file or directory"),
        ("{file: folder.csv}", "{file: out.ndjson}", "stream s: cannot open folder.csv: it is a directory"),
        ("{file: in.ndjson}", "{file: no/out.ndjson}", "output out: cannot open no/out.ndjson: No such file or"),
        ("{file: in.ndjson}", "{file: folder.csv}", "output out: cannot open folder.csv: Is a directory"),
        ("{file: in.ndjson}", "{file: other.csv}", "output out: cannot open other.csv: its header is 'a,b'"),
        ("{file: in.ndjson}", "{file: /dev/full, format: ndjson}", "output out: /dev/full: No space left on device"),
        ("{file: other.csv}", "{file: out.ndjson}", "stream s: other.csv: the first line must be the header"),
        ("{file: in.ndjson, format: arrow}", "{file: out.ndjson}", "stream s: in.ndjson:"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, source: str, sink: str, said: str) -> None:
    write(tmp_path / "in.ndjson", rows(20))
    (tmp_path / "folder.csv").mkdir()
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    network(tmp_path, ROWS, source, sink)
    done = run(tmp_path)
    assert (done.returncode, said in done.stderr.decode()) == (1, True), done.stderr.decode()


def test_an_empty_file_and_a_last_line_without_newline(tmp_path: Path) -> None:
    (tmp_path / "in.ndjson").write_text("")
    network(tmp_path, ROWS)
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "out.ndjson").read_text() == ""
    (tmp_path / "in.ndjson").write_text('{"ts":1,"k":"x","v":7}')
    assert run(tmp_path).returncode == 0
    assert values(tmp_path / "out.ndjson") == [7]


def test_half_a_line_of_a_killed_run_is_removed_and_a_whole_one_kept(tmp_path: Path) -> None:
    write(tmp_path / "in.ndjson", rows(1))
    network(tmp_path, ROWS)
    (tmp_path / "out.ndjson").write_text('{"v":8}\n{"v":9')
    done = run(tmp_path)
    assert "cut off in the middle" in done.stderr.decode()
    assert values(tmp_path / "out.ndjson") == [8, 0]
    (tmp_path / "out.ndjson").write_text('{"v":8}\n{"v":9}')
    run(tmp_path)
    assert values(tmp_path / "out.ndjson") == [8, 9, 0]


def test_fifos(tmp_path: Path) -> None:
    """A FIFO opens without its other end; the run ends when the writer closes, and the reader gets every row."""
    os.mkfifo(tmp_path / "in.fifo")
    os.mkfifo(tmp_path / "out.fifo")
    write(tmp_path / "in.ndjson", rows(1000))
    network(tmp_path, ROWS, "{file: in.fifo, format: ndjson}", "{file: out.fifo, format: ndjson}")
    line = (
        f"cat out.fifo > out.ndjson & {shlex.join(command('run', 'net.yaml'))} & pid=$!; cat in.ndjson > in.fifo; wait"
    )
    done = subprocess.run(
        ["bash", "-c", f"{line} $pid; wait"], cwd=tmp_path, timeout=WAIT_SECONDS * 2, check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0
    assert values(tmp_path / "out.ndjson") == list(range(1000))


def test_following_a_file_that_grows_is_rotated_and_truncated(tmp_path: Path) -> None:
    source, sink = tmp_path / "in.ndjson", tmp_path / "out.ndjson"
    [port] = free_ports(1)
    text = "streams: {s: {schema: {v: int}, source: {file: IN, follow: true}}}\n"
    text += "outputs: {out: {from: s, sink: {file: OUT}}}\n"

    def until(expected: list[int]) -> None:
        wait_for(lambda: sink.exists() and sink.read_text().endswith("\n") and values(sink) == expected, f"{expected}")

    with running(tmp_path, text.replace("IN", str(source)).replace("OUT", str(sink)), port) as daemon:
        source.write_text('{"v":1}\n{"v":')  # it did not exist at the start
        until([1])
        with source.open("a") as more:
            more.write('2}\n{"v":3}\nbad\n')
        until([1, 2, 3])
        source.rename(tmp_path / "in.1")
        source.write_text('{"v":4}\n')
        until([1, 2, 3, 4])
        source.write_text("")
        wait_for(lambda: daemon.log_path.read_text().count("is a new file now") == 2, "it is noticed")
        source.write_text('{"v":5}\n')
        until([1, 2, 3, 4, 5])
        [letter] = json.loads(daemon.get("/api/v1/dead_letters"))["dead_letters"]
        assert (letter["peer"], letter["line"]) == (str(source), 4)
        assert daemon.end() == 0


def test_a_restart_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """With a data_dir no row is read twice, and an appended file gives the windows that were open."""
    write(tmp_path / "in.ndjson", rows(250))
    network(tmp_path, WINDOW, engine="engine: {data_dir: data}")
    assert run(tmp_path).returncode == 0
    assert values(tmp_path / "out.ndjson", "n") == [100, 100]
    assert run(tmp_path).returncode == 0
    assert values(tmp_path / "out.ndjson", "n") == [100, 100]
    write(tmp_path / "in.ndjson", rows(100, 250), "ab")
    assert run(tmp_path).returncode == 0
    assert values(tmp_path / "out.ndjson", "n") == [100, 100, 100]
    (tmp_path / "in.ndjson").unlink()
    write(tmp_path / "in.ndjson", rows(150, 350))
    assert run(tmp_path).returncode == 0
    assert values(tmp_path / "out.ndjson", "n") == [100] * 4, "another file of the same name is read from its start"


def test_kill_9_in_the_middle_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """Every row is in the file exactly once, whenever the daemon is killed."""
    count = 300_000
    write(tmp_path / "in.ndjson", rows(count))
    network(tmp_path, ROWS, engine="engine: {data_dir: data, checkpoint: 200ms}")
    out = tmp_path / "out.ndjson"
    for kill in range(4):
        process = subprocess.Popen(
            command("run", "net.yaml"), cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        )
        before = out.stat().st_size if out.exists() else 0
        deadline = time.monotonic() + WAIT_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if out.exists() and out.stat().st_size > before + kill * 1_000_000:
                break
            time.sleep(0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert run(tmp_path).returncode == 0
    assert values(out) == list(range(count))


def test_an_output_waits_while_its_file_cannot_grow(tmp_path: Path) -> None:
    """The file ends with a whole line meanwhile, and every row is there once it can grow again."""
    source, sink = tmp_path / "in.ndjson", tmp_path / "out.ndjson"
    write(source, rows(20_000))
    [port] = free_ports(1)
    text = f"streams: {{s: {{schema: {{v: int}}, source: {{file: {source}, follow: true}}}}}}\n"
    text += f"outputs: {{out: {{from: s, sink: {{file: {sink}}}}}}}\n"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # the daemon inherits it
    try:
        with running(tmp_path, text, port) as daemon:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            wait_for(lambda: "the output waits" in daemon.log_path.read_text(), "the file is full")
            assert sink.read_bytes()[-1:] in (b"", b"\n")
            assert daemon.stats()["sinks"][0]["buffered"] > 0
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, limits)
            wait_for(lambda: sink.read_bytes().count(b"\n") == 20_000, "every row is there")
            assert values(sink) == list(range(20_000))
            assert daemon.end() == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_files_are_not_shared(tmp_path: Path) -> None:
    file = network(tmp_path, "\noutputs: {a: {from: s, sink: {file: in.ndjson}}, b: {from: s, sink: {stdout: csv}},"
                   " c: {from: s, sink: {stdout: csv}}, d: {from: s, sink: {file: x.csv, mode: replace}}}\n",
                   engine="engine: {data_dir: data}")  # fmt: skip
    done = subprocess.run(command("validate", str(file)), capture_output=True, timeout=60)
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 78
    assert "outputs.a.sink.file: 'in.ndjson' is the file of 's' already" in said
    assert "outputs.c.sink.stdout: b has stdout already" in said
    assert "outputs.d.sink.mode: replace would delete results" in said
