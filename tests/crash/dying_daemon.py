"""The real daemon on files that kill it before a given file operation.

    python -m tests.crash.dying_daemon 17 run network.yaml

The arguments after the number are those of ``aurorad``. The product has no switch for this: the launcher replaces the
function that opens the files of a data_dir.
"""

from __future__ import annotations

import sys

from engine.cli import main
from engine.daemon.durable import data_folder
from storage.files import Files
from tests.crash.dying import DyingFiles
from tests.crash.plants import Original, replaced


def dying_command(crash_before: int, *arguments: str) -> list[str]:
    """Return the command line that starts the daemon so; the working directory must be the project's root."""
    return [sys.executable, "-m", "tests.crash.dying_daemon", str(crash_before), *arguments]


def run(crash_before: int) -> None:
    def opening(original: Original) -> Original:
        def dying_files(root: str) -> Files:
            return DyingFiles(original(root), crash_before)

        return dying_files

    with replaced(data_folder, "real_files", opening):
        main()


if __name__ == "__main__":
    run(int(sys.argv.pop(1)))
