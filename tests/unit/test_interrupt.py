"""Ctrl-C while a command imports ends it at once, without a traceback. A SIGINT that a shell ignores stays ignored."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys
import aurorad, engine.cli
if sys.argv[1] == "ignored":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
engine.cli.main = lambda: os.kill(os.getpid(), signal.SIGINT)
aurorad.main()
"""


@pytest.mark.parametrize(("word", "code"), [("heard", 130), ("ignored", 0)])
def test_an_interrupt_while_a_command_imports(word: str, code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, word],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # not as the test's own shell has it
    )
    assert (done.returncode, done.stderr) == (code, b"")


def test_a_terminal_without_unicode_gets_a_drawing_all_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "aurorad", "graph", "configs/batch.yaml"],
        cwd=Path(__file__).parents[2],
        env={"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"trades" in done.stdout and b"?" in done.stdout
