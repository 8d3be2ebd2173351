"""Checkpoints: all or nothing at any power cut, the older one when the newest is bad, only changed parts written."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random

import pytest

from storage.checkpoint import CheckpointError, CheckpointPart, Checkpoints, FoundCheckpoint
from tests.crash.crash_files import CrashFiles, PowerCut


def part(text: str, stamp: str | None = None) -> CheckpointPart:
    return CheckpointPart(text if stamp is None else stamp, lambda: [text.encode()])


def write(checkpoints: Checkpoints, position: int, **parts: str) -> None:
    checkpoints.write(position, {name: part(text) for name, text in parts.items()}, {"at": position})


def opened(files: CrashFiles) -> tuple[Checkpoints, FoundCheckpoint | None]:
    checkpoints = Checkpoints(files, pace=lambda: None)
    return checkpoints, checkpoints.open()


def content(found: FoundCheckpoint | None) -> dict[str, str]:
    assert found is not None
    return {name: data.decode() for name, data in found.parts.items()}


def test_the_newest_is_found_and_two_are_kept() -> None:
    files = CrashFiles()
    checkpoints, found = opened(files)
    assert found is None
    assert checkpoints.oldest_kept is None
    for n in range(1, 5):
        write(checkpoints, n * 100, box=f"state {n}", rest=f"rest {n}")
    assert checkpoints.oldest_kept == 300
    again, found = opened(files.crash(Random(5)))
    assert content(found) == {"box": "state 4", "rest": "rest 4"}
    assert found is not None and (found.position, found.facts) == (400, {"at": 400})
    assert again.oldest_kept == 300
    assert len(files.list("checkpoint")) == 2 * 2  # a manifest and the bundle of its small parts
    write(again, 500, box="state 5", rest="rest 5")
    assert content(opened(files)[1]) == {"box": "state 4", "rest": "rest 4"}, "another disk by now"


def test_what_has_not_changed_is_not_written_again_and_not_removed() -> None:
    files = CrashFiles()
    checkpoints, _ = opened(files)
    written = []
    for n in range(6):
        parts = {"large": part("x" * 10_000, "same"), "small": part(f"small {n}")}
        written.append(checkpoints.write(n, parts, {}))
    assert written[0].written_bytes > 10_000
    assert all(w.written_bytes < 100 and w.reused_bytes == 10_000 for w in written[1:])
    again, found = opened(files.crash(Random(5)))
    assert content(found) == {"large": "x" * 10_000, "small": "small 5"}
    assert again.write(9, {"large": part("", "same")}, {}).reused_bytes == 10_000, "known after a restart too"


def test_a_bad_newest_falls_back_to_the_one_before_whichever_bit_it_is() -> None:
    files = CrashFiles()
    checkpoints, _ = opened(files)
    write(checkpoints, 100, box="first")
    before = set(files.names)
    write(checkpoints, 200, box="second")
    for name in sorted(set(files.names) - before):
        for bit in range(0, 8 * len(files.names[name].live), 7):
            disk = files.killed()
            disk.flip(name, bit)
            again, found = opened(disk)
            assert content(found) == {"box": "first"}
            assert [e.file for e in again.passed_over] == [name]
            write(again, 300, box="third")
            assert content(opened(disk.crash(Random(bit)))[1]) == {"box": "third"}


def test_when_all_are_bad_the_start_is_refused_and_the_file_named() -> None:
    files = CrashFiles()
    checkpoints, _ = opened(files)
    write(checkpoints, 100, box="only")
    files.flip("checkpoint/0000000001-0.part", 3)
    with pytest.raises(CheckpointError, match=r"0000000001-0\.part.*CRC"):
        opened(files)


@pytest.mark.parametrize("seed", range(12))
def test_a_power_cut_before_any_operation_leaves_the_old_or_the_new(seed: int) -> None:
    rng = Random(seed)
    crash_before = 0
    while True:
        files = CrashFiles()
        checkpoints, _ = opened(files)
        write(checkpoints, 100, a="one", b="one")
        files.crash_before = len(files.operations) + crash_before
        try:
            write(checkpoints, 200, a="two", b="one")
            done = True
        except PowerCut:
            done = False
        for disk in (files.crash(rng), files.killed()):
            again, found = opened(disk)
            kept = content(found)
            assert kept in ({"a": "one", "b": "one"}, {"a": "two", "b": "one"})
            assert not (done and kept["a"] == "one")
            write(again, 300, a="three", b="three")
            assert content(opened(disk)[1]) == {"a": "three", "b": "three"}
        if done:
            break
        crash_before += 1
    assert crash_before >= 6


def test_a_full_disk_leaves_the_old_checkpoint_and_no_litter() -> None:
    files = CrashFiles()
    checkpoints, _ = opened(files)
    write(checkpoints, 100, box="x" * 100)
    names = set(files.names)
    files.capacity_bytes = files.capacity_bytes - files.space().free_bytes + 150
    with pytest.raises(OSError) as caught:
        write(checkpoints, 200, box="y" * 100, rest="z" * 100)
    assert caught.value.errno == errno.ENOSPC
    assert set(files.names) == names
    files.capacity_bytes = 2**40
    write(checkpoints, 300, box="y" * 100)
    assert content(opened(files.crash(Random(0)))[1]) == {"box": "y" * 100}


def test_large_parts_are_written_in_pieces() -> None:
    files = CrashFiles()
    checkpoints, _ = opened(files)

    def large() -> Sequence[bytes]:
        return [b"a" * 9_000_000, b"b", b"", b"c" * 5_000_000]

    checkpoints.write(1, {"large": CheckpointPart("1", large)}, {})
    found = opened(files)[1]
    assert found is not None
    assert found.parts["large"] == b"a" * 9_000_000 + b"b" + b"c" * 5_000_000
