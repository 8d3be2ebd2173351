"""``aurorad validate``, ``graph``, ``history``, ``version`` as a user meets them: words, exit codes, no traceback."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from catalog.errors import AuroraError, Problem
from engine.cli import main, make_app
from engine.cli.views.problems import excerpt, format_problem

GOOD = """\
streams:
  trades: {schema: {ts: timestamp, price: double, size: int}, time: ts, source: {tcp: 9401}, overload: block}
boxes:
  big: {filter: trades, where: "price * size > 100000"}
outputs:
  alerts: {from: big, qos: {deadline: 200ms, prefer: "size > 5"}, sink: {tcp: 9402}}
"""


Run = Callable[..., tuple[int, str, str]]
"""Run a command line; return its exit code, stdout and stderr."""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["aurorad", *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return int(caught.value.code or 0), out, err

    return call


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.yaml"
    path.write_text(GOOD)
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.yaml"
    text = GOOD.replace("price * size", "price * sise").replace("time: ts", "time: st")
    path.write_text(text + '  raw: {from: trades, qos: {prefer: "5"}}\n')
    return str(path)


def test_a_good_file_is_one_line(run: Run, good: str) -> None:
    assert run("validate", good) == (0, f"{good}: fine (1 stream, 1 box, 1 output)\n", "")


def test_a_bad_file_shows_every_line_and_spot(run: Run, bad: str) -> None:
    code, out, err = run("validate", bad)
    assert (code, out) == (78, "")
    lines = err.splitlines()
    firsts = [line for line in lines if line.startswith(bad) and "error: " in line]
    assert [line.split(" ", 3)[2].rstrip(":") for line in firsts] == [
        "streams.trades.time",
        "boxes.big.where",
        "outputs.raw.qos.prefer",
    ]
    shown = next(i for i, line in enumerate(lines) if "sise" in line and line.lstrip().startswith("4 |"))
    assert lines[shown].index("sise") == lines[shown + 1].index("^"), "the mark stands under the word"
    assert "did you mean" in err
    assert lines[-1] == f"{bad}: 3 errors"


def test_several_files_and_warnings(run: Run, good: str, bad: str, tmp_path: Path) -> None:
    code, out, err = run("validate", bad, good)
    assert code == 78
    assert "fine" in out
    odd = tmp_path / "odd.yaml"
    odd.write_text(GOOD.replace("boxes:\n", "boxes:\n  dead: {filter: trades, where: 'true'}\n"))
    code, out, err = run("validate", str(odd))
    assert code == 0
    assert "warning: boxes.dead: the box 'dead' leads to no output" in err
    assert out.endswith("(1 stream, 2 boxes, 1 output, 1 warning)\n")
    assert run("validate", "--strict", str(odd))[0] == 78


def test_json_for_tools(run: Run, good: str, bad: str) -> None:
    code, out, err = run("validate", "--json", good, bad)
    assert (code, err) == (78, "")
    first, second = map(json.loads, out.splitlines())
    assert first == {"file": good, "ok": True, "streams": 1, "boxes": 1, "outputs": 1, "problems": []}
    assert second["ok"] is False
    assert [p["line"] for p in second["problems"]] == [2, 4, 7]
    assert second["problems"][0]["hint"] == "did you mean 'ts'?"
    assert set(second["problems"][0]) == {"severity", "path", "line", "column", "message", "hint"}


def test_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(GOOD))
    assert run("validate", "-")[0] == 0


def test_what_is_not_there(run: Run) -> None:
    code, _, err = run("validate", "/nowhere/net.yaml")
    assert code == 78
    assert err.startswith("/nowhere/net.yaml: error: cannot be read: No such file or directory\n")
    assert run("graph", "/nowhere/net.yaml")[0] == 78
    assert run("frobnicate")[0] == 2


def test_an_expression_that_tries_to_reach_python(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "evil.yaml"
    path.write_text(GOOD.replace("price * size > 100000", "__import__('os').system('true')"))
    code, _, err = run("validate", str(path))
    assert code == 78
    assert "boxes.big.where" in err


def test_graph_in_text_svg_and_list(run: Run, good: str, tmp_path: Path) -> None:
    code, out, _ = run("graph", good)
    assert code == 0
    assert "│ trades       ├────▶│ big" in out
    svg = tmp_path / "net.svg"
    assert run("graph", good, "--svg", str(svg))[0] == 0
    assert ET.parse(svg).getroot().tag.endswith("svg")
    assert run("graph", good, "--svg", "-")[1] == svg.read_text()
    assert run("graph", good, "--list")[1].startswith("stream  trades")
    assert run("graph", good, "--svg", "/nowhere/x.svg")[0] == 1


def test_graph_of_a_bad_file_says_what_validate_says(run: Run, bad: str) -> None:
    assert run("graph", bad)[::2] == run("validate", bad)[::2]


def test_other_errors_of_the_world_end_with_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AuroraError("the port is in use")

    monkeypatch.setattr("engine.run.network_file.read_network", fail)
    assert run("graph", "x.yaml") == (1, "", "aurorad: the port is in use\n")


def test_every_command_teaches_by_example(run: Run) -> None:
    commands = {c.name or c.callback.__name__ for c in make_app().registered_commands if c.callback is not None}
    assert {"validate", "graph", "version"} <= commands
    for command in ("validate", "graph", "version"):
        code, out, _ = run(command, "--help")
        assert code == 0
        assert f"aurorad {command}" in out.replace("Usage: aurorad", "")


def test_version(run: Run) -> None:
    code, out, _ = run("version")
    assert code == 0
    assert out.startswith("aurorad ")
    assert out.count("\n") == 1
    assert run("--version")[1].split()[1] == out.split()[1]


def test_light_commands_import_nothing_heavy(good: str) -> None:
    program = """
