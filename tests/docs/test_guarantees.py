"""GUARANTEES.md names tests that exist, and every planted bug."""

from __future__ import annotations

import re

from tests.crash.plants import PLANTS
from tests.docs.fences import ROOT

TEXT = (ROOT / "GUARANTEES.md").read_text(encoding="utf-8")
FOLDERS = "unit|property|golden|e2e|spark|crash|sim|tidy"


def test_the_tests_that_it_names_exist() -> None:
    named = set(re.findall(rf"`((?:tests/)?(?:{FOLDERS})/\w+\.py)(?:\[\w+\])?`", TEXT))
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / "tests" / name.removeprefix("tests/")).exists()]


def test_the_functions_that_it_names_exist() -> None:
    """`file.py::test` names a test; `::test` behind it is one of the same file."""
    table = TEXT.split("## What attacks have found")[1].split("\n## ")[0]
    found = 0
    for row in table.splitlines():
        file = ""
        for path, name in re.findall(rf"`((?:{FOLDERS})/\w+\.py)?(?:::(test_\w+))?`", row):
            file = path or file
            if name:
                text = (ROOT / "tests" / file).read_text(encoding="utf-8")
                assert f"def {name}(" in text, f"{file}::{name}"
                found += 1
    assert found > 40


def test_every_attack_of_the_list_has_a_test() -> None:
    table = TEXT.split("## What attacks have found")[1].split("\n## ")[0]
    rows = dict(re.findall(r"(?m)^\| ([DF]\d+) \| .* \| (.*) \|$", table))
    assert set(rows) == {f"D{n}" for n in range(1, 15)} | {f"F{n}" for n in range(1, 22)}
    assert all(".py" in tests for tests in rows.values())


def test_every_planted_bug_is_listed() -> None:
    assert re.findall(r"(?m)^\| `(\w+)`: .* \| .* \|$", TEXT.split("| planted bug |")[1].split("\n\n")[0]) == [*PLANTS]


def test_the_parts_of_the_long_run_are_listed() -> None:
    from tests.crash import long

    known = re.findall(r"- ``(\w+)``:", long.__doc__ or "")
    assert known
    assert not [name for name in known if f"| `{name}`: " not in TEXT]
