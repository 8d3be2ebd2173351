"""The --help of every command teaches: what the command does, an example of it, and its exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from engine.cli import make_app

MAX_WIDTH = 78  # of an example, so that it does not wrap on a terminal of 80 columns


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command by its full name; a group counts with its commands. (typer brings a click of its own.)"""
    yield name, command
    for word, found in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {word}", found)


COMMANDS = dict(commands("aurorad", typer.main.get_command(make_app())))


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "aurorad bench"])
def test_help_teaches(name: str) -> None:
    text = COMMANDS[name].help
    assert f"\n  {name}" in text, "an example of the command, on a line of its own"
    assert "Exit code" in text
    examples = [line for line in text.splitlines() if line.startswith("  ")]
    assert not [line for line in examples if len(line) > MAX_WIDTH], "an example that wraps cannot be copied"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name: str) -> None:
    assert not [p.name for p in COMMANDS[name].params if not getattr(p, "help", "")]
