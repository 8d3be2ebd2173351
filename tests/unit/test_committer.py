"""Groups: what is joined, what is refused, what a full and a failing disk do to those who wait."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.schema import Schema
from engine.daemon.durable.committer import JOINED_TUPLES, Committer, Emitted, GroupOutcome, Input, Note
from engine.daemon.durable.records import NAMED, TRAIN, batches_of, unpack
from storage.admission import AdmissionVerdict, BatchNumber
from storage.log import Log
from storage.queue import COALESCE_BELOW
from storage.source_numbers import SourceNumbers
from storage.train import NO_WATERMARK, Train
from tests.crash.crash_files import CrashFiles, PowerCut

SCHEMA = Schema.of(a="bigint")


def train_of(*values: int, watermark_ns: int = NO_WATERMARK) -> Train:
    return Train.from_pylists(SCHEMA, {"a": list(values)}, 0).with_watermark(watermark_ns)


class Desk:
    """What stands around a committer, taking notes."""

    def __init__(self, files: CrashFiles | None = None) -> None:
        self.files = files or CrashFiles()
        self.log = Log(self.files)
        self.log.open()
        self.committer = Committer(self.log, self.files, ["s", "t"], ["o"], SourceNumbers(2), self, lambda: 77)
        self.admitted: list[tuple[int, list[int]]] = []
        self.outputs: list[tuple[int, int, int]] = []
        self.outcomes: list[GroupOutcome] = []
        self.asked_for_room = 0
        self.rooms: list[bool] = []

    def submitted(self) -> None: ...

    def room_again(self) -> None:
        self.rooms.append(True)

    def enter(self, stream: int, train: Train, now_ns: int) -> None:
        assert now_ns == 77
        self.admitted.append((stream, train.columns[0].tolist()))

    def emitted(self, output: int, first: int, tuples: int, position: int) -> None:
        self.outputs.append((output, first, tuples))

    def settled(self, outcome: GroupOutcome) -> None:
        self.outcomes.append(outcome)

    def notes(self) -> list[Note]:
        return []

    def disk_full(self) -> None:
        self.asked_for_room += 1

    def plain(self, stream: int, train: Train) -> None:
        self.committer.submit(Input(stream, train, None, 100))

    def batch(self, sequence: int, *values: int, source: str = "x", stream: int = 0) -> AdmissionVerdict:
        batch = BatchNumber(source, 1, sequence)
        verdict = self.committer.numbers.offer(stream, batch)
        if verdict is AdmissionVerdict.NEW:
            self.committer.submit(Input(stream, train_of(*values), batch, 100))
        return verdict

    def acked(self) -> list[int]:
        return [batch.sequence for o in self.outcomes for _, batch in o.committed]

    def refused(self) -> list[tuple[int, int]]:
        return [(batch.sequence, tuples) for o in self.outcomes for _, batch, tuples, _ in o.refused]

    def records(self) -> list[dict[str, Any]]:
        return [unpack(r.payload)[0] for r in self.log.records(0) if r.kind == TRAIN]


def test_short_trains_of_one_stream_become_one_record_and_one_train() -> None:
    desk = Desk()
    desk.batch(1, 1, 2)
    desk.plain(1, train_of(9))
    desk.batch(2, 3)
    desk.plain(0, train_of(4))
    assert desk.committer.step()
    assert sorted(desk.admitted) == [(0, [1, 2, 3, 4]), (1, [9])]
    [first] = [r for r in desk.records() if r["s"] == "s"]
    assert [e.sequence for e in batches_of(first)] == [1, 2]
    assert desk.acked() == [1, 2]
    assert desk.committer.pending_bytes == 0
    assert desk.committer.pending_tuples == [0, 0]


def test_long_trains_and_watermarks_stand_alone_and_in_order() -> None:
    desk = Desk()
    long = list(range(COALESCE_BELOW))
    for train in (train_of(1), train_of(watermark_ns=5), train_of(2), train_of(*long), train_of(3)):
        desk.plain(0, train)
    desk.committer.step()
    assert desk.admitted == [(0, [1]), (0, []), (0, [2]), (0, long), (0, [3])]


def test_what_is_joined_is_bounded() -> None:
    desk = Desk()
    for _ in range(10):
        desk.plain(0, train_of(*range(COALESCE_BELOW - 1)))
    desk.committer.step()
    assert all(len(values) <= JOINED_TUPLES for _, values in desk.admitted)
    assert len(desk.admitted) == 3


def test_a_full_disk_refuses_who_can_be_told_keeps_the_rest_and_goes_on() -> None:
    desk = Desk()
    desk.batch(1, 1)
    desk.committer.step()
    used = desk.log.durable
    desk.files.capacity_bytes = used + 200
    desk.batch(2, 2)
    desk.plain(1, train_of(7))
    desk.committer.submit(Emitted(0, 1, train_of(5), 100))
    assert not desk.committer.step()
    assert desk.refused() == [(2, 1)]
    assert desk.asked_for_room == 1
    assert not desk.committer.has_room
    assert desk.batch(3, 3) is AdmissionVerdict.GAP
    desk.files.capacity_bytes = 2**40
    assert not desk.rooms
    desk.committer.look_for_room()
    assert desk.rooms == [True]
    assert desk.batch(2, 2) is AdmissionVerdict.NEW
    assert desk.committer.step()
    assert desk.acked() == [1, 2]
    assert sorted(desk.admitted) == [(0, [1]), (0, [2]), (1, [7])]
    assert desk.outputs == [(0, 1, 1)]


def test_a_batch_that_was_on_its_way_when_the_one_before_was_refused_is_refused_too() -> None:
    """The client's next batch passes the desk before the word of the refusal is out: it must not reach the log."""
    desk = Desk()
    desk.batch(1, 1)
    desk.batch(2, 2)
    behind = desk.committer._pending.pop()
    desk.files.capacity_bytes = 10
    desk.committer.step()
    desk.files.capacity_bytes = 2**40
    desk.committer.look_for_room()
    desk.committer.submit(behind)
    desk.committer.step()
    assert desk.refused() == [(1, 1), (2, 1)]
    assert desk.admitted == []
    assert desk.batch(1, 1) is AdmissionVerdict.NEW


