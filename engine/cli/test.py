"""``aurorad test``: run the cases of networks: rows in, rows expected, under a virtual clock."""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from engine.run.cases.case_file import Cases, NetworkCase
    from engine.run.cases.compare import CaseFailure


def register(app: typer.Typer) -> None:
    app.command()(test)


class CaseVerdict(NamedTuple):
    """What a case gave. ``text`` is empty for a case that passed."""

    file: str
    name: str
    seconds: float
    text: str


def test(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Network files, NAME.test.yaml files, or folders of them.")
    ],
    junit: Annotated[Path | None, typer.Option(help="Write the results as JUnit XML, for CI.")] = None,  # noqa: PT028  (no test of pytest)
    only: Annotated[
        str | None, typer.Option("-k", metavar="TEXT", help="Run the cases whose name has this text.")
    ] = None,  # noqa: PT028
) -> None:
    """Test networks: feed rows to them and compare what comes out.

    The cases of net.yaml are in net.test.yaml beside it. They run under a
    virtual clock, without sockets and files, in milliseconds.
    docs/first-network.md explains the form.

    \b
      aurorad test net.yaml
      aurorad test . --junit results.xml
      aurorad test net.yaml -k "late rows"

    Exit codes: 0 all cases passed, 1 some failed, 2 there are no cases,
    78 a bad network or test file.
    """
    from engine.run.cases.case_file import find_case_files

    found = {name: find_case_files(name) for name in files}
    for name, paths in found.items():
        if not paths:
            raise typer.BadParameter(_nothing(name), param_hint="FILE")
    paths = list(dict.fromkeys(path for paths in found.values() for path in paths))
    begun = perf_counter()
    verdicts, bad = _run(paths, only)
    if junit is not None:
        _write_junit(junit, verdicts)
    failed = [v for v in verdicts if v.text]
    if verdicts:
        typer.echo(f"{len(verdicts) - len(failed)} passed, {len(failed)} failed in {perf_counter() - begun:.2f} s")
    if bad:
        raise typer.Exit(78)
    if not verdicts:
        raise typer.BadParameter(f"no case has {only!r} in its name", param_hint="-k")
    raise typer.Exit(1 if failed else 0)


def _nothing(name: str) -> str:
    path = Path(name)
    if not path.exists():
        return f"there is no {name}"
    if path.is_dir():
        return f"there are no *.test.yaml files in {name}"
    return f"there are no cases for {name}: write them to {path.with_name(path.stem + '.test.yaml')}"


def _run(paths: list[Path], only: str | None) -> tuple[list[CaseVerdict], int]:
    """Run the cases of all files. Return what they gave, and how many files could not be used."""
    from catalog.errors import NetworkError
    from engine.cli.views.problems import write_problems
    from engine.run.cases.case_file import read_cases

    verdicts: list[CaseVerdict] = []
    bad = 0
    for path in paths:
        try:
            cases = read_cases(path)
        except NetworkError as error:
            write_problems(error.problems, error.source, error.text)
            bad += 1
            continue
        for number, case in enumerate(cases.cases):
            if only is None or only in case.name:
                verdicts.append(_run_one(cases, case, number))
    return verdicts, bad


def _run_one(cases: Cases, case: NetworkCase, number: int) -> CaseVerdict:
    from engine.run.cases.compare import compare
    from engine.run.cases.play import CaseError, play

    begun = perf_counter()
    try:
        failures = compare(cases.network, case, play(cases.network, case))
        text = "\n".join(_failure_text(cases, number, failure) for failure in failures)
    except CaseError as error:
        text = f"  {cases.file}:{cases.document.locate(('cases', number)).line}: {error}"
    seconds = perf_counter() - begun
    colour = sys.stdout.isatty()
    word = (
        ("FAILED" if text else "passed")
        if not colour
        else ("\033[31mFAILED\033[0m" if text else "\033[32mpassed\033[0m")
    )
    typer.echo(f"{word} {cases.file}: {case.name}")
    if text:
        typer.echo(text)
    return CaseVerdict(cases.file, case.name, seconds, text)


def _failure_text(cases: Cases, number: int, failure: CaseFailure) -> str:
    line = cases.document.locate(("cases", number, *failure.place)).line
    return "\n".join([f"  {cases.file}:{line}: {failure.message}", *failure.lines])


def _write_junit(path: Path, verdicts: list[CaseVerdict]) -> None:
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites")
    suites: dict[str, list[CaseVerdict]] = {}
    for verdict in verdicts:
        suites.setdefault(verdict.file, []).append(verdict)
    for file, cases in suites.items():
        failures = str(sum(bool(v.text) for v in cases))
        suite = ElementTree.SubElement(root, "testsuite", name=file, tests=str(len(cases)), failures=failures)
        for case in cases:
            seconds = f"{case.seconds:.3f}"
            entry = ElementTree.SubElement(suite, "testcase", classname=file, name=case.name, time=seconds)
            if case.text:
                message = case.text.splitlines()[0].strip()
                ElementTree.SubElement(entry, "failure", message=_legal(message)).text = _legal(case.text)
    try:
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}", param_hint="--junit") from None


def _legal(text: str) -> str:
    """Replace characters that XML cannot hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
