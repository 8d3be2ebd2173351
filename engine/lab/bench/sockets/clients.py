"""The client processes at both ends of a socket benchmark. They cost little CPU, so that the server is the bottleneck.

    python -m engine.lab.bench.sockets.clients send|receive|probe|collect ...

Each client waits for the start word on standard input and answers with one JSON line. Time stamps are CLOCK_MONOTONIC,
which all processes of a machine share.

- ``send FORMAT PORT CONNECTIONS BLOCK REPEAT`` encodes all bytes before the start word; then each connection has a
  thread that calls only ``sendall``.
- ``receive FORMAT PORT ROWS [HEADERS]`` counts rows until all have arrived.
- ``probe PORT RATE SECONDS`` sends one row at a time on a schedule, with its send time in it.
- ``collect PORT ROWS`` compares each row's send time with the clock and answers with the quantiles of the delay.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import orjson

from engine.lab.bench import workload

READ_BYTES = 4 << 20
IDLE_SECONDS = 20.0
ARROW_BATCH = 65_536
QUANTILES = (0.5, 0.99, 0.999)


def say(**record: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(record) + b"\n")
    sys.stdout.buffer.flush()


def wait_for_word() -> None:
    """Wait for the start word; exit if the parent has ended, which closes standard input."""
    if not sys.stdin.buffer.readline():
        sys.exit(1)


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


# -- throughput ----------------------------------------------------------------------------------------------------


def payload(format: str, block: int, repeat: int) -> tuple[bytes, bytes, int]:
    """Return (head, body, number of times to send the body) for ``repeat`` blocks of rows on one connection."""
    data = workload.columns(block)
    if format == "arrow":
        return b"", workload.arrow_bytes(data, min(block, ARROW_BATCH), repeat), 1
    if format == "csv":
        return workload.CSV_HEADER, workload.csv_bytes(data), repeat
    return b"", workload.ndjson_bytes(data), repeat


def send(format: str, port: int, connections: int, block: int, repeat: int) -> None:
    head, body, times = payload(format, block, repeat)
    sockets = [connect(port) for _ in range(connections)]
    say(ready=True)
    wait_for_word()
    start_ns = time.monotonic_ns()
    threads = [threading.Thread(target=_send_all, args=(s, head, body, times)) for s in sockets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    say(start_ns=start_ns, end_ns=time.monotonic_ns(), rows=connections * block * repeat)
    wait_for_word()  # keep the connection open until the last row has arrived: a close would cost the server time


def _send_all(connection: socket.socket, head: bytes, body: bytes, times: int) -> None:
    if head:
        connection.sendall(head)
    for _ in range(times):
        connection.sendall(body)
    connection.shutdown(socket.SHUT_WR)


def receive(format: str, port: int, rows: int, headers: int = 0) -> None:
    """Count rows. ``headers`` lines come first; the header of the workload is known, and a bare loop sends none."""
    connection = connect(port)
    connection.settimeout(IDLE_SECONDS)
    say(ready=True)
    if format == "arrow":
        got, nbytes = _count_arrow(connection, rows)
    else:
        got, nbytes = _count_lines(connection, rows, headers)
    say(end_ns=time.monotonic_ns(), rows=got, bytes=nbytes)


def _count_lines(connection: socket.socket, rows: int, headers: int) -> tuple[int, int]:
    buffer = bytearray(READ_BYTES)
    view = memoryview(buffer)
    got, nbytes = -headers, 0
    while got < rows:
        try:
            size = connection.recv_into(view)
        except TimeoutError:
            break
        if not size:
            break
        got += buffer.count(b"\n", 0, size)
        if nbytes == 0 and buffer.startswith(b"seq,"):
            got -= 1
        nbytes += size
    return got, nbytes


def _count_arrow(connection: socket.socket, rows: int) -> tuple[int, int]:
    import pyarrow as pa

    got = nbytes = 0
    with connection.makefile("rb", READ_BYTES) as source, pa.ipc.open_stream(source) as stream:
        while got < rows:
            try:
                batch = stream.read_next_batch()
            except (StopIteration, OSError):
                break
            got += batch.num_rows
            nbytes += batch.nbytes
    return got, nbytes


# -- latency -------------------------------------------------------------------------------------------------------


def probe(port: int, rate: int, seconds: float) -> None:
    """Send rows that pass every filter. A row that is late is sent at once, with the time at which it is sent."""
    connection = connect(port)
    row = b'{"seq":%d,"symbol":"SYM00","price":50.25,"size":500}\n'
    rows = int(rate * seconds)
    interval_ns = 1_000_000_000 // rate
    say(ready=True)
    wait_for_word()
    start_ns = time.monotonic_ns()
    for i in range(rows):
        wait_ns = start_ns + i * interval_ns - time.monotonic_ns()
        if wait_ns > 0:
            time.sleep(wait_ns / 1e9)
        connection.sendall(row % time.monotonic_ns())
    elapsed_s = (time.monotonic_ns() - start_ns) / 1e9
    say(rows=rows, rate=rows / elapsed_s)
    wait_for_word()


def collect(port: int, rows: int) -> None:
    connection = connect(port)
    connection.settimeout(IDLE_SECONDS)
    say(ready=True)
    delays = np.empty(rows, np.int64)
    got = 0
    tail = b""
    while got < rows:
        try:
            chunk = connection.recv(READ_BYTES)
        except TimeoutError:
            break
        now_ns = time.monotonic_ns()
        if not chunk:
            break
        *lines, tail = (tail + chunk).split(b"\n")
        for line in lines[: rows - got]:
            delays[got] = now_ns - orjson.loads(line)["seq"]
            got += 1
    settled = delays[got // 10 : got]  # without the first tenth, which warms caches on both sides
    quantiles = np.quantile(settled, QUANTILES).tolist() if got else [float("inf")] * len(QUANTILES)
    say(rows=got, **{name: q / 1e9 for name, q in zip(("p50", "p99", "p999"), quantiles, strict=True)})


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "send": lambda a: send(a[0], *map(int, a[1:])),
    "receive": lambda a: receive(a[0], *map(int, a[1:])),
    "probe": lambda a: probe(int(a[0]), int(a[1]), float(a[2])),
    "collect": lambda a: collect(*map(int, a)),
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](sys.argv[2:])
