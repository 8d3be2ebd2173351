"""Every golden case with a mask on every arc that drops nothing: a train takes the way of one that is shed, no queue is
fused away, and no row may change."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.core import Engine
from tests.golden.harness import Setting, as_multiset, load, run_case
from tests.golden.test_golden import CASES


@pytest.mark.parametrize("path", CASES, ids=[f"{p.parent.name}/{p.stem}" for p in CASES])
def test_golden_masked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Engine.start

    def masked(engine: Engine) -> None:
        sheds = {arc.number: engine.shedding.shed_of(arc.number).keep for arc in engine.network.arcs}
        engine.routes.shed(sheds)
        engine.pool.shed(sheds)
        start(engine)

    monkeypatch.setattr(Engine, "start", masked)
    case = load(path)
    rows, engine = run_case(case, Setting(7, 2))
    for output, expected in case["expect"].items():
        if case.get("ordered", True):
            assert rows[output] == expected
        else:
            assert as_multiset(rows[output]) == as_multiset(expected)
    assert all(queue.residual == 0 and queue.tuples == 0 for queue in engine.storage.queues)
    assert not engine.shedding.counts()
