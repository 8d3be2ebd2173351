"""The policies: one file each, with one function ``(state, now_ns) -> Plan | None``.

A policy is pure: no clock, lock, log, random number or I/O inside, and it leaves the state as it found it. Ties break
on the box's number. To add a policy, add a file here: the function with the name of its module is found by itself, and
`aurorad policies`, `aurorad simulate`, the network file and the tests of all policies then know it. The module's
docstring says what the policy goes by and which paper it comes from. Beside the function a module has

- ``WHEN``: one line on when to use it.

and may have

- ``NEEDS``: what it needs of the network (``latency graphs``, ``deadlines``);
- ``INSTEAD``: the nearest policy for a network that lacks this;
- ``URGENT_FIRST``: True if it runs the tuples of tight deadlines first, so that a backlog of others does not harm them;
- ``DROPS``: True if it drops tuples that cannot be in time;
- ``index(state)``: makes the structure that the state keeps up to date for it (``scheduler/index``).

``thread_per_box`` is not a policy but an engine without a scheduler, for comparison
(``lab/figures/thread_per_box.py``).
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
    urgent_first: bool = False
    drops: bool = False
    index: MakeIndex | None = None


class _Lazy(Mapping[str, T]):
    """A mapping by name that makes each value on its first use: a daemon imports only the policy that it runs."""

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
        getattr(module, "URGENT_FIRST", False),
        getattr(module, "DROPS", False),
        getattr(module, "index", None),
    )


@cache
def policy_infos() -> Mapping[str, PolicyInfo]:
    """Return every policy by name, with its declarations."""
    return _Lazy(_info)


@cache
def policies() -> Mapping[str, Policy]:
    """Return every policy by name."""
    return _Lazy(lambda name: _info(name).decide)


def runs_urgent_first(name: str) -> bool:
    """Return whether a policy runs the tuples of tight deadlines first. Ask with the policy that decides now: `auto`
    only names a choice, and promises nothing itself."""
    info = policy_infos().get(name)
    return info is not None and info.urgent_first


def make_index(policy: Policy) -> MakeIndex:
    """Return the function that makes the index of a policy. A function that is not in this package has no index."""
    name = getattr(policy, "__name__", "")
    info = policy_infos().get(name)
    if info is not None and info.decide is policy and info.index is not None:
        return info.index
    return lambda state: None


def requirements(name: str, network: Network) -> list[str]:
    """Return what a policy needs and the network lacks, each as a sentence. An empty list: the policy fits."""
    info = policy_infos()[name]
    outputs = network.outputs
    lacking: list[str] = []
    if "latency graphs" in info.needs and not any(o.qos.latency is not None for o in outputs):
        lacking.append(f"the policy {name} goes by latency graphs, and no output has one: give an output a qos")
    if "deadlines" in info.needs and not any(o.qos.deadline_ns is not None for o in outputs):
        lacking.append(f"the policy {name} goes by deadlines, and no output has one: write qos: {{deadline: 200ms}}")
    return lacking


def nearest(name: str, network: Network) -> str:
    """Return the policy that is nearest to this one and fits the network."""
    seen: set[str] = set()
    while requirements(name, network) and name not in seen:
        seen.add(name)
        name = policy_infos()[name].instead or "round_robin"
    return name
