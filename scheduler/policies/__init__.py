"""The policies: one function a file, ``(state, now_ns) -> Plan | None``.

Pure: no clock, lock, log, random number or I/O inside, and the state is left as it was found. Ties break on the box's
number. A policy is found by being here: the function that has its module's name.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache

from scheduler.plan import Plan
from scheduler.state import SchedulerState

Policy = Callable[[SchedulerState, int], Plan | None]


@cache
def policies() -> dict[str, Policy]:
    """Every policy by name."""
    found: dict[str, Policy] = {}
    for module_info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{module_info.name}")
        found[module_info.name] = getattr(module, module_info.name)
    return dict(sorted(found.items()))
