"""A function as data: its signature, one line of description, and one example with its value.

    function("round(x: number[, digits: constant int]) -> type of x", "rounds half away from zero", rounded,
             "round(2.675, 2) -> 2.68")

The compiler, the error messages, ``aurorad functions`` and ``docs/functions.md`` all read this entry, and tests run it:
each example must give its value, and each function must take the types that its signature names.

The words of a signature:
- An argument is ``name: type``. Optional arguments stand in brackets, and ``...`` repeats the last one.
- A type is one of the seven types, or ``number`` (int, bigint, float, double), ``integer`` (int, bigint) or ``any``.
  Where a string is asked for, another type is cast to a string; where a timestamp is asked for, a string is read as
  one; a double takes every number, an int takes a bigint too.
- ``constant`` means that the argument must be a literal, or an expression without fields.
- The result is a type (or several: ``int or double``), ``type of x``, or ``common type of x and y``: the type to which
  Spark promotes both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from catalog.schema import Type
from engine.operators.expressions.tree.node import Node

Build = Callable[[Sequence[Node]], Node]
MANY = 1_000  # arguments: no limit of its own, the parser's limits hold
CLASSES: dict[str, tuple[Type, ...]] = {
    **{str(type): (type,) for type in Type},
    "number": (Type.INT, Type.BIGINT, Type.FLOAT, Type.DOUBLE),
    "integer": (Type.INT, Type.BIGINT),
    "any": tuple(Type),
}
"""The types behind each type word of a signature."""

_SIGNATURE = re.compile(r"(?P<name>\w+)\((?P<inside>.*)\) -> (?P<returns>.+)")
_ARGUMENT = re.compile(
    r"(?P<open>\[)|(?P<close>\])|(?P<more>\.\.\.)|(?P<name>\w+): (?P<constant>constant )?(?P<type>\w+)"
)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a signature; ``repeated`` for the last one of ``f(x: any, ...)``."""

    name: str
    type: str  # a key of CLASSES
    constant: bool
    optional: bool
    repeated: bool = False

    @property
    def types(self) -> tuple[Type, ...]:
        return CLASSES[self.type]


@dataclass(frozen=True, slots=True)
class Signature:
    """A parsed signature; ``text`` is what users read."""

    text: str
    name: str
    arguments: tuple[Argument, ...]
    returns: str

    @property
    def least(self) -> int:
        """Return the number of arguments that a call must have."""
        return sum(not argument.optional for argument in self.arguments)

    @property
    def most(self) -> int:
        """Return the number of arguments that a call may have."""
        return MANY if any(argument.repeated for argument in self.arguments) else len(self.arguments)

    @property
    def arity(self) -> str:
        least, most = self.least, self.most
        if least == most:
            return f"{least or 'no'} argument{'' if least == 1 else 's'}"
        return (
            f"at least {least} argument{'' if least == 1 else 's'}" if most == MANY else f"{least} to {most} arguments"
        )


@cache
def parse_signature(text: str) -> Signature:
    """Parse a signature, on first use: to parse all of them would take 3 ms of every start.

    The documentation and the check of a call use the same text, so they cannot disagree.
    """
    found = _SIGNATURE.fullmatch(text)
    assert found is not None, f"{text!r} is not name(argument: type, ...) -> type"
    arguments: list[Argument] = []
    optional = False
    for part in _ARGUMENT.finditer(found["inside"]):
        if part["open"] or part["close"]:
            optional = bool(part["open"])
        elif part["more"]:
            last = arguments.pop()
            arguments.append(Argument(last.name, last.type, last.constant, last.optional, repeated=True))
        else:
            assert part["type"] in CLASSES, f"{text!r}: no type {part['type']}"
            arguments.append(Argument(part["name"], part["type"], bool(part["constant"]), optional))
    return Signature(text, found["name"], tuple(arguments), found["returns"])


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function as users see it, and the factory that builds its node."""

    name: str
    signature_text: str
    description: str
    build: Build
    example: str
    result: str  # the value of the example, as an SQL literal
    aliases: tuple[str, ...] = ()

    @property
    def signature(self) -> Signature:
        return parse_signature(self.signature_text)


def function(signature: str, description: str, build: Build, example: str, *aliases: str) -> ScalarFunction:
    """Make an entry of a function table; ``example`` is ``expression -> value``."""
    text, arrow, result = example.rpartition(" -> ")
    assert arrow, f"{example!r} is not expression -> value"
    return ScalarFunction(signature.partition("(")[0], signature, description, build, text, result, aliases)
