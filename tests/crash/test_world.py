"""The keeper and the engine on a disk that forgets: power cuts at every file operation, and at random."""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random

import pytest

from engine.daemon.durable import checkpointer
from scheduler.events import OutputBlocked, OutputFreed
from storage import manager
from tests.crash.crash_files import PowerCut
from tests.crash.world import NETWORK, OUTPUTS, World, end_all, run_script
from tests.e2e.daemon import wait_for

SEEDS = int(os.environ.get("AURORAD_CRASH_SEEDS", "15"))
POINTS = int(os.environ.get("AURORAD_CRASH_POINTS", "15"))
"""The number of cases; the long run (``tests/crash/long.py``) takes 2,000 seeds and every point."""

PART, PARTS = map(int, os.environ.get("AURORAD_CRASH_PART", "0/1").split("/"))
"""Which part of the long run to take, and into how many parts it is split."""


@pytest.fixture(autouse=True)
def no_life_left() -> Iterator[None]:
    yield
    end_all()


def test_nothing_happens_and_the_oracle_agrees() -> None:
    world = World()
    run_script(world, 30)
    world.finish()
    assert world.lives == 1


def test_a_stop_and_a_start_replay_nothing() -> None:
    world = World()
    run_script(world, 20)
    world.settle()
    assert world.checkpoint()
    world.kill()
    world.start()
    assert world.life is not None
    assert world.life.keeper.recovered.tuples == 0
    run_script(world, 40)
    world.finish()


def test_kill_without_a_checkpoint_replays_everything() -> None:
    world = World()
    run_script(world, 20, checkpoint_every=1_000)
    world.kill()
    world.start()
    assert world.life is not None
    assert world.life.keeper.recovered.tuples == 200
    run_script(world, 40, checkpoint_every=1_000)
    world.finish()


def operations_of_the_script(batches: int) -> int:
    world = World(batch=10)
    run_script(world, batches)
    assert world.life is not None
    world.life.end()
    return len(world.files.operations)


BATCHES = 100 if POINTS > 1_000 else 24
TOTAL = operations_of_the_script(BATCHES)


CHOSEN = sorted({int(i * TOTAL / POINTS) for i in range(POINTS)} if POINTS < TOTAL else range(TOTAL))


@pytest.mark.parametrize("point", CHOSEN[PART::PARTS])
def test_a_power_cut_before_this_operation(point: int) -> None:
    world = World(seed=point, batch=10)
    world.files.crash_before = point
    run_script(world, BATCHES)
    world.finish()
    assert world.lives == 2


@pytest.mark.parametrize("seed", range(PART, SEEDS, PARTS))
def test_power_cuts_and_kills_at_random(seed: int) -> None:
    rng = Random(seed)
    world = World(seed=seed, batch=rng.randint(1, 12), **sizes(seed))
    total = rng.randint(10, 60)
    target = 0
    while world.acknowledged < total:
        target = min(total, target + rng.randint(3, 15))
        world.files.crash_before = len(world.files.operations) + rng.randint(1, 60)
        try:
            if world.life is None:
                world.start()
            run_at_random(world, target, rng)
            world.files.crash_before = None
            if rng.random() < 0.3:
                world.kill()
        except PowerCut:
            world.lose_power()
    end(world)


def end(world: World) -> None:
    """Start once more without power cuts, and check all results."""
    world.files.crash_before = None
    if world.life is None:
        world.start()
    world.finish()


