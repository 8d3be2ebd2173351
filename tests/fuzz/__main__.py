"""Run the fuzzers and print what they did: ``python -m tests.fuzz --seconds 10 --seed 1``.

- parsers in this process, with messages that are nearly right (``parsers.py``)
- the same parsers under atheris, which keeps what reaches new branches (``guided.py``), where it is installed
- every port of a real daemon (``ports.py``)
- HTTP by schemathesis from the daemon's own OpenAPI document (``contract.py``), where it is installed

Every target gets its time in turn; ``--executions 10000000`` goes round until so many messages were thrown. A finding
is printed with the seed and the number of its message, which make it again: ``--only TARGET --seed SEED --start
NUMBER``. Exit code 1 with a finding.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.e2e.daemon import RunningDaemon, free_ports, running
from tests.fuzz import contract, guided, parsers, ports

PEERS = 4
"""At once at a port. A message waits for an answer for most of its time."""


class Outcome(NamedTuple):
    target: str
    messages: int
    seconds: float
    findings: list[str]


def main() -> int:
    options = _options()
    sums: dict[str, Outcome] = {}
    seed = options.seed
    while True:
        for outcome in _round(options):
            before = sums.get(outcome.target, Outcome(outcome.target, 0, 0.0, []))
            sums[outcome.target] = Outcome(
                outcome.target,
                before.messages + outcome.messages,
                before.seconds + outcome.seconds,
                before.findings + outcome.findings,
            )
            print(".", end="", flush=True)
        _report(seed, options.seed, list(sums.values()))
        found = any(outcome.findings for outcome in sums.values())
        if found or sum(outcome.messages for outcome in sums.values()) >= options.executions:
            return 1 if found else 0
        options.seed += 1


def _report(first: int, last: int, outcomes: list[Outcome]) -> None:
    print(f"\nseed {first}" if first == last else f"\nseeds {first} to {last}")
    print(f"{'target':34}{'messages':>12}{'a second':>12}{'findings':>10}")
    for outcome in outcomes:
        rate = outcome.messages / max(outcome.seconds, 1e-9)
        print(f"{outcome.target:34}{outcome.messages:12,}{rate:12,.0f}{len(outcome.findings):10}")
    found = [f"{outcome.target}: {finding}" for outcome in outcomes for finding in outcome.findings]
    print(f"{'all':34}{sum(o.messages for o in outcomes):12,}{'':12}{len(found):10}")
    print(*found, sep="\n", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each target in a round")
    parser.add_argument("--executions", type=int, default=0, help="go round until so many messages were thrown")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--start", type=int, default=0, help="the number of the first message")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    return parser.parse_args()


def _round(options: argparse.Namespace) -> Iterator[Outcome]:
    yield from _parsers(options)
    yield from _guided(options)
    yield from _ports(options)


def _thrown(options: argparse.Namespace, throw: Callable[[random.Random], None], first: int = 0) -> Outcome:
    """Throw messages until the time is over, or something leaves a parser."""
    begun, number = time.monotonic(), options.start + first
    begin = number
    while time.monotonic() < begun + options.seconds:
        try:
            throw(random.Random(f"{options.seed} {number}"))
        except Exception:  # noqa: BLE001 - whatever it is, it is what this program looks for
            finding = f"seed {options.seed} message {number}: {traceback.format_exc(limit=-3)}"
            return Outcome("", number - begin + 1, time.monotonic() - begun, [finding])
        number += 1
    return Outcome("", number - begin, time.monotonic() - begun, [])


def _parsers(options: argparse.Namespace) -> Iterator[Outcome]:
    for name, target in parsers.TARGETS.items():
        if options.only in name:
            yield _thrown(options, target.throw)._replace(target=name)


def _guided(options: argparse.Namespace) -> Iterator[Outcome]:
    for name in parsers.TARGETS:
        if guided.is_installed() and options.only in f"guided: {name}":
            begun = time.monotonic()
            messages, findings = guided.run(name, options.seconds, options.seed)
            yield Outcome(f"guided: {name}", messages, time.monotonic() - begun, findings)


def _ports(options: argparse.Namespace) -> Iterator[Outcome]:
    wanted = {name: target for name, target in ports.TARGETS.items() if options.only in name}
    has_contract = contract.is_installed() and options.only in contract.NAME
    if not wanted and not has_contract:
        return
    numbers = dict(zip(ports.PORTS, free_ports(len(ports.PORTS)), strict=True))
    with tempfile.TemporaryDirectory() as folder:
        text = ports.NETWORK.format(data=f"{folder}/data", schema=ports.SCHEMA, **numbers)
        with running(Path(folder), text, numbers["http"]) as daemon:
            for name, (port, make) in wanted.items():
                yield _crowd(options, daemon, numbers, port, make)._replace(target=name)
            if has_contract:
                begun = time.monotonic()
                messages, findings = contract.run(daemon, numbers["ndjson"], options.seconds, options.seed)
                seconds = time.monotonic() - begun
                yield Outcome(contract.NAME, messages, seconds, findings + ports.findings(daemon, numbers))


def _crowd(
    options: argparse.Namespace, daemon: RunningDaemon, numbers: dict[str, int], port: str, make: ports.Message
) -> Outcome:
    """Have some peers throw messages at a port at once. Their numbers are far apart."""
    begun = time.monotonic()
    with ThreadPoolExecutor(PEERS) as pool:
        each = [
            pool.submit(_thrown, options, lambda r: ports.throw(r, numbers[port], make), peer * 10**9)
            for peer in range(PEERS)
        ]
        thrown = [future.result() for future in each]
    findings = [finding for outcome in thrown for finding in outcome.findings]
    findings += ports.findings(daemon, numbers)
    return Outcome("", sum(outcome.messages for outcome in thrown), time.monotonic() - begun, findings)


if __name__ == "__main__":
    sys.exit(main())
