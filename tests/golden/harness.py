"""Runs a golden case: a network, its input rows and its expected output rows, under every setting that must not matter.

A case is one YAML file. CONTRIBUTING.md ("Add a box") lists its keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import time_ns
from typing import Any

import yaml

from catalog.build import build_network
from catalog.network import Network
from catalog.schema import Schema, Type
from engine.operators.boxes import box_kinds
from engine.run.core import Engine
from scheduler.state import SchedulerSettings
from scheduler.trains import TrainRule
from storage.train import Train

END_OF_TIME_NS = 2**62
KEYS = {"about", "network", "input", "expect", "close", "ordered", "counts", "under_loss", "docs"}


@dataclass(frozen=True)
class Setting:
    """One cell of the matrix."""

    train: int = 1024
    workers: int = 1
    unit: str = "superbox"
    policy: str = "round_robin"
    window_worth: bool = False

    def __str__(self) -> str:
        worth = ",window_worth" if self.window_worth else ""
        return f"train={self.train},workers={self.workers},unit={self.unit},policy={self.policy}{worth}"


def read_case(path: Path) -> dict[str, Any]:
    case: dict[str, Any] = yaml.safe_load(path.read_text())
    assert set(case) <= KEYS, f"{path.parent.name}/{path.name}: no key {sorted(set(case) - KEYS)}"
    return case


def network_of(case: dict[str, Any]) -> Network:
    """Build the network of a case. An output without QoS gets a deadline of an hour, which some policies need."""
    network = deepcopy(case["network"])
    for output in network["outputs"].values():
        output.setdefault("qos", {"deadline": "1h"})
    return build_network(yaml.safe_dump(network, sort_keys=False) + "\n", box_kinds())


def run_case(case: dict[str, Any], setting: Setting, **options: Any) -> tuple[dict[str, list[dict[str, Any]]], Engine]:
    """Feed the input in trains of the setting's size. Return the rows by output, and the stopped engine."""
    network = network_of(case)
    rows: dict[str, list[dict[str, Any]]] = {output.name: [] for output in network.outputs}
    lock = Lock()

    def collect(name: str) -> Any:
        def deliver(train: Train) -> None:
            train.verify()
            with lock:
                rows[name].extend(as_rows(train))

        return deliver

    engine = Engine(
        network,
        [collect(output.name) for output in network.outputs],
        workers=setting.workers,
        policy=setting.policy,
        settings=SchedulerSettings(
            unit=setting.unit, train=TrainRule("tuples", setting.train), window_worth=setting.window_worth
        ),
        **options,
    )
    engine.start()
    try:
        for block in case["input"]:
            for name, given in block.items():
                stream = network.stream(name)
                for train in trains(stream.schema, given, setting.train):
                    assert engine.ingress.admit(stream.number, train, timeout_s=20)
        assert engine.drain(20), "the engine did not come to rest"
        if case.get("close"):
            for stream in network.streams:
                engine.ingress.admit(stream.number, Train.empty(stream.schema, END_OF_TIME_NS))
            assert engine.drain(20), "the engine did not come to rest after the end of time"
    finally:
        engine.stop()
    return rows, engine


def trains(schema: Schema, rows: list[dict[str, Any]], size: int) -> Iterator[Train]:
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        columns = {f.name: [_value(r.get(f.name), f.type) for r in part] for f in schema}
        yield Train.from_pylists(schema, columns, time_ns())


def _value(value: Any, kind: Type) -> Any:
    if kind is Type.TIMESTAMP and hasattr(value, "timestamp"):
        return int(value.timestamp() * 1_000_000) * 1_000
    return value


def as_rows(train: Train) -> Iterable[dict[str, Any]]:
    return [dict(zip(train.schema.names, row, strict=True)) for row in train.to_rows()]


def check_rows(case: dict[str, Any], rows: Mapping[str, list[Any]]) -> None:
    """Compare each output with the case, in order unless the case says otherwise."""
    for output, expected in case["expect"].items():
        if case.get("ordered", True):
            assert rows[output] == expected
        else:
            assert as_multiset(rows[output]) == as_multiset(expected)


def as_multiset(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in rows)
