"""The example in the docstring of engine/operators/state runs as it stands there."""

from __future__ import annotations

import doctest

import numpy as np

from catalog.schema import Schema
from engine.operators import state
from engine.operators.state.columns import START, fitted, vector_at
from engine.operators.state.keys import group_keys
from engine.operators.state.order import ByKey
from storage.train import Train


def test_the_example_of_a_keyed_box() -> None:
    rows = {"symbol": list("ABAABA"), "n": [1, 2, 3, 4, 5, 6]}
    train = Train.from_pylists(Schema.of(symbol="string", n="int"), rows, 1)
    names = {"np": np, "START": START, "ByKey": ByKey, "fitted": fitted, "vector_at": vector_at}
    done = doctest.testmod(state, extraglobs={**names, "group_keys": group_keys, "train": train})
    assert done.attempted > 8 and not done.failed
