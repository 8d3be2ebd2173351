"""Small boxes for tests of the network file: real ``bind`` and ports, nothing that runs."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from catalog.errors import BindError, ExpressionError
from catalog.network import Kinds
from catalog.schema import Schema


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Keep:
    """A filter whose predicate is one word, the name of a field. ``oops`` stands for a mistake inside the text."""

    kind: ClassVar[str] = "pick"
    input_prefixes: ClassVar[tuple[str, ...]] = ()
    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int] = 1
    needs_time: ClassVar[bool] = False

    class parameters_model(Parameters):  # noqa: N801 - the protocol's name
        where: str

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    @classmethod
    def ports(cls, parameters: Any) -> tuple[str, ...]:
        return ("",)

    @classmethod
    def may_share(cls, parameters: Any) -> bool:
        return True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        text = self.parameters.where
        for word in re.finditer(r"\w+", text):
            if word[0] not in inputs[0]:
                cause = ExpressionError(f"no field '{word[0]}'", text, word.start(), "look again")
                raise BindError(cause.message, ("where",), cause.hint) from cause
        return inputs

    def runs_behind(self, inputs: tuple[bool, ...]) -> bool:
        return any(inputs)

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return times


class Split(Keep):
    kind = "split"

    class parameters_model(Parameters):  # noqa: N801
        when: dict[str, str]
        otherwise: str | None = None

    @classmethod
    def ports(cls, parameters: Any) -> tuple[str, ...]:
        return (*parameters.when, *([parameters.otherwise] if parameters.otherwise else []))

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        return inputs * len(self.ports(self.parameters))

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return times * len(self.ports(self.parameters))


class Merge(Keep):
    kind = "merge"
    min_inputs = 2
    max_inputs = 9

    class parameters_model(Parameters):  # noqa: N801
        pick: str = ""  # the word of another kind, as a parameter

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        if len({s.names for s in inputs}) > 1:
            raise BindError("the inputs differ")
        return inputs[:1]

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return times[:1]


class Window(Keep):
    """Needs time, has a late port beside its default one, and a nested parameter."""

    kind = "window"
    needs_time = True

    class Size(Parameters):
        tumbling: int = 0
        sliding: int = 0

    class parameters_model(Parameters):  # noqa: N801
        size: Window.Size
        cost: str = ""  # a parameter that is called like a common key

    @classmethod
    def ports(cls, parameters: Any) -> tuple[str, ...]:
        return ("", "late")

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        return (Schema.of(n="bigint"), inputs[0])

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (None, times[0])


Window.parameters_model.model_rebuild()

KINDS: Kinds = {cls.kind: cls for cls in (Keep, Split, Merge, Window)}
