"""``bench admission``: the forecast of a change against what happened, for five queries that are added to the demo.

The demo's daemon runs in this process, and the demo's market feeds it over sockets at a steady rate. Each query is
planned (``engine/simulate/admission``), added, watched for some seconds, and removed. A figure is the utility that an
output had, its baseline the utility that the forecast gave it.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

from catalog.config.read import read_text
from engine.daemon.daemon import Daemon
from engine.lab.bench.harness import Options
from engine.lab.bench.report import Result
from engine.run.network_file import read_network
from engine.run.tuning import tune_process
from engine.simulate.market import Market

TUPLES_PER_S = 8_000.0
TICK_S = 0.02
SETTLE_S = 5.0
WATCH_S = 11.0  # the window of utilities is ten seconds
QUERIES = {
    "cheap filter": "added: {filter: trades, where: 'price > 100'}",
    "50 us a quote": "added: {universal: quotes, cost: 50us}",
    "150 us a trade": "added: {universal: trades, cost: 150us}",
    "300 us a trade": "added: {universal: trades, cost: 300us}",
    "600 us a trade": "added: {universal: trades, cost: 600us}",
}
QOS = "{deadline: 1s, dead: 5s, lossy: 50%}"
WITHIN = 0.1


def feed(daemon: Daemon, ended: Event) -> None:
    market = Market(1)
    addresses = [daemon.server.address(f"stream {name}") for name in ("trades", "quotes")]
    with socket.create_connection(addresses[0]) as trades, socket.create_connection(addresses[1]) as quotes:
        last_s = time.monotonic()
        while not ended.wait(TICK_S):
            now_s = time.monotonic()
            lines = market.step(time.time_ns(), min(now_s - last_s, 0.25), TUPLES_PER_S / 2, 1.0)
            last_s = now_s
            for connection, part in zip((trades, quotes), lines, strict=True):
                connection.sendall(part)


def utilities(daemon: Daemon) -> dict[str, float]:
    """Return the utility of each output over the last seconds, by both of its graphs."""
    return {o.name: o.latency.window_utility * o.loss_utility for o in daemon.readings().outputs}


def run(options: Options, demo: Path) -> Iterator[Result]:
    tune_process()
    text = re.sub(r"(?m)^http:.*$", 'http: {listen: "off"}', read_text(demo)[0])
    text = re.sub(r":94\d\d\b", ":0", text)  # any free ports
    daemon = Daemon(read_network(text), text=text)
    daemon.start()
    ended = Event()
    feeder = Thread(target=feed, args=(daemon, ended), name="feeder")
    try:
        feeder.start()
        time.sleep(SETTLE_S)
        for case, box in list(QUERIES.items())[:: 2 if options.quick else 1]:
            yield from _one(daemon, case, box)
    finally:
        ended.set()
        feeder.join()
        daemon.stop(0.0)


def _one(daemon: Daemon, case: str, box: str) -> Iterator[Result]:
    query = f"boxes: {{{box}}}\noutputs: {{extra: {{from: added, qos: {QOS}}}}}\n"
    plan = daemon.changes.add_query(query, dry_run=True)
    told = {o["name"]: o["utility"][1] for o in plan["forecast"]["outputs"]}
    daemon.changes.add_query(query, dry_run=False)
    time.sleep(WATCH_S)
    for name, utility in utilities(daemon).items():
        if name in told:
            yield Result(
                "admission", case, f"utility of {name}, ratio", utility, told[name], at_least=1 - WITHIN,
                at_most=1 + WITHIN, extra={"load": plan["forecast"]["load"]},
            )  # fmt: skip
    daemon.changes.remove_query("extra", dry_run=False)
    time.sleep(SETTLE_S)
