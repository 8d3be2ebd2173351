"""The scalar functions by name: one table for the compiler, for the documentation and for did-you-mean.

A family of functions is a module here with a tuple ``FUNCTIONS``; the families are found by being here. To add a
function, add one entry to the ``FUNCTIONS`` of its family (``signatures`` shows how an entry is written) and write its
kernel above: no other file is edited. To add a family, add a file.

The modules without ``FUNCTIONS`` help the others: ``signatures`` (the entries), ``strings`` (functions of one string in
plain Python), ``formats`` (patterns of timestamps) and ``intervals``.
"""

from __future__ import annotations

import importlib
import pkgutil

from engine.operators.expressions.functions.signatures import ScalarFunction


def _families() -> dict[str, tuple[ScalarFunction, ...]]:
    names = sorted(info.name for info in pkgutil.iter_modules(__path__))
    modules = {name: importlib.import_module(f"{__name__}.{name}") for name in names}
    return {name: module.FUNCTIONS for name, module in modules.items() if hasattr(module, "FUNCTIONS")}


def _by_name(families: dict[str, tuple[ScalarFunction, ...]]) -> dict[str, ScalarFunction]:
    table: dict[str, ScalarFunction] = {}
    for functions in families.values():
        for function in functions:
            for name in (function.name, *function.aliases):
                assert name not in table, f"two functions {name}"
                table[name] = function
    return dict(sorted(table.items()))


FAMILIES: dict[str, tuple[ScalarFunction, ...]] = _families()
"""The functions of each family, in the order of its table."""

FUNCTIONS: dict[str, ScalarFunction] = _by_name(FAMILIES)
"""Every function under its name and under its aliases."""
