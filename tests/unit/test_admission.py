"""The table of (source, epoch, sequence), compared with a plain model of what a client may expect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from storage.admission import Admission, AdmissionVerdict, BatchNumber, Standing


def committed(*sequences: int, epoch: int = 1) -> Admission:
    table = Admission()
    for sequence in sequences:
        assert table.offer(BatchNumber("a", epoch, sequence)) is AdmissionVerdict.NEW
        table.commit(BatchNumber("a", epoch, sequence))
    return table


def test_next_again_and_too_far() -> None:
    table = committed(1, 2)
    assert table.offer(BatchNumber("a", 1, 2)) is AdmissionVerdict.DUPLICATE
    assert table.offer(BatchNumber("a", 1, 4)) is AdmissionVerdict.GAP
    assert table.offer(BatchNumber("a", 1, 3)) is AdmissionVerdict.NEW
    assert table.offer(BatchNumber("a", 1, 3)) is AdmissionVerdict.DUPLICATE, "it is on its way"
    assert table.committed("a", 1) == 2
    assert table.offer(BatchNumber("b", 1, 2)) is AdmissionVerdict.GAP
    assert table.offer(BatchNumber("b", 1, 1)) is AdmissionVerdict.NEW


def test_a_new_epoch_begins_at_one_and_the_old_one_is_over() -> None:
    table = committed(1, 2, 3)
    assert table.offer(BatchNumber("a", 2, 4)) is AdmissionVerdict.GAP
    assert table.offer(BatchNumber("a", 2, 1)) is AdmissionVerdict.NEW
    assert table.offer(BatchNumber("a", 1, 4)) is AdmissionVerdict.STALE
    assert table.greet("a", 1) is AdmissionVerdict.STALE
    standing = table.greet("a", 2)
    assert isinstance(standing, Standing) and standing.received == 1


def test_what_could_not_be_written_may_come_again() -> None:
    table = committed(1)
    table.offer(BatchNumber("a", 1, 2))
    table.offer(BatchNumber("a", 1, 3))
    table.retract(["a", "nobody"])
    assert table.offer(BatchNumber("a", 1, 3)) is AdmissionVerdict.GAP
    assert table.offer(BatchNumber("a", 1, 2)) is AdmissionVerdict.NEW


def test_only_what_is_committed_survives() -> None:
    table = committed(1, 2)
    table.offer(BatchNumber("a", 1, 3))
    again = Admission()
    again.restore(table.snapshot())
    assert again.offer(BatchNumber("a", 1, 2)) is AdmissionVerdict.DUPLICATE
    assert again.offer(BatchNumber("a", 1, 3)) is AdmissionVerdict.NEW


def test_names_are_bounded() -> None:
    table = Admission(at_most=2)
    assert [table.offer(BatchNumber(name, 1, 1)) for name in "abc"] == [
        AdmissionVerdict.NEW,
        AdmissionVerdict.NEW,
        AdmissionVerdict.TOO_MANY,
    ]
    assert table.offer(BatchNumber("a", 1, 2)) is AdmissionVerdict.NEW


@given(st.lists(st.tuples(st.sampled_from(["offer", "commit", "fail", "restart"]), st.integers(1, 6)), max_size=60))
def test_every_batch_is_admitted_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """``kept`` are the batches that were really committed. Like a group, a commit takes all batches on their way."""
    table, kept, on_its_way = Admission(), [], []
    for kind, sequence in steps:
        if kind == "offer":
            verdict = table.offer(BatchNumber("a", 1, sequence))
            last = len(kept) + len(on_its_way)
            expected = (
                AdmissionVerdict.NEW
                if sequence == last + 1
                else AdmissionVerdict.GAP
                if sequence > last
                else AdmissionVerdict.DUPLICATE
            )
            assert verdict is expected
            if verdict is AdmissionVerdict.NEW:
                on_its_way.append(sequence)
        elif kind == "commit":
            for sequence in on_its_way:
                table.commit(BatchNumber("a", 1, sequence))
            kept, on_its_way = kept + on_its_way, []
        elif kind == "fail":
            table.retract(["a"])
            on_its_way = []
        else:
            again = Admission()
            again.restore(table.snapshot())
            table, on_its_way = again, []
        assert kept == list(range(1, len(kept) + 1))
        assert table.committed("a", 1) == len(kept)
