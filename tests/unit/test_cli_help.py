"""The --help of every command teaches: what the command does, an example of it, and its exit codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from engine.cli import make_app
from engine.operators.boxes import box_kinds
from engine.operators.expressions.function_docs import catalogue
from scheduler.policies import policy_infos

MAX_WIDTH = 78  # of an example, so that it does not wrap on a terminal of 80 columns


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command by its full name; a group counts with its commands. (typer brings a click of its own.)"""
    yield name, command
    for word, found in getattr(command, "commands", {}).items():
        yield from commands(f"{name} {word}", found)


APP = make_app()  # once: building it for each of 177 functions took longer than the tests' time limit on a busy machine
COMMANDS = dict(commands("aurorad", typer.main.get_command(APP)))


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


@pytest.mark.timeout(600)  # 177 calls of the command line: 10 s on a calm machine
@pytest.mark.parametrize("command", ["boxes", "policies", "functions"])
def test_the_manual_in_the_terminal_has_no_marks_and_suggests(command: str) -> None:
    names = {
        "boxes": list(box_kinds()),
        "policies": ["auto", *policy_infos()],
        "functions": sorted({doc.name for doc in catalogue()}),
    }[command]
    for name in names:
        answer = CliRunner().invoke(APP, [command, name])
        assert answer.exit_code == 0 and answer.output.strip(), name
        assert "``" not in answer.output and not re.search(r"(?<!\w)\*[a-z]+\*", answer.output), name
    wrong = CliRunner().invoke(APP, [command, f"{names[1]}x"])
    assert wrong.exit_code == 2 and "did you mean '" in wrong.output


def test_a_box_in_the_terminal_has_the_parameters_of_the_manual() -> None:
    said = CliRunner().invoke(APP, ["boxes", "bsort"]).output
    manual = (Path(__file__).parents[2] / "docs" / "boxes.md").read_text()
    section = manual.partition("\n## bsort")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert rows
    for key, *cells in rows:
        line = next(line for line in said.splitlines() if line.strip().startswith(key.strip().strip("`") + " "))
        assert [cell for cell in cells if cell.strip().replace("`", "") not in line] == []
