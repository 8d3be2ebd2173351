"""How aurorad is shipped: properties of the image, the unit and the project file that must not be lost by accident."""

from __future__ import annotations

import os
import re
import tomllib

import pytest

import aurorad
from tests.tidy.source import PACKAGES, ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text()
UNIT = (ROOT / "configs/aurorad.service").read_text()


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, continuation lines joined; comments left out."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", DOCKERFILE))
    found: dict[str, list[str]] = {}
    current = ""
    for line in filter(None, map(str.strip, joined.splitlines())):
        if match := re.fullmatch(r"FROM (\S+) AS (\S+)", line):
            current = match[2]
            found[current] = [] if match[1] not in found else list(found[match[1]])
        elif current:
            found[current].append(line)
    return found


def copied(stage: str) -> str:
    return " ".join(line for line in stages()[stage] if line.startswith("COPY"))


@pytest.mark.parametrize("stage", ["slim", "full"])
def test_an_image_is_not_root_and_says_how_it_is(stage: str) -> None:
    lines = stages()[stage]
    assert lines[-1] == "USER 10001:10001", "nothing may run as root after the last instruction"
    [health] = [line for line in lines if line.startswith("HEALTHCHECK")]
    assert "python" in health
    assert "AURORAD_HEALTH_URL" in health
    assert "curl" not in health
    assert [line for line in lines if line.startswith("VOLUME")] == ["VOLUME /var/lib/aurorad"]
    assert "STOPSIGNAL SIGTERM" in lines
    assert 'ENTRYPOINT ["aurorad"]' in lines, "exec form: a shell would not pass SIGTERM on"
    assert "--from=build" in copied(stage), "only the finished environment, not what built it"


def test_only_the_full_image_has_a_jvm() -> None:
    spark = "requirements-spark.lock"
    assert spark in " ".join(stages()["build-full"])
    assert spark not in " ".join(stages()["build"] + stages()["slim"])
    assert "--from=build-full" in copied("full")
    assert "--from=build-full" not in copied("slim")
    assert list(stages())[-1] == "slim", "the default target is the small one"


def test_images_are_built_from_the_locks_and_name_no_registry() -> None:
    installs = [line for lines in stages().values() for line in lines if "pip install" in line]
    assert all("--require-hashes" in line or "--no-deps" in line for line in installs)
    assert re.findall(r"(?m)^FROM (\S+)", DOCKERFILE)[0] == "${PYTHON_IMAGE}"
    assert re.search(r"(?m)^ARG PYTHON_IMAGE=python:3\.11-slim@sha256:[0-9a-f]{64}$", DOCKERFILE), "pinned by digest"
    assert not re.search(r"(?m)^FROM \S*[.]\S*/", DOCKERFILE)


def test_every_package_is_in_the_image_and_in_the_wheel() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    include = project["tool"]["setuptools"]["packages"]["find"]["include"]
    for package in PACKAGES:
        assert f"COPY {package} {package}" in copied("build")
        assert f"!{package}" in ignored
        assert f"{package}*" in include
    assert project["project"]["scripts"] == {"aurorad": "aurorad:main"}
    assert project["tool"]["setuptools"]["py-modules"] == ["aurorad"]
    assert "aurorad.py" in copied("build") and "!aurorad.py" in ignored
    assert set(aurorad.PACKAGES) == {*PACKAGES, "configs"}
    assert "configs*" in include, "the demo's network is shipped as data"


@pytest.mark.parametrize(
    "setting",
    [
        "DynamicUser=yes", "ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "PrivateDevices=yes",
        "NoNewPrivileges=yes", "CapabilityBoundingSet=", "StateDirectory=aurorad", "SystemCallFilter=@system-service",
        "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX", "KillMode=mixed", "TimeoutStopSec=25",
        "Restart=on-failure", "RestartPreventExitStatus=78", "ExecReload=/bin/kill -HUP $MAINPID",
    ],
)  # fmt: skip
def test_the_service_is_hardened_and_stops_as_the_daemon_does(setting: str) -> None:
    assert setting in UNIT.splitlines()


def test_ci_runs_what_everyone_runs() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert text.startswith("#!/usr/bin/env bash")
    assert "set -eu" in text
    assert "make test" in text
