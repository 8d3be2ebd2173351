"""A folder that is watched: new files are taken as they come, each once.

    look -> Spark stages the files of a round -> the round is decided on disk -> its rows enter -> the round is done

- ``look.py`` decides which files are ready. A daemon without new files starts no Spark.
- Spark stages all files of a round before a row of them enters (``driver/taking.py``). A file that cannot be read to
  its end is set aside with its reason, and none of its rows enter. It is tried again when it changes, and at the next
  start.
- A file that has changed while Spark read it does not belong to the round: then the round is staged again without it.
- ``rounds.py`` remembers what was taken. A crash before the decision forgets the round, and its files are found again.
  A crash after it goes on with the staged rows; the log knows which of them it has.
- Trouble that is not that of a file (a full disk, a JVM that dies) is waited out. When Spark fails and names no file,
  the next rounds are half as large, until one file is left: that one is set aside.

With ``--once`` the source ends when a look finds nothing that is ready or that may still grow.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path
from threading import Event, Thread
from typing import Any

from catalog.config.models import SparkSource
from catalog.network import Network, Stream
from catalog.readings import BulkReading, WatchReading
from router.access.spark_door import SparkDoor
from router.spark.daemon.host import SparkHost
from router.spark.daemon.intake import StreamIntake
from router.spark.daemon.jobs import BulkJob, StagedJob, StagedRows, batch_limit
from router.spark.daemon.local_files import files_of, local_paths
from router.spark.daemon.look import Clocks, FileSign, Look, SeenFile, look
from router.spark.daemon.port import SparkPort
from router.spark.daemon.rounds import RoundBook, StagedRound
from router.spark.daemon.source_job import SourceTarget, SourceWatcher, as_request
from router.spark.wire.errors import SparkError, SparkFailedError, SparkLostError, SparkRefusedError

log = logging.getLogger("aurorad.spark")

FILES_IN_ROUND = 10_000
BYTES_IN_ROUND = 8 * 1024**3
LONGEST_PAUSE_SECONDS = 30.0
NAMED = 5  # files in one line of the log
CHANGED = "it has changed since it was taken: its new rows are not read; put them into a new file"


class WatchedSource:
    """``thread`` looks and reads; ``stop`` may be called from any thread. ``folder``: of the daemon, for its book."""

    def __init__(
        self,
        network: Network,
        stream: Stream,
        source: SparkSource,
        host: SparkHost,
        port: SparkPort,
        intake: StreamIntake,
        watcher: SourceWatcher,
        *,
        door: SparkDoor,
        staging: str,
        folder: Path | None,
        ends: bool,
    ) -> None:
        assert source.watch_ns is not None
        self.stream = stream
        self.error = ""
        self.is_ended = False
        self._host = host
        self._watcher = watcher
        self._watch_ns = source.watch_ns
        self._ends = ends
        self._name = f"source-{stream.name}"
        self._request = as_request(network, stream, source)
        self._paths = local_paths(source.path) or []
        self._staging = staging
        self._folder = folder
        self._book = RoundBook(None)
        self._target = SourceTarget(stream, self._name, source.pace, port, intake, door, in_rounds=True)
        self._batch_limit = batch_limit(network)
        self._limit = FILES_IN_ROUND
        self._seen: dict[str, SeenFile] = {}
        self._aside: dict[str, FileSign] = {}
        self._told: dict[str, FileSign] = {}  # files that have changed since they were taken
        self._counts = WatchReading()
        self._trouble = ""
        self._stopped = Event()
        self._job: BulkJob | None = None
        self.thread = Thread(target=self._run, name=f"aurorad-bulk-{stream.name}", daemon=True)

    def stop(self) -> None:
        self._stopped.set()
        if (job := self._job) is not None:
            job.stop()

    def reading(self) -> BulkReading:
        """Return the reading of a source that has not begun its first round."""
        return BulkReading(self.stream.name, self._name, "failed" if self.error else "waiting", error=self.error)

    def watch_reading(self) -> WatchReading:
        return self._counts._replace(stream=self.stream.name, error=self._trouble or self.error)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._folder is not None:
                self._book = RoundBook(self._folder / f"watch-{self.stream.name}.jsonl")
            self._counts = self._counts._replace(taken=len(self._book.taken))
            log.info("stream %s: watching %s, %d files were taken before", self.stream.name, ", ".join(self._paths),
                     len(self._book.taken))  # fmt: skip
            self._watch()
        except SparkError as error:
            self.error = str(error)
            if not self._stopped.is_set():
                log.error("stream %s: Spark stopped: %s", self.stream.name, error)
        else:
            if self._stopped.is_set():
                return
            if self._aside and self._ends:
                self.error = f"{len(self._aside)} files could not be read, such as {next(iter(self._aside))}"
            self._watcher.source_is_read(self.stream.number)
        finally:
            self.is_ended = True
        self._watcher.source_has_ended()

    def _watch(self) -> None:
        pause_s = 0.5
        while not self._stopped.is_set():
            try:
                is_idle = self._step()
                pause_s, self._trouble = 0.5, ""
            except (SparkLostError, SparkFailedError) as error:
                if self._stopped.is_set():
                    return
                if str(error) != self._trouble:
                    log.error("stream %s: tried again: %s", self.stream.name, error)
                self._trouble = str(error)
                self._stopped.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_SECONDS)
                continue
            if is_idle:
                return

    def _step(self) -> bool:
        """Finish the round that is decided, or look and take what is ready. True when nothing more will come."""
        if self._book.pending is not None:
            self._enter(self._book.pending)
            return False
        found = self._find()
        clocks = Clocks(time.monotonic_ns(), time.time_ns())
        seen = look(found, self._book.taken, self._seen, self._aside, self._watch_ns, clocks)
        self._seen = seen.seen
        self._tell(seen, found)
        if seen.ready:
            self._take(_first(seen.ready, found, self._limit), found)
            return False
        if self._ends and not seen.waiting:
            return True
        if not self._ends:
            self._watcher.source_is_read(self.stream.number)  # it rests: others need not wait for it
        self._stopped.wait(self._watch_ns / 1e9)
        return False

    def _find(self) -> dict[str, FileSign]:
        found: dict[str, FileSign] = {}
        if not any(glob(given) or os.path.exists(given) for given in self._paths):
            raise SparkFailedError(f"there is no {', '.join(self._paths)}")
        for given in self._paths:
            for path, _ in files_of(given, _cannot_list):
                try:
                    stat = path.stat()
                except OSError:
                    continue  # deleted while we look, or a link that leads nowhere
                found[str(path)] = FileSign(stat.st_size, stat.st_mtime_ns, stat.st_dev, stat.st_ino)
        return found

    def _tell(self, seen: Look, found: Mapping[str, FileSign]) -> None:
        changed = [path for path in seen.changed if self._told.get(path) != found[path]]
        for path in changed:
            self._told[path] = found[path]
        for path in changed[:NAMED]:
            log.warning("stream %s: %s: %s", self.stream.name, path, CHANGED)
        if len(changed) > NAMED:
            log.warning("stream %s: %d more files have changed", self.stream.name, len(changed) - NAMED)
        for before, path in seen.renamed:
            self._book.rename(path, found[path])
            log.info("stream %s: %s was taken as %s: not again", self.stream.name, path, before)
        counts = self._counts
        self._counts = counts._replace(
            changed=counts.changed + len(changed), renamed=counts.renamed + len(seen.renamed), waiting=seen.waiting
        )

    # -- a round ------------------------------------------------------------------------------------------------------

    def _take(self, paths: Sequence[str], found: Mapping[str, FileSign]) -> None:
        """Stage files, and decide the round. A file that has changed meanwhile belongs to a later one."""
        number, bad_file = self._book.last + 1, ""
        source = dict(self._request)
        if source.get("bad_rows"):
            name = f"{self._name}-{self._book.name}-{number:06d}.ndjson"
            source["bad_rows"] = bad_file = str(Path(source["bad_rows"], name).absolute())
        log.info("stream %s: round %d takes %d files", self.stream.name, number, len(paths))
        try:
            staged = self._stage(source, paths)
        except (SparkFailedError, SparkRefusedError) as error:
            self._limit_next(paths, found, error)
            return
        self._limit = min(2 * self._limit, FILES_IN_ROUND)
        now = self._find()
        if any(now.get(path) != found[path] for path in paths if path not in staged["failed"]):
            log.info("stream %s: files have changed while they were read: they are read again", self.stream.name)
            return
        for path, why in staged["failed"].items():
            self._set_aside(path, found[path], why)
        taken = {path: found[path] for path in paths if path not in staged["failed"]}
        if not taken:
            return
        round_ = StagedRound(number, list(staged["files"]), staged["rows"], staged["batch_rows"], staged["bad"])
        self._book.decide(taken, round_)
        self._counts = self._counts._replace(taken=len(self._book.taken), bad_rows=self._counts.bad_rows + round_.bad)
        if round_.bad:
            self._target.quarantine(round_.bad, bad_file)

    def _stage(self, source: Mapping[str, Any], paths: Sequence[str]) -> dict[str, Any]:
        roots = [given for given in self._paths if os.path.isdir(given)]
        files = [[path, next((root for root in roots if path.startswith(f"{root}/")), "")] for path in paths]
        job = self._job = BulkJob(
            self._host, self._name, source, self.stream.schema, self._target, staging=self._staging
        )
        return job.stage("", files=files, lenient=True)

    def _limit_next(self, paths: Sequence[str], found: Mapping[str, FileSign], error: SparkError) -> None:
        """Take fewer files next. When there is one only, it is the reason. Raises what no file is the reason of."""
        if "o space left" in str(error) or "bad_rows: " in str(error):
            raise SparkFailedError(str(error))
        if len(paths) == 1:
            self._set_aside(paths[0], found[paths[0]], str(error))
        else:
            self._limit = (len(paths) + 1) // 2
            log.warning("stream %s: the next round has at most %d files: %s", self.stream.name, self._limit, error)

    def _set_aside(self, path: str, sign: FileSign, why: str) -> None:
        self._aside[path] = sign
        self._counts = self._counts._replace(failed=self._counts.failed + 1)
        log.error("stream %s: a file is set aside until it changes: %s", self.stream.name, why)

    def _enter(self, staged: StagedRound) -> None:
        """Let the rows of a round in that is decided. After a crash this goes on where the log stopped."""
        rows = StagedRows(f"{self._book.name}-{staged.number}", staged.files, staged.rows, staged.batch_rows)
        job = self._job = StagedJob(
            self._host, self._name, self.stream.schema, self._target, rows, staging=self._staging,
            batch_limit=self._batch_limit,
        )  # fmt: skip
        if self._stopped.is_set():
            return
        job.run()
        self._book.done()
        log.info("stream %s: round %d is in, %d rows", self.stream.name, staged.number, staged.rows)


def _cannot_list(error: OSError) -> None:
    raise SparkFailedError(f"{error.filename} cannot be listed: {error.strerror}")


def _first(paths: Sequence[str], found: Mapping[str, FileSign], limit: int) -> list[str]:
    """Return the first files that make up a round."""
    nbytes, out = 0, list[str]()
    for path in paths[:limit]:
        nbytes += found[path].nbytes
        if out and nbytes > BYTES_IN_ROUND:
            break
        out.append(path)
    return out
