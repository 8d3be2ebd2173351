"""Coverage-guided fuzzing of the parsers: atheris (libFuzzer) keeps every message that reaches a new branch.

``python -m tests.fuzz.guided TARGET SECONDS SEED CORPUS`` is one run in a process of its own: libFuzzer ends its
process as it likes. The seeds of its corpus are messages of the grammar. ``run`` starts it and reads what it says.
"""

from __future__ import annotations

import importlib.util
import random
import re
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path
from typing import Any

SEEDS = 300
_DONE = re.compile(rb"Done (\d+) runs")
_AT = re.compile(rb"^#(\d+)\s", re.MULTILINE)


def is_installed() -> bool:
    return importlib.util.find_spec("atheris") is not None


def run(name: str, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Fuzz a target for a time. Return how many messages it parsed, and what left it."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "tests.fuzz.guided", name, str(max(1, round(seconds))), str(seed), folder]
        done = subprocess.run(words, capture_output=True, check=False)
    said = done.stdout + done.stderr
    count = [int(found) for found in _DONE.findall(said) or _AT.findall(said)]
    if done.returncode or not count:
        told = (done.stdout[-2_500:] + done.stderr[-500:]).decode("utf-8", "replace")
        return max(count, default=0), [f"seed {seed}, exit {done.returncode}: {told}"]
    return max(count), []


def main(name: str, seconds: str, seed: str, corpus: str) -> None:
    import atheris

    from tests.fuzz import parsers  # its modules are instrumented below, once they are all imported

    parser = parsers.TARGETS[name]
    parser.throw(random.Random(seed))  # imports what is imported on first use
    for module in [module for module in list(sys.modules) if module.startswith(parser.modules)]:
        _instrument(atheris, module)
    for number in range(SEEDS):
        Path(corpus, f"seed-{number}").write_bytes(parser.make(random.Random(f"{seed} {number}")))

    def parse(data: bytes) -> None:
        parser.parse(random.Random(zlib.crc32(data)), data)

    atheris.Setup(
        [name, f"-max_total_time={seconds}", f"-seed={int(seed) % 2**31 or 1}", "-max_len=20000", "-rss_limit_mb=4096",
         "-timeout=20", f"-artifact_prefix={corpus}/", "-print_final_stats=1", corpus], parse
    )  # fmt: skip
    atheris.Fuzz()


def _instrument(atheris: Any, name: str) -> None:
    """Instrument every function of a module, in place."""
    for value in list(vars(sys.modules[name]).values()):
        if getattr(value, "__module__", "") == name:
            for function in [value, *vars(value).values()] if isinstance(value, type) else [value]:
                if hasattr(function, "__code__"):
                    function.__code__ = atheris.instrument_func(function).__code__


if __name__ == "__main__":
    main(*sys.argv[1:])
