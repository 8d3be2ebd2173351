"""Read one box of the file: its kind, its inputs and its parameters.

``{filter: trades, where: "..."}``: the kind is the first key that is none of ``COMMON``. A kind
further back is found too, since most authors do not expect the keys of a mapping to have an order. Two kinds in one box
are refused, unless the second is a parameter of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.config.document import Document, Path
from catalog.config.models import BoxEntry
from catalog.config.read import validate_part
from catalog.config.words import did_you_mean
from catalog.errors import Problem
from catalog.network import BoxProtocol, Kinds

COMMON = ("cost", "selectivity", "keep")


@dataclass
class BoxDraft:
    """A box before it is bound."""

    name: str
    kind: str
    cls: type[BoxProtocol]
    inputs: list[tuple[str, Path]]  # as written, with their paths
    entry: BoxEntry
    parameters: Any = None  # None: they are invalid
    ports: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return ("boxes", self.name)


def draft_box(
    name: str,
    data: dict[str, Any],
    entry: BoxEntry,
    kinds: Kinds,
    document: Document,
    context: Mapping[str, Any] | None = None,
) -> tuple[BoxDraft | None, list[Problem]]:
    """Return the draft (None when its kind is unknown) and its problems. Its parameters are read with ``context``."""
    path: Path = ("boxes", name)
    kind, problem = _find_kind(path, data, kinds, document)
    if kind is None:
        return None, [problem] if problem else []
    cls = kinds[kind]
    inputs, problems = _read_inputs((*path, kind), data[kind], cls, document)
    if problem:
        problems.append(problem)
    draft = BoxDraft(name, kind, cls, inputs, entry)
    own = _keys(cls)
    words = {k: v for k, v in data.items() if k != kind and (k not in COMMON or k in own)}
    if problem is None:
        draft.parameters, wrong = validate_part(cls.parameters_model, words, document, path, COMMON, context)
        problems += wrong
    if draft.parameters is not None:
        draft.ports = cls.ports(draft.parameters)
    return draft, problems


def _find_kind(path: Path, data: dict[str, Any], kinds: Kinds, document: Document) -> tuple[str | None, Problem | None]:
    words = [k for k in data if k not in COMMON]
    known = [k for k in words if k in kinds]
    if not words:
        return None, document.problem(path, "a box needs a kind and its input, such as {filter: trades, where: ...}")
    if not known:
        hint = did_you_mean(words[0], kinds)
        return None, document.problem((*path, words[0]), f"unknown kind of box '{words[0]}'", hint, at_key=True)
    kind = known[0] if words[0] not in kinds else words[0]
    others = [k for k in known if k != kind and k not in _keys(kinds[kind])]
    if others:
        message = f"one box cannot be of two kinds, '{kind}' and '{others[0]}'"
        return kind, document.problem((*path, others[0]), message, "make it two boxes", at_key=True)
    return kind, None


def _keys(cls: type[BoxProtocol]) -> set[str]:
    return {f.alias or name for name, f in cls.parameters_model.model_fields.items()}


def _read_inputs(
    path: Path, value: Any, cls: type[BoxProtocol], document: Document
) -> tuple[list[tuple[str, Path]], list[Problem]]:
    several = isinstance(value, list)
    items = [(v, (*path, i)) for i, v in enumerate(value)] if several else [(value, path)]
    wrong = [at for v, at in items if not isinstance(v, str) or not v.strip()]
    if wrong:
        message = "an input is the name of a stream or a box, or box.port"
        return [], [document.problem(at, message) for at in wrong]
    inputs = [(str(v).strip(), at) for v, at in items]
    if cls.min_inputs <= len(inputs) <= cls.max_inputs:
        return inputs, []
    return inputs, [document.problem(path, f"{cls.kind} takes {_range(cls)}, not {len(inputs)}")]


def _range(cls: type[BoxProtocol]) -> str:
    low, high = cls.min_inputs, cls.max_inputs
    if low == high:
        return "one input" if low == 1 else f"{low} inputs"
    return f"{low} or more inputs" if high >= 1000 else f"{low} to {high} inputs"
