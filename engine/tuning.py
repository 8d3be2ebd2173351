"""What the process asks of Python and of the C library, once, when a daemon starts.

- Python's lock is handed over every 5 ms by default; a thread with one tuple to deliver should not wait that long.
- The C library gives memory back to the kernel as soon as 128 KiB at the top of its heap are free, and a train of
  10,000 tuples is larger than that: every train then pays some eighty page faults, a quarter of its time. Blocks
  below 32 MiB come from the heap, and the heap keeps 128 MiB.
- The collector of cycles would look at what start-up made again and again for nothing: all of it is set aside, the
  few cycles in it that are garbage included (finding them takes 40 ms). From then on it collects, and rarely.
"""

from __future__ import annotations

import ctypes
import gc
import sys

SWITCH_INTERVAL_S = 0.0005
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
KEEP_BYTES = 128 * 2**20
GROW_BYTES = 4 * 2**20
MMAP_BYTES = 32 * 2**20


def tune_process() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _tune_malloc()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _tune_malloc() -> None:
    """Only where the C library is glibc; another one has other habits."""
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_TRIM_THRESHOLD, KEEP_BYTES)
        library.mallopt(M_TOP_PAD, GROW_BYTES)
        library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
