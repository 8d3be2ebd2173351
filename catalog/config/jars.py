"""Find out, without a JVM, whether Spark has the jar of a format.

A format that it does not have fails when Spark starts to read, after half a minute and with a Java error. So
``validate`` says it, with the package that has the jar. Nothing here imports pyspark, which would take a second.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

JARS = {
    "kafka": ("spark-sql-kafka", "org.apache.spark:spark-sql-kafka-0-10_2.13:{version}"),
    "delta": ("delta-spark", "io.delta:delta-spark_2.13:4.0.0"),
    "iceberg": ("iceberg-spark", "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"),
    "avro": ("spark-avro", "org.apache.spark:spark-avro_2.13:{version}"),
}
"""By format: a part of the name of its jar, and the package that has it."""

GIVEN = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")


def missing_jar(format: str, config: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return message and hint when Spark will not find a format; None when it will."""
    if has_jar(format, config):
        return None
    package = JARS[format][1].format(version=_version())
    hint = f"spark: {{config: {{spark.jars.packages: '{package}'}}}}"
    return f"this Spark has no {format}: its jar is missing", hint


def has_jar(format: str, config: Mapping[str, Any]) -> bool:
    """Tell whether Spark will find a format. A format that is not in the list is Spark's own, or not ours to judge."""
    if format not in JARS:
        return True
    part = JARS[format][0]
    if any(part in str(config.get(key, "")) for key in GIVEN):
        return True
    home = _spark_home()
    return home is None or any(part in jar.name for jar in (home / "jars").glob("*.jar"))


def _spark_home() -> Path | None:
    """Return the folder of the Spark that pyspark starts; None without pyspark: the start says so."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    found = find_spec("pyspark")
    return None if found is None or found.origin is None else Path(found.origin).parent


def _version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "4.3.0"
