"""The frame of the papers' figures: they are found by name, stored, plotted, and shown on a self-contained page."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from time import thread_time_ns

import orjson
import pytest
from typer.testing import CliRunner

from engine.cli import make_app
from engine.lab.bench.harness import BenchError, make_folder
from engine.lab.figures import figure_names, load_figure, plot
from engine.lab.figures.figure import Check, Figure, FigureData, FigureVerdict, Panel, from_plain, to_plain
from engine.lab.figures.page import page
from engine.lab.figures.record import FigureRecord, save, stored, wanted
from engine.simulate.report import PlotError

PANELS = (
    Panel("load", "latency, ms", {"a < b": [(0.1, 1.0), (0.5, 2.0)], "form": [(0.1, 1.5)]}, dashed=("form",)),
    Panel("method", "time, s", {"one": [(0, 1.0), (1, 2.0)], "two": [(0, 3.0)]}, kind="stacked", ticks=("x", "y")),
)  # fmt: skip
MEASURED = FigureData(PANELS, {"length, s": 1.0})


def record(ok: bool = True) -> FigureRecord:
    figure = Figure("A <title>", "one is less", differs={"real": "because & so"})
    verdict = FigureVerdict((Check(ok, "one is 1 < 2"), Check(True, "two is 2")), "latency_ms", 1.0, 2.0)
    return FigureRecord("P0.5", "real", figure, "Doc.", MEASURED, verdict, False, 1.0, "2026-01-01T00:00:00", "2 cores")


@pytest.mark.parametrize("name", list(figure_names()))
def test_every_figure_says_what_it_is(name: str) -> None:
    module = load_figure(name)
    figure = module.FIGURE
    assert module.__doc__.startswith(name.split(".")[0])
    assert figure.title and figure.claim and figure.parameters
    assert set(figure.engines) <= {"real", "simulated"} and figure.engines
    assert set(figure.differs) <= set(figure.engines)


def test_what_was_measured_survives_being_kept(tmp_path: Path) -> None:
    assert to_plain(from_plain(orjson.loads(orjson.dumps(to_plain(MEASURED))))) == to_plain(MEASURED)
    assert stored(tmp_path, "P0.5", "real") is None
    save(tmp_path, record())
    assert "panels" in orjson.loads((tmp_path / "P0.5-real.json").read_bytes())["measured"]


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"a": 1}', b"\xff", b'{"measured": {"panels": []}}'])
def test_a_file_that_holds_something_else_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "P0.5-real.json").write_bytes(text)
    with pytest.raises(BenchError, match=r"P0\.5-real\.json is not what `bench figure` writes"):
        stored(tmp_path, "P0.5", "real")
    with pytest.raises(BenchError, match="cannot be made a folder"):
        make_folder(tmp_path / "P0.5-real.json")


def test_a_claim_that_does_not_hold_is_explained() -> None:
    assert record().verdict.word == "holds"
    assert "because" not in record().why
    line = orjson.loads(record(ok=False).result().to_json())
    assert line["verdict"] == "differs" and line["why"].startswith("NOT: one is 1 < 2") and "because" in line["why"]
    assert {"bench", "case", "metric", "value", "baseline", "ratio", "figure", "engine"} <= set(line)


def test_the_page_needs_nothing_else_and_escapes_what_it_shows() -> None:
    pytest.importorskip("matplotlib")
    html = page([record(ok=False)])
    assert "A &lt;title&gt;" in html and "because &amp; so" in html
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
    result = CliRunner().invoke(make_app(), ["bench", "figure", "P9.9"])
    assert result.exit_code == 2 and "P0.5" in result.output


def test_the_command_prints_a_line_for_each(tmp_path: Path) -> None:
    arguments = ["bench", "figure", "P0.5", "--quick", "--engine", "simulated", "--json", "--out", str(tmp_path)]
    result = CliRunner().invoke(make_app(), arguments)
    assert result.exit_code == 0, result.output
    [line] = map(orjson.loads, result.stdout.splitlines())  # what is missing is said on stderr
    assert (line["figure"], line["engine"], line["bench"]) == ("P0.5", "simulated", "figure")
    assert (tmp_path / "P0.5-simulated.png").exists() == (find_spec("matplotlib") is not None)
    result = CliRunner().invoke(
        make_app(), ["bench", "figures", "--report", str(tmp_path), "--only", "P0.5", "--reuse", *arguments[4:6]]
    )
    assert result.exit_code == 0, result.output
    assert "P0.5" in (tmp_path / "index.html").read_text()


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

    ledger.of("scheduler_ns", step)()
    assert 1_900_000 < ledger.ns["scheduler_ns"] < 3_500_000 < ledger.ns["storage_ns"]
