"""The entrance: the console script ``aurorad``, and ``python -m aurorad``.

The packages of aurorad have short names: ``engine``, ``storage``, ``router``. A user's module of the same name must not
be imported instead. It could be, because ``python -m`` puts the current folder first on the path, and ``PYTHONPATH``
may name any folder. So a finder that knows only these packages comes before the path.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType, ModuleType

HOME = str(Path(__file__).resolve().parent)
PACKAGES = ("catalog", "configs", "storage", "scheduler", "router", "qos_monitor", "load_shedder", "engine")


class _OwnPackages(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [HOME], target) if fullname in PACKAGES else None


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(130)


def main() -> None:
    """Run the command line.

    Ctrl-C ends a command at once while it imports: an exception in the middle of a C extension's import can crash the
    process. ``engine.cli`` turns Ctrl-C into an exception for the commands that have something to clean up.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a shell may have it ignored
        signal.signal(signal.SIGINT, _leave)
    sys.meta_path.insert(0, _OwnPackages())
    from engine.cli import main as run

    run()


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder: a user's queue.py there must not stand in for Python's
    main()
