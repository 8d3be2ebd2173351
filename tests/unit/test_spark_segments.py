"""Segments of a sink: sealed, removed, found again after a crash at any byte."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.schema import Schema
from router.codecs.arrow import ArrowEncoder
from router.spark.daemon import segments as segments_module
from router.spark.daemon.segments import OPEN, SinkSegments
from storage.train import Train

SCHEMA = Schema.of(a="bigint", s="string?")
ENCODER = ArrowEncoder(SCHEMA, "us")


def make(folder: Path) -> SinkSegments:
    return SinkSegments(folder, ENCODER.begin())


def batch(start: int, rows: int) -> bytes:
    data = {"a": list(range(start, start + rows)), "s": [None if i % 3 else str(i) for i in range(rows)]}
    return ENCODER.encode(Train.from_pylists(SCHEMA, data, 0))


def rows_of(path: Path) -> list[int]:
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
        column: list[int] = reader.read_all().column("a").to_pylist()
        return column


def test_a_sealed_segment_is_an_arrow_stream_under_a_name_that_says_all(tmp_path: Path) -> None:
    segments = make(tmp_path)
    segments.append(batch(0, 5), 5)
    segments.append(batch(5, 3), 3)
    assert segments.open_rows == 8
    first = segments.seal()
    assert first is not None and (first.number, first.first, first.rows) == (0, 0, 8)
    assert rows_of(first.path) == list(range(8))
    assert segments.seal() is None, "nothing to seal"
    segments.append(batch(8, 1), 1)
    second = segments.seal()
    assert second is not None and (second.number, second.first, second.rows) == (1, 8, 1)
    assert segments.commit_name(first) != segments.commit_name(second)
    segments.close()


def test_numbers_and_names_go_on_after_a_restart(tmp_path: Path) -> None:
    segments = make(tmp_path)
    for start in (0, 2, 4):
        segments.append(batch(start, 2), 2)
        segments.seal()
    kept = segments.sealed[2]
    name = segments.commit_name(kept)
    published = [s.path for s in segments.sealed[:2]]
    segments.remove(segments.sealed[0])
    segments.remove(segments.sealed[0])
    assert all(path.exists() for path in published), "until there is a moment; here the crash comes first"
    again = make(tmp_path)
    assert not any(path.exists() for path in published)
    segments.close()
    assert again.sealed == [kept] and again.commit_name(kept) == name
    assert again.next_sequence == 6
    again.remove(kept)
    again.close()
    empty = make(tmp_path)
    assert not empty.sealed and empty.next_sequence == 6
    empty.append(batch(6, 1), 1)
    sealed = empty.seal()
    assert sealed is not None and (sealed.number, sealed.first) == (3, 6)
    empty.close()


def test_an_open_segment_cut_at_any_byte_keeps_its_whole_batches(tmp_path: Path) -> None:
    segments = make(tmp_path / "whole")
    parts = [batch(0, 4), batch(4, 4), batch(8, 4)]
    for part in parts:
        segments.append(part, 4)
    segments.close()
    data = (tmp_path / "whole" / OPEN).read_bytes()
    begin = len(ENCODER.begin())
    ends = [begin + sum(map(len, parts[:k])) for k in range(4)]
    for size in [*range(0, len(data), 37), *ends, *[end - 1 for end in ends]]:
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / OPEN).write_bytes(data[:size])
        found = make(folder)
        wanted = 4 * sum(end <= size for end in ends[1:])
        assert found.sealed_rows == wanted == found.next_sequence
        assert not (folder / OPEN).exists()
        if wanted:
            assert rows_of(found.sealed[0].path) == list(range(wanted))
        found.close()


def test_a_full_disk_leaves_the_segment_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    segments = make(tmp_path)
    segments.append(batch(0, 4), 4)
    write, calls = os.write, []

    def half(fd: int, data: bytes) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(fd, bytes(data)[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(segments_module.os, "write", half)
    with pytest.raises(OSError, match="No space"):
        segments.append(batch(4, 4), 4)
    monkeypatch.setattr(segments_module.os, "write", write)
    segments.append(batch(4, 4), 4)
    sealed = segments.seal()
    assert sealed is not None and rows_of(sealed.path) == list(range(8))
    segments.close()


@pytest.mark.parametrize("deed", ["rename", "fdatasync", "sync_path"])
def test_a_seal_that_fails_has_sealed_nothing_and_the_next_one_seals_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    segments = make(tmp_path)
    segments.append(batch(0, 10), 10)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os if hasattr(os, deed) else segments_module, deed, fail)
        for _ in range(2):
            with pytest.raises(OSError, match="No space"):
                segments.seal()
    assert not segments.sealed and segments.open_rows == 10
    segments.append(batch(10, 7), 7)
    segment = segments.seal()
    assert segment is not None and (segment.rows, segments.next_sequence, segments.open_rows) == (17, 17, 0)
    assert rows_of(segment.path) == list(range(17))
    segments.close()
    assert [s.rows for s in make(tmp_path).sealed] == [17]
