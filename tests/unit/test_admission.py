"""(source, epoch, sequence): the table against a plain model of what a client may expect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage import admission as module
from storage.admission import Admission, Entry, Standing, Verdict


def committed(*sequences: int, epoch: int = 1) -> Admission:
    table = Admission()
    for sequence in sequences:
        assert table.offer(Entry("a", epoch, sequence)) is Verdict.NEW
        table.commit(Entry("a", epoch, sequence))
    return table


def test_next_again_and_too_far() -> None:
    table = committed(1, 2)
    assert table.offer(Entry("a", 1, 2)) is Verdict.DUPLICATE
    assert table.offer(Entry("a", 1, 4)) is Verdict.GAP
    assert table.offer(Entry("a", 1, 3)) is Verdict.NEW
    assert table.offer(Entry("a", 1, 3)) is Verdict.DUPLICATE, "it is on its way"
    assert table.committed("a", 1) == 2
    assert table.offer(Entry("b", 1, 2)) is Verdict.GAP
    assert table.offer(Entry("b", 1, 1)) is Verdict.NEW


def test_a_new_epoch_begins_at_one_and_the_old_one_is_over() -> None:
    table = committed(1, 2, 3)
    assert table.offer(Entry("a", 2, 4)) is Verdict.GAP
    assert table.offer(Entry("a", 2, 1)) is Verdict.NEW
    assert table.offer(Entry("a", 1, 4)) is Verdict.STALE
    assert table.greet("a", 1) is Verdict.STALE
    standing = table.greet("a", 2)
    assert isinstance(standing, Standing) and standing.received == 1


def test_what_could_not_be_written_may_come_again() -> None:
    table = committed(1)
    table.offer(Entry("a", 1, 2))
    table.offer(Entry("a", 1, 3))
    table.retract(["a", "nobody"])
    assert table.offer(Entry("a", 1, 3)) is Verdict.GAP
    assert table.offer(Entry("a", 1, 2)) is Verdict.NEW


def test_only_what_is_committed_survives() -> None:
    table = committed(1, 2)
    table.offer(Entry("a", 1, 3))
    again = Admission()
    again.restore(table.snapshot())
    assert again.offer(Entry("a", 1, 2)) is Verdict.DUPLICATE
    assert again.offer(Entry("a", 1, 3)) is Verdict.NEW


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCES_AT_MOST", 2)
    table = Admission()
    assert [table.offer(Entry(name, 1, 1)) for name in "abc"] == [Verdict.NEW, Verdict.NEW, Verdict.TOO_MANY]
    assert table.offer(Entry("a", 1, 2)) is Verdict.NEW


@given(st.lists(st.tuples(st.sampled_from(["offer", "commit", "fail", "restart"]), st.integers(1, 6)), max_size=60))
def test_every_batch_is_admitted_once_and_in_order(steps: list[tuple[str, int]]) -> None:
    """``kept`` is what really became of the batches; commits take all that is on its way, as a group does."""
    table, kept, on_its_way = Admission(), [], []
    for kind, sequence in steps:
        if kind == "offer":
            verdict = table.offer(Entry("a", 1, sequence))
            last = len(kept) + len(on_its_way)
            expected = Verdict.NEW if sequence == last + 1 else Verdict.GAP if sequence > last else Verdict.DUPLICATE
            assert verdict is expected
            if verdict is Verdict.NEW:
                on_its_way.append(sequence)
        elif kind == "commit":
            for entry in on_its_way:
                table.commit(Entry("a", 1, entry))
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
