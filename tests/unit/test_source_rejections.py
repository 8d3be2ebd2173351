"""What a sender learns of refused rows: each once, also when batches come again and answers are lost."""

from __future__ import annotations

from router.codecs.base import Reason, Reject
from router.source_rejections import MESSAGE_CHARACTERS, REASONS_AT_ONCE, SOURCES, StreamRejections


def reject(line: int, tuples: int = 1, message: str = "no number") -> Reject:
    return Reject(Reason.WRONG_TYPE, line, 10 * line, message, tuples=tuples)


def test_a_source_without_refused_rows_gets_no_more_fields() -> None:
    rejections = StreamRejections()
    assert rejections.settle("x", 1, 5) == {} and rejections.for_welcome("x", 1, 5) == {}


def test_the_total_grows_with_the_acknowledgements_and_reasons_come_once() -> None:
    rejections = StreamRejections()
    rejections.add("x", 1, 3, [reject(2), reject(7, tuples=4)])
    rejections.add("x", 1, 5, [reject(1)])
    assert rejections.settle("x", 1, 2) == {}
    said = rejections.settle("x", 1, 4)
    assert said["rejected"] == 5
    assert [(r["batch"], r["line"], r["offset"], r["reason"], r["tuples"]) for r in said["reasons"]] == [
        (3, 2, 20, "wrong_type", 1),
        (3, 7, 70, "wrong_type", 4),
    ]
    assert [r["batch"] for r in rejections.settle("x", 1, 9)["reasons"]] == [5]
    assert rejections.settle("x", 1, 9) == {"rejected": 6, "reasons": []}


def test_a_batch_that_comes_again_counts_once() -> None:
    rejections = StreamRejections()
    for _ in range(3):
        rejections.add("x", 1, 1, [reject(1), reject(2)])
    assert rejections.settle("x", 1, 1)["rejected"] == 2


def test_a_welcome_repeats_what_may_have_been_lost() -> None:
    rejections = StreamRejections()
    rejections.add("x", 1, 1, [reject(4)])
    assert [r["line"] for r in rejections.for_welcome("x", 1, 1)["reasons"]] == [4]
    rejections.add("x", 1, 2, [reject(5)])
    rejections.settle("x", 1, 2)
    said = rejections.for_welcome("x", 1, 2)
    assert said["rejected"] == 2 and [r["line"] for r in said["reasons"]] == [4, 5]
    assert rejections.for_welcome("x", 2, 0) == {}, "another epoch begins anew"


def test_everything_has_a_limit() -> None:
    rejections = StreamRejections()
    rejections.add("x", 1, 1, [reject(n, message="m" * 10_000) for n in range(50)])
    said = rejections.settle("x", 1, 1)
    assert said["rejected"] == 50 and len(said["reasons"]) == REASONS_AT_ONCE
    assert {len(r["message"]) for r in said["reasons"]} == {MESSAGE_CHARACTERS}
    for n in range(SOURCES):
        rejections.add(f"s{n}", 1, 1, [reject(1)])
    assert rejections.get("x", 1) is None and rejections.get("s0", 1) is not None
