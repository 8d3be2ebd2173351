"""Every fenced block of README.md and docs/ is run or checked, and what cannot be run says why."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.core
import typer.main
import yaml

from catalog.config.document import read_document
from engine.cli import make_app
from engine.run.network_file import read_network
from tests.docs.fences import BARE, DOCUMENTS, ROOT, Fence, fences
from tests.docs.shell import Demo, Shell, running_demo

pytestmark = [
    pytest.mark.xdist_group("docs"),  # they share one demo daemon
    pytest.mark.timeout(900),  # a document has up to a dozen blocks of commands, each with its own limit
]

ALL = [fence for document in DOCUMENTS for fence in fences(document)]
LANGUAGES = {"sh", "text", "yaml", "python", "json"}
MODES = {"run", "file", "exit", "until", "shows", "elsewhere", "norun"}

# What nobody runs, by its reason. A new one must be added here, and thought about.
NOT_RUN = {
    "needs a daemon with users": 1,
    "needs a running daemon": 1,
    "the demo and the tests themselves": 5,  # tests/e2e/test_demo.py starts the demo as make run does
    "benchmarks take minutes": 1,
    "a figure takes minutes": 1,
    "all figures take hours": 1,
    "runs until a signal ends it": 1,
    "needs Spark and a running daemon": 1,
    "needs Spark": 4,
    "installs a package": 2,
    "needs a Docker engine": 1,
    "a signature": 1,
    "an illustration": 1,
    "makes a release": 1,
}
BASE: dict[str, Any] = {
    "streams": {
        "trades": {"schema": {"ts": "timestamp", "symbol": "string", "price": "double", "size": "int"}, "time": "ts"}
    },
    "outputs": {"out": {"from": "trades", "qos": {"deadline": "1s"}}},
}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as demo:
        yield demo


def chosen(language: str, document: str | None = None) -> list[Fence]:
    own = [f for f in ALL if f.language == language and f.mode not in ("norun", "elsewhere", "file")]
    return [f for f in own if document is None or f.document == document]


def test_every_fence_says_what_it_is() -> None:
    assert not [f.place for f in ALL if f.language not in LANGUAGES or f.mode not in MODES]
    bare = [d for d in DOCUMENTS if len(BARE.findall((ROOT / d).read_text())) != 2 * len(fences(d))]
    assert not bare, "a fence without a language"
    assert not [f.place for f in ALL if f.mode == "elsewhere" and not (ROOT / f.argument).exists()]


def test_what_is_not_run_is_counted() -> None:
    assert Counter(f.argument for f in ALL if f.mode == "norun") == NOT_RUN


@pytest.mark.parametrize("fence", chosen("yaml"), ids=lambda f: f.place)
def test_a_network_is_valid(fence: Fence) -> None:
    """A block may be a part of a file: streams and outputs that it does not have are filled in."""
    data = read_document(fence.text, fence.place, {}).data
    whole = {**{key: value for key, value in BASE.items() if key not in data}, **data}
    if "streams" not in data and "outputs" in data:
        whole["streams"] = BASE["streams"]
    network = read_network(yaml.safe_dump(whole, sort_keys=False), {})
    if fence.document == "README.md":
        assert not network.warnings


@pytest.mark.parametrize("document", sorted({f.document for f in chosen("sh")}))
def test_the_commands_of_a_document_work(document: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    blocks = [f for f in ALL if f.document == document and f.mode not in ("norun", "elsewhere")]
    needs_demo = any(re.search(r"\b94\d\d\b|aurorad (top|tap|explain)", f.text) for f in blocks if f.language == "sh")
    shell = Shell(tmp_path / "shell", request.getfixturevalue("demo") if needs_demo else None)
    try:
        for fence in blocks:
            if fence.language == "sh":
                shell.run(fence)
            elif fence.mode == "shows":
                shell.shows(fence)
    finally:
        shell.finish()


def test_python_is_run_by_tests_that_know_its_context() -> None:
    assert not [f.place for f in chosen("python")], "say elsewhere: and the test that runs it"


def test_every_command_is_in_the_table() -> None:
    commands = typer.main.get_command(make_app())
    assert isinstance(commands, typer.core.TyperGroup)
    said = (
        (ROOT / "docs/operations.md")
        .read_text(encoding="utf-8")
        .split("| command | what it does |")[1]
        .split("\n\n")[0]
    )
    assert set(re.findall(r"`aurorad (\w+)", said)) == set(commands.commands)


def test_log_lines_are_those_of_the_code() -> None:
    """The words between names and numbers stand in the source."""
    text = (ROOT / "docs/overload.md").read_text(encoding="utf-8").split("| log line | meaning |")[1]
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "load_shedder").rglob("*.py"))
    lines = re.findall(r"(?m)^\| `([^`]+)` \|", text)
    assert lines
    for line in lines:
        for words in re.split(r"[\d.]+%?|\w+->\w+|\btape\b|, (?=[\d])", line):
            assert words.strip(" ,%") in source, f"{line!r}: {words!r}"


LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def anchors(path: Path) -> set[str]:
    heads = re.findall(r"(?m)^#+ (.+)$", path.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("document", [d for d in DOCUMENTS if (ROOT / d).exists()])
def test_links_lead_somewhere(document: str) -> None:
    text = re.sub(r"(?ms)^```.*?^```$", "", (ROOT / document).read_text(encoding="utf-8"))
    for match in LINK.finditer(text):
        target, _, anchor = (match[1] or match[2]).partition("#")
        if "://" in target:
            continue
        path = (ROOT / document).parent / target if target else ROOT / document
        assert path.exists(), f"{document}: {target}"
        assert not anchor or anchor in anchors(path), f"{document}: {target}#{anchor}"


PLACE = re.compile(
    r"`((?:catalog|storage|scheduler|router|qos_monitor|load_shedder|engine|tests|configs|docs)/[\w./-]*)`"
)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_files_that_a_document_names_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    own = {fence.argument for fence in ALL if fence.mode == "file"}  # the examples of CONTRIBUTING.md
    named = set(PLACE.findall(text)) - own
    assert not sorted(name for name in named if not ((ROOT / name).exists() or (ROOT / f"{name}.py").exists()))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
