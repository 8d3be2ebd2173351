"""The long run behind the figures of GUARANTEES.md: about an hour on two cores.

    python -m tests.crash.long                  all of it
    python -m tests.crash.long seeds kills      only these

- ``seeds``: 2,000 lives on the disk that forgets, ended at random
- ``points``: a script of 1,000 tuples, with the power cut before every single deed of it
- ``machines``: 1,000 random programs of the state machine
- ``kills``: the real daemon under load, killed 200 times
- ``deeds``: the real daemon, killed before each of its first 60 deeds
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.driver import Driver

PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
RUNS: dict[str, tuple[list[str], dict[str, str]]] = {
    "seeds": (["tests/crash/test_world.py", "-k", "random"], {"AURORAD_CRASH_SEEDS": "2000"}),
    "points": (["tests/crash/test_world.py", "-k", "before_this_deed"], {"AURORAD_CRASH_POINTS": "1000000"}),
    "machines": (
        ["tests/property/test_storage_machine.py"],
        {"AURORAD_MACHINES": "1000", "HYPOTHESIS_PROFILE": "deep"},
    ),
}


def suite(name: str) -> dict[str, object]:
    tests, environment = RUNS[name]
    begun = time.monotonic()
    done = subprocess.run(
        [*PYTEST, *tests], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return {
        "run": name,
        "passed": done.returncode == 0,
        "says": done.stdout.strip().splitlines()[-1:],
        "seconds": round(time.monotonic() - begun),
    }


def kills(cycles: int = 200) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        verdict = Driver(Path(folder), seed=1).run(cycles, longest_s=0.5)
    return {"run": "kills", "passed": not (verdict["lost"] or verdict["repeats_unflagged"]), **verdict}


def deeds(count: int = 60) -> dict[str, object]:
    begun = time.monotonic()
    failed: list[int] = []
    for deed in range(count):
        with tempfile.TemporaryDirectory() as folder:
            verdict = Driver(Path(folder), seed=deed).run_dying(deed)
        if verdict["lost"] or verdict["repeats_unflagged"] or verdict["numbers_missing"]:
            failed.append(deed)
    return {
        "run": "deeds",
        "passed": not failed,
        "deeds": count,
        "failed": failed,
        "seconds": round(time.monotonic() - begun),
    }


def main() -> None:
    chosen = sys.argv[1:] or [*RUNS, "kills", "deeds"]
    results = []
    for name in chosen:
        results.append(suite(name) if name in RUNS else kills() if name == "kills" else deeds())
        print(json.dumps(results[-1]), flush=True)
    sys.exit(0 if all(r["passed"] for r in results) else 1)


if __name__ == "__main__":
    main()
