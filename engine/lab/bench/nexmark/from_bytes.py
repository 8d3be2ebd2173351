"""``bench nexmark --from csv``: a query through the daemon, from the bytes of one client to the bytes of another.

A process for each stream sends its events, a process receives the answer, and the clock runs from the first byte sent
to the last row received. Only queries without windows and joins can be measured so (``AT_ONCE``). The baseline is
DuckDB on one thread, from a file of the same bytes to a file.

    python -m engine.lab.bench.nexmark.from_bytes FORMAT STREAM EVENTS PORT
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from engine.lab.bench.harness import BenchError, Options, child, free_ports, interleave, wait_listening
from engine.lab.bench.nexmark.generator import SCHEMAS, Events, generate
from engine.lab.bench.nexmark.queries import BY_NAME, Query
from engine.lab.bench.nexmark.sql_answers import SQL, connect
from engine.lab.bench.report import Result
from engine.lab.bench.sockets import clients
from engine.lab.processes import command, end, spawn
from router.codecs import CODECS

FORMATS = ("csv", "ndjson", "arrow")
AT_ONCE = ("q0", "q1", "q2", "q14")
"""The queries without windows and joins: the same events come again in each round, and would be late there."""

BLOCK_ROWS = 10_000
WARM_UPS = 4
SETTLE_SECONDS = 0.3  # until the daemon has accepted the clients
READERS = {"csv": "read_csv('{}')", "ndjson": "read_json('{}', format = 'newline_delimited')"}


def encoded(format: str, events: Events, stream: str) -> Iterator[bytes]:
    """Yield the bytes of a stream, block by block."""
    encoder = CODECS[format].encoder(SCHEMAS[stream], "ns")
    yield encoder.begin()
    train = events.train(stream)
    for start in range(0, train.count, BLOCK_ROWS):
        yield encoder.encode(train.slice(start, min(start + BLOCK_ROWS, train.count)))


def send(format: str, stream: str, count: int, port: int) -> None:
    """Encode all events, wait for the start word, and send."""
    blocks = list(encoded(format, generate(count), stream))
    connection = clients.connect(port)
    clients.say(ready=True)
    clients.wait_for_word()
    start_ns = time.monotonic_ns()
    for block in blocks:
        connection.sendall(block)
    clients.say(start_ns=start_ns)
    clients.wait_for_word()  # the connection stays open until the last row has arrived


class QueryDaemon:
    """``aurorad run`` on a query."""

    def __init__(self, query: Query, format: str, stack: ExitStack) -> None:
        self.query = query
        self.format = format
        *self.sources, self.sink = free_ports(len(query.streams) + 1)
        text = query.network()
        for stream, port in zip(query.streams, self.sources, strict=True):
            source = f"  {stream}: {{source: {{tcp: 127.0.0.1:{port}, format: {format}}}, "
            text = text.replace(f"  {stream}: {{schema", f"{source}schema")
        text = text.replace("{from: out}", f"{{from: out, sink: {{tcp: 127.0.0.1:{self.sink}, format: {format}}}}}")
        file = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aurorad-bench-"))) / "network.yaml"
        file.write_text(text)
        process = spawn(command("run", str(file)), stdout=subprocess.DEVNULL)
        stack.callback(end, process)
        for port in (*self.sources, self.sink):
            wait_listening(port, process)

    def run(self, count: int, rows: int, expected: int) -> float:
        """Send all events; return events per second."""
        module = "engine.lab.bench.nexmark.from_bytes"
        headers = int(self.format == "csv")
        with ExitStack() as stack:
            receiver = stack.enter_context(
                child("engine.lab.bench.sockets.clients", "receive", self.format, self.sink, expected, headers)
            )
            ports = zip(self.query.streams, self.sources, strict=True)
            senders = [stack.enter_context(child(module, self.format, s, count, port)) for s, port in ports]
            for process in (receiver, *senders):
                process.answer()
            time.sleep(SETTLE_SECONDS)
            for sender in senders:
                sender.say("go")
            begun_ns = min(sender.answer()["start_ns"] for sender in senders)
            received = receiver.answer()
        if received["rows"] != expected:
            raise BenchError(f"{self.query.name}: {received['rows']} of {expected} rows arrived")
        return float(rows / ((received["end_ns"] - begun_ns) / 1e9))


def file_rate(query: Query, format: str, folder: Path, rows: int) -> Callable[[], float]:
    """Make a contender: DuckDB from files to a file."""
    import duckdb

    database = duckdb.connect()
    database.execute("set threads = 1")
    for stream in query.streams:
        source = READERS[format].format(folder / f"{stream}.{format}")
        database.execute(f"create view {stream} as select * from {source}")  # noqa: S608  (names of our own)
    target = folder / "answer"

    def once() -> float:
        begun = time.perf_counter()
        kind = "csv" if format == "csv" else "json"
        database.execute(f"copy ({SQL[query.name]}) to '{target}' (format {kind})")
        return rows / (time.perf_counter() - begun)

    return once


def run(options: Options, format: str, names: Sequence[str] = ()) -> Iterator[Result]:
    count = 100_000 if options.quick else 1_000_000
    events = generate(count)
    with connect(events) as database, tempfile.TemporaryDirectory(prefix="aurorad-bench-") as folder:
        for stream in SCHEMAS:
            (Path(folder) / f"{stream}.{format}").write_bytes(b"".join(encoded(format, events, stream)))
        for name in names or AT_ONCE:
            query = BY_NAME[name]
            expected = database.sql(SQL[name]).to_arrow_table().num_rows
            rows = sum(events.train(stream).count for stream in query.streams)
            yield measure(query, format, Path(folder), (count, rows, expected), options)


def measure(query: Query, format: str, folder: Path, sizes: tuple[int, int, int], options: Options) -> Result:
    with ExitStack() as stack:
        daemon = QueryDaemon(query, format, stack)
        for _ in range(WARM_UPS):  # the daemon compiles what is called often, in the background
            daemon.run(*sizes)
            time.sleep(SETTLE_SECONDS)
        contenders = {"engine": lambda: daemon.run(*sizes)}
        if format in READERS:
            contenders["batch"] = file_rate(query, format, folder, sizes[1])
        rates = interleave(contenders, options.rounds)
    case = f"{query.name},format={format}" + (",batch=duckdb" if "batch" in rates else "")
    baseline = rates.get("batch")
    extra = {"title": query.title, "rows_out": sizes[2]}
    if baseline is None:
        value = sorted(rates["engine"])[len(rates["engine"]) // 2]
        return Result("nexmark", case, "events_per_s", value, extra=extra, rows_from="from bytes")
    return Result.of_rounds("nexmark", case, "events_per_s", rates["engine"], baseline, "from bytes", extra)


if __name__ == "__main__":
    send(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
