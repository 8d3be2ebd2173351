"""The parameters of a box as its users know them: key, type, default and meaning, from the model of the parameters.

``aurorad boxes KIND`` and ``docs/boxes.md`` show the same rows. Words that stand for values are in backticks.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from catalog.config.units import Cost, Duration, PositiveDuration, PositiveSize, Share, Size, format_duration

UNITS = {
    Duration: "duration", PositiveDuration: "duration above 0", Size: "size", PositiveSize: "size above 0",
    Share: "share", Cost: "duration",
}  # fmt: skip
WORDS = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def parameters(model: type[BaseModel], prefix: str = "") -> Iterator[list[str]]:
    """Yield key, type, default and meaning; the keys of a parameter that has keys follow it."""
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
    """Return the type as a user of the network file knows it."""
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
    return getattr(hint, "written_as", None) or WORDS.get(hint, "any")


def _plural(word: str) -> str:
    return {"text": "names"}.get(word, word)


def default_of(field: FieldInfo, hint: Any) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "none"  # its keys follow, with their own defaults
    if value is None or value is PydanticUndefined:
        return "none"
    if "duration" in _kind(hint) and isinstance(value, int | float):
        return f"`{format_duration(value)}`"
    if isinstance(value, tuple | list):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
