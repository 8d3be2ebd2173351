"""A network file with everything this engine knows: its boxes, its policies, its expressions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from catalog.build import read_network
from catalog.config.read import Overrides
from catalog.network import Kinds, Network
from catalog.schema import Schema, Type
from engine.boxes import box_kinds
from engine.expressions import compile_expression
from engine.shed.values import unjudged
from engine.simulate.costs import declared
from load_shedder.warnings import Warned, shed_warnings
from scheduler.choice import AUTO
from scheduler.policies import nearest, policies, requirements
from scheduler.trains import AUTO_TUPLES


def load_network(
    source: Path | str,
    env: Mapping[str, str] | None = None,
    *,
    version: int = 1,
    overrides: Overrides | None = None,
) -> Network:
    """``read_network`` with the kinds, policies and expressions of this engine. Raises NetworkError."""
    return read_network(
        source,
        cast(Kinds, box_kinds()),  # a box's parameters_model is narrower than the protocol's, which mypy minds
        env,
        policies=(*policies(), AUTO),
        check_predicate=_check_predicate,
        policy_fits=_policy_fits,
        warn=_warn,
        version=version,
        overrides=overrides,
    )


def _check_predicate(text: str, schema: Schema) -> None:
    compile_expression(text, schema, expect=Type.BOOLEAN)


def _policy_fits(name: str, network: Network) -> list[tuple[str, str]]:
    if name == AUTO:
        return []  # it finds what fits
    return [(lacking, f"or use {nearest(name, network)}") for lacking in requirements(name, network)]


def _warn(network: Network) -> list[Warned]:
    statistics = declared(network)
    statistics.train_tuples[:] = AUTO_TUPLES  # trains are long under overload
    return [*shed_warnings(network, statistics), *(Warned(*remark) for remark in unjudged(network))]
