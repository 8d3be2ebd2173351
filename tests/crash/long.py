"""The long run behind the figures of the guarantees: about an hour on two cores.

    python -m tests.crash.long                        everything
    python -m tests.crash.long seeds kills            only these
    python -m tests.crash.long seeds --part 3/8       an eighth of it, for a shared machine

- ``seeds``: 2,000 lives on the disk that forgets, ended at random
- ``spilled``: 500 more in which most waiting trains are on disk
- ``points``: a script of 1,000 tuples, with a power cut before every single file operation
- ``machines``: 1,000 random programs of the state machine
- ``kills``: the real daemon under load, killed 200 times
- ``held``: killed 40 times while a reader blocks it and queues are on disk
- ``divided``: 100 lives on the disk that forgets with all state on disk
- ``state``: the real daemon, killed 60 times while windows and joins are on disk
- ``phases``: the real daemon with queues and states on disk, killed 300 times: before a random file operation of a
  checkpoint, a spilled queue or a spilled state, before a step of a recovery, and in between at random. The daemon
  notes what it was about to do as it dies
- ``operations``: the real daemon, killed before each of its first 60 file operations
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "clients" / "python"))

from tests.crash.driver import PHASES, Driver

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
RUNS: dict[str, tuple[list[str], dict[str, str]]] = {
    "seeds": (["tests/crash/test_world.py", "-k", "random"], {"AURORAD_CRASH_SEEDS": "2000"}),
    "spilled": (["tests/crash/test_world.py", "-k", "while_queues"], {"AURORAD_CRASH_SEEDS": "5000"}),
    "divided": (["tests/crash/test_world.py", "-k", "state_is_on_disk"], {"AURORAD_CRASH_SEEDS": "400"}),
    "points": (["tests/crash/test_world.py", "-k", "before_this_operation"], {"AURORAD_CRASH_POINTS": "1000000"}),
    "machines": (["tests/property/test_storage_machine.py"], {"AURORAD_MACHINES": "1000"}),
}
KILLS, HELD, STATE, PHASE_KILLS, OPERATIONS = 200, 40, 60, 300, 60


def suite(name: str, part: int, parts: int) -> dict[str, object]:
    tests, environment = RUNS[name]
    if name == "machines":
        environment = {"AURORAD_MACHINES": str(1_000 // parts), "HYPOTHESIS_PROFILE": "deep"}
        tests = [*tests, f"--hypothesis-seed={part}"]
    environment = {**environment, "AURORAD_CRASH_PART": f"{part}/{parts}"}
    begun = time.monotonic()
    done = subprocess.run(
        [*PYTEST, *tests], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    lines = done.stdout.strip().splitlines()
    return {
        "run": name,
        "part": f"{part}/{parts}",
        "passed": done.returncode == 0,
        "says": lines[-1:] if done.returncode == 0 else lines[-60:],
        "seconds": round(time.monotonic() - begun),
    }


def kills(part: int, parts: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        verdict = Driver(Path(folder), seed=part).run(KILLS // parts, longest_s=0.5)
    return {"run": "kills", "part": f"{part}/{parts}", "passed": _holds(verdict), **verdict}


def held(part: int, parts: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        verdict = Driver(Path(folder), seed=part, batch=1_000, spilling=True).run(HELD // parts, longest_s=0.6)
    return {
        "run": "held",
        "part": f"{part}/{parts}",
        "passed": _holds(verdict) and bool(verdict["spilled_bytes"]),
        **verdict,
    }


def state(part: int, parts: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        verdict = Driver(Path(folder), seed=part, batch=200, divided=True).run(STATE // parts, longest_s=0.6)
    found = verdict["kills_with_state"] >= STATE // parts // 2
    return {"run": "state", "part": f"{part}/{parts}", "passed": _holds(verdict) and found, **verdict}


def phases(part: int, parts: int) -> dict[str, object]:
    """Kill the daemon in lives of 36 kills each: the oracle keeps every result of a life in memory."""
    wanted = PHASE_KILLS // parts
    sums: Counter[str] = Counter()
    noted: Counter[str] = Counter()
    before: Counter[str] = Counter()
    while sums["kills"] < wanted:
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(Path(folder), seed=part * 1_000 + sums["kills"], batch=200, spilling=True, divided=True)
            verdict = driver.run_phases(4 * len(PHASES))
        noted.update(verdict.pop("noted"))
        before.update(verdict.pop("before"))
        sums.update(verdict)
        print(json.dumps({"run": "phases", **sums, "noted": noted}), file=sys.stderr, flush=True)
    is_hit = all(noted[phase] >= wanted // 10 for phase in list(PHASES)[1:])
    passed = _holds(dict(sums)) and is_hit
    return {"run": "phases", "part": f"{part}/{parts}", "passed": passed, **sums, "noted": noted, "before": before}


def operations(part: int, parts: int) -> dict[str, object]:
    begun = time.monotonic()
    failed: list[dict[str, object]] = []
    for operation in range(part, OPERATIONS, parts):
        with tempfile.TemporaryDirectory() as folder:
            verdict = Driver(Path(folder), seed=operation).run_dying(operation)
        if not _holds(verdict):
            failed.append({"operation": operation, **verdict})
    return {
        "run": "operations",
        "part": f"{part}/{parts}",
        "passed": not failed,
        "operations": len(range(part, OPERATIONS, parts)),
        "failed": failed,
        "seconds": round(time.monotonic() - begun),
    }


def _holds(verdict: dict[str, object]) -> bool:
    return not any(verdict[p] for p in ("lost", "repeats_unflagged", "repeats_flagged", "numbers_missing", "exit"))


_DRIVEN = {"kills": kills, "held": held, "state": state, "phases": phases, "operations": operations}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("runs", nargs="*", choices=[[], *RUNS, *_DRIVEN])
    arguments.add_argument("--part", default="0/1")
    chosen = arguments.parse_args()
    part, parts = map(int, chosen.part.split("/"))
    results = []
    for name in chosen.runs or [*RUNS, *_DRIVEN]:
        run = _DRIVEN.get(name)
        results.append(suite(name, part, parts) if run is None else run(part, parts))
        print(json.dumps(results[-1]), flush=True)
    sys.exit(0 if all(r["passed"] for r in results) else 1)


if __name__ == "__main__":
    main()
