"""The log on a disk that forgets: committed groups survive, a torn tail is truncated, damage is reported."""

from __future__ import annotations

import errno
from random import Random

import pytest

from storage.files import RealFiles
from storage.log import PIECE_BYTES, DiskFullError, Log, LogDamageError, LogFailedError
from tests.crash.crash_files import CrashFiles, PowerCut


def opened(files: CrashFiles, start: int = 0, **options: int) -> Log:
    log = Log(files, **options)
    log.open(start)
    return log


def texts(log: Log, start: int = 0) -> list[bytes]:
    return [bytes(r.payload) for r in log.records(start)]


def write(log: Log, *groups: list[bytes]) -> list[int]:
    """Commit each list as one group; return the position after each group."""
    ends = []
    for group in groups:
        for text in group:
            log.append(1, [text[:3], text[3:]])
        ends.append(log.commit())
    return ends


GROUPS = [[b"one", b"two and more"], [b"three"], [b"", b"five" * 50]]
ALL = [text for group in GROUPS for text in group]


def test_what_was_committed_is_there_after_a_restart() -> None:
    files = CrashFiles()
    ends = write(opened(files), *GROUPS)
    log = opened(files.crash(Random(0)))
    assert texts(log) == ALL
    assert texts(log, ends[0]) == ALL[2:]
    assert log.torn_bytes == 0
    write(log, [b"after"])
    assert texts(log) == [*ALL, b"after"]


def test_a_real_file_system_does_the_same(tmp_path: object) -> None:
    files = RealFiles(str(tmp_path))
    log = Log(files, segment_bytes=100)
    log.open()
    write(log, *GROUPS)
    log.close()
    again = Log(RealFiles(str(tmp_path)), segment_bytes=100)
    again.open()
    assert texts(again) == ALL
    again.close()
    assert len(files.list("log")) > 1


def test_a_tail_torn_at_every_byte_is_cut_and_counted() -> None:
    files = CrashFiles()
    log = opened(files)
    [end, _] = write(log, [b"safe"], [b"torn", b"torn too"])
    name = "log/00000000000000000000.log"
    whole = bytes(files.names[name].live)
    for size in range(end, len(whole)):
        disk = CrashFiles()
        file = disk.create(name)
        file.append([whole[:size]])
        file.sync()
        log = opened(disk)
        kept = texts(log)
        assert kept[0] == b"safe"
        assert kept == [b"safe", b"torn", b"torn too"][: len(kept)]
        assert log.durable + log.torn_bytes == size
        write(log, [b"next"])
        assert texts(opened(disk)) == [*kept, b"next"]


def test_every_bit_of_an_acknowledged_record_is_guarded() -> None:
    """Below the mark the log reports the place of each flipped bit. A flip in the last mark is a torn tail, no loss."""
    files = CrashFiles()
    log = opened(files)
    write(log, [b"first"], [b"second"])
    acknowledged = log.durable
    log.mark()
    [name] = ["log/" + n for n in files.list("log")]
    padding = 0
    for bit in range(8 * files.names[name].live.__len__()):
        disk = files.killed()
        disk.flip(name, bit)
        if bit // 8 >= acknowledged:
            assert texts(opened(disk)) == [b"first", b"second"]
            continue
        place = refused_at(disk)
        if place is None:
            assert texts(opened(disk)) == [b"first", b"second"]  # a bit of padding, which is never read
            padding += 1
        else:
            assert place[0] == name
            assert place[1] <= bit // 8
    assert padding == 8 * (3 + 2)  # "first" and "second" are padded to 8 bytes


def refused_at(disk: CrashFiles) -> tuple[str, int] | None:
    """Return the place at which the log reports damage; None when it opens."""
    try:
        opened(disk.killed())
    except LogDamageError as error:
        return error.file, error.offset
    return None


def test_damage_in_a_segment_that_is_not_the_last_is_refused() -> None:
    files = CrashFiles()
    write(opened(files, segment_bytes=1), *GROUPS)
    names = files.list("log")
    assert len(names) == 3
    files.flip(f"log/{names[1]}", 8 * 60)
    with pytest.raises(LogDamageError, match=names[1]):
        opened(files)
    files = CrashFiles()
    write(opened(files, segment_bytes=1), *GROUPS)
    files.remove(f"log/{names[1]}")
    with pytest.raises(LogDamageError, match="the next segment"):
        opened(files)


