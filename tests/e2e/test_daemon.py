"""The life of a daemon: tuples in and out over sockets, signals, what it says of itself."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine.lab.processes import command
from tests.e2e.daemon import TRADES, connect, free_ports, lines, ndjson, running, send, trade, wait_for

METRICS = [
    "tuples_in_total",
    "tuples_out_total",
    "tuples_dropped_total",
    "tuples_rejected_total",
    "output_latency_seconds",
    "output_utility_ratio",
    "queue_tuples",
    "queue_bytes",
    "box_cost_seconds_total",
    "box_tuples_total",
    "train_tuples",
    "scheduler_decision_seconds",
    "scheduler_steps_total",
    "execution_queue_length",
    "worker_busy_seconds_total",
    "load_ratio",
    "late_tuples_total",
    "conservation_residual",
    "build_info",
]


def network(source: int, sink: int, fmt: str = "ndjson", where: str = "price > 1", **sink_options: str) -> str:
    options = "".join(f", {key}: {value}" for key, value in sink_options.items())
    return f"""
streams:
  trades: {{schema: {TRADES}, source: {{tcp: 127.0.0.1:{source}, format: {fmt}}}}}
boxes:
  big: {{filter: trades, where: "{where}"}}
outputs:
  alerts: {{from: big, qos: {{deadline: 200ms}}, sink: {{tcp: 127.0.0.1:{sink}, format: {fmt}{options}}}}}
