"""docs/architecture.md against the code: layers, threads and laws."""

from __future__ import annotations

import ast
import re

from qos_monitor.conservation import LAWS
from tests.docs.fences import ROOT
from tests.tidy.source import CODE
from tests.tidy.test_layers import ALLOWED, ENGINE_ALLOWED

TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")


def rows(head: str) -> list[list[str]]:
    """The rows of the table with this first line."""
    lines = TEXT.split(f"{head}\n")[1].split("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_packages_import_what_the_table_says() -> None:
    said = {row[0].strip("`"): row[2] for row in rows("| package | what it is | may import |")}
    assert set(said) == set(ALLOWED)
    for package, may in said.items():
        others = ALLOWED[package] - {package}
        assert set(re.findall(r"`(\w+)`", may)) == others or (may == "all" and package == "engine")


def test_the_folders_of_the_engine_stand_in_their_order() -> None:
    assert [row[0].strip("`") for row in rows("| folder | what it is |")] == [
        f"engine/{name}" for name in ENGINE_ALLOWED
    ]


def thread_name(call: ast.AST) -> str | None:
    """The name of the thread or of the pool that this call makes, up to a part that is computed."""
    assert isinstance(call, ast.Call)
    if ast.unparse(call.func).rpartition(".")[2] not in ("Thread", "ThreadPoolExecutor"):
        return None
    given = [k.value for k in call.keywords if k.arg in ("name", "thread_name_prefix")] or call.args[1:2]
    assert given, f"a thread without a name: {ast.unparse(call)}"
    return ast.unparse(given[0]).removeprefix("f").strip("'\"").partition("{")[0]


def test_every_thread_is_in_the_table() -> None:
    table = " ".join(row[0] for row in rows("| thread | how many | owns |"))
    known = [re.compile(name.replace("*", ".*").replace("-N", "-.*")) for name in re.findall(r"`([\w*-]+)`", table)]
    product = [s for s in CODE if not s.under("engine/lab/", "engine/cli/", "engine/simulate/", "router/spark/driver/")]
    named = {name for s in product for call in s.nodes(ast.Call) if (name := thread_name(call)) is not None}
    assert {"aurorad-io", "aurorad-decode", "worker-"} <= named
    assert not sorted(name for name in named if not any(k.fullmatch(name) for k in known)), "not in the table"
    assert not [k.pattern for k in known if not any(map(k.fullmatch, named))], "no such thread in the code"


def test_every_law_is_in_the_table() -> None:
    said = [row[0] for row in rows("| element | law |")]
    assert all(any(name.startswith(law) for name in said) for law in LAWS)
