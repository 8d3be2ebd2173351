"""Read a file of cases: ``net.test.yaml`` beside ``net.yaml``.

    network: net.yaml                 # default: the file beside it with the same name
    cases:
      - name: a large trade is an alert
        input:
          - trades: [{ts: "2026-01-01T12:00:00Z", symbol: A, price: 10, size: 20000}]
          - advance: 5s
        expect:
          alerts: [{symbol: A}]

The names of streams, outputs, boxes and fields are checked against the network, because a mistyped name would make a
case that tests nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from catalog.config.document import Document, read_document
from catalog.config.document import Path as Place
from catalog.config.problems import to_problems
from catalog.config.read import read_text
from catalog.config.section import Section
from catalog.config.units import parse_duration_ns
from catalog.config.words import did_you_mean
from catalog.errors import NetworkError, Problem
from catalog.network import Network
from catalog.schema import Schema
from engine.run.network_file import read_network
from router.codecs.decode.values import timestamp_ns

SUFFIX = ".test.yaml"
TIME_STEPS = ("advance", "at", "heartbeat")


class NetworkCase(Section):
    """One case. ``input`` is a list of steps: rows of streams, or a move of the clock."""

    name: str = Field(min_length=1)
    clock: str | None = None
    input: list[dict[str, Any]]
    expect: dict[str, list[dict[str, Any]]] = Field(default_factory=dict)
    ordered: bool = True
    exact: bool = False
    approx: float = Field(default=1e-9, ge=0)
    close: bool = True
    late: dict[str, int] = Field(default_factory=dict)
    dead: dict[str, int] = Field(default_factory=dict)
    refused: dict[str, int] = Field(default_factory=dict)


class CaseFile(Section):
    network: str | None = None
    cases: list[NetworkCase] = Field(min_length=1)


class Cases(NamedTuple):
    """The cases of one file with their network. ``document`` knows the line of everything."""

    file: str
    network: Network
    cases: list[NetworkCase]
    document: Document


def find_case_files(name: str) -> list[Path]:
    """Return the files of cases for a network file, a file of cases, or a folder. Empty when there is none."""
    path = Path(name)
    if path.is_dir():
        return sorted(path.rglob(f"*{SUFFIX}"))
    if path.name.endswith(SUFFIX):
        return [path]
    beside = path.with_name(path.stem + SUFFIX)
    return [beside] if beside.is_file() else []


def read_cases(path: Path, env: Mapping[str, str] | None = None) -> Cases:
    """Read a file of cases and its network. Raises NetworkError with every problem of the one or the other."""
    environment = os.environ if env is None else env
    text, name = read_text(path)
    document = read_document(text, name, environment)
    problems = list(document.problems)
    try:
        file = CaseFile.model_validate(document.data)
    except ValidationError as error:
        problems += to_problems(error, document, (), document.data, CaseFile)
        raise NetworkError(problems, name, text) from None
    network = read_network(_network_of(path, file.network), environment)
    for number, case in enumerate(file.cases):
        problems += _check(case, ("cases", number), network, document)
    if problems:
        raise NetworkError(sorted(problems, key=lambda p: (p.line, p.column)), name, text)
    return Cases(name, network, file.cases, document)


def _network_of(path: Path, name: str | None) -> Path:
    return path.with_name(path.name.removesuffix(SUFFIX) + ".yaml") if name is None else path.parent / name


# -- checks ------------------------------------------------------------------------------------------------------------


def _check(case: NetworkCase, at: Place, network: Network, document: Document) -> Iterator[Problem]:
    streams = {stream.name: stream.schema for stream in network.streams}
    outputs = {output.name: output.schema for output in network.outputs}
    if not case.model_fields_set & {"expect", "late", "dead", "refused"}:
        yield document.problem(at, "the case expects nothing", "give it expect, late, dead or refused")
    if case.clock is not None:
        yield from _check_time(case.clock, (*at, "clock"), document)
    for number, step in enumerate(case.input):
        for key, value in step.items():
            yield from _check_step(key, value, (*at, "input", number, key), streams, document)
    for name, rows in case.expect.items():
        place = (*at, "expect", name)
        if name not in outputs:
            yield document.problem(place, f"there is no output '{name}'", did_you_mean(name, outputs), at_key=True)
        else:
            yield from _check_fields(rows, outputs[name], place, document)
    boxes = [box.name for box in network.boxes]
    for kind, counts, known in (
        ("late", case.late, boxes),
        ("dead", case.dead, boxes),
        ("refused", case.refused, streams),
    ):
        for name in counts:
            if name not in known:
                what = "stream" if kind == "refused" else "box"
                place = (*at, kind, name)
                yield document.problem(place, f"there is no {what} '{name}'", did_you_mean(name, known), at_key=True)


def _check_step(
    key: str, value: Any, place: Place, streams: Mapping[str, Schema], document: Document
) -> Iterator[Problem]:
    if key in streams:
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            yield document.problem(place, "should be a list of rows such as [{a: 1}, {a: 2}]")
        else:
            yield from _check_fields(value, streams[key], place, document)
    elif key == "advance":
        try:
            parse_duration_ns(value)
        except ValueError as error:
            yield document.problem(place, str(error))
    elif key == "at":
        yield from _check_time(value, place, document)
    elif key == "heartbeat":
        for name, time in value.items() if isinstance(value, dict) else ():
            if name not in streams:
                hint = did_you_mean(name, streams)
                yield document.problem((*place, name), f"there is no stream '{name}'", hint, at_key=True)
            yield from _check_time(time, (*place, name), document)
        if not isinstance(value, dict):
            yield document.problem(place, 'should be {STREAM: "2026-01-01T12:00:00Z"}')
    else:
        hint = did_you_mean(key, [*streams, *TIME_STEPS])
        yield document.problem(place, f"there is no stream '{key}', and it moves no clock", hint, at_key=True)


def _check_fields(rows: list[dict[str, Any]], schema: Schema, place: Place, document: Document) -> Iterator[Problem]:
    for number, row in enumerate(rows):
        for field in row:
            if field not in schema:
                hint = did_you_mean(field, schema.names)
                yield document.problem((*place, number, field), f"there is no field '{field}'", hint, at_key=True)


def _check_time(value: Any, place: Place, document: Document) -> Iterator[Problem]:
    try:
        timestamp_ns(str(value), 1)
    except ValueError as error:
        yield document.problem(place, str(error), "write 2026-01-01T12:00:00Z")
