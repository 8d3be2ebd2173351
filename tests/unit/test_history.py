"""The history of a place: its files as other programs read them, power cuts, a full disk, retention, merging."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import numpy as np
import polars as pl
import pytest

from catalog.config.history import parse_start
from catalog.network import KeptPlace, PortRef
from catalog.schema import Schema
from storage.files import RealFiles
from storage.history.place import PlaceHistory
from storage.history.segment import HistorySegment, KeptTrain, encode_segment
from storage.history.upkeep import MERGED_AT_ONCE, expired, mergeable
from storage.train import Train
from tests.crash.crash_files import CrashFiles, PowerCut

SCHEMA = Schema.of(ts="timestamp", symbol="string", venue="string?", price="double", size="int", ok="boolean")
NOW_NS = 1_800_000_000 * 10**9


def place(**more: int | None) -> KeptPlace:
    limits: dict[str, int | None] = {"for_ns": None, "size_bytes": 2**40, **more}
    return KeptPlace("trades", PortRef(stream=0), SCHEMA, "ts", 0, limits["for_ns"], limits["size_bytes"] or 0)


def train(first: int, count: int, watermark: int = 0) -> Train:
    """The tuples with these numbers; a value says which tuple it is."""
    numbers = range(first, first + count)
    data = {
        "ts": [NOW_NS + n * 1_000_001 for n in numbers],
        "symbol": [f"S{n % 7}" for n in numbers],
        "venue": [None if n % 3 else f"v{n % 2}" for n in numbers],
        "price": [n / 4 for n in numbers],
        "size": list(numbers),
        "ok": [n % 2 == 0 for n in numbers],
    }
    return Train.from_pylists(SCHEMA, data, [NOW_NS + n for n in numbers]).with_watermark(watermark)


def sizes(history: PlaceHistory, after: int = 0) -> list[int]:
    return [size for kept in history.trains(after) for size in kept.train.to_pylist(4)]


def test_a_segment_gives_back_every_tuple_with_its_times_and_watermarks() -> None:
    random = Random(3)
    kept: list[KeptTrain] = []
    first = 1
    for entry in range(60):
        made = train(first, random.choice((0, 1, 900)), watermark=1_000 + entry)
        kept.append(KeptTrain(first, made, entry))
        first += made.count
    segment = HistorySegment(encode_segment(kept, "ts")[0], "test")
    found = list(segment.trains(0, SCHEMA))
    whole = Train.concat([k.train for k in kept])
    again = Train.concat([k.train for k in found])
    assert again.to_pydict() == whole.to_pydict() and again.arrival_ns.tolist() == whole.arrival_ns.tolist()
    assert found[-1].train.watermark_ns == 1_059
    assert found[0].first == 1 and sum(k.train.count for k in found) == first - 1
    part = Train.concat([k.train for k in segment.trains(777, SCHEMA)])
    assert part.to_pydict() == whole.slice(777, whole.count).to_pydict()


def test_duckdb_and_polars_read_the_files_as_they_are(tmp_path: Path) -> None:
    history = PlaceHistory(place(), RealFiles(str(tmp_path)))
    history.open(None)
    for first in (1, 501):
        history.append(train(first, 500), first)
        history.flush(history.next)
    files = str(tmp_path / "history/trades/*.parquet")
    asked = "select count(*), sum(size), count(venue), min(symbol), sum(ok::int) from read_parquet(?)"
    assert duckdb.execute(asked, [files]).fetchone() == (1_000, 500_500, 333, "S0", 500)
    frame = pl.read_parquet(files)
    times = frame["ts"].to_physical().to_numpy() * 1_000 + frame["_ns_ts"].fill_null(0).to_numpy()
    assert times.tolist() == [NOW_NS + n * 1_000_001 for n in range(1, 1_001)]
    assert frame["symbol"].dtype == pl.String


def test_a_power_cut_at_any_moment_leaves_what_the_checkpoint_knows_and_nothing_else() -> None:
    """The replay of the log appends from the cut on: then every tuple is there once."""
    for cut_before in range(1, 130, 7):
        files = CrashFiles()
        history = PlaceHistory(place(), files)
        history.open(None)
        known = None
        try:
            files.crash_before = cut_before
            for first in range(1, 600, 50):
                history.append(train(first, 50), first)
                if first % 100 == 1:
                    cut = history.cut()
                    history.flush(cut["next"])
                    known = cut  # the checkpoint counts from here on
                else:
                    history.flush(history.next)
                history.merge(0 if known is None else known["next"])
        except PowerCut:
            pass
        files = files.crash(Random(cut_before))
        again = PlaceHistory(place(), files)
        again.open(known)
        assert again.next == (1 if known is None else known["next"])
        again.append(train(again.next, 601 - again.next), 0)
        assert sizes(again) == list(range(1, 601)), cut_before


def test_a_full_disk_loses_history_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    files = CrashFiles()
    files.capacity_bytes = 40_000
    history = PlaceHistory(place(), files)
    history.open(None)
    for first in range(1, 10_001, 500):
        history.append(train(first, 500), first)
        history.flush(history.next)
    reading = history.reading()
    assert 0 < reading.lost < 10_000 and reading.trouble and history.next == 10_001
    assert len(sizes(history)) == 10_000 - reading.lost
    assert sum("is not written" in r.message for r in caplog.records) == 1
    files.capacity_bytes = 2**40
    history.append(train(10_001, 500), 0)
    history.flush(history.next)
    assert not history.reading().trouble and sizes(history, 10_000) == list(range(10_001, 10_501))


def test_retention_by_time_and_size_and_what_a_replay_still_needs() -> None:
    infos = [
        encode_segment([KeptTrain(f, train(f, 100), f)], "ts")[1]._replace(nbytes=10) for f in range(1, 1_000, 100)
    ]
    assert [i.first for i in expired(infos, NOW_NS + 300, 100, 10**9, None)] == [1]
    assert [i.first for i in expired(infos, NOW_NS, None, 75, None)] == [1, 101, 201]
    assert [i.first for i in expired(infos, NOW_NS, None, 75, needed_from=150)] == [1]
    assert not expired(infos, NOW_NS, None, 100, None)


def test_small_segments_are_merged_below_the_oldest_checkpoint_only() -> None:
    files = CrashFiles()
    history = PlaceHistory(place(), files)
    history.open(None)
    for first in range(1, 20 * 50, 50):
        history.append(train(first, 50), first)
        history.flush(history.next)
    assert not history.merge(100)
    before = sizes(history)
    assert history.merge(10**9) and history.reading().segments == 20 - MERGED_AT_ONCE + 1
    assert sizes(history) == before == list(range(1, 1_001)) and sizes(history, 333) == list(range(334, 1_001))
    merged = PlaceHistory(place(), files)
    merged.open({"next": 1_001, "watermark": -(2**63), "entry": 0})
    assert sizes(merged) == before
    assert not mergeable(history.index()[:3], 10**9)


def test_a_time_is_found_on_disk_and_in_memory() -> None:
    history = PlaceHistory(place(), CrashFiles())
    history.open(None)
    history.append(train(1, 100), 1)
    history.flush(history.next)
    history.append(train(101, 100), 2)
    assert history.first_at(None) == 1
    assert history.first_at(NOW_NS + 50 * 1_000_001) == 50
    assert history.first_at(NOW_NS + 150 * 1_000_001 - 5) == 150
    assert history.first_at(NOW_NS + 10**12) == 201 == history.next


def test_a_field_that_was_added_is_null_in_older_tuples_and_an_alien_file_is_left_out(tmp_path: Path) -> None:
    old = PlaceHistory(place(), RealFiles(str(tmp_path)))
    old.open(None)
    old.append(train(1, 10), 1)
    old.flush(11)
    wider = Schema.of(SCHEMA.fields, note="string?")
    new = PlaceHistory(KeptPlace("trades", PortRef(stream=0), wider, "ts", 0, None, 2**40), RealFiles(str(tmp_path)))
    new.open({"next": 11, "watermark": -(2**63), "entry": 0})
    [kept] = new.trains(0)
    assert kept.train.to_pylist(6) == [None] * 10 and kept.train.to_pylist(4) == list(range(1, 11))
    narrower = Schema.of(ts="timestamp", symbol="int")
    other = PlaceHistory(
        KeptPlace("trades", PortRef(stream=0), narrower, "ts", 0, None, 2**40), RealFiles(str(tmp_path))
    )
    other.open({"next": 11, "watermark": -(2**63), "entry": 0})
    assert other.oldest == 11 and not list(other.trains(0))


@pytest.mark.parametrize(
    ("text", "now", "from_ns"),
    [
        ("earliest", 5, None),
        ("now", 5, 5),
        ("-1h", 3_600 * 10**9 + 7, 7),
        ("2026-01-01T12:00Z", 0, 1_767_268_800 * 10**9),
        ("2026-01-01", 0, 1_767_225_600 * 10**9),
        ("2026-01-01T13:00+01:00", 0, 1_767_268_800 * 10**9),
    ],
)
def test_a_start_is_read(text: str, now: int, from_ns: int | None) -> None:
    assert parse_start(text).from_ns(now) == from_ns


def test_a_start_that_is_none_is_refused() -> None:
    for wrong in ("1h", "yesterday", 17, "-1 fortnight"):
        with pytest.raises(ValueError):
            parse_start(wrong)


def test_the_arrivals_of_equal_trains_stay_constant() -> None:
    """A constant column is 8 bytes, and ``take`` of it is free."""
    made = Train.from_pylists(Schema.of(n="int"), {"n": [1, 2, 3]}, 17)
    [kept] = HistorySegment(encode_segment([KeptTrain(1, made, 0)], None)[0], "test").trains(0, made.schema)
    assert kept.train.arrival_ns.strides == (0,) and np.array_equal(kept.train.arrival_ns, [17, 17, 17])
