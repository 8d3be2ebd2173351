"""docs/boxes.md: every kind of box from its module, and a golden case of it as the example."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from catalog.schema import Schema, Type
from engine.operators.boxes import box_kinds
from engine.operators.boxes.base import Box
from engine.operators.parameter_docs import parameters
from tests.docs.prose import NOTE, docstring, table
from tests.golden.harness import network_of, read_case

GOLDEN = Path(__file__).parents[1] / "golden"
HEAD = """# Boxes

A box is written as `name: {kind: input, parameters}`. The input is a stream, a box, a port of a box (`venues.nyse`),
or a list of these where the kind takes several. Every kind also takes `cost` and `selectivity`, first guesses for the
scheduler that measurements replace, and [`keep`](history.md). `aurorad boxes` lists the kinds, `aurorad boxes KIND`
prints one of these sections.

Each example is a case of `tests/golden/`: it runs with trains of 1, 7 and 1,024 tuples, with 1 and 4 workers and
under every policy, and its output never changes. Outputs whose order is not fixed are compared as sets.
"""
SHAPE = "yaml elsewhere: tests/unit/test_box_docs.py"


def page() -> str:
    kinds = box_kinds()
    rows = [[f"[`{kind}`](#{kind})", box.summary, inputs(box)] for kind, box in kinds.items()]
    parts = [NOTE + HEAD.strip(), table(["kind", "what it does", "inputs"], rows)]
    parts += [section(kind, box) for kind, box in kinds.items()]
    return "\n\n".join(parts) + "\n"


def inputs(box: type[Box]) -> str:
    if box.min_inputs == box.max_inputs:
        return str(box.min_inputs)
    return f"{box.min_inputs} or more"


def section(kind: str, box: type[Box]) -> str:
    module = sys.modules[box.__module__]
    said = [f"## {kind}", box.summary[0].upper() + box.summary[1:] + ".", docstring(module, SHAPE)]
    rows = list(parameters(box.parameters_model))
    if any(row[-1] for row in rows):
        said.append(table(["parameter", "type", "default", "meaning"], rows))
    elif rows:
        said.append(table(["parameter", "type", "default"], [row[:-1] for row in rows]))
    said.append(example(kind))
    return "\n\n".join(said)


# -- the example ------------------------------------------------------------------------------------------------------


def example(kind: str) -> str:
    """The golden case that says ``docs: true``, or else the first."""
    paths = sorted((GOLDEN / kind).glob("*.yaml"))
    assert paths, f"tests/golden/{kind} has no case: docs/boxes.md shows one"
    path = next((p for p in paths if read_case(p).get("docs")), paths[0])
    case = read_case(path)
    network = network_of(case)
    text = re.search(r"(?ms)^network:\n(.*?)^(?=\S)", path.read_text())
    assert text is not None
    said = [
        f"**Example** (`tests/golden/{kind}/{path.name}`): {case['about']}.",
        f"```yaml\n{textwrap.dedent(text[1])}```",
    ]
    given = [
        f"{name:{width(case)}} {line}"
        for block in case["input"]
        for name, rows in block.items()
        for line in lines(network.stream(name).schema, rows)
    ]
    end = ["", "(then the streams end, which closes every window)"] if case.get("close") else []
    said.append("Tuples in:\n\n```text\n" + "\n".join([*given, *end]) + "\n```")
    for name, rows in case["expect"].items():
        schema = network.output(name).schema
        said.append(f"Output `{name}`:\n\n```text\n" + "\n".join(lines(schema, rows)) + "\n```")
    return "\n\n".join(said)


def width(case: dict[str, Any]) -> int:
    return max(len(name) for block in case["input"] for name in block)


def lines(schema: Schema, rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        shown = {
            f.name: time_text(row[f.name]) if f.type is Type.TIMESTAMP else row[f.name] for f in schema if f.name in row
        }
        yield json.dumps(shown, separators=(",", ":"))


def time_text(value: Any) -> Any:
    """Nanoseconds or a datetime as ISO 8601, without the zeros at the end."""
    if value is None:
        return None
    ns = value if isinstance(value, int) else int(value.timestamp() * 1_000_000) * 1_000
    seconds, rest = divmod(ns, 10**9)
    from datetime import UTC, datetime

    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return whole + (f".{rest:09d}".rstrip("0") if rest else "") + "Z"
