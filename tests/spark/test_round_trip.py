"""Parquet through the network to Parquet, counts and sums equal to DuckDB's; the long version is ``long.py``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from router.spark.daemon.host import SparkHost
from tests.spark.data import write_parquet
from tests.spark.long import round_trip

pytest.importorskip("pyspark")


@pytest.mark.parametrize("flaky", [False, True])
def test_there_and_back_again(host: SparkHost, tmp_path: Path, flaky: bool) -> None:
    folder = write_parquet(tmp_path / "in", 3, 150_000)
    trip = round_trip(host, folder, tmp_path / "out", np.random.default_rng(5) if flaky else None)
    assert trip.differences == []
    assert trip.cut >= 2 if flaky else trip.cut == 0