def sizes(seed: int) -> dict[str, int]:
    """Vary the log: of every four worlds one writes groups in pieces, one begins segments often, one does both."""
    pieces = {"piece_bytes": 400} if seed % 2 else {}
    return pieces | ({"segment_bytes": 3_000} if seed // 2 % 2 else {})


def run_at_random(world: World, batches: int, rng: Random) -> None:
    while world.acknowledged < batches:
        draw = rng.random()
        if world.sent < batches and draw < 0.5:
            world.publish()
        elif world.sent and draw < 0.6:
            world.publish(resend=rng.randint(1, 3))
        elif draw < 0.85 or world.sent >= batches:
            world.commit()
        elif draw < 0.92:
            world.checkpoint()
        elif draw < 0.98:
            world.read()
        elif world.life is not None:
            world.life.now_ns += rng.randint(-(10**15), 10**15)  # the clock jumps by up to twelve days


def test_two_checkpoints_without_a_record_between_them_are_two() -> None:
    """Process waiting trains between two checkpoints at one log position: the second must not hold them as waiting."""
    world = World()
    world.start()
    assert world.life is not None
    for output in range(OUTPUTS):
        world.life.engine.post(OutputBlocked(output))
    for _ in range(3):
        world.publish()
        world.commit()
    assert world.checkpoint()
    for output in range(OUTPUTS):
        world.life.engine.post(OutputFreed(output))
    assert world.life.engine.drain(20)
    assert world.checkpoint()
    world.kill()
    run_script(world, 8)
    world.finish()


@pytest.fixture(autouse=True)
def short_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that a power cut ended never finishes its plan: a cut need not wait for it for half a minute."""
    monkeypatch.setattr(checkpointer, "QUIET_SECONDS", 5.0)


SPILLING = NETWORK.replace("time: ts,", "time: ts, overload: spill,")


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # a power cut ends the spill thread too
@pytest.mark.parametrize("seed", range(PART, max(3, SEEDS // 10), PARTS))
def test_power_cuts_while_queues_are_on_disk(seed: int) -> None:
    """Block and free outputs, so that most waiting trains are on disk. Operations of the spill thread count too."""
    rng = Random(seed)
    world = World(seed=seed, batch=100, network=SPILLING, memory_bytes=20_000, **sizes(seed))
    cuts = 0  # a start replays into state on disk: with few operations no life would get beyond it
    while world.acknowledged < 60:
        world.files.crash_before = len(world.files.operations) + rng.randint(5, 120 + 60 * cuts)
        try:
            if world.life is None:
                world.start()
            run_blocked(world, min(60, world.sent + rng.randint(5, 25)), rng)
            world.kill()
        except PowerCut:
            cuts += 1
            world.lose_power()
    end(world)


def run_blocked(world: World, batches: int, rng: Random) -> None:
    assert world.life is not None
    blocked: set[int] = set()
    while world.acknowledged < batches:
        assert world.life.engine.loop.failure is None
        draw = rng.random()
        if draw < 0.15:
            output = rng.randrange(OUTPUTS)
            world.life.engine.post(OutputFreed(output) if output in blocked else OutputBlocked(output))
            blocked ^= {output}
        elif draw < 0.6 and world.sent < batches:
            world.publish()
        elif draw < 0.85:
            world.commit()
        elif draw < 0.95:
            world.checkpoint()
        else:
            world.read()
    for output in blocked:
        world.life.engine.post(OutputFreed(output))


@pytest.mark.parametrize("seed", range(PART, max(4, SEEDS // 4), PARTS))
def test_power_cuts_while_state_is_on_disk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of a state stays in memory: every window and every join goes through files that the power cut may hit."""
    monkeypatch.setattr(manager, "STATE_SHARE", 0.0)
    rng = Random(seed)
    world = World(seed=seed, batch=rng.choice([10, 60]), memory_bytes=2**26, **sizes(seed))
    written = target = 0
    while world.acknowledged < 40:
        target = min(40, target + rng.randint(5, 20))
        world.files.crash_before = len(world.files.operations) + rng.randint(20, 400)
        try:
            if world.life is None:
                world.start()
            run_at_random(world, target, rng)
            world.files.crash_before = None
            written += world.life.engine.state_home.written_bytes if world.life is not None else 0
            world.kill()
        except PowerCut:
            world.lose_power()
    end(world)
    assert written, "no state was on disk"


def test_state_on_disk_survives_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint refers to the state on disk; after a kill nothing is replayed, and the state is there."""
    monkeypatch.setattr(manager, "STATE_SHARE", 0.0)
    world = World(batch=50, memory_bytes=2**26)
    run_script(world, 6, checkpoint_every=1_000)
    world.settle()
    assert world.life is not None and world.life.engine.state_home.disk_bytes
    assert world.checkpoint()
    world.kill()
    world.start()
    assert world.life is not None and world.life.keeper.recovered.tuples == 0
    assert world.life.engine.state_home.disk_bytes, "the state was replayed or lost"
    run_script(world, 12)
    world.finish()


def test_queues_on_disk_survive_in_their_order() -> None:
    """Block all boxes while ten times the memory comes in; after a checkpoint and a kill everything must come out."""
    world = World(batch=200, network=SPILLING, memory_bytes=20_000)
    world.start()
    for life in range(3):
        assert world.life is not None
        storage = world.life.engine.storage
        for output in range(OUTPUTS):
            world.life.engine.post(OutputBlocked(output))
        for _ in range(12):
            world.publish()
            world.commit()
        wait_for(lambda storage=storage: storage.spill_bytes > 50_000, "trains are on disk")  # type: ignore[misc]
        assert world.checkpoint()
        if life == 1:
            for _ in range(3):
                world.publish()
                world.commit()
        world.kill()
        world.start()
    run_script(world, 40)
    world.finish()
