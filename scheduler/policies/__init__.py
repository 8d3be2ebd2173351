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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from catalog.network import Network
from scheduler.index import Index
from scheduler.plan import Plan
from scheduler.state import SchedulerState

Policy = Callable[[SchedulerState, int], Plan | None]
MakeIndex = Callable[[SchedulerState], Index | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PolicyInfo:
    name: str
    decide: Policy
    when: str
    needs: tuple[str, ...] = ()
    instead: str = ""
    index: MakeIndex | None = None


class _Lazy(Mapping[str, T]):
    """By name, each made when it is asked for: a daemon imports the one policy that it runs."""

    def __init__(self, make: Callable[[str], T]) -> None:
        self._make = make
        self._names = sorted(info.name for info in pkgutil.iter_modules(__path__))

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names


@cache
def _info(name: str) -> PolicyInfo:
    module = importlib.import_module(f"{__name__}.{name}")
    return PolicyInfo(
        name,
        getattr(module, name),
        module.WHEN,
        getattr(module, "NEEDS", ()),
        getattr(module, "INSTEAD", ""),
        getattr(module, "index", None),
    )


@cache
def policy_infos() -> Mapping[str, PolicyInfo]:
    """Every policy by name, with what is known of it."""
    return _Lazy(_info)


@cache
def policies() -> Mapping[str, Policy]:
    """Every policy by name."""
    return _Lazy(lambda name: _info(name).decide)


def make_index(policy: Policy) -> MakeIndex:
    """What makes the index of a policy; of a function that is none of ours (a test's), nothing."""
    name = getattr(policy, "__name__", "")
    info = policy_infos().get(name)
    if info is not None and info.decide is policy and info.index is not None:
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
