"""Random programs of publish, commit, checkpoint, read, power cut, kill, rot and full disk, against plain Python."""

from __future__ import annotations

import errno
import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from storage.files import StorageError
from tests.crash.crash_files import PowerCut
from tests.crash.world import World

BATCHES_AT_MOST = 40


class StorageMachine(RuleBasedStateMachine):
    """Every rule begins a new life when there is none. The power may fail in any rule."""

    @initialize(
        seed=st.integers(0, 2**16),
        batch=st.integers(1, 12),
        piece_bytes=st.sampled_from([2**20, 400]),
        segment_bytes=st.sampled_from([2**26, 3_000]),
    )
    def begin(self, seed: int, batch: int, piece_bytes: int, segment_bytes: int) -> None:
        self.world = World(seed=seed, batch=batch, piece_bytes=piece_bytes, segment_bytes=segment_bytes)

    def alive(self) -> World:
        if self.world.life is None:
            self.world.start()
        return self.world

    def guarded(self, action: str, **arguments: int) -> None:
        try:
            getattr(self.alive(), action)(**arguments)
        except PowerCut:
            self.world.lose_power()
        except StorageError as error:
            has_begun = self.world.life is None or self.world.life.is_started
            if has_begun or not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ENOSPC:
                raise
            self.world.kill()  # a full disk refuses the start, and the next start tries again

    @precondition(lambda self: self.world.sent < BATCHES_AT_MOST)
    @rule()
    def publish(self) -> None:
        self.guarded("publish")

    @precondition(lambda self: self.world.sent > 0 and self.world.life is not None)
    @rule(back=st.integers(1, 4))
    def resend(self, back: int) -> None:
        self.guarded("publish", resend=back)

    @rule()
    def commit(self) -> None:
        self.guarded("commit")

    @rule()
    def settle(self) -> None:
        self.guarded("settle")

    @rule()
    def checkpoint(self) -> None:
        self.guarded("checkpoint")

    @rule()
    def read(self) -> None:
        self.guarded("read")

    @rule(operations=st.integers(0, 40))
    def power_fails_soon(self, operations: int) -> None:
        self.world.files.crash_before = len(self.world.files.operations) + operations

    @rule()
    def kill(self) -> None:
        self.world.kill()

    @precondition(lambda self: self.world.life is None)
    @rule(bit=st.integers(0, 2**20))
    def newest_checkpoint_rots(self, bit: int) -> None:
        """Damage the newest of two checkpoints. With both damaged the only guarantee is a refusal to start."""
        files = self.world.files
        manifests = [n for n in files.list("checkpoint") if n.endswith(".json")]
        if len(manifests) == 2:
            name = f"checkpoint/{manifests[-1]}"
            files.flip(name, bit % (8 * len(files.names[name].live)))

    @rule(room=st.integers(0, 20_000))
    def disk_fills(self, room: int) -> None:
        files = self.world.files
        files.capacity_bytes = sum(len(i.live) for i in files.names.values()) + room

    @rule()
    def disk_has_room(self) -> None:
        self.world.files.capacity_bytes = 2**62
        if self.world.life is not None:
            self.world.life.keeper.committer.look_for_room()

    @invariant()
    def nothing_failed(self) -> None:
        assert self.world.life is None or self.world.life.failure is None

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.files.capacity_bytes = 2**62
        self.world.files.crash_before = None
        try:
            world = self.alive()
            world.life.keeper.committer.look_for_room()  # type: ignore[union-attr]
            world.finish()
        finally:
            if self.world.life is not None:
                self.world.life.end()


StorageMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("AURORAD_MACHINES", "12")), stateful_step_count=30, deadline=None
)
TestStorageMachine = StorageMachine.TestCase