def test_outputs_have_room_in_reserve() -> None:
    desk = Desk(CrashFiles(capacity_bytes=160_000))
    desk.files.create("ballast").append([bytes(155_000)])
    desk.batch(1, 1)
    desk.committer.submit(Emitted(0, 1, train_of(5), 100))
    desk.committer.step()
    assert desk.refused() == [(1, 1)]
    assert desk.committer.step()
    assert desk.outputs == [(0, 1, 1)]


def test_a_log_that_failed_refuses_everything_and_counts_what_nobody_can_be_told_of() -> None:
    desk = Desk()
    desk.batch(1, 1)
    desk.committer.step()
    desk.files.fail_syncs = {len(desk.files.operations) + 1}
    desk.batch(2, 2)
    desk.plain(1, train_of(7, 8))
    assert desk.committer.step()
    desk.batch(2, 2)
    desk.committer.step()
    assert desk.refused() == [(2, 1), (2, 1)]
    assert desk.acked() == [1]
    assert desk.admitted == [(0, [1])]
    assert desk.committer.lost_tuples == [0, 2]
    assert "failed" in desk.committer.refusal
    assert not desk.committer.is_waiting, "only a restart mends it"


@pytest.mark.parametrize("count", [1, 1_000])
def test_a_group_is_one_sync(count: int) -> None:
    desk = Desk()
    for sequence in range(1, count + 1):
        desk.batch(sequence, sequence)
    desk.committer.step()
    assert sum(d.startswith("sync log") for d in desk.files.operations) == 1
    assert desk.acked()[-1] == count


def test_a_name_stands_before_the_trains_of_its_group_and_is_answered_when_it_is_on_disk() -> None:
    """Where a torn tail left a train and not the name, a replay would keep nothing of what comes of it."""
    desk = Desk()
    answers: list[str] = []
    desk.batch(1, 5)
    desk.committer.submit(Note(NAMED, {"o": "o", "name": "r", "q": 0}, then=answers.append))
    desk.files.crash_before = len(desk.files.operations) + 3  # create, sync of the folder, append; not synced
    with pytest.raises(PowerCut):
        desk.committer.step()
    assert not answers
    desk = Desk()
    desk.batch(1, 5)
    desk.committer.submit(Note(NAMED, {"o": "o", "name": "r", "q": 0}, then=answers.append))
    assert desk.committer.step()
    assert answers == [""]
    assert [r.kind for r in desk.log.records(0)] == [NAMED, TRAIN]


def test_a_name_that_cannot_be_kept_hears_why() -> None:
    desk = Desk()
    answers: list[str] = []
    desk.files.fail_syncs = {3}
    desk.committer.submit(Note(NAMED, {"o": "o", "name": "r", "q": 0}, then=answers.append))
    desk.committer.step()
    assert len(answers) == 1 and "the log has failed" in answers[0]
