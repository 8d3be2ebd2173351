"""Every kind of box shows how it is written, and what it shows is right."""

from __future__ import annotations

import re
import sys

import pytest
import yaml

from engine.boxes import box_kinds

KINDS = box_kinds()


@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_of_a_box_are_valid(kind: str) -> None:
    box = KINDS[kind]
    text = sys.modules[box.__module__].__doc__ or ""
    examples = re.findall(rf"^    (\w+: \{{{kind}: .*?\}})$", text, re.MULTILINE | re.DOTALL)
    assert examples, f"the module of {kind} shows no example"
    for example in examples:
        [(_, entry)] = yaml.safe_load(example).items()
        inputs = entry.pop(kind)
        count = len(inputs) if isinstance(inputs, list) else 1
        assert box.min_inputs <= count <= box.max_inputs
        parameters = box.parameters_model.model_validate(entry)
        assert box.ports(parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_a_box_is_said_in_one_line(kind: str) -> None:
    assert 10 < len(KINDS[kind].summary) < 100
