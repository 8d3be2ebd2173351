"""The policies: one function a file, ``(state, now_ns) -> Plan | None``.

Pure: no clock, lock, log, random number or I/O inside, and the state is left as it was found. Ties break on the box's
number. A policy is found by being here: the function that has its module's name. Beside it a module may have

- ``WHEN``: one line on when to use it;
- ``NEEDS``: what the network must have for it (``latency graphs``, ``deadlines``);
- ``INSTEAD``: the policy that comes nearest where the network lacks that;
- ``index(state)``: the structure that the state keeps up to date for it (``scheduler/index.py``).

``thread_per_box`` is no policy but an engine without a scheduler, for comparison (``engine/thread_per_box.py``).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from catalog.network import Network
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

Policy = Callable[[SchedulerState, int], Plan | None]
MakeIndex = Callable[[SchedulerState], Index | None]


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    name: str
    decide: Policy
    when: str
    needs: tuple[str, ...] = ()
    instead: str = ""
    index: MakeIndex | None = None


@cache
def policy_infos() -> dict[str, PolicyInfo]:
    """Every policy by name, with what is known of it."""
    found: dict[str, PolicyInfo] = {}
    for module_info in sorted(pkgutil.iter_modules(__path__), key=lambda m: m.name):
        name = module_info.name
        module = importlib.import_module(f"{__name__}.{name}")
        found[name] = PolicyInfo(
            name,
            getattr(module, name),
            module.WHEN,
            getattr(module, "NEEDS", ()),
            getattr(module, "INSTEAD", ""),
            getattr(module, "index", None),
        )
    return found


@cache
def policies() -> dict[str, Policy]:
    """Every policy by name."""
    return {name: info.decide for name, info in policy_infos().items()}


def make_index(policy: Policy) -> MakeIndex:
    """What makes the index of a policy; of a function that is none of ours (a test's), nothing."""
    for info in policy_infos().values():
        if info.decide is policy and info.index is not None:
            return info.index
    return lambda state: None


def requirements(name: str, network: Network) -> list[str]:
    """What a policy needs and the network lacks, each as a sentence; empty when it fits."""
    info = policy_infos()[name]
    outputs = network.outputs
    lacking: list[str] = []
    if "latency graphs" in info.needs and not any(o.qos.latency is not None for o in outputs):
        lacking.append(f"the policy {name} goes by latency graphs, and no output has one: give an output a qos")
    if "deadlines" in info.needs and not any(o.qos.deadline_ns is not None for o in outputs):
        lacking.append(f"the policy {name} goes by deadlines, and no output has one: write qos: {{deadline: 200ms}}")
    return lacking


def nearest(name: str, network: Network) -> str:
    """The policy that comes nearest to this one and fits the network."""
    seen: set[str] = set()
    while requirements(name, network) and name not in seen:
        seen.add(name)
        name = policy_infos()[name].instead or "round_robin"
    return name
