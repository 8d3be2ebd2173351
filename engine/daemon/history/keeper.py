"""The keeper of all histories: one thread writes full segments, removes old ones and merges small ones.

A checkpoint calls ``cut`` at its moment, and ``flush`` before it counts: then every tuple before the cut is in a
segment. ``settled`` tells from where on a start may still remove segments: merging stays below.

Threads: its own; ``cut`` and ``flush`` on the checkpoint's; the rest on any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any

from catalog.config.history import StartPoint
from catalog.network import KeptPlace, Network, PortRef
from catalog.readings import HistoryReading
from storage.files import Files
from storage.history.place import PlaceHistory
from storage.history.segment import ROW_GROUP_TUPLES, KeptTrain
from storage.history.wire import encode_frame
from storage.train import Train

log = logging.getLogger("aurorad.history")

LOOK_SECONDS = 1.0
FOLLOW_SECONDS = 0.1


class HistoryKeeper:
    def __init__(
        self, network: Network, files: Files, now_ns: Callable[[], int], room_again: Callable[[], None]
    ) -> None:
        self._files = files
        self._now_ns = now_ns
        self._room_again = room_again
        self._was_short = False
        self._gone: dict[str, Any] = {}  # the cuts of places that the network does not have, in case they come back
        self._settled: dict[str, int] = {}
        self._coming: dict[str, PlaceHistory] = {}  # of a change under way
        self._upkeep = Lock()
        self._ended = Event()
        self._wanted = Event()  # a segment is full
        self._is_started = False
        self._thread = Thread(target=self._run, name="aurorad-history", daemon=True)
        self.places: dict[str, PlaceHistory] = {
            place.name: PlaceHistory(place, files, self._wanted.set) for place in network.kept
        }

    @property
    def points(self) -> Mapping[PortRef, PlaceHistory]:
        """By source, the histories that the engine appends to."""
        return {history.place.source: history for history in self.places.values()}

    # -- a change of the network --------------------------------------------------------------------------------------

    def foresee(self, network: Network) -> dict[PortRef, PlaceHistory]:
        """Return the histories of the network that is to follow, for its engine. A place that is there keeps its own,
        unless it has other fields."""
        self._coming = {}
        for place in network.kept:
            known = self.places.get(place.name)
            is_same = known is not None and known.place.schema == place.schema
            self._coming[place.name] = (
                known if known is not None and is_same else PlaceHistory(place, self._files, self._wanted.set)
            )
        return {place.source: self._coming[place.name] for place in network.kept}

    def adopt(self, network: Network) -> None:
        """Go on with the places of ``foresee``. Nothing is appended meanwhile."""
        for place in network.kept:
            history, known = self._coming[place.name], self.places.pop(place.name, None)
            if history is known:
                history.rebind(place)
            elif known is None:
                history.open(self._gone.pop(place.name, None))
            else:
                known.flush(known.next)  # in the same folder: the next one begins behind it
                history.open(known.cut())
        for name, gone in self.places.items():
            gone.flush(gone.next)
            self._gone[name] = gone.cut()
        self.places, self._coming = self._coming, {}
        if self._is_started:
            self.start()

    def open(self, cuts: Mapping[str, Any]) -> None:
        """Go on at the cuts of a checkpoint."""
        for name, history in self.places.items():
            history.open(cuts.get(name))
        self._gone = {name: cut for name, cut in cuts.items() if name not in self.places}
        self._settled = {name: int(cut["next"]) for name, cut in cuts.items()}

    def start(self) -> None:
        self._is_started = True
        if self.places and self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join()

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def cut(self) -> dict[str, Any]:
        """Return how far each history has come. At the moment of a checkpoint: nothing is appended."""
        return self._gone | {name: history.cut() for name, history in self.places.items()}

    def flush(self, cuts: Mapping[str, Any]) -> None:
        """Have every tuple before the cuts in segments."""
        for name, history in self.places.items():
            if name in cuts:
                history.flush(int(cuts[name]["next"]))

    def settle(self, kept: Sequence[Mapping[str, int]]) -> None:
        """Note the cuts of all checkpoints that are kept: no start goes back behind the lowest."""
        names = set().union(*kept) if kept else set()
        self._settled = {name: min(cuts.get(name, 0) for cuts in kept) for name in names}

    @contextmanager
    def still(self) -> Iterator[None]:
        """Remove and merge nothing meanwhile."""
        with self._upkeep:
            yield

    # -- the thread ---------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether the tails are short enough for more. The disk may be slower than the senders."""
        has_room = all(history.has_room for history in self.places.values())
        if not has_room:
            self._was_short = True
        return has_room

    def _run(self) -> None:
        trimmed_s = 0.0
        while not self._ended.is_set():
            self._wanted.wait(LOOK_SECONDS)
            self._wanted.clear()
            try:
                self._write()
                if monotonic() - trimmed_s >= LOOK_SECONDS:
                    trimmed_s = monotonic()
                    self._trim()
            except Exception:
                # The outermost handler of this thread: without upkeep the disk would fill, so log it and try again.
                log.exception("the upkeep of the history failed; it is tried again")

    def _write(self) -> None:
        for history in list(self.places.values()):
            while history.write() and not self._ended.is_set():
                if self._was_short and self.has_room:
                    self._was_short = False
                    self._room_again()

    def _trim(self) -> None:
        with self._upkeep:
            for name, history in list(self.places.items()):
                history.retain(self._now_ns())
                while not self._ended.is_set() and history.merge(self._settled.get(name, 0)):
                    pass

    # -- reading ------------------------------------------------------------------------------------------------------

    def readings(self) -> list[HistoryReading]:
        return [history.reading() for history in self.places.values()]

    def listing(self) -> list[dict[str, Any]]:
        """Return the answer of ``/api/v1/history``."""
        return [self._listed(history.place, history) for history in self.places.values()]

    def frames(self, name: str, start: StartPoint, follows: bool) -> Iterator[bytes]:
        """Yield the tuples of a place from a start on, as frames, up to now; with ``follows`` without end."""
        history = self.places[name]
        number = history.first_at(start.from_ns(self._now_ns()))
        stop, reader = history.next, object()
        history.pin(reader, number)
        try:
            while follows or number < stop:
                for kept in history.trains(number - 1, ROW_GROUP_TUPLES):
                    number = max(number, kept.first + kept.train.count)
                    yield encode_frame(kept)
                    if not follows and number >= stop:
                        return
                    history.pin(reader, number)
                if self._ended.is_set() or not follows:
                    return
                yield encode_frame(KeptTrain(number, Train.empty(history.place.schema), 0))  # is the reader there?
                self._ended.wait(FOLLOW_SECONDS)
        finally:
            history.pin(reader, None)

    def _listed(self, place: KeptPlace, history: PlaceHistory) -> dict[str, Any]:
        reading = history.reading()
        return {
            "name": place.name,
            "for_ns": place.for_ns,
            "size_bytes": place.size_bytes,
            "time": place.time_field,
            "slack_ns": place.slack_ns,
            "schema": [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in place.schema],
            "files": self._files.where(f"{history.folder}/*.parquet"),
            **{key: value for key, value in reading._asdict().items() if key != "name"},
            "index": [
                {
                    "first": i.first,
                    "last": i.last,
                    "from_ns": i.times[0],
                    "to_ns": i.times[1],
                    "entries": i.entries,
                    "nbytes": i.nbytes,
                }
                for i in history.index()
            ],
        }