import sys
from engine.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code
heavy = {"pyspark", "pandas", "polars", "pyarrow", "duckdb", "uvloop", "starlette"} & set(sys.modules)
assert not heavy, heavy
"""
    for arguments in (["version"], ["validate", good]):
        subprocess.run([sys.executable, "-c", program, *arguments], check=True, cwd=Path(__file__).parents[2])


def test_long_lines_are_cut_around_the_spot() -> None:
    line = "x" * 300 + " here " + "y" * 300
    shown, caret = excerpt(line, 302)
    assert len(shown) < 120
    assert shown[caret.index("^") :].startswith("here")
    assert caret.count("^") == 4


def test_wide_characters_and_tabs_do_not_move_the_mark() -> None:
    shown, caret = excerpt("名前: bad", 5)
    assert caret == " " * 6 + "^^^", "a terminal gives each of the two characters two columns"
    shown, caret = excerpt("a:\tbad", 4)
    assert shown[caret.index("^") :] == "bad"


def test_a_place_outside_the_text_shows_no_line() -> None:
    text = format_problem(Problem(("a",), "wrong", "right", 99, 3), "f.yaml", ["one line"])
    assert text.splitlines() == ["f.yaml:99:3: error: a: wrong", "      = right"]


def test_history_writes_a_day_of_trades_in_order(tmp_path: Path, run: Run) -> None:
    code, out, _ = run(
        "history", "make", str(tmp_path / "day"), "--day", "2026-01-06", "--rows", "1000", "--files", "3"
    )
    assert (code, out) == (0, f"1,000 trades in 3 files in {tmp_path / 'day'}\n")
    files = sorted((tmp_path / "day").iterdir())
    assert [f.name for f in files] == [f"2026-01-06-{n}.parquet" for n in range(3)]
    times = [time for f in files for time in pq.read_table(f)["ts"].to_pylist()]
    assert len(times) == 1_000 and times == sorted(times)
    assert times[0].date() == times[-1].date() == date(2026, 1, 6)
    taken = tmp_path / "file"
    taken.write_text("")
    code, _, err = run("history", "make", str(taken))
    assert code == 1 and "cannot be written" in err
