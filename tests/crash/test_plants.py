"""Bugs planted on purpose: each scenario holds without its bug, and must not hold with it.

The scenarios are those of the suite itself (a few are repeated here at their shortest), so a plant that no longer fails
means that a guarantee is no longer tested.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from scheduler.events import OutputBlocked
from storage.plants import PLANTS, plant
from tests.crash.crash_files import PowerCut
from tests.crash.world import OUTPUTS, World, end_all, run_script
from tests.unit import test_admission, test_checkpoint, test_log, test_spill_cut


def power_cuts() -> None:
    """Cut the power before each of the first deeds, once."""
    for point in range(4, 14):
        world = World(seed=point, batch=3)
        world.files.crash_before = point
        run_script(world, 12, checkpoint_every=1_000)
        world.files.crash_before = None
        world.finish()


def kill_and_go_on() -> None:
    """No checkpoint since the first batches: a kill, a replay, more of the same."""
    world = World()
    run_script(world, 6, checkpoint_every=3)
    run_script(world, 10, checkpoint_every=1_000)
    world.settle()
    world.read()
    world.kill()
    run_script(world, 14, checkpoint_every=1_000)
    world.finish()


def reader_in_the_middle() -> None:
    """The reader has seen the first half when the daemon is killed, and the replay brings another order."""
    world = World()
    world.start()
    for sequence in range(1, 9):
        world.publish()
        world.commit()
        world.settle()
        if sequence == 4:
            world.read()
    world.kill()
    run_script(world, 10)
    world.finish()


def stop_and_go_on() -> None:
    """A checkpoint, a kill, more of the same: what is restored is all there is."""
    world = World()
    run_script(world, 7, checkpoint_every=7)
    world.settle()
    world.read()
    assert world.checkpoint()
    world.kill()
    run_script(world, 14)
    world.finish()


def checkpoint_while_trains_wait() -> None:
    world = World()
    world.start()
    assert world.life is not None
    for output in range(OUTPUTS):
        world.life.engine.post(OutputBlocked(output))
    for _ in range(5):
        world.publish()
        world.commit()
    assert world.checkpoint()
    world.kill()
    run_script(world, 10)
    world.finish()


def checkpoints_on_a_short_log() -> None:
    """Segments of a few records, so that a checkpoint lets go of some; the power goes while it is written."""
    for deed in range(0, 12, 2):
        world = World(seed=deed)
        world.ack_share = 1.0  # so that no reader holds the log back
        world.start()
        assert world.life is not None
        world.life.keeper.log.segment_bytes = 600
        run_script(world, 6, checkpoint_every=2)
        run_script(world, 9, checkpoint_every=1_000)
        world.settle()
        world.read()
        world.files.crash_before = len(world.files.deeds) + deed
        try:
            world.checkpoint()
        except PowerCut:
            pass
        world.cut()
        run_script(world, 12)
        world.finish()


def checkpoints_and_power_cuts() -> None:
    for seed in range(6):
        test_checkpoint.test_a_power_cut_before_any_deed_leaves_the_old_or_the_new(seed)


SCENARIOS: dict[str, Callable[[], None]] = {
    "ack_before_sync": power_cuts,
    "retry_sync": test_log.test_a_sync_that_fails_is_never_tried_again,
    "cut_damage": test_log.test_every_bit_of_an_acknowledged_record_is_guarded,
    "dedup_in_memory": kill_and_go_on,
    "accept_gap": test_admission.test_next_again_and_too_far,
    "unlink_before_persist": checkpoints_on_a_short_log,
    "checkpoint_in_place": checkpoints_and_power_cuts,
    "cut_without_queues": checkpoint_while_trains_wait,
    "window_off_by_one": stop_and_go_on,
    "spill_overtakes": test_spill_cut.test_a_superbox_ends_where_a_queue_is_on_disk,
    "forget_sent": reader_in_the_middle,
    "replay_twice": kill_and_go_on,
}


def test_every_plant_has_its_scenario() -> None:
    assert set(SCENARIOS) == set(PLANTS)


@pytest.mark.parametrize(
    "scenario", sorted(set(SCENARIOS.values()), key=lambda s: s.__name__), ids=lambda s: s.__name__
)
def test_the_scenario_holds_without_a_bug(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_the_planted_bug_is_caught(name: str) -> None:
    caught: BaseException | None = None
    with plant(name):
        try:
            SCENARIOS[name]()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001
            caught = error
        finally:
            end_all()
    assert caught is not None, f"{name} ({PLANTS[name]}) was not caught"
    assert not isinstance(caught, (TypeError, NameError, AttributeError)), repr(caught)


def test_seeds_decide_what_a_power_cut_leaves() -> None:
    """The disk that forgets does so differently for different seeds, and alike for one."""

    def left(seed: int) -> dict[str, bytes]:
        world = World(seed=1)
        world.start()
        for _ in range(3):
            world.publish()
        world.files.crash_before = len(world.files.deeds) + 3  # written, and not synced
        with pytest.raises(PowerCut):
            world.commit()
        assert world.life is not None
        world.life.end()
        disk = world.files.crash(Random(seed))
        return {name: bytes(inode.live) for name, inode in disk.names.items()}

    assert left(5) == left(5)
    assert len({tuple(sorted(left(seed).items())) for seed in range(12)}) > 2
