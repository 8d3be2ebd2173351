"""The laws: each term counts, in its sign; a passing imbalance is not a breach, a lasting one is."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.readings import ArcReading, BoxReading, Readings, StreamReading, SubscriberReading
from qos_monitor.conservation import (
    LAWS,
    Breach,
    PersistentBreaches,
    arc_residual,
    box_residual,
    breaches,
    residuals,
    stream_residual,
    subscriber_residual,
)
from tests.unit.monitored import busy, diamond

STREAM = StreamReading("s", received=100, admitted=72, rejected={"null": 15, "malformed": 5}, duplicates=8)
ARC = ArcReading("a", tuples=10, enqueued=100, dequeued=70, shed={"random": 4, "value": 6}, spilled_tuples=10)
ROWS = BoxReading("b", tuples_in=100, tuples_out=60, filtered=39, dead=1)
WINDOWS = BoxReading("w", row_wise=False, tuples_in=100, tuples_out=7, absorbed=90, late=8, dead=2)
READER = SubscriberReading("r", offered=100, delivered=80, pending=15, dropped=5)


def test_the_laws_hold_when_everything_is_counted() -> None:
    assert stream_residual(STREAM) == 0
    assert arc_residual(ARC) == 0
    assert box_residual(ROWS) == 0
    assert box_residual(WINDOWS) == 0
    assert subscriber_residual(READER) == 0
    assert residuals(busy(diamond())) == dict.fromkeys(LAWS, 0)


@pytest.mark.parametrize(
    ("law", "reading", "field", "value", "missing"),
    [
        (stream_residual, STREAM, "received", 101, 1),
        (stream_residual, STREAM, "admitted", 73, -1),
        (stream_residual, STREAM, "rejected", {"null": 15}, 5),
        (stream_residual, STREAM, "duplicates", 0, 8),
        (arc_residual, ARC, "enqueued", 103, 3),
        (arc_residual, ARC, "dequeued", 71, -1),
        (arc_residual, ARC, "shed", {"value": 6}, 4),
        (arc_residual, ARC, "tuples", 0, 10),
        (arc_residual, ARC, "spilled_tuples", 0, 10),
        (box_residual, ROWS, "tuples_in", 102, 2),
        (box_residual, ROWS, "tuples_out", 59, 1),
        (box_residual, ROWS, "filtered", 0, 39),
        (box_residual, ROWS, "dead", 0, 1),
        (box_residual, WINDOWS, "absorbed", 0, 90),
        (box_residual, WINDOWS, "late", 0, 8),
        (box_residual, WINDOWS, "tuples_out", 70, 0),
        (subscriber_residual, READER, "offered", 99, -1),
        (subscriber_residual, READER, "delivered", 79, 1),
        (subscriber_residual, READER, "pending", 0, 15),
        (subscriber_residual, READER, "dropped", 0, 5),
    ],
)
def test_every_term_counts(law: Any, reading: Any, field: str, value: Any, missing: int) -> None:
    assert law(reading._replace(**{field: value})) == missing


def test_a_breach_is_named() -> None:
    readings = busy(diamond())
    broken = readings._replace(streams=[readings.streams[0]._replace(received=10_051)])
    assert breaches(broken) == [Breach("stream", "trades", 1)]
    output = readings.outputs[0]
    slow = output._replace(subscribers=[output.subscribers[0]._replace(dropped=21)])
    assert breaches(readings._replace(outputs=[slow])) == [Breach("output", "alerts/127.0.0.1:5", -1)]


def test_one_lost_and_one_invented_make_two() -> None:
    readings = Readings(boxes=[ROWS._replace(name="x", dead=0), ROWS._replace(name="y", dead=2)])
    assert residuals(readings)["box"] == 2


def test_only_what_lasts_is_exported() -> None:
    persistent = PersistentBreaches(readings=3)
    fine = Readings(boxes=[ROWS])
    under_way = Readings(boxes=[ROWS._replace(tuples_in=150)])
    for reading in (under_way, under_way, fine, under_way, under_way):
        assert persistent.by_law(reading)["box"] == 0
    lost = Readings(boxes=[ROWS._replace(tuples_in=101)])
    assert persistent.by_law(lost)["box"] == 1, "the least of the three readings"
    assert persistent.fold(lost) == [Breach("box", "b", 1)]
