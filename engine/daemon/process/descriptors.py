"""File descriptors: how many connections each listener may hold, so that no crowd takes the descriptors of the log.

A process without a descriptor can open neither the next segment of its log nor a module that it imports late. So the
daemon raises its limit as far as it may, keeps ``OWN`` descriptors for its files, and gives the rest to its listeners
before any of them opens. With the usual limits everyone gets what it wants. Below that, HTTP and the Spark port get a
share of what there is, the data ports the rest, and the log says so.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from typing import NamedTuple

from catalog.errors import ListenError

log = logging.getLogger("aurorad")

OWN = 160
"""For the log, checkpoints, spilled queues, files of sources and sinks, a driver of Spark, late imports."""
AT_MOST = 65_536
LEAST = 256
HTTP_WANTED = 500
HTTP_RESERVED = 50
SPARK_WANTED = 256
SMALL = 4_096
BACKLOG = 1_024
SMALL_BACKLOG = 32
"""Connections that the kernel holds for a listener. The event loop accepts all of them in one turn, before the first
one that has no place is closed: with few descriptors they must be few."""


class DescriptorShares(NamedTuple):
    data: int
    http: int
    http_reserved: int
    spark: int
    backlog: int


def raise_limit() -> int:
    """Raise the limit on open files as far as it may be raised, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = AT_MOST if hard == resource.RLIM_INFINITY else min(hard, AT_MOST)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return AT_MOST if soft == resource.RLIM_INFINITY else soft
    with contextlib.suppress(ValueError, OSError):  # a container may forbid it
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        return wanted
    return soft


def open_now() -> int:
    """Return how many descriptors this process has open."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 64


def share(limit: int, in_use: int, data_wanted: int) -> DescriptorShares:
    """Divide the descriptors among the listeners. Each gets at least a few: the daemon must stay reachable."""
    backlog = BACKLOG if limit >= SMALL else SMALL_BACKLOG
    left = max(0, limit - in_use - OWN)
    if limit < SMALL:
        left = max(0, left - 3 * SMALL_BACKLOG)
    http = max(4, min(HTTP_WANTED, left // 4))
    reserved = max(2, min(HTTP_RESERVED, left // 16))
    spark = max(2, min(SPARK_WANTED, left // 8))
    data = min(data_wanted, max(4, left - http - reserved - spark))
    return DescriptorShares(data, http, reserved, spark, backlog)


def share_of_this_process(data_wanted: int) -> DescriptorShares:
    """Raise the limit of this process and divide it. ListenError when it is too low for anything."""
    limit = raise_limit()
    if limit < LEAST:
        raise ListenError(f"this process may open {limit} files; aurorad needs {LEAST} (ulimit -n, LimitNOFILE)")
    shares = share(limit, open_now(), data_wanted)
    if shares.data < data_wanted:
        log.warning(
            "this process may open %d files, so there is room for %d connections and not for the %d of "
            "limits.connections: raise the limit (ulimit -n, LimitNOFILE of systemd)",
            limit,
            shares.data,
            data_wanted,
        )
    return shares
