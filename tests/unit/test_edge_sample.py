"""Rows dropped undecoded: every line has the same chance, no line is cut, none is counted twice or not at all."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from catalog.schema import Field, Schema, Type
from router.codecs import CODECS
from router.codecs.base import Intake, Received
from router.edge.gauge import OVERDUE, SAMPLED, EdgeGauge
from router.edge.inbox import FILLED_BYTES, HICCUP, EdgeInbox
from router.edge.sample import RUN_BYTES, EdgePiece, EdgeSample

LINE = b'{"a":1%06d,"b":"%s"}\n'


def lines(count: int, first: int = 0, width: int = 40) -> bytes:
    return b"".join(LINE % (i, b"x" * width) for i in range(first, first + count))


def reads(data: bytes, seed: int, longest: int) -> list[bytes]:
    random, found = Random(seed), []
    while data:
        size = random.randint(1, longest)
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("longest", [50, 3_000, 400_000])
@pytest.mark.parametrize("share", [1.0, 0.6, 0.05])
def test_every_line_is_whole_and_counted(share: float, longest: int) -> None:
    data = lines(20_000 if longest > 50 else 1_000)
    sample = EdgeSample(line_bytes=1_000, seed=1)
    pieces = [p for read in reads(data, 2, longest) for p in sample.cut(read, share)]
    kept = b"".join(p.data for p in pieces)
    whole = set(data.splitlines())
    assert all(line in whole for line in kept.splitlines()) and kept.endswith((b"\n", b""))
    assert kept.count(b"\n") + sum(p.skipped_rows for p in pieces) == data.count(b"\n")
    assert len(kept) + sum(p.skipped_bytes for p in pieces) == len(data)
    assert sample.end() == b""


def test_every_place_of_a_read_has_the_same_chance() -> None:
    data, share = lines(4_000), 0.3
    sample, tenths = EdgeSample(1_000, seed=3), [0] * 10
    for _ in range(300):
        for piece in sample.cut(data, share):
            for line in piece.data.splitlines():
                tenths[int(line[6:12]) // 400] += 1
    expected = 300 * 400 * share
    assert all(abs(n - expected) < 0.2 * expected for n in tenths), tenths
    assert abs(sum(tenths) - 10 * expected) < 0.03 * 10 * expected


def test_sampling_begins_and_ends_between_lines() -> None:
    sample = EdgeSample(1_000, seed=4)
    text = lines(3_000)
    cuts = [text[:1_007], text[1_007:90_011], text[90_011:90_020], text[90_020:]]
    out = sample.whole(cuts[0])
    pieces = sample.cut(cuts[1], 0.5) + sample.cut(cuts[2], 0.5)
    out += b"".join(p.data for p in pieces) + sample.whole(cuts[3])
    assert set(out.splitlines()) <= set(text.splitlines())
    assert out.count(b"\n") + sum(p.skipped_rows for p in pieces) == 3_000


def test_a_line_above_the_limit_reaches_the_decoder_which_refuses_it() -> None:
    inbox, taken, gauge, _ = make_inbox()
    inbox.receive(lines(2), 1)
    gauge.share = 0.5
    inbox.receive(b"y" * 5_000, 2)  # the limit is 1,000
    inbox.receive(b"y" * 5_000 + b"\n" + lines(1, 7), 3)
    taken.append((inbox.end(4), 0))
    rejects = [r for received, _ in taken for r in received.rejects]
    assert [(r.line, str(r.reason)) for r in rejects] == [(3, "too_long")]


# -- the inbox ---------------------------------------------------------------------------------------------------------

SCHEMA = Schema((Field("a", Type.BIGINT), Field("b", Type.STRING)))


class Thread:
    """A decode thread that works when the test lets it."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once
        self.jobs: list[tuple[Callable[[], Received], Callable[[Received], None]]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self.timers.append((seconds, call))

    def __call__(self, work: Callable[[], Received], done: Callable[[Received], None]) -> None:
        self.jobs.append((work, done))
        if self.at_once:
            self.run()

    def run(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            done(work())


def make_inbox(at_once: bool = True) -> tuple[EdgeInbox, list[tuple[Received, int]], EdgeGauge, Thread]:
    gauge, taken, thread = EdgeGauge(sheds=True, wait_ns=100 // HICCUP), [], Thread(at_once)
    decoder = CODECS["ndjson"].decoder(Intake(SCHEMA, line_bytes=1_000))
    clock = {"now": 0}

    def take(received: Received, dropped: int) -> None:
        taken.append((received, dropped))

    inbox = EdgeInbox(gauge, decoder, EdgeSample(1_000, 5), thread, take, lambda: clock["now"], thread.later)
    thread.clock = clock  # type: ignore[attr-defined]
    return inbox, taken, gauge, thread


def rows(taken: list[tuple[Received, int]]) -> list[int]:
    return [row for received, _ in taken for t in received.trains for row in (t.columns[0] - 1_000_000).tolist()]


def test_without_a_share_all_rows_come_in_order() -> None:
    inbox, taken, gauge, _ = make_inbox()
    text = lines(5_000)
    for read in reads(text, 1, 60_000):
        inbox.receive(read, 1)
    taken.append((inbox.end(2), 0))
    assert rows(taken) == list(range(5_000)) and not sum(gauge.dropped.values())


def test_a_share_is_decoded_and_the_rest_is_counted() -> None:
    inbox, taken, gauge, _ = make_inbox()
    gauge.share = 0.3
    for at in range(0, 100_000, 5_000):
        inbox.receive(lines(5_000, at), 1)
    taken.append((inbox.end(2), inbox.take_dropped()))
    found = rows(taken)
    assert found == sorted(found) and 0.2 < len(found) / 100_000 < 0.45  # the first read is whole
    assert len(found) + gauge.dropped[SAMPLED] == 100_000
    assert sum(dropped for _, dropped in taken) == gauge.dropped[SAMPLED]


def test_the_first_read_is_never_thinned_because_it_may_hold_a_header() -> None:
    inbox, taken, gauge, _ = make_inbox()
    gauge.share = 0.01
    inbox.receive(lines(3), 1)
    assert rows(taken) == [0, 1, 2]


def test_reads_wait_for_the_decode_thread_and_the_oldest_go_when_they_are_overdue() -> None:
    inbox, taken, gauge, thread = make_inbox(at_once=False)
    inbox.receive(lines(1_000), 10)
    for i in range(1, 5):
        thread.clock["now"] = 60 * i  # type: ignore[attr-defined]
        inbox.receive(lines(1_000, 1_000 * i), 60 * i)
    thread.run()
    found = rows(taken)
    assert found[:1_000] == list(range(1_000)), "what the decode thread has is never dropped"
    assert gauge.dropped[OVERDUE] and gauge.dropped[OVERDUE] + len(found) == 5_000
    assert found[-1_000:] == list(range(4_000, 5_000)), "the newest stay"
    assert not inbox.is_busy


def test_while_rows_are_sampled_short_reads_share_a_block() -> None:
    """A block becomes a train, and a train costs each box and reader a call."""
    inbox, taken, gauge, thread = make_inbox()
    gauge.wait_ns = 1_000
    inbox.receive(lines(10), 1)
    gauge.share = 0.5
    for i in range(200):
        thread.clock["now"] = i  # type: ignore[attr-defined]
        inbox.receive(lines(300, 10 + 300 * i), i)
    blocks, found = len(taken), rows(taken)
    assert blocks <= 1 + 60_300 * len(lines(1, 10)) // FILLED_BYTES and not inbox.is_busy
    assert thread.timers and thread.timers[0][0] == pytest.approx(500e-9), "half of the time that rows may wait"
    thread.clock["now"] = 1_000  # type: ignore[attr-defined]
    [*_, (_, gathered)] = thread.timers
    gathered()  # the sender is silent: what it has sent does not wait for more
    assert len(rows(taken)) > len(found) and len(taken) == blocks + 1
    assert len(rows(taken)) + sum(gauge.dropped.values()) == 60_010


def test_what_waits_to_be_gathered_is_decoded_when_the_sender_closes_or_all_rows_are_decoded_again() -> None:
    for closes in (True, False):
        inbox, taken, gauge, _ = make_inbox()
        inbox.receive(lines(10), 1)
        gauge.share = 0.99
        inbox.receive(lines(2_000, 10), 1)
        assert rows(taken) == list(range(10))
        gauge.share = 1.0
        if closes:
            taken.append((inbox.end(2), 0))
        else:
            inbox.receive(lines(1, 2_010), 2)
        assert len(rows(taken)) + sum(gauge.dropped.values()) == 2_010 + (not closes)


def test_a_reject_has_its_place_among_all_lines() -> None:
    inbox, taken, gauge, _ = make_inbox()
    inbox.receive(lines(10), 1)
    gauge.share = 0.4
    inbox.receive(lines(4_000, 10), 1)
    gauge.share = 1.0
    inbox.receive(lines(5, 4_010) + b"nonsense\n" + lines(1, 4_016), 1)
    [reject] = [r for received, _ in taken for r in received.rejects]
    assert reject.line == 4_016 and reject.offset == len(lines(4_015))


def test_pieces_shorter_than_a_run_are_kept_or_dropped_whole() -> None:
    sample, kept = EdgeSample(1_000, seed=6), 0
    one = lines(10)
    assert len(one) < RUN_BYTES
    for _ in range(2_000):
        [piece] = sample.cut(one, 0.25)
        assert piece in (EdgePiece(one), EdgePiece(b"", 10, len(one)))
        kept += bool(piece.data)
    assert 400 < kept < 600
