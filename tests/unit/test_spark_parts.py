"""The parts of the Spark pipeline that need no Spark: pace, cursors, the book of batches, what top says."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from catalog.network import Stream
from catalog.readings import BulkReading, SinkReading
from catalog.schema import Schema
from engine.cli.views.spark_jobs import spark_lines
from engine.run.network_file import read_network
from router.boundary import Origin
from router.spark.daemon.batches import BatchLedger
from router.spark.daemon.entrance import BulkEntrance
from router.spark.daemon.host import SparkHost
from router.spark.daemon.jobs import batch_limit, whole_trains
from router.spark.daemon.ledger import JobLedger
from router.spark.daemon.pace import TRAIN_ROWS, JobStoppedError, Pacer, parse_pace
from router.spark.daemon.progress import JobProgress, JobTable
from router.spark.driver.compact import choose, live_files
from router.spark.driver.launch import settings_for, with_retries
from router.spark.wire.errors import SparkFailedError, SparkRefusedError
from storage.admission import BatchNumber
from storage.source_numbers import SourceNumbers
from storage.train import Train, constant_ns

SCHEMA = Schema.of(ts="timestamp", n="bigint")
STREAM = Stream(0, "s", SCHEMA, (), "ts", 0, "block", None)


def train(times: list[int]) -> Train:
    columns = (np.array(times, np.int64), np.arange(len(times), dtype=np.int64))
    return Train(SCHEMA, columns, constant_ns(0, len(times)))


class Clock:
    def __init__(self) -> None:
        self.ns = 10**18

    def __call__(self) -> int:
        self.ns += 1_000_000  # a millisecond a look: waiting is looking
        return self.ns


class Wait(threading.Event):
    """Waiting makes time pass, and takes none."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.ns += int((timeout or 0.0) * 1e9)
        return self.is_set()


@pytest.mark.parametrize(("text", "speed"), [("as_fast", 0.0), ("realtime", 1.0), ("10x", 10.0), ("0.5x", 0.5)])
def test_a_pace_is_a_speed(text: str, speed: float) -> None:
    assert parse_pace(text) == speed


@pytest.mark.parametrize("text", ["0x", "fast", "10", "x", "-1x", "1e3x", ""])
def test_what_is_no_pace(text: str) -> None:
    with pytest.raises(ValueError, match="as_fast"):
        parse_pace(text)


def test_rows_enter_in_short_trains_stamped_as_they_enter() -> None:
    pacer = Pacer(lambda: True, Clock())
    whole = train(list(range(2 * TRAIN_ROWS + 5)))
    parts = list(pacer.trains(whole, threading.Event()))
    assert [part.count for part in parts] == [TRAIN_ROWS, TRAIN_ROWS, 5]
    stamps = [int(part.arrival_ns[0]) for part in parts]
    assert stamps == sorted(stamps) and stamps[0] > 10**18
    assert np.array_equal(np.concatenate([part.columns[1] for part in parts]), whole.columns[1])


@pytest.mark.parametrize("live", ["", "  now: {schema: {n: bigint}}\n"])
def test_beside_a_live_stream_rows_travel_in_short_batches(live: str) -> None:
    bulk = "streams:\n  old: {schema: {n: bigint}, source: {spark: parquet, path: /nowhere}}\n"
    network = read_network(f"{bulk}{live}outputs: {{out: {{from: old}}}}\n", {})
    assert (batch_limit(network) == TRAIN_ROWS) == bool(live)


@pytest.mark.parametrize("found", [1, 100, TRAIN_ROWS, TRAIN_ROWS + 1, 50_000, 65_536])
def test_however_long_the_batches_are_the_same_rows_make_the_same_trains(found: int) -> None:
    def trains(limit: int) -> list[int]:
        batch = whole_trains(found, limit)
        cuts = (range(start, min(start + batch, 200_000), TRAIN_ROWS) for start in range(0, 200_000, batch))
        return [cut for batch_cuts in cuts for cut in batch_cuts]

    assert trains(65_536) == trains(TRAIN_ROWS)


