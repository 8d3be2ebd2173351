"""Power cuts and kills around changes of the network: the old one or the new one runs, whole, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from engine.daemon.durable import checkpointer
from storage import manager
from tests.crash.crash_files import PowerCut
from tests.crash.test_world import run_at_random, run_blocked
from tests.crash.world import end_all, run_script
from tests.live.crash_changes import HEAD, ChangingWorld

SEEDS = int(os.environ.get("AURORAD_CRASH_SEEDS", "12"))
"""The number of cases; the long run takes more (``python -m tests.live.long``)."""

SPILLING = HEAD.replace("time: ts,", "time: ts, overload: spill,")


@pytest.fixture(autouse=True)
def short_quiet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A worker that a power cut ended never finishes its plan: a cut need not wait for it for half a minute."""
    monkeypatch.setattr(checkpointer, "QUIET_SECONDS", 5.0)
    yield
    end_all()


def test_changes_without_a_crash_lose_nothing() -> None:
    world = ChangingWorld()
    for batches in range(5, 60, 5):
        run_script(world, batches)
        world.change()
    run_script(world, 60)
    world.finish()
    assert (world.lives, world.changes) == (1, 11)


def operations_of_a_change(seed: int) -> tuple[int, int]:
    """Return the first file operation of a change and the one behind it."""
    world = ChangingWorld(seed)
    run_script(world, 17)
    first = len(world.files.operations)
    world.change()
    last = len(world.files.operations)
    world.finish()
    return first, last


def test_a_power_cut_before_each_operation_of_a_change() -> None:
    """The old network or the new one, and which of them is known once the change was answered."""
    first, last = operations_of_a_change(5)
    ran: list[int] = []
    for point in range(first, last + 1):
        world = ChangingWorld(5)
        run_script(world, 17)
        world.files.crash_before = point
        try:
            world.change()
            world.publish()
            world.commit()
        except PowerCut:
            pass
        world.lose_power()
        world.start()
        assert world.life is not None
        ran.append(world.life.network.version)
        run_script(world, 30)
        world.change()
        run_script(world, 40)
        world.finish()
    assert ran[0] == 1 and ran[-1] == 2 and ran == sorted(ran)
    assert last - first > 5


@pytest.mark.parametrize("seed", range(SEEDS))
def test_changes_power_cuts_and_kills_at_random(seed: int) -> None:
    """State in memory, in every third world all of it on disk: boxes that get other names keep their files."""
    rng, on_disk = Random(seed), seed % 3 == 2
    with pytest.MonkeyPatch.context() as patch:
        if on_disk:
            patch.setattr(manager, "STATE_SHARE", 0.0)
        world = ChangingWorld(seed, batch=rng.randint(1, 12), **({"memory_bytes": 2**26} if on_disk else {}))
        target = 0
        while world.acknowledged < 50:
            target = min(50, target + rng.randint(2, 8))
            reach = rng.randint(20, 400) if on_disk else rng.randint(5, 90)
            world.files.crash_before = len(world.files.operations) + reach
            try:
                if world.life is None:
                    world.start()
                run_at_random(world, target, rng)
                world.change()
                if rng.random() < 0.3:
                    world.kill()
            except PowerCut:
                world.lose_power()
        world.files.crash_before = None
        if world.life is None:
            world.start()
        world.change()
        world.finish()
    assert world.changes


@pytest.mark.parametrize("seed", range(max(2, SEEDS // 10)))
def test_changes_while_queues_are_on_disk(seed: int) -> None:
    """Outputs are blocked, so that trains wait on disk and in memory before boxes that change their names."""
    rng = Random(seed)
    world = ChangingWorld(seed, head=SPILLING, batch=100, memory_bytes=20_000)
    while world.acknowledged < 60:
        if world.life is None:
            world.start()
        run_blocked(world, min(60, world.sent + rng.randint(5, 25)), rng)
        world.change()
        if rng.random() < 0.5:
            world.kill()
    if world.life is None:
        world.start()
    world.finish()
    assert world.changes >= 3
