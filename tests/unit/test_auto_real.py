"""``bench auto --real``: one short run on the engine, and what a table of runs says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from engine.lab.bench.auto import real, real_run
from engine.lab.bench.auto.real import CaseTable, RealCase, RealPlan, contenders, tables
from engine.lab.bench.auto.real_report import results, table_row
from engine.lab.bench.auto.real_run import KneeRun, Neighbours, RealPiece, RealRun, run_real_piece
from engine.lab.bench.harness import BenchError


def run(utility: float, others_cores: float = 0.0) -> RealRun:
    return RealRun(utility, 1e6, 1e3, 2e3, {"o": utility}, [], 0.0, others_cores)


def test_a_run_on_the_engine_judges_every_output() -> None:
    level = logging.getLogger("aurorad").level
    found = run_real_piece(RealPiece("windows", 1, 0.5, "auto", 2.2, 0.5, 2_000.0))
    assert logging.getLogger("aurorad").level == level, "the log is quiet for the run only"
    assert set(found.by_output) == {"exact_windows", "rough_windows", "rows_out"}
    assert all(0.0 <= u <= 1.0 for u in found.by_output.values()) and found.utility > 0
    assert found.chose[0].startswith("0.0s qos: ") and found.peak_bytes >= found.memory_bytes >= 0


def test_the_noise_is_the_spread_of_the_rounds() -> None:
    runs = {"auto": [run(0.9), run(1.0)], "qos": [run(1.0), run(1.0)], "round_robin": [run(0.5)], "hr": [run(1.1)]}
    best, by_qos, by_turns = results(CaseTable(RealCase("values", 3.0), runs))
    assert best.case == "values at 3, best fixed hr" and best.ratio == pytest.approx(0.95 / 1.1)
    assert by_qos.at_least == pytest.approx(0.95) and by_qos.verdict == "reached"
    assert by_turns.verdict == "reached"
    behind = runs | {"auto": [run(0.7), run(0.7)]}
    assert results(CaseTable(RealCase("values", 3.0), behind))[1].verdict == "missed"
    assert len(results(CaseTable(RealCase("values", 0.7), runs))) == 1, "below the knee there is no goal"


def test_kept_results_are_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def alone(work: object, *arguments: object) -> object:
        asked.append(arguments)
        return KneeRun(100.0, 0.0) if work is real.measure_knee else run(float(len(asked)))

    monkeypatch.setattr(real, "_alone", alone)
    plan = RealPlan(tmp_path, "values at 3", rounds=2, policies=("auto", "qos", "hr"))
    [table] = tables(plan)
    assert {p: len(r) for p, r in table.runs.items()} == {"auto": 2, "qos": 2, "hr": 1}
    before = len(asked)
    assert [t.runs for t in tables(plan)] == [table.runs] and len(asked) == before
    with pytest.raises(BenchError, match="no case has 'x'"):
        list(tables(RealPlan(only="x")))


def test_a_run_beside_busy_neighbours_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least disturbed of three runs counts; the first that is calm enough ends the tries. The table says it."""
    others = iter([0.05, 0.3, 0.0, 1.2, 0.4, 0.9, 0.1])

    def alone(work: object, *arguments: object) -> object:
        cores = next(others)
        return KneeRun(100.0, cores) if work is real.measure_knee else run(cores, cores)

    monkeypatch.setattr(real, "_alone", alone)
    [table] = tables(RealPlan(tmp_path, "values at 3", rounds=1, policies=("auto", "hr")))
    assert [r.others_cores for r in table.runs["auto"]] == [0.4]
    assert [r.others_cores for r in table.runs["hr"]] == [0.1] and next(others, None) is None
    assert table_row([run(1.0, 0.2), run(1.0, 0.4)])["others_cores"] == 0.4


def test_neighbours_are_what_the_machine_did_without_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 2 s the machine spends 4 s of processor time, 1 s of it here."""
    monkeypatch.setattr(real_run, "machine_s", iter([10.0, 14.0]).__next__)
    monkeypatch.setattr(real_run.time, "process_time", iter([1.0, 2.0]).__next__)
    monkeypatch.setattr(real_run.time, "monotonic", iter([100.0, 102.0]).__next__)
    assert Neighbours().cores() == 1.5


def test_contenders_fit_the_network() -> None:
    assert contenders("values")[:3] == ("auto", "qos", "round_robin") and "chain" in contenders("values")
