"""A checkpoint of a network on Spark that has lost files, belongs to another query, or has two drivers: refused, and
told what is wrong. Without a JVM."""

from __future__ import annotations

import shutil
from ast import literal_eval
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.on_spark import kept
from engine.on_spark.checkpoint import BatchLog, SparkQuery
from engine.on_spark.kept import KEPT
from engine.on_spark.plan import make_plan
from engine.on_spark.store import CheckpointStore, SparkCheckpointError
from engine.run.network_file import read_network
from storage.train import Train
from tests.property.on_spark_local import NOW_NS, LocalBatches

NETWORK = """
streams:
  a: {schema: {ts: timestamp, k: string}, time: ts, idle: 5s, source: {spark: parquet, path: in}}
  b: {schema: {ts: timestamp, k: string}, time: ts, source: {spark: parquet, path: in}}
boxes:
  u: {union: [a, b]}
  n: {aggregate: u, window: {tumbling: 10s}, by: [k], select: {n: "count(*)"}}
outputs:
  out: {from: n, sink: {spark: parquet, path: out}}
"""


def runner(folder: Path) -> LocalBatches:
    (folder / "spark").mkdir(parents=True, exist_ok=True)
    (folder / "spark/metadata").touch()
    return LocalBatches(read_network(NETWORK, {}), folder, 2, Random(1))


def frame(batches: LocalBatches, stream: int = 0, at_s: int = 0, key: str = "x") -> dict[int, Train]:
    schema = batches._network.streams[stream].schema
    at_ns = 1_700_000_000 * 10**9 + at_s * 10**9
    return {stream: Train.from_pylists(schema, {"ts": [at_ns], "k": [key]}, NOW_NS)}


def lose_a_manifest(folder: Path) -> None:
    (folder / "batches/000000000002/manifest.json").unlink()


def lose_all_batches(folder: Path) -> None:
    shutil.rmtree(folder / "batches")


def damage_a_manifest(folder: Path) -> None:
    file = folder / "batches/000000000002/manifest.json"
    file.write_text(file.read_text().replace('"ended": false', '"ended":  true'))


def cut_a_manifest(folder: Path) -> None:
    file = folder / "batches/000000000002/manifest.json"
    file.write_bytes(file.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("harm", "number", "why"),
    [
        (lose_a_manifest, 3, "Spark comes to batch 3, .* the last one is 1"),
        (lose_all_batches, 3, "Spark comes to batch 3, and of the batches that have happened none"),
        (lambda _: None, 0, "Spark comes to batch 0, .* the last one is 2"),
        (damage_a_manifest, 3, "batches/000000000002/manifest.json is damaged"),
        (cut_a_manifest, 3, "batches/000000000002/manifest.json is damaged"),
    ],
)
def test_a_checkpoint_that_is_not_whole_never_begins_anew(
    harm: Callable[[Path], None], number: int, why: str, tmp_path: Path
) -> None:
    batches = runner(tmp_path)
    for i in range(3):
        batches(frame(batches, at_s=i), i)
    harm(tmp_path)
    if number == 0:  # gone, as old batches go: Spark's part is an older one
        shutil.rmtree(tmp_path / "batches/000000000000", ignore_errors=True)
    with pytest.raises(SparkCheckpointError, match=why):
        batches(frame(batches), number)


def test_batches_without_the_part_of_spark_are_refused(tmp_path: Path) -> None:
    batches = runner(tmp_path)
    batches(frame(batches), 0)
    shutil.rmtree(tmp_path / "spark")
    with pytest.raises(SparkCheckpointError, match="spark/, which says what they have read, is not there"), (
        BatchLog(CheckpointStore(str(tmp_path))).owned()
    ):  # fmt: skip
        pass


def test_two_drivers_on_one_checkpoint(tmp_path: Path) -> None:
    """On one machine the second is refused. Elsewhere it takes over, and the first one stops before it harms."""
    batches = runner(tmp_path)
    batches(frame(batches), 0)
    store = CheckpointStore(str(tmp_path))
    with BatchLog(store).owned():
        with (
            pytest.raises(SparkCheckpointError, match="another driver runs on the checkpoint"),
            BatchLog(store).owned(),
        ):
            pass
        with pytest.raises(SparkCheckpointError, match="another driver has taken over"):
            batches(frame(batches), 1)
    assert not batches.log.find("000000000001")
    with BatchLog(store).owned():
        pass


