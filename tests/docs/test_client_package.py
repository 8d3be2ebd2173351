"""The Python client as a package: it builds without a network, and the result is whole. `make check` has its types."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from aurorad_client import __all__ as exported
from aurorad_client import __version__

from tests.docs.fences import ROOT

BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, f'build_{sys.argv[1]}')(sys.argv[2]))"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the project: a build writes beside its source."""
    return shutil.copytree(
        ROOT / "clients/python", tmp_path_factory.mktemp("client") / "project",
        ignore=shutil.ignore_patterns("*.egg-info", "build", "dist", "__pycache__"),
    )  # fmt: skip


def built(project: Path, kind: str) -> Path:
    run = subprocess.run(
        [sys.executable, "-c", BUILD, kind, "dist"], cwd=project, capture_output=True, text=True, check=True
    )
    return project / "dist" / run.stdout.splitlines()[-1]


def test_the_wheel_is_whole_and_says_that_it_is_typed(project: Path, tmp_path: Path) -> None:
    wheel = built(project, "wheel")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [metadata] = [n for n in names if n.endswith(".dist-info/METADATA")]
        said = Parser().parsestr(archive.read(metadata).decode())
        archive.extractall(tmp_path)
    assert "aurorad_client/py.typed" in names and any(n.endswith("licenses/LICENSE") for n in names)
    assert {n for n in names if n.endswith(".py")} == {
        f"aurorad_client/{path.name}" for path in (ROOT / "clients/python/aurorad_client").glob("*.py")
    }
    assert (said["Name"], said["Version"]) == ("aurorad-client", __version__)
    assert [r for r in said.get_all("Requires-Dist") or [] if "extra ==" not in r] == []
    # The wheel alone: no checkout, no site-packages, so nothing but the standard library.
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from aurorad_client import {', '.join(exported)}"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, cwd=tmp_path)


def test_the_sdist_has_what_a_build_needs(project: Path) -> None:
    with tarfile.open(built(project, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "aurorad_client/py.typed", "aurorad_client/version.py"} <= names


def test_the_license_is_that_of_the_daemon() -> None:
    assert (ROOT / "clients/python/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
