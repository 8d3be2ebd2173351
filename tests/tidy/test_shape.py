"""Sizes, names and words of files and functions: one function of 200 lines makes a whole file hard to change."""

from __future__ import annotations

import ast
import re

from tests.tidy.source import CODE, ROOT, TESTS, tracked

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80

# A path of a developer's machine; the pattern does not match itself.
MACHINE_PATH = re.compile(r"(?:^|[^A-Za-z0-9_.])/(?:work|farm|root|home/[a-z]+|Users/[A-Za-z]+)/")
UNFINISHED = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|NotImplemented" r"Error")
TEXT = (".py", ".md", ".toml", ".yaml", ".yml", ".json", ".lock", ".service", ".cfg", ".txt", ".html", ".js", ".svg")


def test_a_file_is_one_idea() -> None:
    sizes = {s.name: s.text.count("\n") for s in CODE + TESTS}
    assert not {name: lines for name, lines in sizes.items() if lines > MAX_FILE_LINES}, "split by idea"


def test_a_function_fits_a_screen() -> None:
    long = [
        f"{s.name}:{f.lineno} {f.name} has {lines} lines"
        for s in CODE + TESTS
        for f in s.functions()
        if (lines := (f.end_lineno or f.lineno) - f.lineno + 1) > MAX_FUNCTION_LINES
    ]
    assert not long


def test_every_module_says_what_it_is_for() -> None:
    assert not [s.name for s in CODE if not ast.get_docstring(s.tree)]


def test_no_path_of_a_machine() -> None:
    found = [
        f"{name}:{number}"
        for name in tracked()
        if name.endswith(TEXT) or "." not in name.rsplit("/", 1)[-1]
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{source.name}:{number}: {line.strip()}"
        for source in CODE + TESTS
        for number, line in enumerate(source.text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not found


def test_locks_name_no_host() -> None:
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-fuzz.lock", "requirements-spark.lock"):
        text = (ROOT / name).read_text()
        assert not re.search(r"https?:|file:|--index|--find-links|--extra-index", text), name
        unpinned = [line for line in text.splitlines() if line and not line.startswith(" ") and "==" not in line]
        assert not unpinned, name
        assert text.count("==") <= text.count("--hash=sha256:"), f"{name}: a package without its hash"
