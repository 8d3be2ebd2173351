"""One batch after another: run the stages, make the result durable, then commit it to the sinks.

What is on disk, below the checkpoint:

``spark/``
    Spark's own: which files or offsets belong to which batch.
``query.json``, ``owner``
    See ``checkpoint``.
``batches/<number>/``
    ``state/`` and ``out/`` have what the tasks of the batch have written, ``manifest.json`` says which of these files
    count, and where event time stands.

A batch takes three steps. (1) The tasks write their files. (2) The manifest appears by one rename: now the batch has
happened. (3) Each output is committed to its sink under the name of the query and the batch, which takes effect once.
Then Spark notes the batch as done. A driver that dies before (2) runs the batch again, from the state of the batch
before. One that dies after (2) finds the manifest, runs nothing, and repeats (3). So the answers do not depend on
whether a repeated run would give the same ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from catalog.network import Network, PortRef
from engine.on_spark.checkpoint import END, BatchLog, Manifest
from engine.on_spark.front import CLOCK, Front
from engine.on_spark.plan import SparkPlan
from engine.on_spark.shard import COUNTS, ShardRun
from engine.on_spark.shard_state import ShardFiles
from engine.on_spark.stage_spec import build_stage, stage_texts
from engine.on_spark.stage_task import BatchJob, front_task, next_task, reports_of
from engine.on_spark.store import CheckpointStore
from router.event_time import END_OF_TIME, EventTime
from router.spark.driver import commits
from router.spark.driver.work import arrow_messages
from router.spark.wire.pipe import fields_of
from storage.train import NO_WATERMARK, Train

log = logging.getLogger("aurorad.on_spark")

BATCH_ROWS = 65_536
KEPT = 2  # batches whose files stay


@dataclass(frozen=True)
class BatchReport:
    """What one batch did."""

    name: str
    rows: dict[str, int]  # by stream
    refused: dict[str, int]
    results: dict[str, int]  # by output
    late: dict[str, int]  # by box
    dead: dict[str, int]
    seconds: float
    state_bytes: int


class BatchRunner:
    """Called by Spark for each batch, one at a time."""

    def __init__(
        self, session: Any, plan: SparkPlan, store: CheckpointStore, query: str, shards: int, now_ns: Callable[[], int]
    ) -> None:
        self._session = session
        self._plan = plan
        self._network: Network = plan.network
        self._store = store
        self._query = query
        self._shards = shards
        self._now_ns = now_ns
        self._front = Front(plan, shards)
        self._texts = stage_texts(plan, shards)
        self._streams = _streams_by_lane(plan)
        self._started_ns = now_ns()
        self.log = BatchLog(store)
        self.failure: Exception | None = None
        self.reports: list[BatchReport] = []

    def __call__(self, frame: Any, number: int) -> None:
        """Run one batch. Spark calls this; it would wrap an error three times."""
        try:
            self._take(f"{number:012d}", frame)
        except Exception as error:
            self.failure = error
            raise

    def end(self) -> None:
        """Close all windows: the sources are at their end, and nothing more will come in this run."""
        last = self.log.last()
        if last is not None and not last["ended"] and any(stage.boxes for stage in self._plan.stages):
            self._take(f"{last['name']}{END}", None)

    def _take(self, name: str, frame: Any) -> None:
        begun = time.monotonic()
        folder = f"batches/{name}"
        manifest = self.log.find(name)
        if manifest is not None:
            log.info("batch %s has been computed before: only its commits are repeated", name)
        else:
            before = self.log.before(name)
            self._store.delete(folder)  # what an attempt has left that was cut off
            manifest = self._compute(name, folder, before, frame)
            written = [file for state in manifest["states"].values() for file in ShardFiles.of(state).files[-1:]]
            written += [place for files in manifest["results"].values() for place, _ in files]
            self._store.sync(written)
            self.log.record(name, manifest)
        for output, files in manifest["results"].items():
            self._commit(int(output), name, files)
        self._tidy(name, manifest)
        self._report(manifest, time.monotonic() - begun)

    # -- one batch -----------------------------------------------------------------------------------------------------

    def _compute(self, name: str, folder: str, before: Manifest | None, frame: Any) -> Manifest:
        if before is not None and before["ended"]:
            log.info("the run before has closed all windows: the streams begin anew, as the daemon's do")
            before = None
        now_ns = self._now_ns()
        clocks = self._clocks(before)
        ends = frame is None
        lanes_ns = [END_OF_TIME if ends else _lowest(clocks, streams) for streams in self._streams]
        states = {} if before is None else before["states"]
        job = BatchJob(self._store.place, folder, now_ns, self._all_lanes_ns(lanes_ns), states)
        reports, noted = self._run(job, frame)
        manifest = _manifest(name, reports)
        manifest["streams"] = self._note(clocks, noted, now_ns)
        manifest["clocks"] = [None if clock is None else clock.snapshot() for clock in clocks.clocks]
        manifest["signs_ns"] = self._signs_ns(before, manifest["streams"], now_ns)
        manifest["ended"] = ends
        return manifest

    def _clocks(self, before: Manifest | None) -> EventTime:
        clocks = EventTime(self._network, self._now_ns)
        if before is None:
            return clocks
        for clock, saved, sign_ns in zip(clocks.clocks, before["clocks"], before["signs_ns"], strict=True):
            if clock is not None and saved is not None:
                clock.restore(saved)
                clock.count_silence_from(max(sign_ns, self._started_ns))
        return clocks

    def _signs_ns(self, before: Manifest | None, counts: list[list[int]], now_ns: int) -> list[int]:
        """Return when each stream had its last sound tuple: ``idle`` counts from there."""
        known = before["signs_ns"] if before is not None else [self._started_ns] * len(counts)
        return [now_ns if rows > refused else sign for (rows, refused), sign in zip(counts, known, strict=True)]

    def _all_lanes_ns(self, lanes_ns: list[int]) -> tuple[tuple[int, ...], ...]:
        """Return the watermarks of the lanes, by stage, as far as they follow from the streams alone."""
        known = [tuple(lanes_ns)]
        first = build_stage(self._texts[0])
        if not first.has_state:
            run = ShardRun(first, lambda *_: None, lambda *_: None)
            run.advance(lanes_ns)
            known.append(tuple(run.watermarks(lanes_ns)))
        return tuple(known)

    def _run(self, job: BatchJob, frame: Any) -> tuple[list[dict[str, Any]], Any]:
        """Run all stages in one job of Spark. Return the reports of the shards, and what Spark has noted."""
        if frame is None:
            rows, schema = None, b""
            messages = self._session.sparkContext.parallelize([], self._shards)
        else:
            rows = self._front.rows(frame, job.now_ns)
            schema, messages = arrow_messages(rows, BATCH_ROWS)
        pieces = messages.mapPartitionsWithIndex(front_task(self._texts[0], job, schema))
        has_state = self._plan.stages[0].is_sharded
        for text in self._texts[1:]:
            task = next_task(text, job, self._shards if has_state else 0)
            pieces = pieces.partitionBy(self._shards, int).mapPartitionsWithIndex(task)
            has_state = True
        found = reports_of(pieces.collect())
        reports = {(report["stage"], report["shard"]): report for report in found}
        if rows is None:
            return list(reports.values()), None
        return list(reports.values()), rows._jdf.queryExecution().observedMetrics().apply(CLOCK)

    def _note(self, clocks: EventTime, noted: Any, now_ns: int) -> list[list[int]]:
        """Let the clocks of the streams take what the batch has brought. Return rows and refused rows by stream."""
        counts = []
        for stream, clock in zip(self._network.streams, clocks.clocks, strict=True):
            at = 3 * stream.number
            rows, good, newest_us = (0, 0, None) if noted is None else (noted.get(at + i) for i in range(3))
            counts.append([int(rows or 0), int(rows or 0) - int(good or 0)])
            if clock is None:
                continue
            newest_ns = now_ns if stream.time_field is None and good else None
            if newest_us is not None:
                newest_ns = int(newest_us) * 1_000
            watermark_ns = None if newest_ns is None else clock.heartbeat(newest_ns, now_ns)
            if watermark_ns is None:
                watermark_ns = clock.idle_watermark(now_ns)
            if watermark_ns is not None:
                clock.stamp(Train.empty(stream.schema, watermark_ns), now_ns)
        return counts

    # -- after it ------------------------------------------------------------------------------------------------------

    def _commit(self, number: int, name: str, files: list[list[Any]]) -> None:
        output = self._network.outputs[number]
        batch, _, end = name.partition("-")
        sink = {
            **output.sink.model_dump(exclude={"every_ns", "buffer_bytes"}),
            "output": output.name,
            "epoch": self._query,
            "number": 2 * int(batch) + bool(end),
        }
        commits.commit(
            self._session,
            {
                "sink": sink,
                "commit": f"{self._query}-{name}",
                "rows": sum(rows for _, rows in files),
                "fields": fields_of(output.schema),
                "parquet": [self._store.address(place) for place, _ in files],
            },
        )

    def _tidy(self, name: str, manifest: Manifest) -> None:
        """Remove the files of batches that nothing can go back to: not those with a part of the state."""
        used = {file.split("/")[1] for state in manifest["states"].values() for file in ShardFiles.of(state).files}
        done = [found for found in self._store.names("batches") if found <= name]
        for found in done[:-KEPT]:
            if found not in used:
                self._store.delete(f"batches/{found}")

    def _report(self, manifest: Manifest, seconds: float) -> None:
        streams = [stream.name for stream in self._network.streams]
        results = {
            self._network.outputs[int(number)].name: sum(rows for _, rows in files)
            for number, files in manifest["results"].items()
        }
        late, dead = COUNTS.index("late"), COUNTS.index("dead")
        report = BatchReport(
            manifest["name"],
            {n: rows for n, (rows, _) in zip(streams, manifest["streams"], strict=True)},
            {n: refused for n, (_, refused) in zip(streams, manifest["streams"], strict=True) if refused},
            results,
            {box: counts[late] for box, counts in manifest["counts"].items() if counts[late]},
            {box: counts[dead] for box, counts in manifest["counts"].items() if counts[dead]},
            seconds,
            manifest["state_bytes"],
        )
        self.reports.append(report)
        log.info("%s", _told(report))


def _told(report: BatchReport) -> str:
    def listed(word: str, counts: dict[str, int]) -> list[str]:
        return [f"{count:,} {word} {name}" for name, count in counts.items()]

    parts = [
        *listed("tuples of", report.rows),
        *listed("results of", report.results),
        *listed("refused of", report.refused),
        *listed("late at", report.late),
        *listed("dead at", report.dead),
    ]
    return f"batch {report.name} in {report.seconds:.1f} s: {', '.join(parts)}"


def _manifest(name: str, reports: list[dict[str, Any]]) -> Manifest:
    """Return what the tasks of a batch have done, all together."""
    states = {f"{r['stage']}-{r['shard']}": r["state"] for r in reports if "state" in r}
    results: dict[str, list[list[Any]]] = {}
    counts: dict[str, list[int]] = {}
    for report in sorted(reports, key=lambda r: (r["stage"], r["shard"])):
        for output, place, rows in report["results"]:
            results.setdefault(str(output), []).append([place, rows])
        for box, of_box in report["counts"].items():
            counts[box] = [a + b for a, b in zip(counts.get(box, [0] * len(of_box)), of_box, strict=True)]
    state_bytes = sum(report.get("state_bytes", 0) for report in reports)
    return {"name": name, "states": states, "results": results, "counts": counts, "state_bytes": state_bytes}


def _streams_by_lane(plan: SparkPlan) -> list[set[int]]:
    """Return the streams whose tuples come into each lane of the first stage."""
    network = plan.network

    def streams(source: PortRef) -> set[int]:
        if source.stream is not None:
            return {source.stream}
        assert source.box is not None
        return set().union(*(streams(network.arcs[arc].source) for arc in network.boxes[source.box].in_arcs))

    return [streams(lane.source) for lane in plan.stages[0].lanes]


def _lowest(clocks: EventTime, streams: set[int]) -> int:
    found = [NO_WATERMARK if (clock := clocks.clocks[s]) is None else clock.watermark_ns for s in streams]
    return min(found, default=NO_WATERMARK)
