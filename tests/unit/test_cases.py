"""``aurorad test``: cases that pass and fail, the clock, the difference that is shown, and errors with their places."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result
from typer.testing import CliRunner

from catalog.errors import NetworkError
from engine.cli import make_app
from engine.run.cases.case_file import read_cases
from engine.run.cases.compare import compare
from engine.run.cases.play import play

NETWORK = """
streams:
  s: {schema: {ts: timestamp, k: string, v: "double?"}, time: ts, idle: 5s, source: {tcp: 0, timestamps: s}}
  t: {schema: {v: int}}
boxes:
  sums: {aggregate: s, window: {tumbling: 10s}, by: [k], select: {total: "sum(v)", n: "count(*)"}}
  big: {filter: t, where: "v > 5"}
outputs:
  totals: {from: sums}
  large: {from: big}
"""
HEAD = "cases:\n- name: one\n"


def write(tmp_path: Path, cases: str) -> Path:
    (tmp_path / "net.yaml").write_text(NETWORK)
    path = tmp_path / "net.test.yaml"
    path.write_text(HEAD + "\n".join("  " + line for line in cases.strip("\n").splitlines()) + "\n")
    return path


def failures(tmp_path: Path, cases: str) -> list[str]:
    found = read_cases(write(tmp_path, cases), {})
    return [f.message for f in compare(found.network, found.cases[0], play(found.network, found.cases[0]))]


def run(*words: str) -> Result:
    return CliRunner().invoke(make_app(["test"]), ["test", *words])


ROWS = """
input:
- s: [{ts: 1, k: a, v: 1.5}, {ts: 2, k: b, v: null}, {ts: "1970-01-01T00:00:12Z", k: a, v: 2}]
- t: [{v: 3}, {v: 9}]
"""


def test_a_case_that_holds(tmp_path: Path) -> None:
    assert not failures(tmp_path, ROWS + """
expect:
  totals: [{k: a, total: 1.5000000000001, n: 1}, {k: b, total: null}, {k: a, window_start: "1970-01-01T00:00:10Z"}]
  large: [{v: 9}]
