"""``aurorad run`` as a filter in a pipe: standard input and output, their ends, back-pressure and bad input."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.lab.processes import command
from tests.e2e.daemon import WAIT_SECONDS, free_ports

NETWORK = """
streams:
  trades:
    schema: {ts: timestamp, symbol: string, price: double, size: int}
    time: ts
    source: {tcp: 127.0.0.1:PORT, format: ndjson, timestamps: ms}
    overload: shed
boxes:
  big: {filter: trades, where: "size >= 5"}
  sums: {aggregate: trades, window: {tumbling: 1s}, by: [symbol], select: {n: "count(*)"}}
outputs:
  alerts: {from: big, sink: {tcp: 127.0.0.1:PORT}}
  totals: {from: sums}
"""


def rows(count: int, begin: int = 0) -> list[dict[str, Any]]:
    return [{"ts": i * 10, "symbol": "AB"[i % 2], "price": i / 4, "size": i % 10} for i in range(begin, begin + count)]


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


@pytest.fixture
def network(tmp_path: Path) -> Iterator[str]:
    """A file whose ports are taken: a filter must not need them."""
    file = tmp_path / "net.yaml"
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        file.write_text(NETWORK.replace("PORT", str(taken.getsockname()[1]), 1).replace("PORT", str(free_ports(1)[0])))
        taken.listen()
        yield str(file)


def filtered(network: str, data: bytes, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command("run", network, *words), input=data, capture_output=True, timeout=WAIT_SECONDS * 2)


def test_a_filter_ends_with_its_input_and_says_nothing(network: str) -> None:
    done = filtered(network, as_lines(rows(1000)), "--stdin", "trades", "--stdout", "alerts")
    assert (done.returncode, done.stderr) == (0, b"")
    got = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["price"] for row in got] == [row["price"] for row in rows(1000) if row["size"] >= 5]
    assert got[0]["ts"] == "1970-01-01T00:00:00.050000000Z", "the unit of timestamps is that of the file"


def test_the_end_of_input_closes_the_windows(network: str) -> None:
    done = filtered(network, as_lines(rows(250)), "--stdin", "trades", "--stdout", "totals")
    assert done.returncode == 0, done.stderr
    counts = [json.loads(line)["n"] for line in done.stdout.splitlines()]
    assert (len(counts), sum(counts)) == (6, 250), "three seconds of two symbols, the last one open until the end"


def test_formats_are_named_behind_a_colon(network: str) -> None:
    text = b"size,symbol,ts,price\n7,A,1000,2.5\n1,B,2000,1\n"
    done = filtered(network, text, "--stdin", "trades:csv", "--stdout", "alerts:csv")
    assert done.stdout == b"ts,symbol,price,size\n1970-01-01T00:00:01.000000000Z,A,2.5,7\n", done.stderr
    done = filtered(network, text, "--stdin", "trades:csv", "--stdout", "alerts:table")
    assert done.stdout.decode().splitlines()[2].split() == ["1970-01-01T00:00:01Z", "A", "2.5", "7"]


def test_head_ends_the_pipe_quietly(network: str, tmp_path: Path) -> None:
    data = tmp_path / "in.ndjson"
    data.write_bytes(as_lines(rows(200_000)))
    line = f"{shlex.join(command('run', network))} --stdin trades --stdout alerts < {data} | head -3"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {line}"], capture_output=True, timeout=WAIT_SECONDS * 2)
    assert (done.returncode, done.stdout.count(b"\n"), done.stderr) == (0, 3, b"")


def test_bad_lines_are_summed_up_with_their_places(network: str) -> None:
    bad = b'nonsense\n{"ts":1,"symbol":"A","price":"high","size":1}\n'
    done = filtered(network, as_lines(rows(9)) + bad + as_lines(rows(1, 9)), "--stdin", "trades", "--stdout", "alerts")
    assert done.returncode == 0
    assert done.stdout.count(b"\n") == 5
    said = done.stderr.decode()
    assert "stream trades refused 2 tuples (1 malformed, 1 wrong_type)" in said
    assert "line 11 from standard input: field price" in said
    assert "/api/" not in said, "there is no HTTP to ask"


def test_a_slow_reader_slows_the_reading_and_loses_nothing(network: str) -> None:
    """The filter reads some megabytes ahead and then waits; when the reader goes on, every row is there."""
    block = as_lines(rows(1000))
    process = subprocess.Popen(
        command("run", network, "--stdin", "trades", "--stdout", "alerts"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    os.set_blocking(process.stdin.fileno(), False)
    sent, last = 0, time.monotonic()
    while time.monotonic() - last < 2.0:  # until it takes nothing more
        assert sent < 1_000 * len(block), "the filter reads on without limit"
        try:
            sent += os.write(process.stdin.fileno(), block[sent % len(block) :])
            last = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    left = block[sent % len(block) :]
    total = (sent + len(left)) // len(block) * 500
    pid = os.fork()
    if not pid:  # another process sends the rest, because this one reads
        os.set_blocking(process.stdin.fileno(), True)
        os.write(process.stdin.fileno(), left)
        os._exit(0)
    process.stdin.close()
    got = process.stdout.read().count(b"\n")
    os.waitpid(pid, 0)
    assert process.wait(WAIT_SECONDS) == 0
    assert got == total


def test_a_signal_ends_a_filter_whose_input_is_silent(network: str) -> None:
    process = subprocess.Popen(
        command("run", network, "--stdin", "trades", "--stdout", "totals", "--log-level", "info"),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    while b"runs" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_SECONDS) == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--stdin", "tradez"), 2, "did you"),
        (("--stdout", "allerts"), 2, "did you"),
        (("--stdin", "trades:cvs"), 78, "did you mean 'csv'"),
    ],
)
def test_wrong_names_are_refused(network: str, words: tuple[str, ...], code: int, said: str) -> None:
    done = filtered(network, b"", *words)
    assert (done.returncode, said in done.stderr.decode()) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("redirect", "code", "said"),
    [
        ("<&-", 1, "cannot open standard input: it is closed"),
        ("</dev/null >&-", 1, "cannot open standard output: it is closed"),
        ("</dev/null", 0, ""),
        ("< @ >/dev/full", 1, "standard output: No space left on device"),
    ],
)
def test_odd_ends_of_a_pipe(network: str, tmp_path: Path, redirect: str, code: int, said: str) -> None:
    (tmp_path / "in").write_bytes(as_lines(rows(20)))
    line = f"{shlex.join(command('run', network))} --stdin trades --stdout alerts {redirect}"
    done = subprocess.run(["bash", "-c", line.replace("@", str(tmp_path / "in"))], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
    assert bool(done.stderr) == bool(said)


def test_the_option_takes_standard_output_from_another_output(network: str) -> None:
    file = Path(network)
    file.write_text(file.read_text().replace("totals: {from: sums}", "totals: {from: sums, sink: {stdout: table}}"))
    done = filtered(network, as_lines(rows(10)), "--stdin", "trades", "--stdout", "alerts")
    assert (done.returncode, done.stdout.count(b"\n")) == (0, 5), done.stderr


def test_two_filters_in_one_pipe(network: str) -> None:
    first = shlex.join(command("run", network))
    line = f"{first} --stdin trades --stdout alerts | {first} --stdin trades --stdout totals"
    done = subprocess.run(["bash", "-c", line], input=as_lines(rows(100)), capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert sum(json.loads(row)["n"] for row in done.stdout.splitlines()) == 50


def test_what_a_function_prints_does_not_get_between_the_rows(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("def loud(columns):\n    print('LOUD', flush=True)\n    return columns\n")
    file = tmp_path / "net.yaml"
    file.write_text(
        "http: {listen: off}\n"
        "log: {level: warning}\n"
        "streams: {s: {schema: {size: int}, source: {stdin: ndjson}}}\n"
        "boxes: {called: {python: s, call: 'loud:loud', schema: {size: int}}}\n"
        "outputs: {out: {from: called, sink: {stdout: ndjson}}}\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        command("run", str(file)), input=b'{"size":1}\n', capture_output=True, timeout=60, env=environment
    )
    assert (done.returncode, done.stdout) == (0, b'{"size":1}\n'), done.stderr
    assert b"LOUD" in done.stderr
