"""SQL scalar expressions: text in, typed numpy kernels out.

    price = compile_expression("price * size > 100000", schema)
    mask = price.mask(Scope(train))
"""

from __future__ import annotations

from engine.expressions.expression import Expression, compile_expression, share
from engine.expressions.vector import Mask, Scope, Vector

__all__ = ["Expression", "Mask", "Scope", "Vector", "compile_expression", "share"]