""")  # fmt: skip


@pytest.mark.parametrize(
    "expect",
    [
        "{totals: [{k: a}, {k: b}]}",
        "{totals: [{k: b}, {k: a}, {k: a}]}",
        "{totals: [{k: a}, {k: b}, {k: a}, {k: a}]}",
        "{totals: [{k: a, total: 1.6}, {k: b}, {k: a}]}",
        "{totals: [{k: a, total: 1.5}, {k: b, total: 0}, {k: a}]}",
        "{large: []}",
    ],
)
def test_cases_that_do_not_hold(tmp_path: Path, expect: str) -> None:
    assert len(failures(tmp_path, ROWS + f"expect: {expect}")) == 1


def test_unordered_exact_and_approx(tmp_path: Path) -> None:
    unordered = "expect: {totals: [{k: a}, {k: a, total: 2}, {k: b}]}\n"
    assert failures(tmp_path, ROWS + unordered)
    assert not failures(tmp_path, ROWS + unordered + "ordered: false")
    assert failures(tmp_path, ROWS + unordered + "ordered: false\nexact: true")
    assert not failures(tmp_path, ROWS + "expect: {totals: [{total: 1.4}, {k: b}, {total: 2.1}]}\napprox: 0.1")


def test_open_windows_without_close(tmp_path: Path) -> None:
    assert not failures(tmp_path, ROWS + "expect: {totals: [{k: a, total: 1.5}, {k: b}]}\nclose: false")


def test_the_clock_moves_only_by_the_case(tmp_path: Path) -> None:
    """Silence of ``idle`` closes a window when the clock says so, and not before."""
    step = "input: [{s: [{ts: 1, k: a, v: 1}]}, {advance: TIME}]\nclose: false\n"
    assert not failures(tmp_path, step.replace("TIME", "4s") + "expect: {totals: []}")
    assert not failures(tmp_path, step.replace("TIME", "15s") + "expect: {totals: [{k: a}]}")
    at = step.replace("advance: TIME", 'at: "1970-01-01T00:01:00Z"')
    assert not failures(tmp_path, at + "expect: {totals: [{k: a}]}")
    beat = step.replace("advance: TIME", 'heartbeat: {s: "1970-01-01T00:00:10Z"}')
    assert not failures(tmp_path, beat + "expect: {totals: [{k: a}]}")


def test_late_and_refused_rows_are_counted(tmp_path: Path) -> None:
    late = "input: [{s: [{ts: 1, k: a, v: 1}, {ts: 30, k: a, v: 1}, {ts: 2, k: a, v: 1}]}]\n"
    assert not failures(tmp_path, late + "late: {sums: 1}")
    assert failures(tmp_path, late + "late: {sums: 0}") == ["late at sums: expected 0, got 1"]
    bad = "input: [{s: [{ts: 1, k: 5, v: 1}]}]\n"
    assert failures(tmp_path, bad + "expect: {}") == ["refused by s: expected 0, got 1"]
    assert not failures(tmp_path, bad + "refused: {s: 1}")
    future = 'clock: "1970-01-01T00:00:00Z"\ninput: [{s: [{ts: 7200, k: a, v: 1}]}]\n'
    assert not failures(tmp_path, future + "refused: {s: 1}"), "the clock does not follow the rows"


def test_every_error_of_a_file_comes_with_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, """
input:
- z: [{v: 1}]
- s: [{ts: 1, kk: a}]
- advance: 5
- at: noon
expect: {total: [], large: [{w: 1}]}
late: {sumz: 1}
""")  # fmt: skip
    with pytest.raises(NetworkError) as error:
        read_cases(path, {})
    assert [(p.line, p.message.split(":")[0]) for p in error.value.problems] == [
        (4, "there is no stream 'z', and it moves no clock"),
        (5, "there is no field 'kk'"),
        (6, "a duration needs a unit"),
        (7, "not an ISO-8601 timestamp"),
        (8, "there is no output 'total'"),
        (8, "there is no field 'w'"),
        (9, "there is no box 'sumz'"),
    ]  # fmt: skip
    path.write_text("cases:\n- {name: x, imput: []}\n")
    with pytest.raises(NetworkError) as error:
        read_cases(path, {})
    assert {p.message for p in error.value.problems} == {"unknown key 'imput'", "the key 'input' is missing"}


def test_the_command_shows_the_difference_and_writes_junit(tmp_path: Path) -> None:
    path = write(tmp_path, ROWS + "expect: {totals: [{k: a, n: 1}, {k: c, n: 1}, {k: a, n: 1}]}")
    junit = tmp_path / "out.xml"
    done = run(str(tmp_path / "net.yaml"), "--junit", str(junit))
    assert done.exit_code == 1
    assert done.stdout.splitlines()[:6] == [
        f"FAILED {path}: one",
        f"  {path}:6: totals: expected 3 rows (-), got 3 (+)",
        '        {k: "a", n: 1}',
        '      - {k: "c", n: 1}',
        '      + {k: "b", n: 1}',
        '        {k: "a", n: 1}',
    ]
    suite = ElementTree.parse(junit).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert run(str(path), "-k", "none of them").exit_code == 2, "a name that was misspelt does not pass in CI"
    path.write_text(path.read_text().replace("{k: c", "{k: b"))
    assert run(str(tmp_path)).exit_code == 0


def test_exit_codes_of_files_that_cannot_be_used(tmp_path: Path) -> None:
    assert run(str(tmp_path / "none.yaml")).exit_code == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    with chdir(empty):
        assert (run(".").exit_code, "no *.test.yaml files in ." in run(".").output) == (2, True)
    path = write(tmp_path, "input: []")
    (tmp_path / "net.yaml").write_text(NETWORK.replace("v > 5", "w > 5"))
    assert run(str(path)).exit_code == 78
    assert "the case expects nothing" in run(str(write(tmp_path, "input: []"))).output
    path.write_text("cases: []\n")
    assert run(str(path)).exit_code == 78
