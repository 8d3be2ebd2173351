"""What a query on Spark says when it fails, and how its end leaves no thread behind. Without a JVM."""

from __future__ import annotations

import py_compile
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest

from engine.on_spark import service, shipping, stage_task

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "pyspark/worker.py", line 4327, in invoke_udf
    run_process()
{error}

"""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        ("engine.on_spark.store.SparkCheckpointError: /c/batches/1/state/1-0 is damaged", "/c/batches/1/state/1-0 is"),
        ("engine.on_spark.Other.BrokenError: it broke", "BrokenError: it broke"),
    ],
)
def test_an_error_of_an_executor_is_told_without_its_traceback(error: str, told: str) -> None:
    text = str(service.why(RuntimeError(WORKER.format(error=error))))
    assert text.startswith(told) and "\n" not in text


class HungSession:
    """A JVM that does not answer."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.released = threading.Event()

    def stop(self) -> None:
        self.asked.set()
        self.released.wait()


def test_a_jvm_that_does_not_answer_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "STOP_SECONDS", 0.2)
    jvm, session = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]), HungSession()
    begun = time.monotonic()
    service.end_spark(session, jvm)
    assert session.asked.is_set() and jvm.returncode is not None and time.monotonic() - begun < 60
    session.released.set()


def test_the_session_is_stopped_before_its_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else pyspark's thread for accumulators ends with an EOFError and its traceback."""
    jvm = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    seen: list[int | None] = []

    class Session:
        def stop(self) -> None:
            seen.append(jvm.poll())

    service.end_spark(Session(), jvm)
    assert seen == [None] and jvm.returncode is not None


def test_the_archive_has_what_a_stage_imports_compiled(tmp_path: Path) -> None:
    """Python imports it from there alone, takes what is compiled, and takes the source where the version differs."""
    py_compile.compile(stage_task.__file__)  # as Python does when the driver imports it, unless a setting forbids it
    path = shipping.archive(tmp_path)
    names = set(zipfile.ZipFile(path).namelist())
    assert "engine/on_spark/stage_task.pyc" in names and "pyspark_aurorad/wire.py" in names
    assert not any(name.startswith("engine/lab/") for name in names)
    with zipfile.ZipFile(path) as whole, zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        for name in names:
            data = whole.read(name)
            other.writestr(name, b"\0\0\0\0" + data[4:] if name.endswith(".pyc") else data)
    for archive, is_compiled in ((path, True), (tmp_path / "other.zip", False)):
        code = (
            "import sys; sys.path[:] = [sys.argv[1]] + [p for p in sys.path if p]\n"
            "sys.meta_path = [f for f in sys.meta_path if 'Editable' not in repr(f)]\n"
            "import engine.on_spark.stage_task as s; print(s.__file__)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, archive], cwd="/", capture_output=True, text=True, check=True
        )
        assert done.stdout.startswith(str(archive)), done.stdout
        assert (done.stdout.strip().endswith("stage_task.pyc")) == is_compiled
