"""Shared by all tests: the profiles of hypothesis, and a check that no test leaves a thread of the engine behind."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The suite must give the same answer twice, on a busy machine too: examples are derived from the test's name, and no
# example has a deadline. `HYPOTHESIS_PROFILE=deep make test` searches at random and further.
settings.register_profile(
    "suite", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))

OURS = ("aurorad", "scheduler", "worker-", "monitor", "io")  # prefixes of the engine's thread names
THREAD_END_SECONDS = 5.0


@pytest.fixture(autouse=True)
def no_thread_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread running: it would take a core from every test after it."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + THREAD_END_SECONDS
    while left := [t.name for t in threading.enumerate() if t not in before and t.name.startswith(OURS)]:
        if time.monotonic() > deadline:
            pytest.fail(f"threads still running after the test: {left}")
        time.sleep(0.01)


@pytest.fixture(scope="module")
def compiled_kernels() -> Iterator[None]:
    """Run the compiled loops of all kernels instead of their numpy twins. Compiling takes seconds, the first time."""
    from storage.compiled.compiler import compile_known
    from storage.compiled.kernel import known

    compile_known()
    yield
    for kernel in known:
        kernel.choose(compiled=False)
