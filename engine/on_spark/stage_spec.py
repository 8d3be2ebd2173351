"""A stage as plain data, to ship it to the executors, and its boxes made of that data again.

Executors get no network file: they get the kind, the parameters and the input schemas of each box of their stage, and
bind them as the daemon does. A Python worker makes the boxes of a stage once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from catalog.network import BoxNode, Network
from catalog.schema import Schema
from engine.on_spark.lanes import lay_out
from engine.on_spark.plan import Lane, ShardKey, SparkPlan, Stage, Way
from engine.operators.boxes import box_kinds
from engine.operators.boxes.base import Box


def stage_texts(plan: SparkPlan, shards: int) -> list[str]:
    """Return each stage as a text."""
    behind = _behind(plan.network)
    return [_text(plan, number, shards, behind) for number in range(len(plan.stages))]


def _text(plan: SparkPlan, at: int, shards: int, behind: dict[int, list[bool]]) -> str:
    stage, network = plan.stages[at], plan.network
    after = plan.stages[at + 1] if at + 1 < len(plan.stages) else None
    places = {node.number: i for i, node in enumerate(stage.boxes)}
    data = {
        "number": stage.number,
        "shards": shards,
        "boxes": [_box(network, node, behind) for node in stage.boxes],
        "lanes": [_lane(lane, places) for lane in stage.lanes],
        "slots": lay_out([lane.schema for lane in stage.lanes]).slots if at == 0 else [],
        "ways": [[places[box], port, _way(way, places)] for (box, port), way in stage.ways.items()],
        "next": [_next(network, lane, behind) for lane in after.lanes] if after is not None else [],
        "outputs": [_fields(output.schema) for output in network.outputs],
    }
    return json.dumps(data)


def _lane(lane: Lane, places: dict[int, int]) -> dict[str, Any]:
    return {"schema": _fields(lane.schema), "way": _way(lane.way, places), "order": lane.order}


def _box(network: Network, node: BoxNode, behind: dict[int, list[bool]]) -> dict[str, Any]:
    words = dict(network.config.boxes[node.name].model_extra or {})
    words.pop(node.kind)
    return {
        "name": node.name,
        "kind": node.kind,
        "parameters": words,
        "inputs": [_fields(schema) for schema in node.in_schemas],
        "times": [network.arcs[arc].time_field for arc in node.in_arcs],
        "behind": behind[node.number],
    }


def _next(network: Network, lane: Lane, behind: dict[int, list[bool]]) -> dict[str, Any]:
    """Return how the tuples of a lane of the next stage find their shard."""
    shard = lane.shard
    if shard is None:
        return {"schema": _fields(lane.schema), "by": "any"}
    if not shard.parts:
        return {"schema": _fields(lane.schema), "by": "one"}
    node = network.boxes[shard.box]
    key = {"box": _box(network, node, behind), "port": shard.port, "parts": list(shard.parts)}
    return {"schema": _fields(lane.schema), "by": "key", **key}


def _way(way: Way, places: dict[int, int]) -> dict[str, Any]:
    return {
        "inputs": [[places[box], port] for box, port in way.inputs],
        "outputs": way.outputs,
        "lanes": way.lanes,
    }


def _behind(network: Network) -> dict[int, list[bool]]:
    """Return, by box, whether each input may bring results behind later ones (``Box.runs_behind``)."""
    out: dict[int, bool] = {}
    found: dict[int, list[bool]] = {}
    for node in network.boxes:
        sources = [network.arcs[arc].source for arc in node.in_arcs]
        found[node.number] = [source.box is not None and out[source.box] for source in sources]
        out[node.number] = node.box.runs_behind(tuple(found[node.number]))
    return found


def _fields(schema: Schema) -> dict[str, str]:
    return {f.name: f"{f.type}{'?' if f.nullable else ''}" for f in schema}


# -- on the executor ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageBox:
    name: str
    box: Box
    inputs: tuple[Schema, ...]
    out_schemas: tuple[Schema, ...]


@dataclass(frozen=True)
class LaneKey:
    """How the tuples of a lane of the next stage find their shard."""

    schema: Schema
    by: str  # any, one or key
    box: Box | None = None
    port: int = 0
    parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class StageWay:
    inputs: tuple[tuple[int, int], ...]  # box of the stage, and its port
    outputs: tuple[int, ...]
    lanes: tuple[int, ...]  # of the next stage


@dataclass(frozen=True)
class BuiltStage:
    """A stage with its boxes. Constant."""

    number: int
    shards: int
    boxes: tuple[StageBox, ...]  # in topological order
    lanes: tuple[Schema, ...]
    lane_ways: tuple[StageWay, ...]
    orders: tuple[str | None, ...]  # by lane: the field that says the order of arrival
    slots: tuple[tuple[int, ...], ...]
    ways: dict[tuple[int, int], StageWay]
    next_lanes: tuple[LaneKey, ...]
    outputs: tuple[Schema, ...]

    @property
    def has_state(self) -> bool:
        return self.number > 0


@lru_cache(maxsize=16)
def build_stage(text: str) -> BuiltStage:
    data = json.loads(text)
    return BuiltStage(
        data["number"],
        data["shards"],
        tuple(_built(box) for box in data["boxes"]),
        tuple(Schema.of(**lane["schema"]) for lane in data["lanes"]),
        tuple(_built_way(lane["way"]) for lane in data["lanes"]),
        tuple(lane["order"] for lane in data["lanes"]),
        tuple(tuple(lane) for lane in data["slots"]),
        {(box, port): _built_way(way) for box, port, way in data["ways"]},
        tuple(_built_key(lane) for lane in data["next"]),
        tuple(Schema.of(**output) for output in data["outputs"]),
    )


def _built(data: dict[str, Any]) -> StageBox:
    kind = box_kinds()[data["kind"]]
    box = kind(kind.parameters_model(**data["parameters"]))
    inputs = tuple(Schema.of(**fields) for fields in data["inputs"])
    out = box.bind(inputs, tuple(data["times"]))
    box.runs_behind(tuple(data["behind"]))
    return StageBox(data["name"], box, inputs, out)


def _built_way(data: dict[str, Any]) -> StageWay:
    return StageWay(tuple((b, p) for b, p in data["inputs"]), tuple(data["outputs"]), tuple(data["lanes"]))


def _built_key(data: dict[str, Any]) -> LaneKey:
    schema = Schema.of(**data["schema"])
    if data["by"] != "key":
        return LaneKey(schema, data["by"])
    return LaneKey(schema, "key", _built(data["box"]).box, data["port"], tuple(data["parts"]))


__all__ = ["BuiltStage", "LaneKey", "ShardKey", "Stage", "StageBox", "StageWay", "build_stage", "stage_texts"]
