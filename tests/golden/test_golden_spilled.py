"""Every golden case with a memory of a few bytes, for queues or for state: it goes over the disk, no row may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from qos_monitor.conservation import box_residual
from storage import manager
from storage.files import RealFiles
from storage.spill_files import SpillFiles
from tests.golden.harness import Setting, check_rows, read_case, run_case
from tests.golden.test_golden import CASES

MATRIX = [Setting(1, 2), Setting(7, 1), Setting(7, 2, "vpipe")]


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}/{p.stem}" for p in CASES])
@pytest.mark.parametrize("setting", MATRIX, ids=str)
def test_golden_spilled(path: Path, setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager.StorageManager, "note_state", lambda *args, **options: None)  # queues alone
    monkeypatch.setattr(manager, "STATE_SHARE", 2**40)
    case = read_case(path)
    for stream in case["network"]["streams"].values():
        stream["overload"] = "spill"
    spill = SpillFiles(RealFiles(str(tmp_path)), segment_bytes=1_000)
    rows, engine = run_case(case, setting, memory_bytes=64, spill=spill)
    check_rows(case, rows)
    assert all(queue.residual == 0 and queue.tuples == 0 for queue in engine.storage.queues)
    assert engine.storage.used_bytes == 0
    spill.close()


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}/{p.stem}" for p in CASES])
@pytest.mark.parametrize("setting", MATRIX, ids=str)
def test_golden_state_spilled(path: Path, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """State is divided by key, and no part of it stays in memory. The results of different keys may change places."""
    monkeypatch.setattr(manager, "STATE_SHARE", 0.0)
    case = read_case(path)
    rows, engine = run_case(case, setting)
    check_rows(case | {"ordered": False}, rows)
    for box, counts in case.get("counts", {}).items():
        reading = engine.runtimes[engine.network.box(box).number].reading()
        assert {field: getattr(reading, field) for field in counts} == counts
    assert all(queue.residual == 0 and queue.tuples == 0 for queue in engine.storage.queues)
    assert all(box_residual(runtime.reading()) == 0 for runtime in engine.runtimes)
    divisible = [r.tuples_in for r in engine.runtimes if r.bounded is not None and r.bounded.inner.is_divisible]
    assert not any(divisible) or engine.state_home.written_bytes, "nothing went to disk"
