"""Every golden case under every configuration: train size x workers x unit, and every policy, must not change a row."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from qos_monitor.conservation import box_residual
from scheduler.policies import policies
from tests.golden.harness import Setting, check_rows, read_case, run_case

HERE = Path(__file__).parent
CASES = sorted(HERE.glob("*/*.yaml"))
MATRIX = [
    Setting(train, workers, unit)
    for train, workers, unit in product((1, 7, 1024), (1, 4), ("tuple", "box", "superbox", "vpipe"))
]
MATRIX += [Setting(7, 2, "vpipe", "vpipe"), Setting(7, 2, "vpipe", "chain")]
MATRIX += [Setting(7, 2, unit, window_worth=True) for unit in ("box", "superbox")]
MATRIX += [Setting(7, 2, "superbox", policy) for policy in policies() if policy != "round_robin"]


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}/{p.stem}" for p in CASES])
@pytest.mark.parametrize("setting", MATRIX, ids=str)
def test_golden(path: Path, setting: Setting) -> None:
    case = read_case(path)
    rows, engine = run_case(case, setting)
    check_rows(case, rows)
    for box, counts in case.get("counts", {}).items():
        reading = engine.runtimes[engine.network.box(box).number].reading()
        assert {field: getattr(reading, field) for field in counts} == counts
    for box, said in case.get("under_loss", {}).items():
        node = engine.network.box(box)
        assert [node.box.under_loss(port) for port in range(len(node.in_arcs))] == said
    assert all(queue.residual == 0 and queue.tuples == 0 for queue in engine.storage.queues)
    assert all(box_residual(runtime.reading()) == 0 for runtime in engine.runtimes)
    assert engine.storage.used_bytes == 0
