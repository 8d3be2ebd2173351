"""docs/boxes.md: every kind of box from its module, and a golden case of it as the example."""

from __future__ import annotations

import json
import re
import sys
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from catalog.config.units import Cost, Duration, PositiveDuration, PositiveSize, Share, Size, format_duration
from catalog.schema import Schema, Type
from engine.operators.boxes import box_kinds
from engine.operators.boxes.base import Box
from tests.docs.prose import NOTE, docstring, table
from tests.golden.harness import network_of, read_case

GOLDEN = Path(__file__).parents[1] / "golden"
HEAD = """# Boxes

A box is written as `name: {kind: input, parameters}`. The input is a stream, a box, a port of a box (`venues.nyse`),
or a list of these where the kind takes several. Every kind also takes `cost` and `selectivity`, first guesses for the
scheduler that measurements replace. `aurorad boxes` lists the kinds, `aurorad boxes KIND` prints one of these
sections.

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


# -- parameters -------------------------------------------------------------------------------------------------------

UNITS = {
    Duration: "duration", PositiveDuration: "duration above 0", Size: "size", PositiveSize: "size above 0",
    Share: "share", Cost: "duration",
}  # fmt: skip


def parameters(model: type[BaseModel], prefix: str = "") -> Iterator[list[str]]:
    hints = get_type_hints(model, include_extras=True)
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.alias or name}"
        yield [f"`{key}`", kind_of(hints[name], field), default_of(field, hints[name]), field.description or ""]
        for inner in models_in(hints[name]):
            yield from parameters(inner, f"{key}.")


def models_in(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    return [model for part in get_args(hint) for model in models_in(part)]


def kind_of(hint: Any, field: FieldInfo | None = None) -> str:
    """The type as a user of the network file knows it."""
    text = _kind(hint)
    limits = {type(m).__name__: m for m in field.metadata} if field is not None else {}
    low = limits.get("Gt") or limits.get("Ge")
    high = limits.get("Le")
    if text == "whole number" and low is not None:
        least = low.gt + 1 if hasattr(low, "gt") else low.ge
        text += f", {least} to {high.le:,}" if high is not None else f", at least {least}"
    return text


def _kind(hint: Any) -> str:
    for alias, word in UNITS.items():
        if hint == alias:
            return word
    origin = get_origin(hint)
    if origin is Annotated:
        return _kind(get_args(hint)[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if origin in (types.UnionType, getattr(types, "UnionType", None)) or str(origin) == "typing.Union":
        return " or ".join(dict.fromkeys(_kind(part) for part in get_args(hint) if part is not type(None)))
    if origin in (tuple, list):
        return f"list of {_plural(_kind(get_args(hint)[0]))}"
    if origin is dict:
        return f"names, each with a {_kind(get_args(hint)[1])}"
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "keys below"
    return {int: "whole number", float: "number", str: "text", bool: "true or false"}.get(hint, "any")


def _plural(word: str) -> str:
    return {"text": "names"}.get(word, word)


def default_of(field: FieldInfo, hint: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return "none"
    if "duration" in _kind(hint) and isinstance(value, int | float):
        return f"`{format_duration(value)}`"
    if isinstance(value, tuple | list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


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
