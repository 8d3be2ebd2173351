"""Ad-hoc queries: boxes over the history of some places, on an engine of their own that leaves nothing behind.

A query is a mapping of boxes and outputs, as for ``aurorad query add``, or one box alone. The places that it reads
become the streams of a small network. Their trains enter in the order in which they entered the daemon's network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Any

import yaml

from catalog.errors import AuroraError
from catalog.network import KeptPlace, Network
from engine.run.core import Engine
from engine.run.network_file import read_network
from router.event_time import END_OF_TIME
from storage.history.segment import KeptTrain
from storage.history.stamp import WatermarkStamp
from storage.train import Train

RESULT = "result"
DRAIN_SECONDS = 600.0


class AdHocError(AuroraError):
    """The query cannot be run."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def parse_query(text: str) -> dict[str, Any]:
    """Return the boxes and outputs of a query: those of a file, or of one box. Raises AdHocError."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise AdHocError(f"the query is not YAML: {error}") from error
    if not isinstance(found, dict) or not found:
        raise AdHocError("the query is no box and no file", "write '{filter: trades, where: \"size > 100\"}'")
    if "outputs" not in found and "boxes" not in found:
        return {"boxes": {RESULT: found}, "outputs": {f"{RESULT}s": {"from": RESULT}}}
    boxes, outputs = found.get("boxes") or {}, found.get("outputs") or {}
    if not outputs and len(boxes) == 1:
        outputs = {f"{RESULT}s": {"from": next(iter(boxes))}}
    if not isinstance(boxes, dict) or not isinstance(outputs, dict) or not outputs:
        raise AdHocError("a query has boxes and outputs")
    return {"boxes": boxes, "outputs": outputs}


def inputs_of(query: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Return the places among ``names`` that a query reads, each once."""
    known = set(names)
    words = [word for entry in query["boxes"].values() if isinstance(entry, dict) for word in _words(entry)]
    words += [entry["from"] for entry in query["outputs"].values() if isinstance(entry, dict) and "from" in entry]
    return list(dict.fromkeys(word for word in words if isinstance(word, str) and word in known))


def _words(entry: Mapping[str, Any]) -> Iterator[Any]:
    for value in entry.values():
        yield from value if isinstance(value, list) else [value]


def adhoc_network(query: Mapping[str, Any], places: Sequence[KeptPlace]) -> Network:
    """Build the network of a query over these places. Raises NetworkError."""
    if not places:
        raise AdHocError("the query reads no place that keeps history", "aurorad history list names them")
    names = {place.name: place.name.replace(".", "_at_") for place in places}
    file = {
        "http": {"listen": "off"},
        "streams": {names[p.name]: _stream(p) for p in places},
        "boxes": {name: _renamed(entry, names) for name, entry in query["boxes"].items()},
        "outputs": {name: _renamed(_plain_output(entry), names) for name, entry in query["outputs"].items()},
    }
    return read_network(yaml.safe_dump(file, sort_keys=False))


def _stream(place: KeptPlace) -> dict[str, Any]:
    time = {} if place.time_field is None else {"time": place.time_field, "slack": f"{place.slack_ns}ns"}
    return {"schema": {f.name: str(f).partition(": ")[2] for f in place.schema}, "overload": "block", **time}


def _plain_output(entry: Any) -> Any:
    """Return an output without what only a daemon does with it."""
    return {"from": entry["from"]} if isinstance(entry, dict) and "from" in entry else entry


def _renamed(entry: Any, names: Mapping[str, str]) -> Any:
    """Return an entry that reads the streams that stand for its places."""
    if not isinstance(entry, dict):
        return entry

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(v) for v in value]
        return names.get(value, value) if isinstance(value, str) else value

    return {key: value if key == "by" else named(value) for key, value in entry.items()}


class AdHocRun:
    """Runs a query. ``deliver`` gets the trains of each output, by its name, on a worker's thread."""

    def __init__(
        self, network: Network, places: Sequence[KeptPlace], deliver: Callable[[str, Train], None], workers: int = 1
    ) -> None:
        self.network = network
        self.failures: list[Exception] = []
        self._stamps = [WatermarkStamp(place) for place in places]

        def outlet(name: str) -> Callable[[Train], None]:
            return lambda train: deliver(name, train)

        self._engine = Engine(
            network, [outlet(o.name) for o in network.outputs], workers=workers, on_failure=self.failures.append
        )
        self._engine.expire(False)  # history is always late
        self._engine.start()

    def feed(self, place: int, train: Train) -> None:
        """Let a train of a place enter, when there is room."""
        self._engine.ingress.admit(place, self._stamps[place].stamp(train))

    def read(self, histories: Sequence[Iterable[KeptTrain]], is_enough: Callable[[], bool]) -> None:
        """Let histories enter, one for each place, in the order in which their trains came."""
        numbered = [_numbered(stream, history) for stream, history in enumerate(histories)]
        for _, stream, train in merge(*numbered, key=lambda each: each[:2]):
            if is_enough() or self.failures:
                return
            self.feed(stream, train)

    def end(self, *, closes: bool) -> None:
        """Wait for the results, and stop. ``closes``: windows that are still open give their results too."""
        if closes:
            for stream in self.network.streams:
                self._engine.ingress.admit(stream.number, Train.empty(stream.schema, END_OF_TIME))
        self._engine.drain(DRAIN_SECONDS)
        self._engine.stop()
        if self.failures:
            raise AdHocError(f"the query failed: {self.failures[0]}") from self.failures[0]


def _numbered(stream: int, history: Iterable[KeptTrain]) -> Iterator[tuple[int, int, Train]]:
    return ((kept.entry, stream, kept.train) for kept in history)
