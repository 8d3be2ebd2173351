"""Names of sources and readers: how many there may be, which one is forgotten, and which epochs are believed."""

from __future__ import annotations

import pytest

from router.client_protocol import SessionError, check_epoch
from storage.admission import UNUSED_SECONDS, Admission, AdmissionVerdict, BatchNumber

NOW_S = 1_800_000_000
NOW_NS = NOW_S * 10**9


class _Clock:
    now_s = float(NOW_S)

    def __call__(self) -> float:
        return self.now_s


def test_a_full_table_forgets_names_that_were_unused_for_a_day_and_no_others() -> None:
    clock = _Clock()
    table = Admission(clock, at_most=3)
    for name in ("a", "b", "c"):
        assert table.offer(BatchNumber(name, 1, 1)) is AdmissionVerdict.NEW
        table.commit(BatchNumber(name, 1, 1))
        clock.now_s += 10
    assert table.offer(BatchNumber("new", 1, 1)) is AdmissionVerdict.TOO_MANY, "each may still repeat its batch"
    clock.now_s = NOW_S + UNUSED_SECONDS + 5
    assert table.offer(BatchNumber("new", 1, 1)) is AdmissionVerdict.NEW
    assert sorted(table.names()) == ["b", "c", "new"]
    assert table.offer(BatchNumber("b", 1, 1)) is AdmissionVerdict.DUPLICATE, "what is remembered is exact"


def test_the_time_of_use_outlives_a_restart_and_an_older_snapshot_counts_as_used_now() -> None:
    clock = _Clock()
    table = Admission(clock)
    table.offer(BatchNumber("a", 1, 1))
    table.commit(BatchNumber("a", 1, 1))
    again = Admission(clock)
    clock.now_s += 100
    again.restore(table.snapshot())
    assert again.names()["a"].used_s == NOW_S
    again.restore({"old": [3, 7]})
    assert (again.names()["old"].committed, again.names()["old"].used_s) == (7, NOW_S + 100)


@pytest.mark.parametrize(
    ("epoch", "known"),
    [(1, 0), (NOW_S, 0), (NOW_NS, 0), (NOW_S + 60, NOW_S - 5), (2, 1), (NOW_NS + 10, NOW_NS), (5 * NOW_NS, 5 * NOW_NS)],
)
def test_an_epoch_that_is_the_time_of_a_start_is_believed(epoch: int, known: int) -> None:
    check_epoch(epoch, known, NOW_NS)


@pytest.mark.parametrize(
    ("epoch", "known"),
    [(2**61, 0), (NOW_NS, NOW_S - 5), (NOW_S + 3600, NOW_S), (2**61, NOW_NS), (2**62, 1)],
)
def test_an_epoch_in_the_future_is_refused(epoch: int, known: int) -> None:
    """One hello with epoch 2^61 once locked the owner of a source out for good."""
    with pytest.raises(SessionError, match="lies in the future"):
        check_epoch(epoch, known, NOW_NS)