def test_a_pace_cuts_by_event_time_alone_and_never_early() -> None:
    """The same trains however the clock runs, so that after a restart they have the same numbers."""
    times = sorted(np.random.default_rng(1).integers(0, 2 * 10**9, 3_000).tolist())
    cuts = []
    for start in (0, 123_456_789):
        clock = Clock()
        clock.ns += start
        pacer = Pacer(lambda: True, clock, speed=4.0, column=0)
        parts = list(pacer.trains(train(times), Wait(clock)))
        cuts.append([part.count for part in parts])
        begun = int(parts[0].arrival_ns[0])
        for part in parts:
            assert int(part.arrival_ns[0]) - begun >= (int(part.columns[0][0]) - times[0]) / 4 - 5_000_000
    assert cuts[0] == cuts[1] and len(cuts[0]) > 10 and sum(cuts[0]) == 3_000


def test_a_job_stands_back_until_it_is_told_to_stop() -> None:
    room = [True, False]
    stopped = threading.Event()
    pacer = Pacer(lambda: room[0], Clock())
    room[0] = False
    threading.Timer(0.02, stopped.set).start()
    with pytest.raises(JobStoppedError):
        list(pacer.trains(train([1]), stopped))
    assert pacer.yielded_ns > 0


# -- cursors ----------------------------------------------------------------------------------------------------------


def make_job(entrance: BulkEntrance, *, epoch: int = 0) -> JobProgress:
    pacer = Pacer(lambda: True, Clock())
    return JobProgress("job", STREAM, pacer, entrance, fingerprint="f", parts=2, rows=10, epoch=epoch)


class Taken:
    """Stands for the engine's ingress. With ``is_durable`` trains are numbered; the test says what is on disk."""

    def __init__(self, is_durable: bool = False) -> None:
        self.rows: list[int] = []
        self.received = 0
        self.keeps_batches = is_durable
        self.numbers = SourceNumbers(1)
        self.entrance = BulkEntrance(self, self._count)  # type: ignore[arg-type]

    def admit(self, stream: int, train: Train, origin: Origin) -> bool:
        self.rows += train.columns[1].tolist()
        if origin.batch is not None:
            self.numbers.commit(stream, [origin.batch])
        return True

    def _count(self, _: int, tuples: int, duplicates: int) -> None:
        self.received += tuples


def test_a_part_that_was_cut_off_in_a_batch_goes_on_where_it_was() -> None:
    taken = Taken()
    job = make_job(taken.entrance)
    part = job.part(0)
    first, _ = job.take_over(part)
    job.enter(0, first, train([0, 1, 2]))
    job.close_batch(part, first, 4, 3)  # one row of four was refused
    job.enter(0, first, train([3]))  # ... and then it breaks off
    assert (part.rows, part.ahead, job.rows) == (4, 1, 5)
    second, _ = job.take_over(part)
    with pytest.raises(JobStoppedError):
        job.enter(0, first, train([9]))  # the first attempt lives on somewhere
    assert taken.received == 4
    job.enter(0, second, train([4]))
    job.close_batch(part, second, 2, 2)
    with pytest.raises(SparkRefusedError, match="6 rows came of the 7"):
        job.finish_part(part, second, 7)
    job.finish_part(part, second, 6)
    assert part.ahead == 0 and job.parts_done == 1


def test_numbered_trains_are_taken_once_and_from_the_start_after_a_gap() -> None:
    taken = Taken(is_durable=True)
    job = make_job(taken.entrance, epoch=7)
    attempt, _ = job.take_over(job.part(3))
    for value in range(4):
        job.enter(3, attempt, train([value]))
    assert job.is_on_disk(3, job.part(3))
    taken.numbers = SourceNumbers(1)  # the group with the last two could not be written
    taken.numbers.commit(0, [BatchNumber("spark/job/3", 7, 2)])
    with pytest.raises(SparkRefusedError, match="come again"):
        job.enter(3, attempt, train([4]))
    assert (job.part(3).rows, job.part(3).sequence) == (0, 0)
    attempt, _ = job.take_over(job.part(3))
    for value in range(5):
        job.enter(3, attempt, train([value]))
    assert taken.numbers.committed(0, "spark/job/3", 7) == 5 and job.part(3).ahead == 5


