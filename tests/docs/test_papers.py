"""docs/papers.md names files and tests row by row: they exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_files_and_tests_of_the_audit_exist() -> None:
    text = (ROOT / "docs/papers.md").read_text(encoding="utf-8")
    rows = text.partition("## Row by row")[2].partition("## The figures")[0]
    named = re.findall(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)`", rows)
    missing = [name for name in named if not (ROOT / name).exists() and not (ROOT / "tests" / name).exists()]
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests/unit").glob("test_*.py"))
    missing += [name for name in re.findall(r"`(test_[a-z0-9_]+)`", rows) if f"def {name}(" not in tests]
    assert len(named) > 40 and not missing
