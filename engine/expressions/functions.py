"""The functions by name: one table for the compiler, for the documentation and for did-you-mean.

Each entry says how it is called and what it does in a line; its ``build`` makes the node. The kernels and their
entries live by subject in the modules named here.
"""

from __future__ import annotations

from engine.expressions import bits, conditional, conversions, maths, patterns, text, times
from engine.expressions.signatures import Function

_MODULES = (maths, bits, text, patterns, times, conditional, conversions)


def _collect() -> dict[str, Function]:
    table: dict[str, Function] = {}
    for module in _MODULES:
        for function in module.FUNCTIONS:
            for name in (function.name, *function.aliases):
                assert name not in table, f"two functions {name}"
                table[name] = function
    return dict(sorted(table.items()))


FUNCTIONS: dict[str, Function] = _collect()
"""Every function under its name and under its aliases."""
