"""Compiles kernels on a thread of its own, one after the other, and keeps the machine code on disk.

numba keeps it in ``__pycache__`` beside the source, or in the user's cache folder where that is read-only, or in
``NUMBA_CACHE_DIR``. It is compiled for the processor at hand and made anew when the source changes.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from queue import SimpleQueue
from threading import Thread
from typing import Any

from storage.compiled.kernel import Kernel, connect, known

log = logging.getLogger("aurorad.kernels")


def is_available() -> bool:
    return find_spec("numba") is not None


def compile_now(kernel: Kernel[Any]) -> None:
    """Compile a kernel, or load it from disk, on the calling thread. It refuses what does not compile."""
    try:
        import numba

        signatures = [numba.void(*types) for types in kernel.signatures(numba.types)]
        options: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
        try:
            compiled = numba.njit(signatures, cache=True, **options)(kernel.loop)
        except RuntimeError:  # no folder to keep machine code in
            compiled = numba.njit(signatures, **options)(kernel.loop)
    except Exception as error:  # noqa: BLE001
        # numba has dozens of errors of its own, and LLVM more: whatever goes wrong, numpy does the work.
        kernel.refuse(error)
    else:
        kernel.take(compiled)


def compile_known() -> None:
    """Compile every kernel of the modules that are imported, on the calling thread. For tests and benchmarks."""
    if is_available():
        for kernel in known:
            if kernel.is_compiled:
                kernel.choose(compiled=True)
            else:
                compile_now(kernel)


class KernelCompiler:
    """The thread that compiles. It starts with the first kernel that is asked for, and is at rest otherwise."""

    def __init__(self) -> None:
        self._wanted: SimpleQueue[Kernel[Any] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Compile what is called from now on. Does nothing where numba is not installed."""
        if is_available():
            connect(self._ask)

    def _ask(self, kernel: Kernel[Any]) -> None:
        self._wanted.put(kernel)
        if self._thread is None:
            self._thread = Thread(target=self._run, name="kernels", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (kernel := self._wanted.get()) is not None:
            compile_now(kernel)
            if kernel.is_compiled:
                log.debug("kernel %s is compiled", kernel.name)

    def stop(self) -> None:
        """Compile nothing more. A kernel that is being compiled is not waited for."""
        connect(None)
        self._wanted.put(None)
