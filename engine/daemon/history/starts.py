"""Queries that start in the past: they read history through their own boxes, then go on live.

    gate the arcs into the query's boxes -> read history onto these arcs -> hand over: the rest, then open the gates

An output with ``start`` takes up history on the arcs of ``catalog/start``. While it does, these arcs are gated: a live
tuple is not put on them, but it is in the history, behind everything that is still to be read. Each arc has a *cursor*,
the number of the next tuple. The hand-over stops the engine between two steps, with the ingress closed: nothing is
appended. It puts the rest on the arcs and opens the gates. So the numbers decide what comes from history and what comes
live: nothing is missing and nothing comes twice.

Replay yields: a train enters only while the queues are short (``Ingress.has_bulk_room``), as bulk rows of Spark do.
Trains of several places come in the order in which they entered the network.

A checkpoint has the cursors of its moment (``cut``, inside ``still``). After a restart the replay goes on there; an
output that is live stays so. ``start`` says where a new query begins: it does nothing for one that runs already.

Threads: its own, one for all queries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from time import sleep
from typing import Any

from catalog.network import Arc, Network, Output
from catalog.start import start_arcs
from engine.daemon.history.keeper import HistoryKeeper
from engine.run.core import Engine
from engine.run.quiet import quiet
from storage.history.place import PlaceHistory
from storage.history.segment import KeptTrain
from storage.history.stamp import WatermarkStamp
from storage.train import Train

log = logging.getLogger("aurorad.history")

ROOM_SECONDS = 0.001
QUIET_SECONDS = 0.1
AGAIN_SECONDS = 5.0
NEAR_TUPLES = 65_536
"""A hand-over is tried when at most this many tuples are left: it puts them on their arcs while the engine waits."""


class ArcCursor:
    """How far the replay has come on one arc."""

    def __init__(self, arc: Arc, history: PlaceHistory) -> None:
        self.arc = arc
        self.history = history
        self.next = 0  # the number of the next tuple; 0: not known yet
        self._stamp = WatermarkStamp(history.place)
        self._trains: Iterator[KeptTrain] = iter(())
        self._head: KeptTrain | None = None

    @property
    def left(self) -> int:
        return max(self.history.next - self.next, 0)

    def peek(self) -> KeptTrain | None:
        """Return the next train; None when all that is kept has been read, for now."""
        while self._head is None:
            self._head = next(self._trains, None)
            if self._head is None:
                if not self.left:
                    return None
                self._trains = self.history.trains(self.next - 1)
                self._head = next(self._trains, None)
                if self._head is None:
                    return None
            if self._head.first + self._head.train.count <= self.next and self._head.train.count:
                self._head = None  # read already
        return self._head

    def take(self) -> Train:
        """Return the next train, and go on behind it."""
        assert self._head is not None
        kept, self._head = self._head, None
        self.next = max(self.next, kept.first + kept.train.count)
        self.history.pin(self, self.next)
        return self._stamp.stamp(kept.train) if self.arc.timed else kept.train

    def end(self) -> None:
        self.history.pin(self, None)
        self._trains = iter(())


class QueryStart:
    """One output that starts in the past."""

    def __init__(self, output: Output, cursors: list[ArcCursor]) -> None:
        self.output = output
        self.cursors = cursors
        self.from_ns: int | None = None  # the time from which on it has tuples
        self.read = 0  # tuples

    @property
    def left(self) -> int:
        return sum(cursor.left for cursor in self.cursors)

    def go_on(self, before: QueryStart) -> None:
        """Go on as the same query of the network before. An arc that was not there begins live."""
        self.from_ns, self.read = before.from_ns, before.read
        for cursor in self.cursors:
            cursor.next = cursor.next or cursor.history.next
        before.end()

    def end(self) -> None:
        for cursor in self.cursors:
            cursor.end()

    def heads(self) -> list[ArcCursor]:
        """Return the cursors that have a train, that which entered first before the others."""
        found = [(head.entry, n) for n, cursor in enumerate(self.cursors) if (head := cursor.peek()) is not None]
        return [self.cursors[n] for _, n in sorted(found)]


class QueryStarts:
    def __init__(self, history: HistoryKeeper, now_ns: Callable[[], int]) -> None:
        self._history = history
        self._now_ns = now_ns
        self._moving = Lock()  # held while a train moves from history to its arc: then neither has it
        self._active: list[QueryStart] = []
        self._live: set[str] = set()  # outputs with a start that have handed over
        self._told: dict[str, dict[str, Any]] = {}
        self._ended = Event()
        self._wanted = Event()
        self._thread = Thread(target=self._run, name="aurorad-replay", daemon=True)

    # -- a start of the daemon ----------------------------------------------------------------------------------------

    def prepare(self, engine: Engine, saved: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        """Gate the arcs of queries that start in the past. Before anything enters the engine.

        ``saved`` has the cursors of a checkpoint, ``known`` the outputs that it has: they run already.
        """
        self._engine = engine
        for output in engine.network.outputs:
            if output.start is None or output.start.rule == "now":
                continue
            cursors = saved.get(output.name)
            if output.name in known and not cursors:
                self._live.add(output.name)
                continue
            self._add(engine.network, output, cursors or {})
        self._gate()

    # -- a change of the network --------------------------------------------------------------------------------------

    def adopt(self, engine: Engine, outputs: Mapping[str, str]) -> None:
        """Go on in the next network, and begin the queries that are new in it. Before its engine starts, inside
        ``still``. ``outputs`` leads from the names of outputs that stay to their names before."""
        going = {start.output.name: start for start in self._active}
        live, self._live, self._active, self._engine = self._live, set(), [], engine
        for output in engine.network.outputs:
            was = outputs.get(output.name, "")
            if was in live:
                self._live.add(output.name)
            if output.start is None or output.start.rule == "now" or (was and was not in going):
                continue
            start = going.pop(was, None)
            saved = {} if start is None else {c.arc.name: c.next or c.history.next for c in start.cursors}
            self._add(engine.network, output, saved)
            if start is not None:
                self._active[-1].go_on(start)
        for start in going.values():
            start.end()
        self._gate()
        self._wanted.set()

    def _add(self, network: Network, output: Output, saved: Mapping[str, int]) -> None:
        points = self._history.points
        start = QueryStart(output, [ArcCursor(arc, points[arc.source]) for arc in start_arcs(network, output)])
        for cursor in start.cursors:
            cursor.next = int(saved.get(cursor.arc.name, 0))
            cursor.history.pin(cursor, cursor.next)
        self._active.append(start)
        self._engine.deliveries[output.number].is_starting = True

    def _gate(self) -> None:
        self._engine.gate(frozenset(cursor.arc.number for start in self._active for cursor in start.cursors))

    def start(self) -> None:
        """Replay from now on."""
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()

    # -- checkpoints --------------------------------------------------------------------------------------------------

    @contextmanager
    def still(self) -> Iterator[None]:
        """Move no train meanwhile."""
        with self._moving:
            yield

    def cut(self) -> dict[str, dict[str, int]]:
        """Return the cursors, by output and arc. Inside ``still``."""
        return {
            s.output.name: {c.arc.name: c.next for c in s.cursors}
            for s in self._active
            if all(c.next for c in s.cursors)
        }

    # -- the replay ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                for start in list(self._active):
                    self._find(start)
                    self._turn(start)
            except Exception:
                # The outermost handler of this thread: other queries still replay, and live tuples wait at the gate.
                log.exception("the replay of history failed; it is tried again")
                self._ended.wait(AGAIN_SECONDS)
            if not self._active:
                self._wanted.wait()
                self._wanted.clear()

    def _find(self, start: QueryStart) -> None:
        """Set the cursors of a new query to where it starts."""
        if all(cursor.next for cursor in start.cursors):
            return
        wanted_ns = start.output.start.from_ns(self._now_ns())
        for cursor in start.cursors:
            cursor.next = cursor.history.first_at(wanted_ns)
            cursor.history.pin(cursor, cursor.next)
        self._say_where(start, wanted_ns)

    def _say_where(self, start: QueryStart, wanted_ns: int | None) -> None:
        name, tuples = start.output.name, start.left
        readings = [c.history.reading() for c in start.cursors if c.history.next > c.history.oldest]
        oldest_ns = max((r.from_ns for r in readings), default=None)
        if oldest_ns is None or (wanted_ns is not None and wanted_ns < oldest_ns):
            where = "now" if oldest_ns is None else _time(oldest_ns)
            asked = "" if wanted_ns is None else f", not at {_time(wanted_ns)}"
            log.warning("query %s starts at %s%s: older history is not kept", name, where, asked)
            start.from_ns = oldest_ns
        else:
            start.from_ns = wanted_ns if wanted_ns is not None else oldest_ns
        log.info("query %s reads %d tuples of history, then goes on live", name, tuples)

    def _turn(self, start: QueryStart) -> None:
        """Move one train, or hand over."""
        if start.left <= NEAR_TUPLES:
            if not self._hand_over(start):
                sleep(ROOM_SECONDS)
            return
        if not self._engine.ingress.has_bulk_room():
            sleep(ROOM_SECONDS)
            return
        for cursor in start.heads()[:1]:  # it reads files, so not inside the lock
            with self._moving:
                if start in self._active:  # a change may have come in between
                    self._put(start, cursor)

    def _put(self, start: QueryStart, cursor: ArcCursor) -> None:
        train = cursor.take()
        start.read += train.count
        arc = cursor.arc
        if arc.output is None:
            self._engine.routes.enqueue((arc.number,), train)
        elif train.count:
            self._engine.routes.deliver(arc.output, train)

    def _hand_over(self, start: QueryStart) -> bool:
        """Put the rest on the arcs and open their gates. False when plans run for too long: then it is tried again."""
        start.heads()  # from the disk, while the engine runs
        try:
            with self._moving, quiet(self._engine, QUIET_SECONDS), self._engine.ingress.closed():
                if start not in self._active or start.left > 2 * NEAR_TUPLES:
                    return False
                while heads := start.heads():
                    self._put(start, heads[0])
                self._active.remove(start)
                self._live.add(start.output.name)
                self._gate()
        except TimeoutError:
            return False
        self._engine.deliveries[start.output.number].is_starting = False
        start.end()
        log.info("query %s is live, after %d tuples of history", start.output.name, start.read)
        return True

    # -- a recovery ---------------------------------------------------------------------------------------------------

    def compute_again(self, output: int, is_done: Callable[[], bool]) -> None:
        """Replay a query until ``is_done``: a crash has interrupted it, and what it emitted since the checkpoint must
        come again before the log is compared. The engine runs, and nothing else feeds it."""
        for start in self._active:
            if start.output.number != output or not all(cursor.next for cursor in start.cursors):
                continue
            while not is_done() and (heads := start.heads()):
                self._put(start, heads[0])
                while not self._engine.drain(1.0) and self._engine.loop.failure is None:
                    pass

    # -- reading ------------------------------------------------------------------------------------------------------

    def reading(self, output: str) -> dict[str, Any] | None:
        """Say how far a query with a start has come; None for one without."""
        for start in self._active:
            if start.output.name == output:
                return {"state": "replaying", "from_ns": start.from_ns, "read": start.read, "left": start.left}
        return {"state": "live"} if output in self._live else None


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
