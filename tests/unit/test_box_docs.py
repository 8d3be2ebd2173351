"""Every kind of box shows how it is written, and what it shows is right."""

from __future__ import annotations

import inspect
import json
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.config.document import read_document
from catalog.schema import Schema, Type
from engine.operators.boxes import box_kinds
from engine.run.core import Engine
from engine.run.network_file import read_network
from scheduler.loop import SHORT_TUPLES
from storage.train import Train

KINDS = box_kinds()


def examples(kind: str) -> list[str]:
    """The entries ``name: {kind: ...}`` of the module's docstring, each to the end of its braces."""
    text = sys.modules[KINDS[kind].__module__].__doc__ or ""
    found: list[str] = []
    for start in re.finditer(rf"^    \w+: (?=\{{{kind}: )", text, re.MULTILINE):
        depth = 0
        for at in range(start.end(), len(text)):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            if not depth:
                found.append(text[start.start() : at + 1].strip())
                break
    return found


def test_a_prompt_box_takes_microseconds() -> None:
    """The I/O thread runs it: ``Box.is_prompt`` promises about 30 us for the longest train that it runs."""
    costs = {kind: box.typical_cost_ns for kind, box in KINDS.items() if box.is_prompt}
    assert costs and all(call_ns + SHORT_TUPLES * tuple_ns <= 30_000 for call_ns, tuple_ns in costs.values()), costs


@pytest.mark.parametrize("kind", KINDS)
def test_the_examples_of_a_box_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "models", SimpleNamespace(score=score))
    assert examples(kind), f"the module of {kind} shows no example"
    for example in examples(kind):
        document = read_document(example, kind, {})
        assert not document.problems
        [(name, entry)] = document.data.items()
        box = KINDS[kind]
        ports = box.ports(box.parameters_model.model_validate({k: v for k, v in entry.items() if k != kind}))
        outputs = {f"out{i}": {"from": f"{name}.{port}" if port else name} for i, port in enumerate(ports)}
        network = read_network(STREAMS + json.dumps({"boxes": {**VENUES, name: entry}, "outputs": outputs})[1:] + "\n")
        trains: list[Train] = []
        engine = Engine(network, [trains.append] * len(outputs), workers=1)
        engine.start()
        try:
            for stream in network.streams:
                engine.ingress.admit(stream.number, some_tuples(stream.schema))
                engine.ingress.admit(stream.number, Train.empty(stream.schema, 2**62))
            assert engine.drain(20)
        finally:
            engine.stop()
        reading = engine.runtimes[network.box(name).number].reading()
        assert reading.tuples_in > 0 and reading.dead == 0
        for train in trains:
            train.verify()


STREAMS = """{"http": {"listen": "off"}, "streams": {
    "trades": {"schema": {"ts": "timestamp", "symbol": "string", "price": "double", "size": "int", "venue": "string?",
                          "seq": "bigint"}, "time": "ts"},
    "nyse": {"schema": {"ts": "timestamp", "symbol": "string", "price": "double"}, "time": "ts"},
    "arca": {"schema": {"ts": "timestamp", "symbol": "string", "price": "double"}, "time": "ts"},
    "quotes": {"schema": {"ts": "timestamp", "symbol": "string", "bid": "double", "ask": "double"}, "time": "ts"},
    "clicks": {"schema": {"ts": "timestamp", "user": "string", "page": "string"}, "time": "ts"},
    "alerts": {"schema": {"ts": "timestamp", "host": "string?", "rule": "int"}, "time": "ts"}},
"""
VENUES = {"venues": {"case": "trades", "when": {"nyse": "venue = 'N'", "arca": "venue = 'P'"}}}


def some_tuples(schema: Schema, count: int = 200) -> Train:
    values: dict[Type, list[Any]] = {
        Type.TIMESTAMP: [i * 10_000_000 for i in range(count)],
        Type.STRING: [("N", "P", "Q")[i % 3] for i in range(count)],
        Type.DOUBLE: [float(i % 17) for i in range(count)],
        Type.INT: [i % 11 for i in range(count)],
        Type.BIGINT: [i ^ 1 for i in range(count)],
    }
    return Train.from_pylists(schema, {f.name: values[f.type] for f in schema}, 0)


def score(columns: dict[str, Any]) -> dict[str, Any]:
    return {"symbol": columns["symbol"], "score": columns["price"] * 2}


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_has_a_meaning(kind: str) -> None:
    models: list[type[BaseModel]] = [KINDS[kind].parameters_model]
    for model in models:
        for name, field in model.model_fields.items():
            assert field.description, f"{kind}.{name}: write Parameter(description=...)"
            if inspect.isclass(field.annotation) and issubclass(field.annotation, BaseModel):
                models.append(field.annotation)


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_a_box_is_plain(kind: str) -> None:
    """`aurorad boxes KIND` prints it as it is: single backticks, no marks of another language."""
    assert "``" not in (sys.modules[KINDS[kind].__module__].__doc__ or "")


@pytest.mark.parametrize("kind", KINDS)
def test_a_box_is_said_in_one_line(kind: str) -> None:
    assert 10 < len(KINDS[kind].summary) < 100
