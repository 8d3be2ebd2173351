"""What a network has that Spark cannot run, or runs in another way: refused with a hint, or told as a warning.

Refused is what would give other answers there than in the daemon. A cluster has no order of arrival: a box that goes by
it needs the field that says the order (``order`` of its streams).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from catalog.config.models import FileSource, SparkSink, SparkSource
from catalog.network import BoxNode, Network, Output, Stream
from engine.operators.boxes.keyed import KeyedBox

STREAMED = ("parquet", "orc", "csv", "json", "text", "rate", "kafka", "aurorad")
FILES = ("parquet", "orc", "csv", "json", "text")


class Remark(NamedTuple):
    path: tuple[str | int, ...]  # in the network file
    message: str
    hint: str = ""
    is_warning: bool = False
    is_key: bool = False  # the key is at fault, not its value


def remarks_on(network: Network, unordered: Collection[BoxNode]) -> Iterator[Remark]:
    """``unordered``: the boxes that go by the order of arrival where no field says it."""
    for stream in network.streams:
        yield from _source(stream)
        if stream.time_field is None and any(network.arcs[arc].timed for arc in stream.arcs):
            message = "without a time its tuples are of the time of their batch, so windows differ from the daemon's"
            yield Remark(("streams", stream.name), message, "name the field with the event time: time: ts", True)
    for node in network.boxes:
        yield from _box(node, node in unordered)
    for output in network.outputs:
        yield from _sink(output)
    yield from _overload(network)
    yield from _history(network)


def _history(network: Network) -> Iterator[Remark]:
    """No tuples are kept there, so nothing can start in the past."""
    config = network.config
    for output in network.outputs:
        if output.start is not None:
            message = "no history is kept there: an output begins with what comes"
            yield Remark(("outputs", output.name, "start"), message, "leave it out, or run it in a daemon")
    for section, entries in (("streams", config.streams), ("boxes", config.boxes)):
        for name, entry in entries.items():
            if entry.keep is not None:
                yield Remark(
                    (section, name, "keep"), "no history is kept there", "keep it at the edge, in a daemon", True
                )


def _source(stream: Stream) -> Iterator[Remark]:
    source, path = stream.source, ("streams", stream.name, "source")
    if isinstance(source, SparkSource):
        if source.spark not in STREAMED:
            hint = f"the sources there are {', '.join(STREAMED)}"
            yield Remark((*path, "spark"), f"Spark reads {source.spark} once and not as a stream", hint)
        for key in ("sql", "order_by"):
            if getattr(source, key):
                yield Remark((*path, key), f"{key} needs all rows at once, and a stream has no end", "leave it out")
        if source.pace != "as_fast":
            yield Remark((*path, "pace"), "the pace is that of Spark's batches", "", True)
    elif isinstance(source, FileSource):
        if source.codec not in ("ndjson", "csv"):
            yield Remark((*path, "file"), f"Spark reads no {source.codec}", "write ndjson, csv or parquet")
    else:
        hint = (
            "let it write files or Kafka, or put a daemon at the edge and read it with {spark: aurorad, options: ...}"
        )
        what = "it has no source" if source is None else "a cluster does not listen for senders"
        yield Remark(path if source is not None else path[:-1], what, hint)


def _sink(output: Output) -> Iterator[Remark]:
    path = ("outputs", output.name, "sink")
    if output.sink is None:
        yield Remark(path[:-1], "it has no sink: nobody reads it there, so it is left out", "", True)
    elif not isinstance(output.sink, SparkSink):
        yield Remark(path, "a cluster writes files and tables", "write {spark: parquet, path: ...}")


def _box(node: BoxNode, is_unordered: bool) -> Iterator[Remark]:
    path = ("boxes", node.name)
    if node.kind in ("universal", "python"):
        yield Remark((*path, node.kind), f"{node.kind} boxes run in the daemon only", "run it at the edge, in a daemon")
        return
    if node.kind == "view":
        yield Remark((*path, node.kind), "a view is asked over HTTP, and there is no daemon", "write it to a sink")
        return
    if is_unordered:
        hint = "name the field that says it, in the streams before it: order: seq"
        yield Remark(path, f"{goes_by_arrival(node)}, and a cluster has no order of arrival", hint)
    box = node.box
    has_key = isinstance(box, KeyedBox) and box.is_divisible and box.key_fields(0)
    if not has_key and (box.needs_time or isinstance(box, KeyedBox)):
        yield Remark(path, "it has no key: one shard does all of its work", "give it a key if you can", True)
    if getattr(box.parameters, "timeout", None) is not None:
        yield Remark((*path, "timeout"), "a time-out takes effect with the next batch", "", True)
    if getattr(box.parameters, "emit", "") == "update":
        yield Remark((*path, "emit"), "there is one update for each batch that changes a window", "", True)
    if "state" in box.parameters.model_fields_set:
        yield Remark(
            (*path, "state"), "the limits of the state are ignored: the cluster has to have the memory", "", True
        )


def goes_by_arrival(node: BoxNode) -> str:
    """Return why the answers of a box depend on the order of arrival; empty when they do not."""
    p = node.box.parameters
    if node.kind in ("dedup", "latest"):
        return f"{node.kind} compares a tuple with the one before it"
    if node.kind in ("aggregate", "top") and p.window.count is not None:
        return "a window by count takes tuples in the order of their arrival"
    if node.kind == "aggregate" and (found := node.box.ordered_functions):
        return f"{found[0]} goes by arrival where times are equal"
    if node.kind == "bsort" and p.slack > 0:
        return "a slack of tuples counts those that have come"
    return ""


def _overload(network: Network) -> Iterator[Remark]:
    for stream in network.streams:
        if stream.overload == "shed":
            message = "nothing is shed there: batches wait, and QoS graphs have no effect"
            yield Remark(("streams", stream.name, "overload"), message, "shed at the edge, in a daemon", True)
    for output in network.outputs:
        if "qos" in network.config.outputs[output.name].model_fields_set:
            message = "QoS has no effect there: batches run one after another, with all of their tuples"
            yield Remark(("outputs", output.name, "qos"), message, "", True)
    if network.config.engine.data_dir is not None:
        yield Remark(("engine", "data_dir"), "the state is in the checkpoint (--checkpoint)", "", True)
