"""Every golden case with a mask on every arc that drops nothing: a train takes the way of one that is shed, no queue is
fused away, and no row may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.run.core import Engine
from tests.golden.harness import Setting, check_rows, read_case, run_case
from tests.golden.test_golden import CASES


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}/{p.stem}" for p in CASES])
@pytest.mark.parametrize("unit", ["superbox", "vpipe"])
def test_golden_masked(path: Path, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Engine.start

    def masked(engine: Engine) -> None:
        sheds = {arc.number: engine.shedding.drops_of(arc.number).keep for arc in engine.network.arcs}
        engine.ingress.shed(sheds)
        engine.pool.shed(sheds)
        start(engine)

    monkeypatch.setattr(Engine, "start", masked)
    case = read_case(path)
    rows, engine = run_case(case, Setting(7, 2, unit))
    check_rows(case, rows)
    assert all(queue.residual == 0 and queue.tuples == 0 for queue in engine.storage.queues)
    assert not engine.shedding.counts()
