"""The examples of CONTRIBUTING.md are complete: laid over the tree as files, they pass the commands that it prints.

The tree is laid out anew in a temporary folder, as links, with real folders only where an example adds a file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.fences import ROOT, Fence, fences
from tests.golden.harness import KEYS

pytestmark = pytest.mark.xdist_group("docs")
EXAMPLES = [fence for fence in fences("CONTRIBUTING.md") if fence.mode == "file"]
PRINTED = "\n".join(f.text for f in fences("CONTRIBUTING.md") if f.language == "sh").split("aurorad bench", 1)[1]
TESTS = re.findall(r"^\.venv/bin/pytest (.*)$", PRINTED, re.MULTILINE)  # of the box, the policy and the codec
NAMES = [Path(fence.argument).stem for fence in EXAMPLES if fence.language == "python"]


def lay_out(folder: Path, tree: Path, files: dict[Path, str]) -> None:
    """``tree`` as links below ``folder``, but for folders that a file goes into: those are real."""
    folder.mkdir(parents=True)
    inside = {path.parts[0]: None for path in files}
    for entry in tree.iterdir() if tree.is_dir() else ():
        if entry.name not in inside and entry.name not in (".git", "__pycache__", ".pytest_cache"):
            (folder / entry.name).symlink_to(entry)
    for name in inside:
        own = {Path(*path.parts[1:]): text for path, text in files.items() if path.parts[0] == name}
        if Path() in own:
            (folder / name).write_text(own[Path()])
        else:
            lay_out(folder / name, tree / name, own)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contributed") / "tree"
    lay_out(folder, ROOT, {Path(fence.argument): fence.text for fence in EXAMPLES})
    return folder


def run(tree: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        [sys.executable, *words], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_there_is_a_box_a_policy_and_a_codec() -> None:
    folders = {str(Path(fence.argument).parent) for fence in EXAMPLES if fence.language == "python"}
    assert folders == {"engine/operators/boxes", "scheduler/policies", "router/codecs"}


@pytest.mark.parametrize("command", TESTS)
def test_a_printed_command_runs_tests_in_each_place_that_it_names(command: str, tree: Path) -> None:
    words = shlex.split(command)
    said = run(tree, "-m", "pytest", "-v", "-p", "no:cacheprovider", *words)
    for place in (word for word in words if word.startswith("tests/")):
        assert re.search(rf"^{place}\S*::.* PASSED", said, re.MULTILINE), f"no test of {place} has run"
    for name in set(NAMES) & set(words):
        assert re.search(rf"::test\w*\[.*\b{name}\b.*\] PASSED", said), f"no test has run with {name}"


def test_each_example_has_a_command() -> None:
    assert set(NAMES) <= {word for command in TESTS for word in shlex.split(command)}


def test_the_keys_of_a_golden_case_are_in_the_table() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().split("| key | meaning |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE)) == KEYS


def test_printed_simulate_knows_the_example(tree: Path) -> None:
    (command,) = re.findall(r"^\.venv/bin/aurorad (simulate .*)$", PRINTED, re.MULTILINE)
    said = run(tree, "-c", "from engine.cli import main; main()", *shlex.split(command), "--for", "200ms")
    assert "warning" not in said and "sum_of_waits" in said


@pytest.mark.parametrize("fence", [f for f in EXAMPLES if f.language == "python"], ids=lambda f: f.argument)
def test_the_linter_agrees(fence: Fence, tree: Path) -> None:
    run(tree, "-m", "ruff", "check", "--quiet", "--no-cache", fence.argument)
    run(tree, "-m", "ruff", "format", "--check", "--quiet", "--no-cache", fence.argument)