def query(folder: Path, text: str = NETWORK, shards: int | None = None) -> SparkQuery:
    return SparkQuery(make_plan(read_network(text, {})), CheckpointStore(str(folder)), shards, 2)


def test_a_checkpoint_belongs_to_one_network(tmp_path: Path) -> None:
    first = query(tmp_path)
    assert (query(tmp_path).name, query(tmp_path).shards) == (first.name, first.shards) == (first.name, 2)
    with pytest.raises(SparkCheckpointError, match=r"2 shards, not 3: .*leave --shards out"):
        query(tmp_path, shards=3)
    with pytest.raises(SparkCheckpointError, match=r"another network \(box n differs\)"):
        query(tmp_path, NETWORK.replace("10s", "20s"))
    with pytest.raises(SparkCheckpointError, match="streams, outputs or stages differ"):
        query(tmp_path, NETWORK.replace("{from: n,", "{from: n.late,"))
    file = tmp_path / "query.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(SparkCheckpointError, match=r"query\.json is damaged"):
        query(tmp_path)
    file.write_bytes(whole.replace(b'"format": 2', b'"format": 1'))
    with pytest.raises(SparkCheckpointError, match="another version"):
        query(tmp_path)
    file.unlink()
    (tmp_path / "batches/000000000000").mkdir(parents=True)
    with pytest.raises(SparkCheckpointError, match=r"no query\.json"):
        query(tmp_path)


def test_a_silent_stream_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """``idle`` counts over batches, and from the start of a run."""
    now_ns = NOW_NS
    batches = runner(tmp_path)
    batches._now_ns = lambda: now_ns
    batches._started_ns = now_ns

    def clocks(number: int) -> list[Any]:
        batches({**frame(batches, 1, at_s=number * 60)}, number)
        manifest = batches.log.last()
        assert manifest is not None
        return [clock["watermark_ns"] for clock in manifest["clocks"]]

    batches({**frame(batches, 0), **frame(batches, 1)}, 0)
    begun = clocks(1)
    assert begun[0] == 1_700_000_000 * 10**9
    now_ns += 6 * 10**9
    later = clocks(2)
    assert later[0] > begun[0]
    batches._started_ns = now_ns = now_ns + 3_600 * 10**9  # a restart after an hour
    assert clocks(3)[0] == later[0]


def counts(batches: LocalBatches) -> dict[str, int]:
    """Tuples by key, from the windows that have come out."""
    found: dict[str, int] = {}
    for text, times in batches.rows["out"].items():
        key, *_, n = literal_eval(text)
        found[key] = found.get(key, 0) + n * times
    return found


def test_a_worker_takes_only_the_state_that_the_batch_begins_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that of a batch that failed before its manifest, and not that of another checkpoint."""
    monkeypatch.setattr(Random, "random", lambda _: 0.9)  # the workers stay the same
    first, second = runner(tmp_path / "first"), runner(tmp_path / "second")
    for batches in (first, second):
        batches({**frame(batches, 0, key="x"), **frame(batches, 1, key="y")}, 0)
    before = KEPT.taken
    with monkeypatch.context() as broken:
        broken.setattr(BatchLog, "check_owner", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            second(frame(second, key="x"), 1)
    assert KEPT.taken > before, "the worker that ran the batch before had its state"
    for number in (1, 2):
        second(frame(second, key="x"), number)
        first(frame(first, key="z"), number)
    for batches in (first, second):
        batches.end()
    assert counts(first) == {"x": 1, "y": 1, "z": 2} and counts(second) == {"x": 3, "y": 1}


def test_what_a_worker_keeps_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 10)
    KEPT.clear()
    batches = runner(tmp_path)
    batches(frame(batches), 0)
    assert not KEPT._kept
