"""Run the fuzzers for a bounded time and print what they did: ``python -m tests.fuzz --seconds 10 --seed 1``.

Every target gets its time in turn. A finding is printed with the seed and the number of its message, which make it
again: ``--only TARGET --seed SEED --start NUMBER``. Exit code 1 with a finding.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.e2e.daemon import free_ports, running
from tests.fuzz import parsers, ports


class Outcome(NamedTuple):
    target: str
    messages: int
    seconds: float
    findings: list[str]


def main() -> int:
    options = _options()
    outcomes = [*_parsers(options), *_ports(options)]
    print(f"\nseed {options.seed}")
    print(f"{'target':26}{'messages':>12}{'a second':>12}{'findings':>10}")
    for outcome in outcomes:
        rate = outcome.messages / max(outcome.seconds, 1e-9)
        print(f"{outcome.target:26}{outcome.messages:12,}{rate:12,.0f}{len(outcome.findings):10}")
    found = [f"{outcome.target}: {finding}" for outcome in outcomes for finding in outcome.findings]
    print(f"{'all':26}{sum(o.messages for o in outcomes):12,}{'':12}{len(found):10}")
    print(*found, sep="\n")
    return 1 if found else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each target")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--start", type=int, default=0, help="the number of the first message")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    return parser.parse_args()


def _rounds(options: argparse.Namespace, throw: Callable[[random.Random], None]) -> tuple[int, list[str]]:
    """Throw messages until the time is over, or something leaves a parser. Return how many, and what was found."""
    end, number = time.monotonic() + options.seconds, options.start
    while time.monotonic() < end:
        try:
            throw(random.Random(f"{options.seed} {number}"))
        except Exception:  # noqa: BLE001 - whatever it is, it is what this program looks for
            return number - options.start + 1, [f"message {number}: {traceback.format_exc(limit=-3)}"]
        number += 1
    return number - options.start, []


def _parsers(options: argparse.Namespace) -> Iterator[Outcome]:
    for name, target in parsers.TARGETS.items():
        if options.only in name:
            begun = time.monotonic()
            messages, findings = _rounds(options, target)
            yield Outcome(name, messages, time.monotonic() - begun, findings)
            print(".", end="", flush=True)


def _ports(options: argparse.Namespace) -> Iterator[Outcome]:
    wanted = {name: target for name, target in ports.TARGETS.items() if options.only in name}
    if not wanted:
        return
    numbers = dict(zip(ports.PORTS, free_ports(len(ports.PORTS)), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        text = ports.NETWORK.format(data=f"{folder}/data", schema=ports.SCHEMA, **numbers)
        with running(Path(folder), text, numbers["http"]) as daemon:
            for name, (port, make) in wanted.items():
                begun = time.monotonic()
                messages, findings = _rounds(options, lambda r, p=numbers[port], m=make: ports.throw(r, p, m))  # type: ignore[misc]
                seconds = time.monotonic() - begun
                yield Outcome(name, messages, seconds, findings + ports.findings(daemon, numbers))
                print(".", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
