"""``bench latency``: the time from send to receive over sockets at a steady rate, in seconds.

One process sends a row at a time with its send time in it. Another process reads the row and compares the time. Both
set TCP_NODELAY. The baseline is a blocking loop with orjson. Each is judged by its round with the lowest quantile,
because other processes on the machine only ever add delay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

from engine.lab.bench.harness import BenchError, Options, child
from engine.lab.bench.report import Result
from engine.lab.bench.sockets.servers import BenchServer, bare_loop, daemon

QUANTILES = ("p50", "p99", "p999")


def measure(server: BenchServer, rate: int, seconds: float) -> dict[str, float]:
    """Run one round; return its quantiles and the rate."""
    rows = int(rate * seconds)
    with child("engine.lab.bench.sockets.clients", "collect", server.sink, rows) as collector:
        collector.answer()
        with child("engine.lab.bench.sockets.clients", "probe", server.source, rate, seconds) as prober:
            prober.answer()
            time.sleep(0.1)
            prober.say("go")
            sent, got = prober.answer(), collector.answer()
    if got["rows"] != sent["rows"]:
        raise BenchError(f"{got['rows']} of {sent['rows']} rows arrived")
    return {**{name: float(got[name]) for name in QUANTILES}, "rate": float(sent["rate"])}


def run(options: Options, rate: int = 10_000) -> Iterator[Result]:
    seconds = 1.0 if options.quick else 4.0
    rounds: dict[str, list[dict[str, float]]] = {"bare": [], "engine": []}
    with ExitStack() as stack:
        servers = {"bare": stack.enter_context(bare_loop("latency")), "engine": stack.enter_context(daemon("ndjson"))}
        for _ in range(options.rounds):
            for name, server in servers.items():
                rounds[name].append(measure(server, rate, seconds))
    best = {name: {q: min(r[q] for r in rows) for q in QUANTILES} for name, rows in rounds.items()}
    case = f"rate={rate}"
    engine, bare = best["engine"], best["bare"]
    yield Result("latency", case, "p50_s", engine["p50"], bare["p50"], at_most=2.5)
    yield Result("latency", case, "p99_s", engine["p99"], bare["p99"])
    yield Result("latency", case, "p999_s", engine["p999"], bare["p999"])
    yield Result("latency", f"{case},baseline=p50", "p99_s", engine["p99"], bare["p50"], at_most=10.0)
    sent = max(r["rate"] for r in rounds["engine"])
    yield Result("latency", case, "sent_rows_per_s", sent, float(rate))
