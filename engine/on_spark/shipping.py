"""Ship our packages to the executors: one archive that Spark gives to every Python worker.

The packages that ours stand on (numpy, pyarrow, pydantic, sqlglot, orjson, google-re2) must be in the Python of the
executors, as pyspark itself must. ``check_executors`` asks them before the first batch.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from router.spark.wire.errors import SparkUnavailableError

PACKAGES = ("catalog", "storage", "router", "load_shedder", "scheduler", "engine")
ROOT = Path(__file__).resolve().parents[2]


def archive(folder: Path) -> Path:
    """Write the sources of our packages as an archive from which Python imports."""
    path = folder / "aurorad_packages.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for package in PACKAGES:
            for file in sorted((ROOT / package).rglob("*.py")):
                out.write(file, file.relative_to(ROOT).as_posix())
    return path


def check_executors(session: Any, tasks: int) -> None:
    """Let every core import what the stages need. Raises SparkUnavailableError with what is missing there."""

    def missing(_: int) -> list[str]:
        try:
            import engine.on_spark.stage_task  # noqa: F401
        except ImportError as error:
            return [str(error)]
        return []

    found = session.sparkContext.parallelize(range(tasks), tasks).flatMap(missing).collect()
    if found:
        raise SparkUnavailableError(
            f"the Python of the executors lacks what aurorad needs: {found[0]}; install the packages of aurorad there, "
            "or hand over an environment with spark.archives"
        )
