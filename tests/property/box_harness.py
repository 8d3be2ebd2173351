"""Runs one box as a worker does: any split into trains, any interleaving of its inputs, restarted in the middle.

Also holds every box to what it owes its surroundings, whatever it computes: its trains verify, what it took in is
accounted for, and nothing that it emits is older than a watermark that it has announced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from catalog.schema import Schema
from engine.operators.boxes import top
from engine.operators.boxes.base import LOST_TIME, Box, Tally
from engine.operators.joins import pairs
from engine.operators.state import keys, last_times, rows, strings, time_index
from storage.train import NO_WATERMARK, Train

END = 2**62

Rows = list[tuple[Any, ...]]


def bound(kind: type[Box], inputs: Sequence[Schema], times: Sequence[str | None], **parameters: Any) -> Box:
    box = kind(kind.parameters_model(**parameters))
    box.out_schemas = box.bind(tuple(inputs), tuple(times))  # type: ignore[attr-defined]
    return box


@contextmanager
def tiny() -> Iterator[None]:
    """Thresholds so low that a few rows merge chunks, close gaps, renumber keys and forget."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time_index, "_SMALL", 0)
        patch.setattr(keys, "_SPARE", 0)
        patch.setattr(rows, "_SPARE", 0)
        patch.setattr(rows, "START", 1)
        patch.setattr(strings, "_SPARE", 0)
        patch.setattr(last_times, "_CHECK", 1)
        patch.setattr(top, "_BATCH", 1)
        patch.setattr(pairs, "MAX_PAIRS", 3)
        yield


class Driver:
    """``restart`` every so many trains: the state goes through plain data and back."""

    def __init__(self, box: Box, inputs: Sequence[Schema], times: Sequence[str | None], restart: int = 0) -> None:
        self.box = box
        self.inputs = inputs
        self.times = times
        self.time_out = box.time_out(tuple(times))
        self.state = box.new_state()
        self.tally = Tally()
        self.out: list[list[Train]] = [[] for _ in self.time_out]
        self.taken = 0
        self._ports_ns = [NO_WATERMARK] * len(inputs)
        self._watermark_ns = NO_WATERMARK
        self.promised_ns = NO_WATERMARK
        self._restart = restart
        self._trains = 0

    def emit(self, port: int, train: Train) -> None:
        train.verify()
        assert train.count, "an empty train"
        time = self.time_out[port]
        if time != LOST_TIME:
            times = train.arrival_ns if time is None else train.columns[train.schema.index(time)]
            assert int(times.min()) >= self.promised_ns, "older than announced"
        self.out[port].append(train)

    def feed(self, port: int, train: Train) -> None:
        self._trains += 1
        if self._restart and self._trains % self._restart == 0:
            self.state = self.box.restore(as_plain(self.box.snapshot(self.state)))
        if train.count:
            self.taken += train.count
            self.box.run(self.state, port, train, self.emit, self.tally)
        if train.watermark_ns > self._ports_ns[port]:
            self._ports_ns[port] = train.watermark_ns
            lowest_ns = min(self._ports_ns)
            if lowest_ns > self._watermark_ns:
                self._watermark_ns = lowest_ns
                self.box.advance(self.state, lowest_ns, self.emit, self.tally)
                promised_ns = self.box.out_watermark_ns(self.state, lowest_ns)
                assert promised_ns >= self.promised_ns, "a watermark went back"
                self.promised_ns = promised_ns
        assert self.box.state_nbytes(self.state) >= 0
        self._check_law()

    def _check_law(self) -> None:
        tally = self.tally
        if self.box.row_wise:
            emitted = sum(t.count for trains in self.out for t in trains)
            assert self.taken == emitted + tally.filtered + tally.dead
        else:
            assert self.taken == tally.absorbed + tally.late + tally.dead

    def end(self) -> None:
        for port, schema in enumerate(self.inputs):
            self.feed(port, Train.empty(schema, END))

    def rows(self, port: int = 0) -> Rows:
        return [row for train in self.out[port] for row in train.to_rows()]


def as_plain(data: Any) -> Any:
    """A copy of a snapshot, after checking that it is plain."""
    if isinstance(data, dict):
        assert all(isinstance(k, str) for k in data)
        return {k: as_plain(v) for k, v in data.items()}
    if isinstance(data, list):
        return [as_plain(v) for v in data]
    if isinstance(data, np.ndarray):
        assert data.dtype.kind in "biuf", data.dtype
        copy = data.copy()
        copy.flags.writeable = False  # as it comes from a checkpoint
        return copy
    assert data is None or type(data) in (int, float, str, bool), type(data)
    return data


def train_of(schema: Schema, rows: Rows, watermark_ns: int = NO_WATERMARK, arrival_ns: int | list[int] = 0) -> Train:
    columns = {name: [row[i] for row in rows] for i, name in enumerate(schema.names)}
    train = Train.from_pylists(schema, columns, arrival_ns if rows else 0)
    return train.with_watermark(watermark_ns)


Schedule = list[tuple[int, list[int], int]]
"""Trains in order: input port, which rows of it, watermark after it."""


@st.composite
def schedules(draw: st.DrawFn, times: Sequence[Sequence[int]], slack: int) -> Schedule:
    """Any order of arrival within the slack (no row more than ``slack`` below one that came before it), any cut into
    trains, any interleaving of the inputs. ``times`` are the rows' event times by port."""
    trains: list[list[tuple[int, list[int], int]]] = []
    for port, of_port in enumerate(times):
        # Mostly none or all of it: what is wrong by one shows where a row comes exactly at the watermark.
        delays = st.sampled_from([0, slack, slack, slack // 2])
        jitter = draw(st.lists(delays, min_size=len(of_port), max_size=len(of_port)))
        order = sorted(range(len(of_port)), key=lambda i, t=of_port, j=jitter: (t[i] + j[i], i))  # type: ignore[misc]
        cuts = draw(st.lists(st.integers(0, len(order)), max_size=6))
        bounds = [0, *sorted(cuts), len(order)]
        parts, newest = [], NO_WATERMARK
        for a, b in pairwise(bounds):
            newest = max([newest, *(of_port[i] for i in order[a:b])])
            parts.append((port, order[a:b], NO_WATERMARK if newest == NO_WATERMARK else newest - slack))
        trains.append(parts)
    schedule: Schedule = []
    while any(trains):
        port = draw(st.sampled_from([p for p, parts in enumerate(trains) if parts]))
        schedule.append(trains[port].pop(0))
    return schedule


def play(driver: Driver, rows: Sequence[Rows], schedule: Schedule) -> Driver:
    for port, chosen, watermark_ns in schedule:
        part = [rows[port][i] for i in chosen]
        driver.feed(port, train_of(driver.inputs[port], part, watermark_ns))
    driver.end()
    return driver


def sorted_rows(rows: Iterable[tuple[Any, ...]]) -> list[str]:
    """For comparing multisets of rows with NULL and NaN in them."""
    return sorted(repr(tuple(row)) for row in rows)
