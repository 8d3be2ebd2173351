"""The real daemon on files that kill it before a given file operation, or in a given phase.

    python -m tests.crash.dying_daemon any 17 - run network.yaml
    python -m tests.crash.dying_daemon checkpoint 5 deaths.ndjson run network.yaml

The arguments after the first three are those of ``aurorad``. The product has no switch for this: the launcher replaces
the function that opens the files of a data_dir, and the steps of a recovery.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from engine.cli import main
from engine.daemon.durable import data_folder
from engine.daemon.durable.recovery import Recovery
from storage.files import Files
from tests.crash.dying import ANY, Death, DyingFiles
from tests.crash.plants import Make, Original, replaced


def dying_command(moment: int, *arguments: str, phase: str = ANY, note: Path | None = None) -> list[str]:
    """Return the command line that starts the daemon so; the working directory must be the project's root."""
    words = [phase, str(moment), "-" if note is None else str(note), *arguments]
    return [sys.executable, "-m", "tests.crash.dying_daemon", *words]


def run(death: Death) -> None:
    def opening(original: Original) -> Original:
        def dying_files(root: str) -> Files:
            return DyingFiles(original(root), death)

        return dying_files

    with ExitStack() as planted:
        planted.enter_context(replaced(data_folder, "real_files", opening))
        for step in ("read_emitted", "settle", "finish"):
            planted.enter_context(replaced(Recovery, step, _counted(death, step)))
        planted.enter_context(replaced(Recovery, "replay", _replayed(death)))
        main()


def _counted(death: Death, step: str) -> Make:
    def make(original: Original) -> Original:
        def counted(*arguments: Any) -> Any:
            death.recovering(step)
            return original(*arguments)

        return counted

    return make


def _replayed(death: Death) -> Make:
    """Count every train that a replay lets enter."""

    def make(original: Original) -> Original:
        def replay(self: Recovery, engine: Any, enter: Any, on_progress: Any) -> Any:
            def counted(*arguments: Any) -> None:
                death.recovering("enter")
                enter(*arguments)

            return original(self, engine, counted, on_progress)

        return replay

    return make


if __name__ == "__main__":
    phase, moment, note = (sys.argv.pop(1) for _ in range(3))
    run(Death(phase, int(moment), None if note == "-" else Path(note)))
