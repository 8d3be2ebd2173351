"""``engine.kernels``: compiled kernels need memory of their own, which a small budget does not have."""

from __future__ import annotations

import pytest

from catalog.config.models import EngineSection


@pytest.mark.parametrize(
    ("engine", "compiles"),
    [
        ({}, True),
        ({"memory": "256MiB"}, True),
        ({"memory": "255MiB"}, False),
        ({"memory": "255MiB", "kernels": True}, False),
        ({"kernels": False}, False),
    ],
)
def test_a_small_budget_compiles_no_kernels(engine: dict[str, object], compiles: bool) -> None:
    assert EngineSection.model_validate(engine).compiles is compiles
