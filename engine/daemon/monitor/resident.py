"""Keeps the resident size of the process below its line: 1.25 x budget + 250 MB (clause G of GUARANTEES.md).

The budget counts what queues and boxes hold. The process has more: free blocks between used ones that the C library
keeps, and what plans, codecs and the log need for a moment. Under a steady load of small trains the free blocks alone
were larger than the budget. So the resident size itself is watched:

1. Near the line, the C library gives its free pages back (3 to 14 ms for 300 MiB, without the GIL).
2. If that was not enough, the edge gets less room: it closes at a part of the budget, never below a half. The room
   grows back when the size is lower. Nothing is dropped for it: senders wait, or queues go to disk, earlier.

Refused: to give pages back after every train. It costs a page fault for each page of the next one.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from pathlib import Path

from storage.manager import StorageManager

log = logging.getLogger("aurorad")

STATM = Path("/proc/self/statm")
SQUEEZE_BELOW_LINE_BYTES, SQUEEZE_SHARE = 45 * 10**6, 0.25
"""The edge gets less room from this distance to the line on: these bytes and this share of the budget. What arrives
between two looks grows with the budget."""
TRIM_EARLIER_BYTES = 15 * 10**6
TRIM_EVERY = 10  # looks: a process that cannot get smaller would otherwise spend a tenth of a core on trying
LEAST_ROOM = 0.5  # of the budget
GROW = 0.02  # of the budget; a tick is 100 ms


def line_bytes(budget_bytes: int) -> int:
    """Return the most that a process with this budget may have in memory."""
    return int(1.25 * budget_bytes + 250e6)


def margin_bytes(budget_bytes: int) -> int:
    """Return from which distance to the line on the edge gets less room."""
    return SQUEEZE_BELOW_LINE_BYTES + int(SQUEEZE_SHARE * budget_bytes)


def next_room(room_bytes: int, budget_bytes: int, resident_bytes: int) -> int:
    """Return the room of the edge after a look at the resident size: the less, the nearer the line is. It falls at once
    and grows slowly."""
    left = (line_bytes(budget_bytes) - resident_bytes) / margin_bytes(budget_bytes)
    wanted = int(budget_bytes * max(LEAST_ROOM, min(1.0, left)))
    return min(wanted, room_bytes + int(budget_bytes * GROW))


def resident_bytes() -> int:
    """Return the resident size of this process; 0 where the kernel does not say."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        return 0


def trim_heap() -> None:
    """Give the free pages of all heaps back to the kernel, if the C library is glibc."""
    library = ctypes.CDLL(None)
    if hasattr(library, "malloc_trim"):
        library.malloc_trim(0)


class ResidentKeeper:
    """Owner: the monitor's thread."""

    def __init__(self, read: Callable[[], int] = resident_bytes, trim: Callable[[], None] = trim_heap) -> None:
        self._read = read
        self._trim = trim
        self._was_squeezed = False
        self._looks_until_trim = 0

    def look(self, storage: StorageManager) -> None:
        """Look at the resident size, and act on it. Without effect while it is far from the line."""
        budget_bytes = storage.budget_bytes
        size_bytes = self._read()
        self._looks_until_trim = max(0, self._looks_until_trim - 1)
        if (
            size_bytes > line_bytes(budget_bytes) - margin_bytes(budget_bytes) - TRIM_EARLIER_BYTES
            and not self._looks_until_trim
        ):
            self._looks_until_trim = TRIM_EVERY
            self._trim()
            size_bytes = self._read()
        storage.room_bytes = next_room(storage.room_bytes, budget_bytes, size_bytes)
        if storage.room_bytes < budget_bytes and not self._was_squeezed:
            self._was_squeezed = True  # said once: the room moves all the time
            log.warning(
                "resident size %d MiB is near its line of %d MiB: queues get less of the memory budget meanwhile",
                size_bytes // 2**20,
                line_bytes(budget_bytes) // 2**20,
            )
