"""The keeper of the resident size: free pages are given back near the line, then the edge gets less room."""

from __future__ import annotations

from engine.daemon.monitor.resident import (
    TRIM_EVERY,
    ResidentKeeper,
    line_bytes,
    margin_bytes,
    next_room,
    resident_bytes,
    trim_heap,
)
from storage.manager import StorageManager

BUDGET = 128 * 2**20


def manager() -> StorageManager:
    return StorageManager(1, BUDGET, on_room=lambda: None, on_expired=lambda arc, dropped: None)


class Sizes:
    """A process whose size is what the test says, and which loses ``free`` bytes when it is trimmed."""

    def __init__(self, size: int, free: int) -> None:
        self.size, self.free, self.trims = size, free, 0

    def read(self) -> int:
        return self.size

    def trim(self) -> None:
        self.trims += 1
        self.size, self.free = self.size - self.free, 0


def test_far_from_the_line_nothing_is_done() -> None:
    sizes, storage = Sizes(line_bytes(BUDGET) - 100 * 10**6, 0), manager()
    ResidentKeeper(sizes.read, sizes.trim).look(storage)
    assert sizes.trims == 0
    assert storage.room_bytes == BUDGET


def test_free_pages_go_back_before_queues_get_less() -> None:
    sizes, storage = Sizes(line_bytes(BUDGET), 150 * 10**6), manager()
    ResidentKeeper(sizes.read, sizes.trim).look(storage)
    assert sizes.trims == 1
    assert storage.room_bytes == BUDGET


def test_the_edge_gets_less_room_down_to_a_half_and_all_of_it_again() -> None:
    sizes, storage = Sizes(line_bytes(BUDGET), 0), manager()
    keeper = ResidentKeeper(sizes.read, sizes.trim)
    keeper.look(storage)
    assert storage.room_bytes < BUDGET
    for _ in range(50):
        keeper.look(storage)
    assert storage.room_bytes == BUDGET // 2
    sizes.size = 0
    for _ in range(50):
        keeper.look(storage)
    assert storage.room_bytes == BUDGET


def test_the_nearer_the_line_the_less_room_and_at_once() -> None:
    for budget in (32 * 2**20, BUDGET, 512 * 2**20):
        margin = margin_bytes(budget)
        rooms = [
            next_room(budget, budget, line_bytes(budget) - int(margin * share)) for share in (1.1, 0.9, 0.7, 0.5, 0, -1)
        ]
        assert rooms == sorted(rooms, reverse=True)
        assert rooms[0] == budget and rooms[1] < budget and rooms[2] < rooms[1] and rooms[-1] == budget // 2


def test_a_process_that_cannot_get_smaller_is_trimmed_once_a_second() -> None:
    sizes, storage = Sizes(line_bytes(BUDGET), 0), manager()
    keeper = ResidentKeeper(sizes.read, sizes.trim)
    for _ in range(3 * TRIM_EVERY):
        keeper.look(storage)
    assert sizes.trims == 3


def test_the_real_process_is_read_and_trimmed() -> None:
    assert resident_bytes() > 2**20
    trim_heap()
    assert resident_bytes() > 2**20
