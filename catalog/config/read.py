"""Make models of a document, and report all problems, not only the first.

An invalid part is set aside and the rest is read without it, so that a typo in one stream does not hide an unknown
field in a box elsewhere. ``Config.broken`` remembers the names that were set aside: a reference to one of them is no
error.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ValidationError

from catalog.config.document import MAX_BYTES, Document, Path, read_document
from catalog.config.models import NetworkFile
from catalog.config.overrides import NAMED, Overrides, apply_overrides
from catalog.config.ports import move_ports
from catalog.config.problems import to_problems
from catalog.config.words import nearest
from catalog.errors import NetworkError, Problem

TEXT = "<text>"
"""Stands for the name of a file where the text itself was given."""


@dataclass
class Config:
    """A network file that was read, as far as it is valid."""

    document: Document
    file: NetworkFile
    problems: list[Problem]
    broken: set[str] = field(default_factory=set)  # names of streams, boxes and outputs that could not be read
    lacks_section: bool = False  # a whole section could not be read: an unknown name may be in it

    @property
    def module_folders(self) -> tuple[FilePath, ...]:
        """The folders of the user's Python modules: that of the file, then those that it names, relative to it."""
        own = () if self.document.source == TEXT else (FilePath(self.document.source).parent,)
        base = own[0] if own else FilePath()
        return (*own, *(base / folder for folder in self.file.engine.python_path))


def read_text(source: FilePath | str) -> tuple[str, str]:
    """Return the text and its name. A str that contains a line break or begins with a brace is the text itself."""
    if isinstance(source, str) and (not source.strip() or "\n" in source or source.lstrip().startswith("{")):
        return source, TEXT
    name = str(source)
    try:
        if (size := os.stat(name).st_size) > MAX_BYTES:
            raise NetworkError([Problem((), f"the file has {size:,} bytes; the limit is {MAX_BYTES:,}")], name)
        raw = FilePath(name).read_bytes()
    except OSError as error:
        raise NetworkError([Problem((), f"cannot be read: {error.strerror or error}")], name) from None
    try:
        return raw.decode("utf-8-sig"), name
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        problem = Problem((), f"not UTF-8: byte 0x{raw[error.start]:02x}", "", line, column)
        raise NetworkError([problem], name) from None


def read_config(
    source: FilePath | str,
    env: Mapping[str, str],
    overrides: Overrides | None = None,
    formats: Collection[str] | None = None,
    named: str = "",
) -> Config:
    """Read a network file. Problems are in the result; raises NetworkError only when nothing can be read.

    ``formats`` are the allowed names of the ``format`` of a socket; None: any. ``named``: the file that a text stands
    for.
    """
    text, name = read_text(source)
    name = named if named and name == TEXT else name
    document = read_document(text, name, env)
    data = document.data
    if not isinstance(data, dict):
        what = "the file is empty" if data is None else "the file must be a mapping with streams, boxes and outputs"
        hint = "a network needs at least streams and outputs: see configs/default.yaml"
        raise NetworkError([*document.problems, document.problem((), what, hint)], name, text)
    if overrides is not None:
        apply_overrides(data, overrides)
        if overrides.port_base is not None:
            move_ports(data, overrides.port_base, name)
    return _validate(document, data, formats)


def _validate(document: Document, data: dict[str, Any], formats: Collection[str] | None) -> Config:
    """Validate in rounds, each without the invalid parts of the round before. Only the problems of the first round are
    reported: the others may be consequences."""
    problems = list(document.problems)
    broken: set[str] = set()
    lacks_section = False
    rest = {
        key: {n: dict(v) if isinstance(v, dict) else v for n, v in value.items()} if isinstance(value, dict) else value
        for key, value in data.items()
        if value is not None or key not in NetworkFile.model_fields  # "boxes:" without a value is an empty section
    }
    first = True
    while True:
        try:
            file = NetworkFile.model_validate(rest, context={"formats": formats})
            return Config(document, file, problems, broken, lacks_section)
        except ValidationError as error:
            if first:
                problems += to_problems(error, document, (), data, NetworkFile)
            first = False
            for item in error.errors(include_url=False, include_context=False, include_input=False):
                lacks_section |= _set_aside(rest, item["loc"], item["type"] == "missing", broken)


def _set_aside(data: dict[str, Any], loc: tuple[int | str, ...], missing: bool, broken: set[str]) -> bool:
    """Remove the smallest part that explains the error. Return whether names may have been removed with it."""
    section = str(loc[0])
    if section in NAMED and len(loc) > 1:
        name = str(loc[1])
        entry = data.get(section, {}).get(name)
        if len(loc) > 2 and not missing and isinstance(entry, dict) and loc[2] in entry:
            del entry[str(loc[2])]
        else:
            broken.add(name)
            data.get(section, {}).pop(name, None)
        return False
    data.pop(section, None)
    return section in NAMED or bool(nearest([section], NAMED))


def validate_part(
    model: type[BaseModel],
    data: dict[str, Any],
    document: Document,
    at: Path,
    extra_keys: tuple[str, ...] = (),
    context: Mapping[str, Any] | None = None,
) -> tuple[Any, list[Problem]]:
    """Validate a part of the file that has its own model: the parameters of a box. Its validators get ``context``."""
    try:
        return model.model_validate(data, context=context), []
    except ValidationError as error:
        return None, to_problems(error, document, at, data, model, extra_keys)
