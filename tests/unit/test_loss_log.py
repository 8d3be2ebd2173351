"""The log of losses: the first one at once, then sums at most every ten seconds for a place, with place and count."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from catalog.readings import (
    ArcReading,
    BoxReading,
    EngineReading,
    OutputReading,
    Readings,
    SinkReading,
    StreamReading,
    SubscriberReading,
)
from engine.daemon.monitor.loss_details import LossDetails
from engine.daemon.monitor.loss_log import EVERY_NS, KINDS, LINES_AT_MOST, LossLog
from engine.run.network_file import read_network
from router.codecs.base import Reason, Reject
from router.dead_letters import DeadLetters

S = 10**9


class Details:
    """Adds nothing to a line: what it would add needs a daemon (``tests/e2e/test_losses.py``)."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: ""


def refused(now_ns: int, **rejected: int) -> Readings:
    return Readings(streams=[StreamReading("trades", rejected=rejected)], engine=EngineReading(now_ns=now_ns))


def late(now_ns: int, boxes: Mapping[str, int]) -> Readings:
    return Readings(
        boxes=[BoxReading(name, late=count) for name, count in boxes.items()], engine=EngineReading(now_ns=now_ns)
    )


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Any:
    """Returns the lines since the last call."""
    caplog.set_level(logging.INFO, "aurorad.losses")

    def lines() -> list[str]:
        messages = [r.getMessage() for r in caplog.records]
        caplog.clear()
        return messages

    return lines


def log_of_losses() -> LossLog:
    return LossLog(Details())  # type: ignore[arg-type]


def test_the_first_loss_at_once_and_then_sums(told: Any) -> None:
    losses = log_of_losses()
    losses.note(refused(0))
    assert told() == []
    losses.note(refused(S, malformed=1))
    assert told() == ["stream trades refused 1 tuple (1 malformed)"]
    for tick in range(1, 100):
        losses.note(refused(S + tick * EVERY_NS // 100, malformed=1 + 10 * tick, skew=tick))
    assert told() == []
    losses.note(refused(S + EVERY_NS, malformed=1001, skew=100))
    assert told() == [
        "stream trades refused 1,100 tuples in the last 10 s (1,000 malformed, 100 skew), 1,101 since the start"
    ]
    losses.note(refused(S + 3 * EVERY_NS, malformed=1001, skew=100))
    assert told() == []  # nothing new
    losses.note(refused(S + 3 * EVERY_NS + 1, malformed=1001, skew=101))
    assert told() == ["stream trades refused 1 tuple in the last 20 s (1 skew), 1,102 since the start"]


def test_each_place_has_its_own_line_and_a_flood_of_places_has_few(told: Any) -> None:
    losses = log_of_losses()
    losses.note(late(0, {"a": 1}))
    losses.note(late(1, {"a": 2, "b": 3}))
    assert told() == ["box a left out 1 tuple that came too late", "box b left out 3 tuples that came too late"]
    many = {f"b{i}": 5 for i in range(1_000)}
    for tick in range(20):
        losses.note(late(2 + tick, many))
    lines = told()
    assert len(lines) == LINES_AT_MOST - 2 + 1
    rest = 1_000 - (LINES_AT_MOST - 2)
    assert lines[-1] == f"{rest} more places have losses of the kind late; /metrics has all of them"
    losses.flush(late(S, many))
    assert len(told()) == rest  # at the end every place has told everything
    losses.flush(late(S, many))
    assert told() == []


def test_what_a_checkpoint_restored_is_old_news(told: Any) -> None:
    losses = log_of_losses()
    losses.skip(refused(0, malformed=50))
    losses.note(refused(1, malformed=50))
    assert told() == []
    losses.note(refused(2, malformed=53))
    assert told() == ["stream trades refused 3 tuples (3 malformed), 53 since the start"]


def test_a_reader_that_leaves_takes_its_count_along(told: Any) -> None:
    def reading(now_ns: int, dropped: int) -> Readings:
        reader = SubscriberReading("named", dropped=dropped)
        return Readings(outputs=[OutputReading("out", subscribers=[reader])], engine=EngineReading(now_ns=now_ns))

    losses = log_of_losses()
    losses.note(reading(0, 7))
    losses.note(reading(EVERY_NS, 2))
    assert told() == ["output out dropped 7 tuples for readers that were too slow or left"]
    losses.note(reading(2 * EVERY_NS, 5))
    assert len(told()) == 1


def test_every_kind_of_loss_has_its_line(told: Any) -> None:
    everything = Readings(
        streams=[StreamReading("s", rejected={"null": 1})],
        arcs=[ArcReading("a->b", shed={"shed": 2, "expired": 1, "overflow": 4})],
        boxes=[BoxReading("b", late=1, dead=2, withheld=3, evicted=5)],
        outputs=[OutputReading("o", subscribers=[SubscriberReading("x", dropped=9)])],
        sinks=[SinkReading("o", dropped=8)],
        engine=EngineReading(evicted_connections=1, refused_connections=2),
    )
    log_of_losses().note(everything)
    lines = told()
    assert len(lines) == len(KINDS)
    assert lines[-6:] == [
        "the sink of output o dropped 8 tuples",
        "arc a->b dropped 4 tuples without a plan (4 overflow)",
        "arc a->b dropped 3 tuples (2 shed, 1 expired); `aurorad explain --drops` says why",
        "box b withheld 3 results, because its windows lack tuples that were dropped",
        "closed 1 unused connection to make room for new ones",
        "refused 2 connections: no place is free",
    ]


@pytest.mark.parametrize(
    ("line", "peer", "said"),
    [
        (3, "127.0.0.1:5", "; the last one, line 3 from 127.0.0.1:5: why"),
        (3, "", "; the last one, line 3: why"),
        (0, "", "; the last one: why"),
    ],
)
def test_a_dead_letter_is_quoted_with_as_much_of_its_place_as_is_known(line: int, peer: str, said: str) -> None:
    network = read_network("http: {listen: off}\nstreams: {s: {schema: {a: int}}}\noutputs: {o: {from: s}}\n", {})
    letters = DeadLetters()
    letters.add(0, "s", peer, [Reject(Reason.MALFORMED, line, 0, "why", b"")])
    no_engine: Any = None  # a refused row never reached it
    assert LossDetails(network, no_engine, letters, connections=1).refused("s") == said
