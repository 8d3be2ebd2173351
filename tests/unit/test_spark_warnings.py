"""What ``validate`` says of Spark without starting it, and what a rerun knows without it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from catalog.config import jars
from catalog.errors import NetworkError
from engine.on_spark.service import read_for_spark
from engine.run.network_file import read_network
from router.spark.daemon.ledger import JobLedger, JobMemory
from router.spark.daemon.local_files import local_fingerprint
from router.spark.daemon.pipeline import is_live

STREAM = "streams:\n  s: {{schema: {{ts: timestamp, id: int, x: double}}, time: ts, source: {source}}}\n"
OUTPUT = "outputs:\n  out: {{from: s, sink: {sink}}}\n"
PARQUET = "{spark: parquet, path: x}"


def text(source: str = PARQUET, sink: str = PARQUET, head: str = "") -> str:
    return head + STREAM.format(source=source) + OUTPUT.format(sink=sink)


def warnings(source: str = PARQUET, sink: str = PARQUET, head: str = "") -> list[str]:
    return [f"{w.place}: {w.message} ({w.hint})" for w in read_network(text(source, sink, head), {}).warnings]


@pytest.fixture
def bare_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark with one jar of its own."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql_2.13-4.3.0.jar").touch()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("format", ["kafka", "delta", "iceberg", "avro"])
def test_a_missing_jar_is_told_with_its_package(format: str, bare_spark: Path) -> None:
    [told] = warnings(sink=f"{{spark: {format}, path: x}}")
    assert f"outputs.out.sink.spark: this Spark has no {format}" in told and "spark.jars.packages" in told
    package = jars.JARS[format][1].format(version="4.3.0")
    assert not warnings(
        sink=f"{{spark: {format}, path: x}}", head=f"spark: {{config: {{spark.jars.packages: '{package}'}}}}\n"
    )
    (bare_spark / "jars" / f"{jars.JARS[format][0]}_2.13-4.3.0.jar").touch()
    assert not warnings(sink=f"{{spark: {format}, path: x}}")


def test_formats_of_spark_itself_need_no_jar(bare_spark: Path) -> None:
    assert not warnings() and not warnings(sink="{spark: csv, path: x}")


def test_spark_connect_is_refused() -> None:
    with pytest.raises(NetworkError, match="Spark Connect"):
        read_network(text(head="spark: {master: 'sc://host:15002'}\n"), {})


def test_a_table_without_a_mark_is_told() -> None:
    jdbc = "{spark: jdbc, options: {url: 'jdbc:derby:x', dbtable: t}"
    assert any("reads all rows again" in told for told in warnings(source=jdbc + "}"))
    assert not warnings(source=jdbc + ", increasing: id}")
    for wrong, why in (("x", "whole numbers or times"), ("nothing", "no field")):
        with pytest.raises(NetworkError, match=why):
            read_network(text(source=f"{jdbc}, increasing: {wrong}}}"), {})
    assert any("increasing has no effect" in told for told in warnings("{spark: parquet, path: x, increasing: id}"))


def test_a_table_as_a_sink_needs_its_commit_column() -> None:
    jdbc = "{spark: jdbc, options: {url: 'jdbc:derby:x', dbtable: t"
    assert any("writes its rows twice" in told for told in warnings(sink=jdbc + "}}"))
    assert not warnings(sink=jdbc + ", commit_column: c}}")


@pytest.mark.parametrize(
    ("source", "sink", "live"),
    [
        (PARQUET, PARQUET, False),
        (PARQUET, "{file: out.ndjson}", False),
        ("{tcp: '127.0.0.1:9401'}", PARQUET, True),
        (PARQUET, "{tcp: '127.0.0.1:9411'}", True),
    ],
)
def test_spark_yields_only_to_somebody(source: str, sink: str, live: bool) -> None:
    assert is_live(read_network(text(source, sink), {})) == live


def test_a_rerun_knows_its_files_without_spark(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "day=1").mkdir(parents=True)
    (folder / "day=1" / "a.parquet").write_bytes(b"a")
    (folder / "_SUCCESS").touch()
    source = {"spark": "parquet", "path": str(folder), "options": {}, "sql": None}
    first = local_fingerprint(source, [["x", "int", False]])
    assert first and first == local_fingerprint(source, [["x", "int", False]])
    assert first != local_fingerprint(source, [["x", "bigint", False]])
    ledger = JobLedger(tmp_path / "jobs")
    ledger.begin("job", "spark's", 1)
    assert not ledger.has_read("job", first), "it has only begun"
    ledger.done("job", JobMemory(files=first))
    assert ledger.has_read("job", first) and not ledger.has_read("job", "") and not ledger.has_read("other", first)
    os.utime(folder / "day=1" / "a.parquet", (1, 1))
    assert not ledger.has_read("job", local_fingerprint(source, [["x", "int", False]]))
    for elsewhere in ("hdfs://host/in", str(tmp_path / "nothing")):
        assert local_fingerprint({**source, "path": elsewhere}, []) == ""
    assert local_fingerprint({**source, "sql": "select 1"}, []) == ""


def test_the_mark_of_a_table_outlives_its_job(tmp_path: Path) -> None:
    ledger = JobLedger(tmp_path)
    assert ledger.mark("job") == ""
    first = ledger.begin("job", "above nothing", 1)
    assert ledger.begin("job", "above nothing", 2).epoch == first.epoch, "it goes on after a crash"
    ledger.done("job", JobMemory(mark="100", grows=True))
    assert ledger.mark("job") == "100"
    again = ledger.begin("job", "above 100", 3)
    assert not again.is_done and again.epoch > first.epoch
    ledger.done("job", JobMemory(mark="100", grows=True))
    assert not ledger.begin("job", "above 100", 4).is_done, "new rows may be there without a sign"
    assert ledger.mark("job") == "100"


TCP = "{tcp: '127.0.0.1:9401'}"


@pytest.mark.parametrize(
    ("source", "sink", "boxes", "why"),
    [
        (TCP, PARQUET, "", "does not listen for senders"),
        ("{spark: jdbc, options: {a: b}}", PARQUET, "", "reads jdbc once"),
        ("{spark: parquet, path: x, sql: 'select 1'}", PARQUET, "", "sql needs all rows"),
        (PARQUET, "{tcp: '127.0.0.1:9411'}", "", "writes files and tables"),
        (PARQUET, PARQUET, "b: {universal: s}", "universal boxes run in the daemon only"),
        (PARQUET, PARQUET, "b: {dedup: s, by: [id], within: 1s}", "order: seq"),
        (PARQUET, PARQUET, "b: {aggregate: s, window: {count: 3}, by: [id], select: {n: 'sum(x)'}}", "order: seq"),
        (
            PARQUET,
            PARQUET,
            "b: {aggregate: s, window: {tumbling: 1s}, select: {n: 'first(x)'}}",
            "first goes by arrival",
        ),
    ],
)
def test_what_cannot_run_on_spark_is_refused_with_a_hint(source: str, sink: str, boxes: str, why: str) -> None:
    whole = STREAM.format(source=source) + (f"boxes:\n  {boxes}\n" if boxes else "")
    whole += f"outputs:\n  out: {{from: {'b' if boxes else 's'}, sink: {sink}}}\n"
    with pytest.raises(NetworkError) as found:
        read_for_spark(whole)
    told = " ".join(f"{p.message} {p.hint}" for p in found.value.problems)
    assert why in told and all(p.line for p in found.value.problems)


def test_validate_says_box_by_box_how_it_runs() -> None:
    plan, told = read_for_spark(
        STREAM.format(source=PARQUET).replace("time: ts", "time: ts, order: id, overload: shed")
        + """
boxes:
  big: {filter: s, where: "x > 1.5"}
  odd: {map: big, add: {y: "id + 1"}}
  bars: {aggregate: odd, window: {tumbling: 10s}, by: [id], select: {n: "count(*)"}}
  once: {dedup: s, by: [id], within: 1s}
  all: {aggregate: bars, window: {tumbling: 10s}, select: {n: "sum(n)"}}
outputs:
  out: {from: all, sink: {spark: parquet, path: x}}
  two: {from: once}
"""
    )
    assert [f"{p.node.name}: {p.describe()}" for p in plan.placed] == [
        "big: Spark SQL, the same text",
        "odd: our kernel, stage 0 (integers that overflow are NULL here and wrap there)",
        "bars: our kernel, stage 1, shards by id",
        "once: our kernel, stage 1, shards by id",
        "all: our kernel, stage 2, one shard for all",
    ]
    shown = " ".join(p.message for p in told)
    assert "no key" in shown and "nothing is shed there" in shown and "nobody reads it" in shown