"""


def test_ndjson_through_the_daemon(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(source, sink), http) as daemon, connect(sink) as reader:
        send(source, ndjson([trade(1), trade(2), trade(3, venue=None)]))
        assert [row["price"] for row in lines(reader, 2)] == [2.0, 3.0]
        assert daemon.end() == 0
        assert "0 unaccounted for" in daemon.log[-1]["message"]


def test_csv_through_the_daemon(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(source, sink, "csv"), http), connect(sink) as reader:
        send(source, b"ts,symbol,price,size,venue\n1,A,0.5,7,N\n2,B,2.5,8,\n")
        data = b""
        while data.count(b"\n") < 2:
            data += reader.recv(1 << 16)
        header, row = data.decode().splitlines()
        assert header == "ts,symbol,price,size,venue" and row.endswith(",B,2.5,8,")


def test_arrow_through_the_daemon(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    batch = pa.record_batch(
        {
            "ts": pa.array([1, 2, 3], pa.timestamp("ns", "UTC")),
            "symbol": ["A", "B", "C"],
            "price": [0.5, 2.5, 3.5],
            "size": pa.array([1, 2, 3], pa.int32()),
            "venue": ["N", None, "P"],
        }
    )
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, batch.schema) as writer:
        writer.write_batch(batch)
    with running(tmp_path, network(source, sink, "arrow"), http), connect(sink) as reader:
        send(source, buffer.getvalue())
        with reader.makefile("rb") as stream:
            got = pa.ipc.open_stream(stream).read_next_batch()
        assert got.column("price").to_pylist() == [2.5, 3.5]
        assert got.column("venue").to_pylist() == [None, "P"]


def test_many_connections_feed_one_stream_and_every_reader_gets_all(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = network(source, sink, where="price >= 0")
    with running(tmp_path, text, http) as daemon, connect(sink) as one, connect(sink) as two:
        wait_for(lambda: daemon.output("alerts")["readers"] == 2, "both readers are there")
        senders = [
            threading.Thread(target=send, args=(source, ndjson([trade(c * 100 + i) for i in range(100)])))
            for c in range(8)
        ]
        for sender in senders:
            sender.start()
        expected = {float(n) for n in range(800)}
        assert {row["price"] for row in lines(one, 800)} == expected
        assert {row["price"] for row in lines(two, 800)} == expected
        for sender in senders:
            sender.join()
        assert daemon.stream("trades")["admitted"] == 800


def test_metrics_have_every_name_and_parse(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(source, sink), http) as daemon:
        send(source, ndjson([trade(1), trade(2)]) + b"nonsense\n")
        wait_for(lambda: daemon.stream("trades")["received"] == 3, "three tuples have come")
        families = {f.name: f for f in text_string_to_metric_families(daemon.get("/metrics").decode())}
        for name in METRICS:
            assert f"aurorad_{name}".removesuffix("_total") in families or f"aurorad_{name}" in families, name
        residuals = {s.labels["law"]: s.value for s in families["aurorad_conservation_residual"].samples}
        assert residuals == {"stream": 0, "arc": 0, "box": 0, "output": 0}
        assert json.loads(daemon.get("/health"))["status"] == "ok"
        letters = json.loads(daemon.get("/api/v1/dead_letters"))["dead_letters"]
        assert [(entry["reason"], entry["line"]) for entry in letters] == [("malformed", 3)]


def test_sigterm_under_load_accounts_for_every_tuple(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    rows = ndjson([trade(i, price=float(i % 10)) for i in range(2_000)])
    with running(tmp_path, network(source, sink, where="price > 4", buffer="1GiB"), http) as daemon:
        stop = threading.Event()

        def flood() -> None:
            try:
                with connect(source) as s:
                    while not stop.is_set():
                        s.sendall(rows)
            except OSError:
                pass  # the daemon has stopped reading: that is what is tested

        flooder = threading.Thread(target=flood)
        with connect(sink) as reader:
            flooder.start()
            wait_for(lambda: daemon.output("alerts")["emitted"] > 20_000, "it is under load")
            counts: list[int] = []

            def count() -> None:
                total = 0
                while data := reader.recv(1 << 20):
                    total += data.count(b"\n")
                counts.append(total)

            counter = threading.Thread(target=count)
            counter.start()
            assert daemon.end() == 0
            counter.join(30)
            stop.set()
            flooder.join(30)
        message = daemon.log[-1]["message"]
        assert message.startswith("stopped:") and "0 unaccounted for" in message
        emitted = int(message.split(" admitted, ")[1].split(" emitted")[0])
        assert counts == [emitted], "what was emitted is what the reader got"


def test_a_second_sigterm_ends_it_at_once(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    text = network(source, sink, where="price >= 0", when_slow="block", buffer="64KiB")
    with running(tmp_path, text, http) as daemon, connect(sink) as reader:
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        send(source, ndjson([trade(i) for i in range(200_000)]))  # nobody reads: it cannot drain
        wait_for(lambda: daemon.stream("trades")["admitted"] == 200_000, "all tuples are in")
        daemon.process.send_signal(signal.SIGTERM)
        wait_for(lambda: any("draining" in entry["message"] for entry in daemon.log), "it drains")
        begun = time.monotonic()
        assert daemon.end() == 1
        assert time.monotonic() - begun < 10  # and not the 20 s that draining may take


def test_sighup_with_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with running(tmp_path, network(source, sink), http) as daemon, connect(sink) as reader:
        file = tmp_path / "network.yaml"
        file.write_text(file.read_text().replace("price > 1", "prize > 1"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_for(lambda: any("goes on" in entry["message"] for entry in daemon.log), "it has read the file")
        assert any("boxes.big.where" in entry["message"] and "prize" in entry["message"] for entry in daemon.log)
        send(source, ndjson([trade(5)]))
        assert lines(reader, 1)[0]["price"] == 5.0


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    http, source, sink = free_ports(3)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", source))
        taken.listen()
        file = tmp_path / "network.yaml"
        file.write_text(f"http: {{listen: 127.0.0.1:{http}}}\n{network(source, sink)}")
        done = subprocess.run(command("run", str(file)), capture_output=True, timeout=30, check=False)
    assert done.returncode == 1
    assert f"stream trades: cannot listen on 127.0.0.1:{source}: the port is in use" in done.stderr.decode()


def test_a_wrong_network_exits_78_with_every_error(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(network(1, 1).replace("price > 1", "prize > 1").replace("deadline", "dedline"))
    done = subprocess.run(command("run", str(file)), capture_output=True, timeout=30, check=False)
    errors = done.stderr.decode()
    assert done.returncode == 78
    assert "boxes.big.where" in errors and "did you mean" in errors and "dedline" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize("words", [["version"], ["validate", "configs/demo.yaml"]])
def test_small_commands_import_nothing_heavy(words: list[str]) -> None:
    program = f"import sys; sys.argv = ['aurorad', *{words!r}]\nfrom engine.cli import main\ntry:\n    main()\n"
    program += "except SystemExit:\n    pass\n"
    program += (
        "heavy = {'pyspark', 'pandas', 'polars', 'pyarrow', 'uvloop'} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()