def test_jobs_go_on_under_their_name_and_only_with_their_input() -> None:
    table, entrance = JobTable(), Taken().entrance
    job = table.begin(make_job(entrance))
    assert table.begin(make_job(entrance)) is job and job.attempts == 2
    other = make_job(entrance)
    other.fingerprint = "g"
    with pytest.raises(SparkRefusedError, match="its input has changed"):
        table.begin(other)
    job.end()
    with pytest.raises(SparkRefusedError, match="is done"):
        table.begin(make_job(entrance))
    with pytest.raises(SparkRefusedError, match="there is no job x"):
        table.get("x")


def test_the_ledger_knows_a_job_again(tmp_path: Path) -> None:
    ledger = JobLedger(tmp_path)
    first = ledger.begin("a/b", "print", 100)
    assert (first.epoch, first.is_done) == (100, False)
    assert JobLedger(tmp_path).begin("a/b", "print", 200) == first, "after a restart it goes on in its epoch"
    ledger.done("a/b")
    assert JobLedger(tmp_path).begin("a/b", "print", 300).is_done
    again = ledger.begin("a/b", "other", 50)
    assert again.epoch > first.epoch and not again.is_done, "another input: a higher epoch, whatever the clock says"
    assert ledger.begin("c", "", 10) != ledger.begin("c", "", 20), "what has no fingerprint is never the same"
    assert JobLedger(None).begin("a", "print", 5).epoch == 5


def test_the_book_stands_by_what_was_decided(tmp_path: Path) -> None:
    book = BatchLedger(tmp_path)
    for name in ("a", "b", "c"):
        book.staged(name).write_bytes(b"rows")
    entry = book.decide("q", 3, "s", ["a", "b"], 100)
    again = BatchLedger(tmp_path)  # after a crash: what was staged and never committed is gone
    assert again.pending() == [entry] and not again.staged("c").exists() and again.staged("a").exists()
    assert again.decide("q", 3, "s", ["c"], 200) == entry, "the batch consists of what it consisted of"
    again.done(entry)
    assert again.last("q") == 3 and not again.pending()
    assert BatchLedger(tmp_path).last("q") == 3
    with pytest.raises(SparkRefusedError, match="not the name"):
        book.staged("../x")


def test_two_peers_that_begin_one_job_at_once_get_one_epoch(tmp_path: Path) -> None:
    ledger = JobLedger(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: ledger.begin("j", "print", n + 1), range(400)))
    assert len(set(found)) == 1, "a job of one input has one epoch"
    assert [file.name for file in tmp_path.iterdir()] == ["j.json"]


def test_jobs_with_long_names_are_kept_apart(tmp_path: Path) -> None:
    ledger = JobLedger(tmp_path)
    names = ["ä" * 200, "ä" * 199 + "ö", "/" * 199 + "a", "/" * 199 + "b", "\U0001f600" * 200]
    for number, name in enumerate(names):
        assert ledger.begin(name, "print", number + 1).epoch == number + 1


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff", b'{"fingerprint": "print", "epoch": "x"}'])
def test_a_damaged_file_of_a_ledger_is_said_and_not_believed(tmp_path: Path, damage: bytes) -> None:
    ledger = JobLedger(tmp_path)
    ledger.begin("j", "print", 1)
    (tmp_path / "j.json").write_bytes(damage)
    with pytest.raises(SparkFailedError, match=r"j\.json"):
        ledger.begin("j", "print", 2)
    (tmp_path / "j.json").unlink()
    assert ledger.begin("j", "print", 3).epoch == 3


