"""The long form of the random changes: ``python -m tests.live.long [--changes 1000] [--seed N] [--data-dir DIR]``."""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

from tests.live.world import live_world


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--data-dir", type=Path, help="where the daemon keeps its state; none without it")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    given = parser.parse_args()
    begun = time.monotonic()
    with live_world(given.seed, given.data_dir) as world:
        for number in range(1, given.changes + 1):
            world.change()
            if number % 100 == 0:
                used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                print(f"{number} changes, {world.sent:,} tuples, {used} MiB at most", flush=True)
        wrong = world.end()
    seconds = time.monotonic() - begun
    print(f"seed {given.seed}: {given.changes} changes in {seconds:.0f} s, {len(wrong)} wrong")
    for why in wrong[:20]:
        print(f"  {why}")
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
