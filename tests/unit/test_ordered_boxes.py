"""``order: time`` while time moves: what can be overtaken waits, what has left is in order, what is late is counted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from catalog.errors import AuroraError
from catalog.network import Network
from engine.operators.boxes.base import Tally
from engine.run.network_file import read_network
from storage.train import Train

UNION = """
http: {listen: "off"}
streams:
  s: {schema: {ts: timestamp, n: int}, time: ts}
  t: {schema: {ts: timestamp, n: int}, time: ts}
boxes:
  both: {union: [s, t], order: time}
outputs: {o: {from: both}}
"""
JOIN = UNION.replace("{union: [s, t], order: time}", "{join: [s, t], within: 10us, order: time}")


class Fed:
    """One box, fed by hand."""

    def __init__(self, text: str) -> None:
        self.network: Network = read_network(text)
        self.box: Any = self.network.box("both").box
        self.state, self.tally = self.box.new_state(), Tally()
        self.out: list[tuple[Any, ...]] = []

    def emit(self, port: int, train: Train) -> None:
        self.out += train.to_rows()

    def put(self, port: int, *rows: tuple[int, int]) -> None:
        columns = {"ts": [ts for ts, _ in rows], "n": [n for _, n in rows]}
        train = Train.from_pylists(self.network.streams[port].schema, columns, 0)
        self.box.run(self.state, port, train, self.emit, self.tally)

    def advance(self, watermark_ns: int) -> None:
        self.box.advance(self.state, watermark_ns, self.emit, self.tally)


def test_a_tuple_waits_for_the_slower_input() -> None:
    fed = Fed(UNION)
    fed.put(0, (10, 1), (30, 2))
    assert fed.out == [] and fed.box.held_tuples(fed.state) == 2 and fed.box.state_nbytes(fed.state) > 0
    fed.put(1, (20, 3))
    fed.advance(20)
    assert fed.out == [(10, 1)], "another tuple may still come at 20"
    fed.put(0, (20, 4))
    fed.advance(31)
    assert fed.out == [(10, 1), (20, 4), (20, 3), (30, 2)]
    fed.put(1, (30, 5), (31, 6))
    assert fed.tally.late == 1 and fed.tally.absorbed == 5
    fed.advance(2**62)
    assert fed.out[-1] == (31, 6) and fed.box.held_tuples(fed.state) == 0


def test_random_inputs_come_out_sorted_however_time_moves() -> None:
    random = np.random.default_rng(7)
    fed, expected = Fed(UNION), []
    for at in range(0, 400, 10):
        for port in random.permutation(2).tolist():
            rows = [(at + int(ns), int(random.integers(100))) for ns in random.integers(0, 30, 5)]
            expected += [(ts, port, n) for ts, n in rows]
            fed.put(port, *rows)
        fed.advance(at + 10)
    fed.advance(2**62)
    assert fed.tally.late == 0
    assert fed.out == [(ts, n) for ts, _, n in sorted(expected, key=lambda row: row[:2])]


def test_pairs_leave_by_their_later_tuple_and_only_when_no_older_one_can_come() -> None:
    fed = Fed(JOIN)
    fed.put(0, (5_000, 1), (9_000, 2))
    fed.put(1, (7_000, 3))
    assert fed.out == []
    fed.advance(8_000)
    assert fed.out == [(5_000, 1, 7_000, 3)]
    fed.put(1, (8_000, 4))
    fed.advance(20_000)
    found = [max(row[0], row[2]) for row in fed.out]
    assert found == sorted(found) and len(fed.out) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOIN.replace("order: time", "order: time, type: left"), "order: time is for inner joins"),
        (UNION.replace("t: {schema: {ts: timestamp, n: int}, time: ts}", "t: {schema: {ts: timestamp, n: int}}"),
         "event times in different fields"),
        (UNION.replace("order: time", "order: size"), "order"),
    ],
)  # fmt: skip
def test_what_has_no_order_of_time_is_refused(text: str, message: str) -> None:
    with pytest.raises(AuroraError, match=message):
        read_network(text)
