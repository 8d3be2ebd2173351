"""Every golden case of a box with keys or groups, with compiled kernels: no row may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.harness import Setting, check_rows, read_case, run_case
from tests.golden.test_golden import CASES

KEYED = ("aggregate", "dedup", "join", "latest", "nexmark", "resample", "top")
CHOSEN = [path for path in CASES if path.parent.name in KEYED]

pytestmark = [
    pytest.mark.timeout(600),  # compiling takes seconds of CPU, the first time
    pytest.mark.xdist_group("kernels"),
    pytest.mark.usefixtures("compiled_kernels"),
]


@pytest.mark.parametrize("path", CHOSEN, ids=[f"{p.parent.name}/{p.stem}" for p in CHOSEN])
@pytest.mark.parametrize("train", [1, 7, 1024])
def test_golden_compiled(path: Path, train: int) -> None:
    case = read_case(path)
    rows, _ = run_case(case, Setting(train, 2, "superbox"))
    check_rows(case, rows)
