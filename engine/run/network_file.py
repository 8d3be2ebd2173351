"""Read a network file with the box kinds, policies, codecs and expressions of this engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from catalog.build import build_network
from catalog.config.overrides import Overrides
from catalog.network import Kinds, Network
from catalog.schema import Schema, Type
from engine.operators.boxes import box_kinds
from engine.operators.expressions import compile_expression
from engine.operators.user_modules import UserModules
from engine.run.declared_costs import declared_costs
from engine.run.error_bounds import unbounded_errors
from engine.run.never_closed import never_closed
from engine.run.preference import CompiledPreference
from engine.run.tuning import collector_paused
from load_shedder.decide.values import unvalued_drops
from load_shedder.decide.warnings import ShedWarning, shed_warnings
from router.codecs import CODECS
from scheduler.choice import AUTO
from scheduler.policies import nearest, policies, requirements
from scheduler.trains import AUTO_TUPLES


def read_network(
    source: Path | str,
    env: Mapping[str, str] | None = None,
    *,
    version: int = 1,
    overrides: Overrides | None = None,
    before: Network | None = None,
    named: str = "",
    groups: Sequence[Sequence[str]] | None = None,
) -> Network:
    """Read and check a network file. Raises NetworkError with all of its problems.

    ``before`` is the network that runs: boxes that have not changed are not compiled again. ``named``: the file that a
    text stands for. ``groups``: the boxes that were one box when the file ran last.
    """
    with collector_paused():
        return _build(source, env, version, overrides, before, named, groups)


def _build(
    source: Path | str,
    env: Mapping[str, str] | None,
    version: int,
    overrides: Overrides | None,
    before: Network | None,
    named: str,
    groups: Sequence[Sequence[str]] | None,
) -> Network:
    return build_network(
        source,
        cast(Kinds, box_kinds()),  # mypy: a box's parameters_model is narrower than the protocol's
        env,
        policies=(*policies(), AUTO),
        formats=tuple(CODECS),
        check_predicate=_check_predicate,
        policy_fits=_policy_fits,
        refuse=unbounded_errors,
        warn=_warn,
        make_modules=UserModules,
        version=version,
        overrides=overrides,
        before=before,
        named=named,
        groups=groups,
    )


def read_following(text: str, before: Network) -> Network:
    """Read a network file, given as text, that is to follow this network. Raises NetworkError."""
    return read_network(text, version=before.version + 1, before=before)


def _check_predicate(text: str, schema: Schema) -> None:
    compile_expression(text, schema, expect=Type.BOOLEAN)


def _policy_fits(name: str, network: Network) -> list[tuple[str, str]]:
    if name == AUTO:
        return []  # the engine chooses a policy that fits
    return [(lacking, f"or use {nearest(name, network)}") for lacking in requirements(name, network)]


def _warn(network: Network) -> list[ShedWarning]:
    statistics = declared_costs(network)
    statistics.train_tuples[:] = AUTO_TUPLES  # trains are long under overload
    remarks = unvalued_drops(network, CompiledPreference)
    remarks += never_closed(network)
    return [*shed_warnings(network, statistics), *(ShedWarning(*remark) for remark in remarks)]
