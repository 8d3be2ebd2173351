"""A kernel: a numpy twin, a loop to compile, and which of them runs now."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

log = logging.getLogger("aurorad.kernels")

R = TypeVar("R")

known: list[Kernel[Any]] = []
"""Every kernel of the modules that are imported, for tests and benchmarks."""

ASKED_AFTER = 500
"""Calls after which a loop is worth compiling. A process that ends in seconds never imports numba."""

_waiting: list[Kernel[Any]] = []  # kernels that were called before a compiler was there
_ask: Callable[[Kernel[Any]], None] = _waiting.append


class Kernel(Generic[R]):
    """Call ``run``. Any thread may; the arrays belong to the caller."""

    __slots__ = ("_calls", "_compiled", "_wrap", "loop", "name", "run", "signatures", "twin")

    def __init__(
        self,
        name: str,
        twin: Callable[..., R],
        loop: Callable[..., None],
        signatures: Callable[[Any], Sequence[tuple[Any, ...]]],
        wrap: Callable[[Callable[..., None]], Callable[..., R]] | None = None,
    ) -> None:
        """``signatures`` takes the module numba.types and returns the types of the loop's arguments, for each variant.

        ``wrap`` makes of the compiled loop a function that is called as the twin is.
        """
        self.name = name
        self.twin = twin
        self.loop = loop
        self.signatures = signatures
        self._wrap = wrap
        known.append(self)
        self._compiled: Callable[..., R] | None = None
        self._calls = 0
        self.run: Callable[..., R] = self._counted_run

    @property
    def is_compiled(self) -> bool:
        return self._compiled is not None

    @property
    def runs_compiled(self) -> bool:
        """Whether ``run`` is the compiled loop."""
        return self.run == self._run_compiled

    def _counted_run(self, *args: Any) -> R:
        self.count()
        return self.twin(*args)

    def count(self, calls: int = 1) -> None:
        """Count calls, and ask for the loop when they are many. For a caller that does not need the twin."""
        before = self._calls
        if before < ASKED_AFTER:
            self._calls = before + calls
            if before + calls >= ASKED_AFTER:
                self.run = self.twin
                _ask(self)

    @property
    def is_asked(self) -> bool:
        return self._calls >= ASKED_AFTER

    def take(self, compiled: Callable[..., None]) -> None:
        """Run the compiled loop from the next call on."""
        self._calls = ASKED_AFTER
        self._compiled = compiled if self._wrap is None else self._wrap(compiled)  # type: ignore[assignment]
        self.run = self._run_compiled

    def _run_compiled(self, *args: Any) -> R:
        compiled = self._compiled
        assert compiled is not None
        try:
            return compiled(*args)
        except TypeError as error:  # numba checks the types before the loop begins, so nothing has changed yet
            self.refuse(error)
            return self.twin(*args)

    def refuse(self, error: Exception) -> None:
        """Run the twin from now on, and say so once."""
        self._compiled = None
        self.run = self.twin
        log.warning("kernel %s is not compiled, numpy does its work: %s", self.name, str(error).strip().split("\n")[0])

    def choose(self, *, compiled: bool) -> None:
        """Run the compiled loop, if there is one, or the twin. For tests and benchmarks."""
        self.run = self._run_compiled if compiled and self._compiled is not None else self.twin


def connect(ask: Callable[[Kernel[Any]], None] | None) -> None:
    """Hand kernels to ``ask`` on their first call, and those that were called before at once. None: keep a list."""
    global _ask
    _ask = _waiting.append if ask is None else ask
    if ask is not None:
        while _waiting:
            ask(_waiting.pop())