def test_a_log_that_begins_or_ends_elsewhere_than_the_checkpoint_says_is_refused() -> None:
    files = CrashFiles()
    ends = write(opened(files, segment_bytes=1), *GROUPS)
    log = opened(files.killed(), ends[1], segment_bytes=1)
    assert texts(log, ends[1]) == ALL[3:]
    assert log.prune(ends[1]) > 0
    assert log.start == ends[1]
    with pytest.raises(LogDamageError, match="begins at"):
        opened(_pruned(files, ends[1]), ends[0])
    with pytest.raises(LogDamageError, match="which was synced"):
        opened(files.killed(), ends[2] + 8)


def _pruned(files: CrashFiles, below: int) -> CrashFiles:
    disk = files.killed()
    opened(disk, below, segment_bytes=1).prune(below)
    return disk


def test_a_sync_that_fails_is_never_tried_again() -> None:
    files = CrashFiles()
    log = opened(files)
    write(log, [b"safe"])
    files.fail_syncs = {len(files.operations) + 1}  # after the append that comes first
    with pytest.raises(LogFailedError, match="never retried"):
        write(log, [b"lost"])
    operations = len(files.operations)
    for _ in range(3):
        with pytest.raises(LogFailedError):
            write(log, [b"more"])
    assert len(files.operations) == operations, "nothing touches the file any more"
    assert texts(log) == [b"safe"]
    for seed in range(20):
        assert texts(opened(files.crash(Random(seed)))) == [b"safe"]


def test_a_full_disk_takes_the_group_back_and_the_log_goes_on() -> None:
    files = CrashFiles()
    log = opened(files)
    [end] = write(log, [b"before"])
    files.capacity_bytes = end + 100
    for size in (200, 90, 64):
        with pytest.raises(DiskFullError):
            write(log, [b"x" * size])
        assert log.durable == end
    write(log, [b"fits"])
    files.capacity_bytes = 2**40
    write(log, [b"x" * 200])
    assert texts(opened(files.crash(Random(1)))) == [b"before", b"fits", b"x" * 200]


def test_a_disk_that_fills_in_the_middle_of_a_group_takes_back_its_first_pieces_too() -> None:
    files = CrashFiles()
    log = opened(files, piece_bytes=100)
    [end] = write(log, [b"before"])
    files.capacity_bytes = end + 1_000
    for text in (b"a" * 300, b"b" * 300):
        log.append(1, [text])
    assert log._segments[0].size > end + 600, "a piece of it was written before the commit"
    for text in (b"c" * 500, b"d" * 300):
        log.append(1, [text])
    with pytest.raises(DiskFullError):
        log.commit()
    assert log._segments[0].size == log.durable == end
    write(log, [b"fits"])
    for seed in range(20):
        assert texts(opened(files.crash(Random(seed)))) == [b"before", b"fits"]


def test_a_group_in_pieces_is_there_whole_only_when_it_was_committed() -> None:
    files = CrashFiles()
    log = opened(files, piece_bytes=100)
    [end] = write(log, [b"before"])
    parts = [bytes([65 + n]) * 90 for n in range(6)]
    for text in parts:
        log.append(1, [text])
    assert log.durable == end
    assert texts(log) == [b"before"], "nobody reads what is not durable"
    for seed in range(20):
        found = texts(opened(files.crash(Random(seed))))
        assert found == [b"before", *parts][: len(found)]
    log.commit()
    assert texts(opened(files.crash(Random(0)))) == [b"before", *parts]


def test_another_error_of_writing_is_the_end() -> None:
    files = CrashFiles()
    log = opened(files)
    write(log, [b"safe"])
    file = log._segments[0]

    def broken(parts: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file.append = broken  # type: ignore[method-assign]
    with pytest.raises(LogFailedError):
        write(log, [b"lost"])


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_power_cut_leaves_holds_every_commit(seed: int) -> None:
    """Cut the power before random file operations, several times: every group for which commit returned survives."""
    rng = Random(seed)
    files = CrashFiles()
    committed: list[bytes] = []
    for life in range(4):
        files.crash_before = len(files.operations) + rng.randint(1, 30)
        written: list[bytes] = []
        try:
            log = opened(files, segment_bytes=300, piece_bytes=100 if seed % 2 else PIECE_BYTES)
            found = texts(log)
            assert found[: len(committed)] == committed
            committed = found
            while True:
                group = [bytes([65 + life]) * rng.randint(0, 200) for _ in range(rng.randint(1, 3))]
                written = group
                write(log, group)
                committed = committed + group
                written = []
        except PowerCut:
            files = files.crash(rng)
        after = texts(opened(files.killed(), segment_bytes=300))
        assert after[: len(committed)] == committed
        assert after[len(committed) :] == written[: len(after) - len(committed)]
