"""The dead-letter ring: bounded in entries and in bytes, newest first, always JSON."""

from __future__ import annotations

import json

from router.codecs.base import Reason, Reject
from router.dead_letters import DeadLetters


def reject(line: int, sample: bytes = b"x") -> Reject:
    return Reject(Reason.MALFORMED, line, 10 * line, "not JSON", sample)


def test_entries_are_bounded_and_the_total_is_not() -> None:
    letters = DeadLetters(entries=3)
    letters.add(1, "trades", "peer", [reject(i) for i in range(1, 11)])
    assert len(letters) == 3 and letters.total == 10
    assert [x["line"] for x in letters.to_json()] == [10, 9, 8]
    assert [x["line"] for x in letters.to_json(limit=1)] == [10]


def test_bytes_are_bounded() -> None:
    letters = DeadLetters(entries=1_000_000, max_bytes=10_000)
    for i in range(1_000):
        letters.add(1, "trades", "peer", [reject(i, b"y" * 256)])
        assert letters.nbytes <= 10_000
    assert 10 < len(letters) < 50


def test_none_are_kept_when_none_are_wanted() -> None:
    letters = DeadLetters(entries=0)
    letters.add(1, "trades", "peer", [reject(1)])
    assert len(letters) == 0 and letters.nbytes == 0 and letters.total == 1


def test_any_bytes_become_json_and_streams_can_be_told_apart() -> None:
    letters = DeadLetters()
    letters.add(5, "trades", "1.2.3.4:5", [reject(0, b"\xff\x00\n")])
    letters.add(6, "quotes", "peer", [reject(2)])
    [entry] = json.loads(json.dumps(letters.to_json("trades")))
    assert entry["line"] is None and entry["reason"] == "malformed" and entry["peer"] == "1.2.3.4:5"
    assert entry["sample"] == "\ufffd\x00\n"
