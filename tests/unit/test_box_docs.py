"""Every kind of box shows how it is written, and what it shows is right."""

from __future__ import annotations

import re
import sys

import pytest

from catalog.config.document import read_document
from engine.boxes import box_kinds

KINDS = box_kinds()


def examples(kind: str) -> list[str]:
    """The entries ``name: {kind: ...}`` of the module's docstring, each to the end of its braces."""
    text = sys.modules[KINDS[kind].__module__].__doc__ or ""
    found: list[str] = []
    for start in re.finditer(rf"^    \w+: (?=\{{{kind}: )", text, re.MULTILINE):
        depth = 0
        for at in range(start.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if not depth:
                found.append(text[start.start() : at + 1].strip())
                break
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_of_a_box_are_valid(kind: str) -> None:
    box = KINDS[kind]
    assert examples(kind), f"the module of {kind} shows no example"
    for example in examples(kind):
        document = read_document(example, kind, {})
        assert not document.problems
        [(_, entry)] = document.data.items()
        inputs = entry.pop(kind)
        count = len(inputs) if isinstance(inputs, list) else 1
        assert box.min_inputs <= count <= box.max_inputs
        parameters = box.parameters_model.model_validate(entry)
        assert box.ports(parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_a_box_is_said_in_one_line(kind: str) -> None:
    assert 10 < len(KINDS[kind].summary) < 100
