"""The frame of the papers' figures: settings, sweeps, words, stored runs, plots, and a self-contained page."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from time import thread_time_ns

import orjson
import pytest
from typer.testing import CliRunner

from engine.cli import make_app
from engine.lab.bench.harness import BenchError, make_folder
from engine.lab.figures import figure_names, load_figure, plot
from engine.lab.figures.figure import (
    DIFFERS,
    HOLDS,
    SHAPE,
    Check,
    Figure,
    FigureData,
    FigureVerdict,
    Panel,
    PaperPoint,
    Unprinted,
    from_plain,
    to_plain,
)
from engine.lab.figures.fits import fit
from engine.lab.figures.outcome import FigureRun, judge, mean_data, mean_of
from engine.lab.figures.page import page
from engine.lab.figures.record import FigureRecord, new_record, save, stored, wanted, with_run
from engine.lab.figures.results import merge_results, read_results, row_of
from engine.lab.figures.runner import FigureRunner, measure
from engine.lab.figures.sweep import Variation, planned, sweep
from engine.simulate.report import PlotError
from tests.docs.page_figures import results_page

PANELS = (
    Panel("load", "latency, ms", {"a < b": [(0.1, 1.0), (0.5, 2.0)], "form": [(0.1, 1.5)]}, dashed=("form",)),
    Panel("method", "time, s", {"one": [(0, 1.0), (1, 2.0)], "two": [(0, 3.0)]}, kind="stacked", ticks=("x", "y")),
)  # fmt: skip
MEASURED = FigureData(PANELS, {"length, s": 1.0})
FIGURE = Figure(
    "A <title>",
    "one is less",
    printed={"network": "a tree"},
    unprinted={"cost": Unprinted(4.0, "why & how"), "train": Unprinted("all", "so", ("1",)), "n": Unprinted(3, "n")},
    paper=(PaperPoint("level", 2.0, panel=0), PaperPoint("place", 0.3, panel=0, is_x=True), PaperPoint("far", 9.0)),
    findings={"real": "because & so"},
    erratum="a sign is wrong",
)


def verdict(ok: bool, level: float = 2.0, far: float = 9.0) -> FigureVerdict:
    ours = {"level": level, "place": 0.3, "far": far}
    return FigureVerdict((Check("one < two", ok, "1 < 2"), Check("two", True, "2")), "latency_ms", level, 2.0, ours)


def runs(*of: tuple[bool, float], changed: dict[str, float | str] | None = None) -> list[FigureRun]:
    return [FigureRun(Variation(i, changed or {}), MEASURED, verdict(ok, level)) for i, (ok, level) in enumerate(of)]


def record(ok: bool = True) -> FigureRecord:
    made = tuple(runs((ok, 2.0), (ok, 2.1)))
    return FigureRecord("P0.5", "real", FIGURE, "Doc.", made, False, 1.0, "2026-01-01T00:00:00", "2 cores")


@pytest.mark.parametrize("name", list(figure_names()))
def test_every_figure_declares_its_settings(name: str) -> None:
    module = load_figure(name)
    figure = module.FIGURE
    assert module.__doc__.startswith(name.split(".")[0])
    assert figure.title and figure.claim and figure.printed
    assert all(setting.why and setting.swept for setting in figure.unprinted.values())
    assert set(figure.engines) <= {"real", "simulated"} and figure.engines
    assert set(figure.findings) <= set(figure.engines)
    assert len(sweep(figure)) >= 20
    assert planned(figure, "real", quick=False) == [Variation(seed) for seed in range(1, 6)]


def test_the_sweep_has_each_setting_at_half_and_at_double_and_then_corners() -> None:
    found = [v.changed for v in sweep(FIGURE)]
    assert found[:5] == [{"cost": 2.0}, {"cost": 8.0}, {"train": "1"}, {"n": 1}, {"n": 6}]
    corners = [tuple(changed.items()) for changed in found]
    # 3 * 2 * 3 settings without the default: there are no more, so some come again with another seed
    assert len(set(corners)) == 17 and len(found) == 20 and all(found)
    assert found == [v.changed for v in sweep(FIGURE)], "the same every time"
    assert len({v.seed for v in sweep(FIGURE)}) == 20


def test_a_word_needs_nine_tenths_of_the_runs_and_numbers_near_the_paper() -> None:
    ours = runs((True, 2.0), (True, 2.2))
    nine = runs(*[(True, 2.0)] * 9, (False, 2.0), changed={"cost": 2.0})
    outcome = judge(FIGURE, ours + nine)
    assert (outcome.word, outcome.held, outcome.variations, outcome.seeds_held) == (HOLDS, 9, 10, 2)
    assert outcome.statements[0].broken == ("cost 2 (1 < 2)",) and outcome.statements[1].held == 10
    assert outcome.ours["level"].value == pytest.approx(2.1)
    assert judge(FIGURE, runs((True, 5.0)) + nine).word == SHAPE, "a level of 5 is not within a quarter of 2"
    assert judge(FIGURE, ours + nine[1:]).word == DIFFERS, "8 of 9"
    assert judge(FIGURE, ours).word == HOLDS, "without a sweep the seeds are judged"


def test_a_claim_with_two_readings_holds_in_one_of_them() -> None:
    checks = (Check("a", False, "", "all"), Check("b", True, "", "all"), Check("a", True, "", "none"))
    assert FigureVerdict(checks, "m", 1.0).holds
    assert not FigureVerdict(checks[:2], "m", 1.0).holds


def test_means_have_intervals() -> None:
    assert mean_of([1.0, 2.0, 3.0]) == pytest.approx((2.0, 2.0 - 4.303 / 3**0.5, 2.0 + 4.303 / 3**0.5))
    other = FigureData((Panel("x", "y", {"a": [(0, 3.0), (1, 2.0)]}),))
    mean = mean_data([FigureData((Panel("x", "y", {"a": [(0, 1.0), (1, 2.0)]}),)), other])
    assert mean.curve("a") == {0: 2.0, 1: 2.0} and len(mean.panels[0].bands["a"]) == 2


def test_a_fit_tells_a_line_from_an_exponential() -> None:
    line = fit({float(x): 3.0 + 2.0 * x for x in range(1, 9)})
    assert line.line_off < 1e-9 and line.line_r2 == pytest.approx(1.0) and line.bend < 1
    steep = fit({float(x): 2.0**x for x in range(1, 10)})
    assert steep.line_off > 0.3 and steep.bend == pytest.approx(1.0, abs=0.01)


def test_what_was_measured_survives_being_kept(tmp_path: Path) -> None:
    assert to_plain(from_plain(orjson.loads(orjson.dumps(to_plain(MEASURED))))) == to_plain(MEASURED)
    assert stored(tmp_path, "P0.5", "real") is None
    save(tmp_path, record())
    kept = orjson.loads((tmp_path / "P0.5-real.json").read_bytes())
    assert [run["seed"] for run in kept["runs"]] == [0, 1] and "panels" in kept["runs"][0]["measured"]


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"a": 1}', b"\xff", b'{"runs": [{"seed": 1}]}'])
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "P0.5-real.json").write_bytes(text)
    with pytest.raises(BenchError, match=r"P0\.5-real\.json is not what `bench figure` writes"):
        stored(tmp_path, "P0.5", "real")
    with pytest.raises(BenchError, match="cannot be made a folder"):
        make_folder(tmp_path / "P0.5-real.json")


def test_a_claim_that_does_not_hold_is_explained() -> None:
    assert record().outcome.word == HOLDS and "because" not in record().why
    line = orjson.loads(record(ok=False).result().to_json())
    assert line["verdict"] == "differs" and line["why"].startswith("one < two: 0 of 2") and "because" in line["why"]
    assert {"held", "variations", "seeds", "interval", "statements", "paper", "curves", "unprinted"} <= set(line)
    assert [p["near"] for p in line["paper"]] == [True, True, True] and line["paper"][0]["paper"] == 2.0


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    pytest.importorskip("matplotlib")
    html = page([record(ok=False)])
    assert "A &lt;title&gt;" in html and "because &amp; so" in html and "why &amp; how" in html and "Errata" in html
    assert len(re.findall("data:image/svg", html)) == 1
    assert not re.search(r'(?:src|href)="(?!data:|#)', html)
    assert "<script" not in html


def test_a_picture_is_drawn_or_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("matplotlib"):
        assert plot.picture(record()).startswith(b"\x89PNG")

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(plot, "import_module", absent)
    with pytest.raises(PlotError, match=r"aurorad\[plots\]"):
        plot.picture(record())
    assert "aurorad[plots]" in page([record()])


def test_figures_are_asked_for_by_name() -> None:
    assert wanted(["P0.5"], None) == [("P0.5", "real"), ("P0.5", "simulated")]
    assert {name for name, _ in wanted(["all"], None)} == set(figure_names())
    assert "P0.depth" in figure_names() and next(iter(figure_names())) == "P0.3"
    result = CliRunner().invoke(make_app(), ["bench", "figure", "P9.9"])
    assert result.exit_code == 2 and "P0.5" in result.output


def test_an_interrupted_report_goes_on_where_it_was(tmp_path: Path) -> None:
    begun = new_record("P0.7", "simulated", quick=True)
    first, *left = begun.missing
    assert len(left) == 4 and not first.changed
    save(tmp_path, with_run(begun, first, measure("P0.7", "simulated", True, first), 1.0))
    runner = FigureRunner(True, tmp_path, reuse=True, processes=1)
    [done] = runner.records([("P0.7", "simulated")])
    assert not done.missing and len(done.runs) == 5
    [again] = runner.records([("P0.7", "simulated")])
    assert again.seconds == done.seconds, "nothing was measured again"


def test_the_command_prints_a_line_for_each(tmp_path: Path) -> None:
    arguments = ["bench", "figure", "P0.7", "--quick", "--engine", "simulated", "--json", "--out", str(tmp_path)]
    runner = FigureRunner(True, tmp_path, processes=1)
    assert [r.name for r in runner.records([("P0.7", "simulated")])] == ["P0.7"]
    result = CliRunner().invoke(make_app(), [*arguments, "--reuse"])
    assert result.exit_code == 0, result.output
    [line] = map(orjson.loads, result.stdout.splitlines())  # what is missing is said on stderr
    assert (line["figure"], line["engine"], line["bench"]) == ("P0.7", "simulated", "figure")
    assert (tmp_path / "P0.7-simulated.png").exists() == (find_spec("matplotlib") is not None)
    result = CliRunner().invoke(
        make_app(), ["bench", "figures", "--report", str(tmp_path), "--only", "P0.7", "--reuse", *arguments[3:6]]
    )
    assert result.exit_code == 0, result.output
    assert "P0.7" in (tmp_path / "index.html").read_text()


def test_the_ledger_gives_a_threads_time_to_the_innermost_part() -> None:
    from engine.lab.figures.real_engine import TimeLedger
    from engine.run.core import Engine
    from engine.simulate.sketch import NetworkSketch

    sketch = NetworkSketch()
    sketch.output(sketch.box(sketch.stream()))
    ledger = TimeLedger(Engine(sketch.network(), [lambda train: None], workers=1))

    def burn(ns: int) -> None:
        until_ns = thread_time_ns() + ns
        while thread_time_ns() < until_ns:
            pass

    def step() -> None:
        burn(2_000_000)
        ledger.of("storage_ns", burn)(4_000_000)

    worker = Thread(target=ledger.of("scheduler_ns", step))
    worker.start()
    worker.join()
    assert 1_900_000 < ledger.ns["scheduler_ns"] < 3_500_000 < ledger.ns["storage_ns"]
    parts = ledger.read(10_000_000)
    assert sum(parts.values()) == 10_000_000, "the parts add up"
    # The 10 ms are without the thread that made the ledger. Its feeding counts for nobody, what it puts for storage.
    before_ns = ledger.ns["storage_ns"]
    ledger.of("feeding", step)()
    put_ns = ledger.ns["storage_ns"] - before_ns
    assert ledger.read(10_000_000)["worker_ns"] == parts["worker_ns"] and put_ns > 3_500_000
    assert sum(ledger.read(10_000_000).values()) == 10_000_000 + put_ns


# -- the verdicts in short ---------------------------------------------------------------------------------------------


def test_results_replace_older_rows_and_keep_the_others(tmp_path: Path) -> None:
    """A row says what the record says; the order is that of the figures."""
    path = tmp_path / "results.json"
    old = [
        {"figure": name, "engine": "real", "verdict": "holds", "held": 5, "variations": 5, "when": "2025-01-01"}
        for name in ("P4.3", "P0.5")
    ]
    path.write_bytes(orjson.dumps(old))
    merge_results(path, [record(ok=False)])
    first, second = read_results(path)
    assert second == old[0]
    assert (first["figure"], first["verdict"], first["held"], first["seeds"]) == ("P0.5", "differs", 0, 2)
    assert [(p["what"], p["paper"], p["ours"][0]) for p in first["paper"]] == [
        ("level", 2.0, 2.05), ("place", 0.3, 0.3), ("far", 9.0, 9.0)
    ]  # fmt: skip
    assert [(s["held"], s["of"]) for s in first["statements"]] == [(0, 2), (2, 2)]
    merge_results(path, [record()])
    assert [row["verdict"] for row in read_results(path)] == ["holds", "holds"]


@pytest.mark.parametrize("text", [b"{", b'{"figure": 1}', b'[{"engine": "real"}]', b"\xff"])
def test_a_file_of_results_that_holds_something_else_is_named(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(text)
    with pytest.raises(BenchError, match=r"results\.json is not what `bench figures --results` writes"):
        merge_results(path, [])
    assert path.read_bytes() == text


def test_the_page_of_results_counts_the_words_and_says_what_fails() -> None:
    old = {"figure": "P4.3", "engine": "simulated", "verdict": "shape", "held": 20, "variations": 20, "when": "2025"}
    text = results_page([row_of(record(ok=False)), old])
    assert "| real | 28 | 0 | 0 | 1 | 27 |" in text and "| simulated | 28 | 0 | 1 | 0 | 27 |" in text
    assert "| real | differs | 0 of 2 | 0 of 2 | level 2: 2.05 [1.41, 2.69]<br>place 0.3: 0.3 [0.3, 0.3]" in text
    assert "- real: one < two: 0 of 2 runs; seen: 1 < 2\n" in text and "- real: two" not in text
    assert text.count("not run | | | | |") == 27 + 27
