"""A network beside modules that have the names of our packages: every way to start the daemon works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import aurorad
from tests.e2e.daemon import connect, free_ports, lines, running, send

NETWORK = """
streams:
  t: {{schema: {{a: bigint}}, source: {{tcp: 127.0.0.1:{source}}}, overload: block}}
boxes:
  stored: {{python: t, call: "storage:score", schema: {{a: bigint}}}}
  scored: {{python: stored, call: "models:score", schema: {{a: bigint}}}}
outputs:
  o: {{from: scored, sink: {{tcp: 127.0.0.1:{sink}}}}}
"""
SCRIPT = str(Path(sys.executable).with_name("aurorad"))
FORMS = {
    "script": [SCRIPT],
    "module": [sys.executable, "-m", "aurorad"],
    "file": [sys.executable, str(Path(aurorad.__file__))],
}


def furnish(folder: Path) -> None:
    """Write modules with the names of all our packages, and of one that Python needs, which fail where imported."""
    for name in (*aurorad.PACKAGES, "queue"):
        (folder / f"{name}.py").write_text("raise RuntimeError('a module of the user, in the place of another')\n")
    (folder / "storage.py").write_text("def score(columns):\n    return {'a': columns['a'] * 2}\n")
    (folder / "scheduler.py").write_text("ONE = 1\n")
    (folder / "models.py").write_text("import scheduler\ndef score(c):\n    return {'a': c['a'] + scheduler.ONE}\n")


def test_a_daemon_in_a_folder_of_such_modules_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)  # `python -m` puts the current folder first on the path
    http, source, sink = free_ports(3)
    with running(tmp_path, NETWORK.format(source=source, sink=sink), http) as daemon, connect(sink) as reader:
        send(source, b"".join(b'{"a":%d}\n' % n for n in range(3)))
        assert lines(reader, 3) == [{"a": 1}, {"a": 3}, {"a": 5}]
        assert daemon.end() == 0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", [None, "."])
def test_every_form_of_the_command_finds_our_packages(tmp_path: Path, form: str, path: str | None) -> None:
    furnish(tmp_path)
    if path is not None:
        (tmp_path / "queue.py").unlink()  # a folder of PYTHONPATH is before Python's own modules in any program
    (tmp_path / "net.yaml").write_text(NETWORK.format(source=0, sink=0))
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment |= {} if path is None else {"PYTHONPATH": path}
    done = subprocess.run(
        [*FORMS[form], "validate", "net.yaml"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_an_error_in_a_users_module_is_shown_with_its_place(tmp_path: Path) -> None:
    furnish(tmp_path)
    (tmp_path / "models.py").write_text("import scheduler\n\nBEST = scheduler.TWO\n")
    (tmp_path / "net.yaml").write_text(NETWORK.format(source=0, sink=0))
    done = subprocess.run([SCRIPT, "validate", "net.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 78
    said = " ".join((done.stdout + done.stderr).split())
    assert "cannot be imported at models.py:3: AttributeError" in said and "Traceback" not in said, json.dumps(said)
