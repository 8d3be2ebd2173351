"""Stop an engine between two steps of its scheduler: no box runs and none is started, while trains may still arrive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep

from engine.run.core import Engine

QUIET_POLL_SECONDS = 0.0002


@contextmanager
def quiet(engine: Engine, seconds: float) -> Iterator[None]:
    """Wait until no box runs; none is started inside. TimeoutError when a plan takes longer than this."""
    deadline = monotonic() + seconds
    with engine.loop.paused(seconds):
        while engine.loop.mailbox.finished() < engine.state.outstanding:
            if monotonic() > deadline:
                raise TimeoutError(f"a plan is still under way after {seconds:g} s")
            sleep(QUIET_POLL_SECONDS)
        yield
