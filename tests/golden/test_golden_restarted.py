"""Every golden case with a restart after each train: state goes through plain data, and no row may change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.run.core import Engine
from tests.golden.harness import Setting, check_rows, read_case, run_case
from tests.golden.test_golden import CASES
from tests.property.box_harness import as_plain

MATRIX = [Setting(1, 2), Setting(7, 1)]


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}/{p.stem}" for p in CASES])
@pytest.mark.parametrize("setting", MATRIX, ids=str)
def test_golden_restarted(path: Path, setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Engine.start

    def start_and_restart(engine: Engine) -> None:
        admit = engine.ingress.admit

        def admit_and_restart(*args: Any, **options: Any) -> bool:
            admitted = admit(*args, **options)
            assert engine.drain(20)
            for runtime in engine.runtimes:
                data = as_plain(runtime.box.snapshot(runtime.state))
                runtime.state = runtime.box.restore(data)
            return admitted

        monkeypatch.setattr(engine.ingress, "admit", admit_and_restart)
        start(engine)

    monkeypatch.setattr(Engine, "start", start_and_restart)
    case = read_case(path)
    rows, engine = run_case(case, setting)
    check_rows(case, rows)
    for box, counts in case.get("counts", {}).items():
        reading = engine.runtimes[engine.network.box(box).number].reading()
        assert {field: getattr(reading, field) for field in counts} == counts
    assert all(queue.residual == 0 and queue.tuples == 0 for queue in engine.storage.queues)
