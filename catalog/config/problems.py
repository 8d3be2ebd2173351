"""Translate pydantic's errors into the words of a network file."""

from __future__ import annotations

import re
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from catalog.config.document import Document, Path
from catalog.config.words import did_you_mean, nearest
from catalog.errors import Problem

_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "a string",
    "bool": "true or false",
    "dict": "a mapping (key: value)",
    "mapping": "a mapping (key: value)",
    "model": "a mapping (key: value)",
    "model_attributes": "a mapping (key: value)",
    "list": "a list",
    "tuple": "a list",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def to_problems(
    error: ValidationError,
    document: Document,
    at: Path,
    data: Any,
    model: type[BaseModel],
    extra_keys: tuple[str, ...] = (),
) -> list[Problem]:
    """Return one problem for each place: when all arms of a union refuse a value, their messages are joined."""
    found: dict[Path, tuple[list[str], str, bool]] = {}
    for item in error.errors(include_url=False):
        path, at_key = _path(item["loc"], item["type"], data)
        path += getattr(item.get("ctx", {}).get("error"), "at", ())
        message, hint = _message(item, model, extra_keys if len(item["loc"]) == 1 else ())
        messages, hint_there, _ = found.setdefault((*at, *path), ([], hint, at_key))
        if message not in messages:
            messages.append(message)
        if hint and not hint_there:
            found[(*at, *path)] = (messages, hint, at_key)
    return [
        document.problem(path, ", or ".join(messages), hint, at_key=at_key)
        for path, (messages, hint, at_key) in found.items()
    ]


def _path(loc: tuple[int | str, ...], kind: str, data: Any) -> tuple[Path, bool]:
    """Return the path in the file (``loc`` without the names of union arms), and whether the key itself is at fault."""
    path: list[str | int] = []
    here: Any = data
    at_key = kind == "extra_forbidden"
    for i, part in enumerate(loc):
        if (isinstance(here, dict) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        ):
            path.append(part)
            here = here[part]  # type: ignore[index]  # an index of a list, a key of a dict: just tested
        elif part == "[key]":
            at_key = True
        elif kind == "missing" and i == len(loc) - 1:
            path.append(part)
    return tuple(path), at_key


def _message(item: Any, model: type[BaseModel], extra_keys: tuple[str, ...]) -> tuple[str, str]:
    kind, value, ctx = str(item["type"]), item["input"], item.get("ctx", {})
    last = item["loc"][-1] if item["loc"] else ""
    if kind == "missing":
        return f"the key '{last}' is missing", ""
    if kind == "extra_forbidden":
        return f"unknown key '{last}'", did_you_mean(str(last), [*known_keys(model, item["loc"][:-1]), *extra_keys])
    if kind == "value_error":
        cause = ctx.get("error")
        return str(cause), getattr(cause, "hint", "")
    if kind in ("literal_error", "enum"):
        choices = re.findall(r"'([^']*)'", str(ctx.get("expected", "")))
        return f"{_shown(value)} is not one of {', '.join(choices)}", nearest([str(value)], choices)
    if kind in ("source", "sink"):
        return str(item["msg"]), nearest(
            map(str, value), ("tcp", "file", "stdin" if kind == "source" else "stdout", "spark")
        ) if isinstance(value, dict) else ""
    if kind in _BOUNDS:
        name, word = _BOUNDS[kind]
        return f"should be {word} {ctx.get(name)}, not {_shown(value)}", ""
    if kind in ("too_short", "string_too_short"):
        return "must not be empty", ""
    wanted = _WANTED.get(re.sub(r"_(type|parsing|from_float|parsing_size)$", "", kind))
    if wanted is not None:
        return f"should be {wanted}, not {_shown(value)}", ""
    message = str(item["msg"])
    return message[:1].lower() + message[1:], ""


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = f"'{value}'" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def known_keys(model: Any, loc: tuple[int | str, ...]) -> list[str]:
    """Return the keys that the model at this place allows; ``loc`` leads through dicts, lists and unions."""
    places = [model]
    for part in loc:
        places = [n for p in places for arm in _arms(p) for n in _step(arm, part)]
    models = [m for p in places for m, _ in _arms(p) if isinstance(m, type) and issubclass(m, BaseModel)]
    return list(dict.fromkeys(f.alias or name for m in models for name, f in m.model_fields.items()))


def _arms(annotation: Any, tag: str = "") -> list[tuple[Any, str]]:
    """Return the classes behind an annotation, each with its tag in a union."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *notes = get_args(annotation)
        tag = next((n.tag for n in notes if isinstance(n, Tag)), tag)
        return _arms(inner, tag)
    if origin in (Union, UnionType):
        return [arm for a in get_args(annotation) for arm in _arms(a, tag)]
    return [] if origin is Literal else [(annotation, tag)]


def _step(arm: tuple[Any, str], part: int | str) -> list[Any]:
    annotation, tag = arm
    if part == tag or (isinstance(annotation, type) and part == annotation.__name__):
        return [annotation]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [f.annotation for name, f in annotation.model_fields.items() if part in (f.alias or name, name)]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (dict, list, tuple) and arguments:
        return [arguments[-1] if arguments[-1] is not Ellipsis else arguments[0]]
    return []
