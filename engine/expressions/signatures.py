"""What the table of functions is made of; apart from it, because the modules that fill the table need it too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.expressions.node import Node

Build = Callable[[Sequence[Node]], Node]
MANY = 1_000  # arguments: as many as the limits on an expression let through


@dataclass(frozen=True, slots=True)
class Function:
    """``signature`` shows optional arguments in brackets and repeated ones with dots."""

    name: str
    signature: str
    summary: str
    build: Build
    least: int
    most: int  # arguments
    aliases: tuple[str, ...] = ()

    @property
    def arity(self) -> str:
        if self.least == self.most:
            return f"{self.least or 'no'} argument{'' if self.least == 1 else 's'}"
        return f"at least {self.least} arguments" if self.most == MANY else f"{self.least} to {self.most} arguments"
