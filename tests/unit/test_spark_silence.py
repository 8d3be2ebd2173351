"""A peer of the Spark port that says nothing, and formats without their jar on Spark: told early, with what to do."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from catalog.config.jars import JARS
from catalog.errors import NetworkError
from engine.on_spark.service import read_for_spark
from router.spark.daemon.remote import RemoteTarget
from router.spark.wire import aurorad_wire
from router.spark.wire.errors import SparkRefusedError

NETWORK = """
streams:
  trades: {{schema: {{id: bigint}}, source: {source}}}
outputs:
  out: {{from: trades, sink: {sink}}}
"""
FILES = "{spark: parquet, path: ./in}"


def test_a_peer_that_accepts_and_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aurorad_wire, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        begun = time.monotonic()
        with (
            aurorad_wire.Connection(address) as connection,
            pytest.raises(TimeoutError, match="no aurorad has answered"),
        ):
            connection.ask("describe", output="out")
        assert time.monotonic() - begun < 60
        with pytest.raises(SparkRefusedError, match="no aurorad answers at"):
            RemoteTarget(address, "", "job", "trades", "as_fast").begin("", 0, 0)


@pytest.mark.parametrize("format", ["kafka", "delta", "iceberg"])
def test_a_format_without_its_jar_is_refused_before_spark_starts(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jars").mkdir()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    file = tmp_path / "network.yaml"
    end = f"{{spark: {format}, options: {{a: b}}}}"
    ends = {"source": end, "sink": FILES} if format == "kafka" else {"source": FILES, "sink": end}
    file.write_text(NETWORK.format(**ends))
    with pytest.raises(NetworkError, match=f"this Spark has no {format}") as refused:
        read_for_spark(file)
    assert "spark.jars.packages" in refused.value.problems[0].hint
    (tmp_path / "jars" / f"{JARS[format][0]}_2.13-1.jar").touch()
    read_for_spark(file)


def test_spark_connect_is_refused_with_what_to_name_instead(tmp_path: Path) -> None:
    file = tmp_path / "network.yaml"
    file.write_text(NETWORK.format(source=FILES, sink=FILES))
    with pytest.raises(NetworkError, match=r"Spark Connect \(sc://\) is not supported: name the master itself"):
        read_for_spark(file, master="sc://host:15002")
