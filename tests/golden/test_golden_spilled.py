"""Every golden case with a memory of a few bytes: all that waits goes over the disk, and no row may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.files import RealFiles
from storage.spill_files import SpillFiles
from tests.golden.harness import Setting, check_rows, read_case, run_case
from tests.golden.test_golden import CASES

MATRIX = [Setting(1, 2), Setting(7, 1), Setting(7, 2, "vpipe")]


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}/{p.stem}" for p in CASES])
@pytest.mark.parametrize("setting", MATRIX, ids=str)
def test_golden_spilled(path: Path, setting: Setting, tmp_path: Path) -> None:
    case = read_case(path)
    for stream in case["network"]["streams"].values():
        stream["overload"] = "spill"
    spill = SpillFiles(RealFiles(str(tmp_path)), segment_bytes=1_000)
    rows, engine = run_case(case, setting, memory_bytes=64, spill=spill)
    check_rows(case, rows)
    assert all(queue.residual == 0 and queue.tuples == 0 for queue in engine.storage.queues)
    assert engine.storage.used_bytes == 0
    spill.close()
