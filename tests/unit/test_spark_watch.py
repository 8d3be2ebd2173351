"""What is decided about the files of a watched folder, and what its book remembers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from catalog.errors import NetworkError
from engine.run.network_file import read_network
from router.spark.daemon.local_files import files_of
from router.spark.daemon.look import Clocks, FileSign, Look, SeenFile, look
from router.spark.daemon.rounds import RoundBook, StagedRound
from router.spark.wire.errors import SparkFailedError

SETTLE_NS = 30 * 10**9
NOW = Clocks(1_000 * 10**9, 1_800_000_000 * 10**9)
OLD = FileSign(10, 1_700_000_000 * 10**9, 1, 7)
NEW = FileSign(10, NOW.since_1970_ns - 10**9, 1, 8)


def later(seconds: float) -> Clocks:
    return Clocks(NOW.monotonic_ns + int(seconds * 1e9), NOW.since_1970_ns + int(seconds * 1e9))


def one(found: dict[str, FileSign], *, taken: dict[str, FileSign] | None = None,
        seen: dict[str, SeenFile] | None = None, aside: dict[str, FileSign] | None = None,
        clocks: Clocks = NOW) -> Look:  # fmt: skip
    return look(found, taken or {}, seen or {}, aside or {}, SETTLE_NS, clocks)


def test_an_old_file_is_ready_and_a_young_one_waits() -> None:
    first = one({"a": OLD, "b": NEW})
    assert (first.ready, first.waiting) == (["a"], 1)
    second = one({"b": NEW}, seen=first.seen, clocks=later(29))
    assert (second.ready, second.waiting) == (["b"], 0), "it is 30 s old by its own time"
    future = FileSign(10, NOW.since_1970_ns + 10**15, 1, 9)  # the clock of a server that is wrong
    first = one({"c": future})
    assert first.waiting == 1
    assert one({"c": future}, seen=first.seen, clocks=later(29)).waiting == 1
    assert one({"c": future}, seen=first.seen, clocks=later(30)).ready == ["c"]


def test_a_file_that_grows_waits_anew() -> None:
    first = one({"a": NEW})
    grown = NEW._replace(nbytes=20, changed_ns=NEW.changed_ns + 10**10)
    second = one({"a": grown}, seen=first.seen, clocks=later(30))
    assert (second.ready, second.waiting) == ([], 1)
    assert one({"a": grown}, seen=second.seen, clocks=later(60)).ready == ["a"]


def test_what_was_taken_is_not_taken_again() -> None:
    taken = {"a": OLD}
    assert one({"a": OLD}, taken=taken) == Look()
    assert one({"a": OLD._replace(nbytes=11)}, taken=taken).changed == ["a"]
    assert one({}, taken=taken) == Look(), "deleted"
    assert one({"b": OLD}, taken=taken).renamed == [("a", "b")]
    assert one({"a": OLD, "b": OLD}, taken=taken).ready == ["b"], "a second name of a file that is there is a file"
    assert one({"b": OLD._replace(inode=9)}, taken=taken).ready == ["b"], "a copy is a file"


def test_a_file_that_could_not_be_read_is_tried_when_it_changes() -> None:
    assert one({"a": OLD}, aside={"a": OLD}) == Look()
    assert one({"a": OLD._replace(nbytes=11)}, aside={"a": OLD}).ready == ["a"]


def test_the_oldest_come_first() -> None:
    found = {name: OLD._replace(changed_ns=OLD.changed_ns + i, inode=i) for i, name in enumerate("cab")}
    assert one(found).ready == ["c", "a", "b"]


ROUND = StagedRound(1, ["s1", "s2"], 10, 8_192, 2)


def test_the_book_outlives_a_crash_at_each_byte(tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    book = RoundBook(path)
    name = book.name
    ends = [path.stat().st_size]
    for step in (
        lambda: book.decide({"/in/ä\udcff.csv": OLD}, ROUND),
        book.done,
        lambda: book.rename("/in/b.csv", OLD),
        lambda: book.decide({"/in/c.csv": NEW}, ROUND._replace(number=2)),
    ):
        step()
        ends.append(path.stat().st_size)
    data = path.read_bytes()
    for size in range(ends[0], len(data) + 1):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(data[:size])
        again = RoundBook(torn)
        steps = sum(end <= size for end in ends) - 1
        assert again.name == name
        assert again.last == (0, 1, 1, 1, 2)[steps]
        assert (again.pending is not None) == (steps in (1, 4))
        assert len(again.taken) == (0, 1, 1, 2, 3)[steps]
        again.rename("/in/z", OLD)
        assert "/in/z" in RoundBook(torn).taken, "it goes on behind the last whole line"
    again = RoundBook(path)
    assert again.pending == ROUND._replace(number=2) and again.taken["/in/c.csv"] == NEW


def test_a_damaged_book_is_named(tmp_path: Path) -> None:
    path = tmp_path / "watch.jsonl"
    RoundBook(path)
    path.write_bytes(path.read_bytes() + b'{"round": 1}\n')
    with pytest.raises(SparkFailedError, match=r"watch\.jsonl cannot be read"):
        RoundBook(path)


def test_a_decision_that_cannot_be_written_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = RoundBook(tmp_path / "watch.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(SparkFailedError, match="No space left"):
            book.decide({"a": OLD}, ROUND)
    assert book.pending is None and not book.taken
    book.decide({"b": OLD}, ROUND)
    assert list(RoundBook(tmp_path / "watch.jsonl").taken) == ["b"]
    assert len([json.loads(line) for line in (tmp_path / "watch.jsonl").read_text().splitlines()]) == 2


def full(_: int) -> None:
    raise OSError(28, "No space left on device")


def test_which_files_spark_would_read(tmp_path: Path) -> None:
    for name in ("a.csv", "_b.csv", ".c.csv", "day=1/d.csv", "_old/e.csv", "_f=1/f.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path, _ in files_of(str(tmp_path))] == ["a.csv", "f.csv", "d.csv"]
    assert [root for _, root in files_of(str(tmp_path / "*.csv"))] == ["", ""], "a glob names them itself"


SOURCE = "streams:\n  s: {{schema: {{x: double}}, source: {{{source}}}}}\noutputs:\n  out: {{from: s}}\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("spark: jdbc, options: {a: b}, watch: 30s", "watch needs files"),
        ("spark: parquet, path: 'hdfs://host/in', watch: 30s", "files of this machine only"),
        ("spark: parquet, path: ./in, sql: 'select 1', watch: 30s", "goes file by file"),
        ("spark: csv, path: ./in, watch: 0s", "watch"),
        ("spark: csv, path: ./in, bad_rows: ./in/bad", "inside of the path"),
        ("spark: csv, path: [./x, ./in], bad_rows: in", "inside of the path"),
        ("spark: csv, path: ./in, bad_rows: ./bad, options: {mode: DROPMALFORMED}", "leave one of them out"),
        ("spark: kafka, options: {a: b}, bad_rows: ./bad", "bad_rows needs files"),
    ],
)
def test_what_cannot_be_watched_is_refused(source: str, why: str) -> None:
    with pytest.raises(NetworkError) as found:
        read_network(SOURCE.format(source=source), {})
    assert why in " ".join(f"{p.place} {p.message} {p.hint}" for p in found.value.problems)


def test_without_a_data_dir_a_watched_folder_is_warned_of() -> None:
    text = SOURCE.format(source="spark: csv, path: ./in, watch: 30s")
    assert any("takes all files again" in w.message for w in read_network(text, {}).warnings)
    assert not read_network("engine: {data_dir: ./d}\n" + text, {}).warnings