def test_a_decision_that_is_not_on_disk_is_none(tmp_path: Path) -> None:
    """A batch that entered without its decision would enter again after a crash, under another epoch."""
    book = BatchLedger(tmp_path)
    book.staged("a").write_bytes(b"rows")
    (tmp_path / "book.json.new").mkdir()  # nothing can be written now
    with pytest.raises(SparkFailedError, match=r"book\.json"):
        book.decide("q", 3, "s", ["a"], 100)
    assert not book.pending() and not book.is_decided("a")
    (tmp_path / "book.json.new").rmdir()
    entry = book.decide("q", 3, "s", ["a"], 100)
    (tmp_path / "book.json.new").mkdir()
    with pytest.raises(SparkFailedError):
        book.done(entry)
    assert book.pending() == [entry] and book.last("q") == -1, "as on disk"


# -- small things -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "used"),
    [("local", "local[1,4]"), ("local[*]", "local[*,4]"), ("local[2]", "local[2,4]"), ("local[2,1]", "local[2,1]"),
     ("spark://a:7077", "spark://a:7077"), ("yarn", "yarn")],
)  # fmt: skip
def test_a_local_master_retries_its_tasks(given: str, used: str) -> None:
    assert with_retries(given) == used


def test_the_user_has_the_last_word_on_settings(tmp_path: Path) -> None:
    settings = settings_for("local[2]", {"spark.sql.shuffle.partitions": "7"}, tmp_path)
    assert settings["spark.sql.shuffle.partitions"] == "7" and settings["spark.ui.enabled"] == "false"
    assert "spark.ui.enabled" not in settings_for("spark://a:1", {}, tmp_path)
    sockets = "spark.python.unix.domain.socket.enabled"
    assert settings_for("local", {}, Path("/tmp/short"))[sockets] == "true"
    assert settings_for("local", {}, Path("/tmp/" + "long" * 20))[sockets] == "false", "a name that no socket can have"


@pytest.mark.parametrize(
    ("heap", "nbytes"), [("512m", 2**29), ("2g", 2**31), ("2G", 2**31), ("1048576k", 2**30), ("nonsense", 2**30)]
)
def test_a_heap_is_read_as_java_reads_it(heap: str, nbytes: int) -> None:
    assert SparkHost(config={"spark.driver.memory": heap}).heap_bytes == nbytes
    assert SparkHost().heap_bytes == 2**30


def test_only_small_files_with_company_are_joined() -> None:
    entries = [
        {"files": [{"to": "a", "bytes": 1}, {"to": "x=1/b", "bytes": 1}]},
        {"files": [{"to": "c", "bytes": 1}, {"to": "d", "bytes": 99}]},
        {"files": [{"to": "e", "bytes": 2}], "removes": ["a"]},
    ]
    assert {f["to"] for f in live_files(entries)} == {"x=1/b", "c", "d", "e"}
    assert {folder: [f["to"] for f in group] for folder, group in choose(live_files(entries), 10).items()} == {
        "": ["c", "e"]
    }


def test_a_daemon_knows_nothing_of_pyspark() -> None:
    """A network of sockets never pays for it, and one with Spark has it in another process."""
    program = (
        "import sys, engine.daemon.process.service, router.spark.daemon.pipeline\nassert 'pyspark' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_top_says_how_far_it_is() -> None:
    reading = BulkReading("trades", "j", "reading", 1_200_000, 5_000_000, rate_per_s=800_000.0)
    sink = SinkReading("archive", "retrying", committed=5, buffered=7, commits=1, error="disk full")
    assert spark_lines({"bulk": [reading._asdict()], "sinks": [sink._asdict()]}) == [
        "bulk trades: 1,200,000 of 5,000,000 rows (24%), 800,000/s, 5 s left",
        "sink archive: 5 tuples in 1 commits, 7 waiting, retrying, disk full",
    ]
    assert spark_lines({}) == []
