"""Planted bugs (``plants.py``): each scenario passes without its bug and must fail with it.

The scenarios are tests of the suite, some repeated here at their shortest. So when a plant is no longer caught, a
guarantee is no longer tested.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from scheduler.events import OutputBlocked
from storage.log import Log
from tests.crash.crash_files import PowerCut
from tests.crash.plants import PLANTS, plant, replaced
from tests.crash.world import OUTPUTS, World, end_all, run_script
from tests.unit import (
    test_access,
    test_admission,
    test_checkpoint,
    test_client_protocol,
    test_log,
    test_pinned_input,
    test_spark_parts,
    test_spill,
    test_spill_superbox,
)


def power_cuts() -> None:
    """Cut the power before each of the first file operations, once each."""
    for point in range(4, 14):
        world = World(seed=point, batch=3)
        world.files.crash_before = point
        run_script(world, 12, checkpoint_every=1_000)
        world.files.crash_before = None
        world.finish()


def kill_and_go_on() -> None:
    """Kill long after the last checkpoint; then replay and continue."""
    world = World()
    run_script(world, 6, checkpoint_every=3)
    run_script(world, 10, checkpoint_every=1_000)
    world.settle()
    world.read()
    world.kill()
    run_script(world, 14, checkpoint_every=1_000)
    world.finish()


def reader_in_the_middle() -> None:
    """Kill when the reader has the first half; the replay may emit in another order."""
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
    """Checkpoint, kill and continue: the state comes from the checkpoint alone."""
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
    """Use segments of a few records, so that a checkpoint removes some, and cut the power while it is written."""
    for operation in range(0, 12, 2):
        world = World(seed=operation)
        world.ack_share = 1.0  # so that no reader keeps the log from being pruned
        world.start()
        assert world.life is not None
        world.life.keeper.log.segment_bytes = 600
        run_script(world, 6, checkpoint_every=2)
        run_script(world, 9, checkpoint_every=1_000)
        world.settle()
        world.read()
        world.files.crash_before = len(world.files.operations) + operation
        try:
            world.checkpoint()
        except PowerCut:
            pass
        world.lose_power()
        run_script(world, 12)
        world.finish()


def checkpoints_and_power_cuts() -> None:
    for seed in range(6):
        test_checkpoint.test_a_power_cut_before_any_operation_leaves_the_old_or_the_new(seed)


def _in_folder(test: Callable[[Path], None]) -> Callable[[], None]:
    def scenario() -> None:
        with tempfile.TemporaryDirectory() as folder:
            test(Path(folder))

    scenario.__name__ = test.__name__
    return scenario


def slowed_logins() -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_access.test_failed_logins_are_slowed_down_and_the_right_one_is_let_in_later(patch)


SCENARIOS: dict[str, Callable[[], None]] = {
    "ack_before_sync": power_cuts,
    "retry_sync": test_log.test_a_sync_that_fails_is_never_tried_again,
    "truncate_damage": test_log.test_every_bit_of_an_acknowledged_record_is_guarded,
    "dedup_in_memory": kill_and_go_on,
    "accept_gap": test_admission.test_next_again_and_too_far,
    "unlink_before_persist": checkpoints_on_a_short_log,
    "checkpoint_in_place": checkpoints_and_power_cuts,
    "cut_without_queues": checkpoint_while_trains_wait,
    "window_off_by_one": stop_and_go_on,
    "spill_overtakes": test_spill_superbox.test_a_superbox_ends_where_a_queue_is_on_disk,
    "forget_sent": reader_in_the_middle,
    "replay_twice": kill_and_go_on,
    "trust_failed_segment": test_spill.test_a_segment_whose_sync_failed_is_never_trusted_again,
    "decide_in_memory": _in_folder(test_spark_parts.test_a_decision_that_is_not_on_disk_is_none),
    "leak_input": test_pinned_input.test_the_edge_has_no_room_while_a_plan_holds_the_budget,
    "strings_for_free": test_pinned_input.test_strings_of_waiting_trains_are_in_the_account_once,
    "checkpoint_for_free": test_pinned_input.test_trains_that_a_checkpoint_writes_stay_in_the_account,
    "believe_header": test_client_protocol.test_a_header_claims_no_more_tuples_than_its_bytes_can_hold,
    "guess_for_ever": slowed_logins,
    "any_name": _in_folder(test_access.test_a_name_is_kept_for_its_owner_over_a_restart),
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
    assert caught is not None, f"{name} ({PLANTS[name].mistake}) was not caught"
    assert not isinstance(caught, (TypeError, NameError, AttributeError)), repr(caught)


@pytest.mark.parametrize("name", sorted(PLANTS))
def test_a_plant_leaves_nothing_behind(name: str) -> None:
    targets = [(owner, target) for owner, target, _ in PLANTS[name].replacements]
    before = [vars(owner)[target] for owner, target in targets]
    with plant(name):
        assert all(vars(owner)[target] is not b for (owner, target), b in zip(targets, before, strict=True))
    assert [vars(owner)[target] for owner, target in targets] == before


def test_a_plant_whose_target_is_gone_fails_loudly() -> None:
    with pytest.raises(AttributeError, match=r"Log\.no_such_step is gone"), replaced(Log, "no_such_step", lambda f: f):
        pass


def test_seeds_decide_what_a_power_cut_leaves() -> None:
    """The disk forgets differently for different seeds, and equally for one seed."""

    def left(seed: int) -> dict[str, bytes]:
        world = World(seed=1)
        world.start()
        for _ in range(3):
            world.publish()
        world.files.crash_before = len(world.files.operations) + 3  # written, and not synced
        with pytest.raises(PowerCut):
            world.commit()
        assert world.life is not None
        world.life.end()
        disk = world.files.crash(Random(seed))
        return {name: bytes(inode.live) for name, inode in disk.names.items()}

    assert left(5) == left(5)
    assert len({tuple(sorted(left(seed).items())) for seed in range(12)}) > 2
