"""The real daemon, killed in the middle of applies. The long form: ``python -m tests.live.killed --kills 100``."""

from __future__ import annotations

from pathlib import Path

from tests.live.killed import KilledApplies, holds


def test_a_kill_in_the_middle_of_an_apply_leaves_the_old_network_or_the_new_one(tmp_path: Path) -> None:
    verdict = KilledApplies(tmp_path, seed=1).run_kills(2)
    assert holds(verdict), verdict
    assert sum(verdict["fates"].values()) == 2
