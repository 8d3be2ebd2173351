"""``bench socket``: rows per second over TCP, from one client process through five filters to another.

The clock runs from the sender's first byte to the receiver's last row. The baseline of a format is the fastest bare
loop for it. The goal of arrow is also five times the rate of the engine's own ndjson.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from statistics import median

from engine.lab.bench import workload
from engine.lab.bench.harness import BenchError, Options, child, interleave
from engine.lab.bench.report import Result
from engine.lab.bench.sockets.servers import BenchServer, bare_loop, daemon

FORMATS = ("ndjson", "csv", "arrow")
CONNECTIONS = (1, 8)
BLOCK_ROWS = 20_000
BLOCKS = {"ndjson": 150, "csv": 300, "arrow": 1_500}
BARE = {"ndjson": ("polars", "orjson"), "csv": ("csv",), "arrow": ("arrow",)}
TARGETS = {"ndjson": 0.6}
ARROW_OVER_NDJSON = 5.0


def transfer(server: BenchServer, format: str, connections: int, blocks: int) -> float:
    """Send ``blocks`` blocks of rows, spread over the connections; return rows per second."""
    repeat = max(1, blocks // connections)
    kept = len(workload.survivors(workload.columns(BLOCK_ROWS))[0])
    expected = kept * repeat * connections
    with child("engine.lab.bench.sockets.clients", "receive", format, server.sink, expected) as receiver:
        receiver.answer()
        with child(
            "engine.lab.bench.sockets.clients", "send", format, server.source, connections, BLOCK_ROWS, repeat
        ) as sender:
            sender.answer()
            time.sleep(0.1)  # until the server has accepted both
            sender.say("go")
            sent, received = sender.answer(), receiver.answer()
    if received["rows"] != expected:
        raise BenchError(f"{format}: {received['rows']} of {expected} rows arrived")
    rate: float = sent["rows"] / ((received["end_ns"] - sent["start_ns"]) / 1e9)
    return rate


def blocks_of(format: str, loop: str, options: Options) -> int:
    """Choose the number of blocks; the slow loop gets fewer, because a rate needs seconds, not minutes."""
    blocks = BLOCKS[format] // (5 if options.quick else 1)
    return max(8, blocks // 4) if loop == "orjson" else blocks


def compare(format: str, connections: int, options: Options) -> tuple[list[float], list[float]]:
    """Return the engine's rates by round, and those of the fastest bare loop."""
    loops = BARE[format] if connections == 1 else BARE[format][:1]
    with ExitStack() as stack:
        servers = {loop: stack.enter_context(bare_loop(loop)) for loop in loops}
        servers["engine"] = stack.enter_context(daemon(format))

        def contender(name: str) -> Callable[[], float]:
            return lambda: transfer(servers[name], format, connections, blocks_of(format, name, options))

        rates = interleave({name: contender(name) for name in servers}, options.rounds)
    engine = rates.pop("engine")
    return engine, max(rates.values(), key=median)


def run(options: Options, formats: Sequence[str] = FORMATS) -> Iterator[Result]:
    rates: dict[str, list[float]] = {}
    for format in formats:
        for connections in CONNECTIONS if format == "ndjson" else CONNECTIONS[:1]:
            engine, bare = compare(format, connections, options)
            rates.setdefault(format, engine)
            case = f"format={format},connections={connections}"
            yield Result.of_rounds(
                "socket", case, "rows_per_s", engine, bare, "from bytes", at_least=TARGETS.get(format)
            )
    if "arrow" in rates and "ndjson" in rates:
        case = "format=arrow,baseline=ndjson"
        arrow, ndjson = median(rates["arrow"]), median(rates["ndjson"])
        yield Result("socket", case, "rows_per_s", arrow, ndjson, at_least=ARROW_OVER_NDJSON, rows_from="from bytes")
