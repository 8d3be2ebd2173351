"""A daemon that drops every other window from its start: what the test that kills it runs as a process of its own."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from load_shedder.shed_plan import Drop, DropPlace, ShedPlan


def main() -> None:
    daemon = Daemon(read_network(Path(sys.argv[1])))
    daemon.start()
    [arc] = [a.number for a in daemon.network.arcs if a.name == "t->sums"]
    daemon.engine.shed(ShedPlan(1, 0.5, (Drop(DropPlace(arc, "windows", (0,), 10 * 10**9), 0.5),), why="a test"))
    sys.stdout.write(json.dumps(daemon.server.addresses) + "\n")
    sys.stdout.flush()
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
