"""Compile ``prefer`` of an output: the one service of the expression compiler that the load shedder needs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from catalog.schema import Schema, Type
from engine.operators.expressions import Scope, compile_expression
from storage.train import Train


class CompiledPreference:
    """A ``Preference`` of ``load_shedder/decide/values``. Raises ExpressionError when the text does not compile."""

    def __init__(self, text: str, schema: Schema) -> None:
        self._predicate = compile_expression(text, schema, expect=Type.BOOLEAN)
        self.fields = self._predicate.fields

    def mask(self, train: Train) -> npt.NDArray[np.bool_] | None:
        """Return True where the preference holds; None when it holds for every tuple."""
        return self._predicate.mask(Scope(train))
