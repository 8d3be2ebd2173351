"""Settings of Python and of the C library, made once when a daemon starts.

- By default a thread keeps the GIL for 5 ms while another one waits for it. A thread with one tuple to deliver should
  not wait that long: 0.5 ms.
- The C library gives memory back to the kernel as soon as 128 KiB at the top of its heap are free. A train of 10,000
  tuples is larger than that, so every train would pay about eighty page faults, a quarter of its time. Here blocks
  below 32 MiB come from the heap, and the heap keeps 128 MiB.
- A thread that finds its heap locked gets a new one, up to eight a core. Free blocks in one heap are of no use to the
  others: at a budget of 128 MiB they were 170 MiB. With a small budget there are two heaps, which keep less, and
  pyarrow allocates from them too.
- The garbage collector would examine the objects of the start again and again for nothing. They are frozen, with the
  few cycles among them that are garbage (finding those takes 40 ms). From then on it collects, but rarely.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_INTERVAL_S = 0.0005
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD = -1, -2, -3  # malloc.h
M_ARENA_MAX = -8
SMALL_BYTES = 256 * 2**20  # a budget below it is small
SMALL_HEAPS = 2
KEEP_BYTES = 128 * 2**20
GROW_BYTES = 4 * 2**20
MMAP_BYTES = 32 * 2**20
PR_SET_NAME = 15  # prctl.h


def name_process(name: str) -> None:
    """Give the process a name for ``ps``, ``top`` and messages about taken ports. On the main thread, on Linux."""
    library = ctypes.CDLL(None)
    if hasattr(library, "prctl"):
        library.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def tune_process(memory_bytes: int = SMALL_BYTES) -> None:
    """Tune the process for this memory budget. Before the first thread starts and before pyarrow is used."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    _tune_malloc(memory_bytes)
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect no garbage meanwhile: to read a large network makes millions of objects that stay, and the collector
    would examine them again and again. It takes half of the time for 3,000 queries."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _tune_malloc(memory_bytes: int) -> None:
    """Tune malloc if the C library is glibc. Other libraries have no such settings."""
    library = ctypes.CDLL(None)
    if hasattr(library, "gnu_get_libc_version"):
        library.mallopt(M_TRIM_THRESHOLD, min(KEEP_BYTES, memory_bytes // 2))
        library.mallopt(M_TOP_PAD, GROW_BYTES)
        library.mallopt(M_MMAP_THRESHOLD, MMAP_BYTES)
        if memory_bytes < SMALL_BYTES:
            library.mallopt(M_ARENA_MAX, SMALL_HEAPS)
            os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
