"""Equal boxes of a network file are one box: same kind, parameters and inputs.

The first one in the order of the network lends its name, and the others are its other names (``BoxNode.also``). The
inputs of a box count as equal when they have become one box themselves, so whole chains are shared.

A change of a network that runs must not merge two boxes that both run: one may be some trains behind the other, and
the outputs behind it would miss these tuples or see them twice. So two boxes that run apart stay apart until a restart,
under whatever names. A box that is new to the network joins the one that runs, state and all. The restart of a
daemon with a data_dir is no such restart if it goes on with the same file: ``groups`` says which boxes were one.

Not shared: boxes whose class says no (``may_share``), such as ``python`` with code that is not declared pure, and boxes
whose declared cost or selectivity differs; boxes that keep history, which is theirs by name; and boxes of a query that
starts in the past, through which old tuples go that no other query may see.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from catalog.assemble import BoundBox, InputSource
from catalog.config.boxes import BoxDraft
from catalog.network import BoxNode, Network

Origins = tuple[tuple[str | int | None, int], ...]
"""Where the inputs of a box that runs come from: a stream's name, or the number of a box that runs; and the port."""


class _Key(NamedTuple):
    kind: str
    parameters: str
    hints: tuple[Any, Any]
    inputs: tuple[InputSource, ...]


@dataclass(slots=True)
class SharedBox:
    """A box with all of its names. ``running`` is its number in the network that runs; None when it is new."""

    name: str
    running: int | None
    bound: BoundBox
    also: list[str] = field(default_factory=list)


class Sharing:
    """Owner: the builder of one network. ``names`` are all boxes of the file."""

    def __init__(
        self,
        is_on: bool,
        before: Network | None,
        names: Collection[str],
        groups: Sequence[Sequence[str]] | None = None,
    ) -> None:
        """``groups``: the boxes that were one box when this file ran last, and no others."""
        self._is_on = is_on
        self._groups = None if groups is None else {name: n for n, group in enumerate(groups) for name in group}
        self._apart: set[str] = set()
        self._before = before
        self._of_name: dict[str, SharedBox] = {}
        self._by_key: dict[_Key, list[SharedBox]] = {}
        self._renamed: dict[tuple[str, str, Origins], list[int]] = {}  # boxes that run, and whose names are all gone
        for node in () if before is None else before.boxes:
            if before is not None and not any(name in names for name in node.names):
                key = (node.kind, _text(node.box.parameters), _origins_of(before, node))
                self._renamed.setdefault(key, []).append(node.number)

    def one(self, origin: InputSource) -> InputSource:
        """Return the origin under the name of the box that stands for it."""
        shared = None if origin.is_stream else self._of_name.get(origin.name)
        return origin if shared is None or shared.name == origin.name else replace(origin, name=shared.name)

    def keep_apart(self, names: Collection[str]) -> None:
        """Let these boxes join no other. Before the first box is bound."""
        self._apart.update(names)

    def find(self, draft: BoxDraft, origins: Sequence[InputSource]) -> SharedBox | None:
        """Return the box that this one is equal to and may join; it then has this name too."""
        if not self._may_share(draft):
            return None
        running = self._running(draft, origins)
        for shared in self._by_key.get(_key(draft, origins), ()):
            if self._groups is not None and self._groups.get(shared.name) != self._groups.get(draft.name):
                continue
            if running is None or shared.running in (None, running):
                shared.running = running if shared.running is None else shared.running
                shared.also.append(draft.name)
                self._of_name[draft.name] = shared
                return shared
        return None

    def add(self, bound: BoundBox) -> None:
        """Take note of a box that joins none."""
        draft, origins = bound.draft, bound.origins
        shared = self._of_name[draft.name] = SharedBox(draft.name, self._running(draft, origins), bound)
        if self._may_share(draft):
            self._by_key.setdefault(_key(draft, origins), []).append(shared)

    def other_names(self, name: str) -> tuple[str, ...]:
        return tuple(self._of_name[name].also)

    def _may_share(self, draft: BoxDraft) -> bool:
        if draft.name in self._apart or draft.entry.keep is not None:
            return False
        if self._groups is not None and draft.name not in self._groups:
            return False
        return self._is_on and draft.cls.may_share(draft.parameters)

    def _running(self, draft: BoxDraft, origins: Sequence[InputSource]) -> int | None:
        """Return the number of the box that runs and that this one goes on with, also under another name."""
        if self._before is None:
            return None
        node = self._before.find_box(draft.name)
        if node is not None:
            return node.number
        if not self._renamed:
            return None
        came: Origins = tuple((o.name, -1) if o.is_stream else (self._of_name[o.name].running, o.port) for o in origins)
        found = self._renamed.get((draft.kind, _text(draft.parameters), came))
        return found[0] if found else None


def _key(draft: BoxDraft, origins: Sequence[InputSource]) -> _Key:
    hints = (draft.entry.cost_ns, draft.entry.selectivity)
    return _Key(draft.kind, _text(draft.parameters), hints, tuple(origins))


def _text(parameters: Any) -> str:
    """Return a text that is equal for equal parameters; models of the network file print all of their fields."""
    return repr(parameters.__dict__)


def _origins_of(network: Network, node: BoxNode) -> Origins:
    sources = [network.arcs[a].source for a in node.in_arcs]
    return tuple((network.streams[s.stream].name, -1) if s.stream is not None else (s.box, s.port) for s in sources)
