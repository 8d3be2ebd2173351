"""What the table of functions is made of; apart from it, because the modules that fill the table need it too."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.expressions.node import Node

Build = Callable[[Sequence[Node]], Node]
MANY = 1_000  # arguments: as many as the limits on an expression let through
_OPTIONAL = re.compile(r"\[[^\]]*\]")
_WORD = re.compile(r"\w+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Function:
    """A function as users see it, and what builds its node."""

    name: str
    signature: str
    summary: str
    build: Build
    least: int  # arguments
    most: int
    aliases: tuple[str, ...] = ()

    @property
    def arity(self) -> str:
        if self.least == self.most:
            return f"{self.least or 'no'} argument{'' if self.least == 1 else 's'}"
        return f"at least {self.least} arguments" if self.most == MANY else f"{self.least} to {self.most} arguments"


def function(signature: str, summary: str, build: Build, *aliases: str) -> Function:
    """A line of the table. The number of arguments is read from the signature, so that the two cannot disagree:
    optional ones stand in brackets, and dots stand for more of the last."""
    name, _, rest = signature.partition("(")
    inside = rest.partition(")")[0]
    least = len(_WORD.findall(_OPTIONAL.sub("", inside)))
    most = MANY if "..." in inside else len(_WORD.findall(inside))
    return Function(name, signature, summary, build, least, most, aliases)
