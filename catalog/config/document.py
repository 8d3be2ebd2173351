"""A YAML document as plain data, with the position of every value.

The document is built directly from the parser's events, for three reasons. First, errors that are found later (an
unknown field in an expression) must point into the file, so each path keeps its marks. Second, the guesses of YAML 1.1
are traps here: ``on:`` is the key of a join and not the boolean true, ``1:30`` is not ninety, ``010`` is not eight. So
plain scalars mean what YAML 1.2 says. Third, the file may be hostile: size, depth and the number of values after the
expansion of aliases have limits, where a recursive constructor would run out of stack or memory.

``${VAR}`` and ``${VAR:-default}`` are replaced inside scalars after parsing, so the text of a variable can never change
the structure. ``${file:PATH}`` is replaced by the text of a file, without the line break at its end. That is a secret:
it is always a string, and no message shows it. ``$${`` stands for a literal ``${``.

Refused: tags (``!!python/...`` and all others), several documents, keys that are not scalars.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from catalog.errors import NetworkError, Problem

Path = tuple[str | int, ...]

MAX_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 40
MAX_VALUES = 200_000

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_INT = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_WORDS |= {".inf": float("inf"), "-.inf": float("-inf"), ".nan": float("nan")}

# While YAML is parsed, other characters stand for the braces of a variable, or {workers: ${N}} would have two closing
# braces. They are noncharacters of Unicode (no text contains them) and as many as before (columns stay right).
REFERENCE = re.compile(r"(?<!\$)\$\{(file:[^}\n]+|[A-Za-z_][A-Za-z0-9_]*(?::-[^}\n]*)?)\}")
_OPEN, _CLOSE = "\ufdd0", "\ufdd1"

_VARIABLE = re.compile(
    r"\$\$\{|\$\{file:(?P<file>[^}]+)\}|\$\{(?P<name>[A-Za-z_]\w*)(:-(?P<default>[^}]*))?\}|\$\{", re.A
)
MAX_SECRET_BYTES = 64 * 1024
SHORTEST_SECRET = 4  # a shorter one is in every message by chance


@dataclass(frozen=True, slots=True)
class Mark:
    """A position; line and column count from 1. A ``quoted`` scalar begins one column before its text."""

    line: int
    column: int
    quoted: bool = False
    literal: bool = True  # the value is written as it is: no variable, no escape, no folding


@dataclass
class Document:
    """``data`` consists of dict, list, str, int, float, bool and None."""

    source: str
    text: str
    data: Any = None
    keys: dict[Path, Mark] = field(default_factory=dict)  # the position of the key of a path
    values: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)  # texts of files: no message shows them

    def locate(self, path: Path, *, at_key: bool = False) -> Mark:
        """Return the position of the value; without one, of the nearest key on its path."""
        if not at_key and path in self.values:
            return self.values[path]
        for end in range(len(path), 0, -1):
            mark = self.keys.get(path[:end]) or self.values.get(path[:end])
            if mark is not None:
                return mark
        return Mark(1, 1)

    def problem(
        self,
        path: Path,
        message: str,
        hint: str = "",
        *,
        at_key: bool = False,
        warning: bool = False,
        offset: int = 0,
    ) -> Problem:
        """Make a problem with its line and column. ``offset`` is a position in the text of the value."""
        mark = self.locate(path, at_key=at_key)
        column = mark.column
        if offset > 0 and path in self.values and mark.literal:
            column += offset + mark.quoted
        for secret in self.secrets:
            message, hint = message.replace(secret, "***"), hint.replace(secret, "***")
        return Problem(path, message, hint, mark.line, column, warning)

    def line(self, number: int) -> str:
        """Return a line of the file, to show it under a message."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""


def read_document(text: str, source: str, env: Mapping[str, str]) -> Document:
    """Parse the text. Raises NetworkError when it cannot be read; smaller problems are in ``document.problems``."""
    document = Document(source, text)
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise NetworkError([Problem((), f"the file is larger than {MAX_BYTES >> 20} MiB", line=1, column=1)], source)
    try:
        _Builder(document, env).build()
    except yaml.MarkedYAMLError as error:
        raise NetworkError([*document.problems, _syntax_problem(error, text)], source, text) from None
    except yaml.YAMLError as error:
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        message = f"a character that YAML does not allow: {getattr(error, 'reason', error)}"
        raise NetworkError([*document.problems, Problem((), message, line=line, column=1)], source, text) from None
    except _StopReadingError as stop:
        raise NetworkError([*document.problems, stop.problem], source, text) from None
    return document


class _StopReadingError(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class _Builder:
    """Make one pass over the events. ``count`` counts every value, including those of expanded aliases."""

    def __init__(self, document: Document, env: Mapping[str, str]) -> None:
        self.document = document
        self.env = env
        self.anchors: dict[str, tuple[Any, Path]] = {}
        self.open_anchors: set[str] = set()
        self.count = 0

    def build(self) -> None:
        events: Iterator[Any] = yaml.parse(_hide_variables(self.document.text), Loader=_Loader)
        found = False
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if found:
                    self.stop((), "a second document: one file holds one network", event)
                found = True
                self.document.data = self.node(next(events), events, ())

    def node(self, event: Any, events: Iterator[Any], path: Path) -> Any:
        self.count += 1
        if self.count > MAX_VALUES:
            self.stop(path, f"more than {MAX_VALUES:,} values, with aliases expanded", event)
        if len(path) > MAX_DEPTH:
            self.stop(path[:MAX_DEPTH], f"nested deeper than {MAX_DEPTH} levels", event)
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, path)
        self.document.values[path] = _mark(event)
        if event.tag is not None:
            self.stop(
                path, f"the tag {event.tag}: tags are not supported", event, "quote the value to make it a string"
            )
        if event.anchor is not None:
            self.open_anchors.add(event.anchor)
        if isinstance(event, yaml.ScalarEvent):
            value: Any = self.scalar(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self.sequence(events, path)
        else:
            value = self.mapping(events, path)
        if event.anchor is not None:
            self.open_anchors.discard(event.anchor)
            self.anchors[event.anchor] = (value, path)
        return value

    def sequence(self, events: Iterator[Any], path: Path) -> list[Any]:
        out: list[Any] = []
        for event in events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            out.append(self.node(event, events, (*path, len(out))))
        return out

    def mapping(self, events: Iterator[Any], path: Path) -> dict[str, Any]:
        out: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self.key(event, path)
            at = (*path, key)
            if key == "<<" and event.implicit[0]:
                merged += self.merge(self.node(next(events), events, at), at, event)
                continue
            if key in out:
                first = self.document.keys[at]
                self.report(at, f"the key '{key}' appears twice", event, f"the first is on line {first.line}")
                self.node(next(events), events, (*path, f"{key} (again)"))
                continue
            self.document.keys[at] = _mark(event)
            out[key] = self.node(next(events), events, at)
        for source in merged:
            for key, value in source.items():
                out.setdefault(key, value)
        return out

    def key(self, event: Any, path: Path) -> str:
        if not isinstance(event, yaml.ScalarEvent) or event.tag is not None:
            self.stop(path, "a key must be a plain word", event)
        return _show_variables(event.value)

    def merge(self, value: Any, path: Path, event: Any) -> list[dict[str, Any]]:
        """Read ``<<: *other``: add the keys of another mapping that are not given here."""
        sources = value if isinstance(value, list) else [value]
        if not all(isinstance(s, dict) for s in sources):
            self.report(path, "<< takes a mapping or a list of mappings", event)
            return []
        for source in sources:
            for key in source:
                self.document.keys.setdefault((*path[:-1], key), _mark(event))
        return sources

    def alias(self, event: Any, path: Path) -> Any:
        """Return the value of ``*name``. All its values count again: that stops an alias bomb."""
        if event.anchor in self.open_anchors or event.anchor not in self.anchors:
            what = "contains itself" if event.anchor in self.open_anchors else "is not defined above"
            self.stop(path, f"the alias *{event.anchor} {what}", event)
        value, origin = self.anchors[event.anchor]
        self.copy_marks(value, origin, path)
        self.document.values[path] = _mark(event)
        return value

    def copy_marks(self, value: Any, origin: Path, path: Path) -> None:
        self.count += 1
        if self.count > MAX_VALUES or len(path) > MAX_DEPTH:
            mark = self.document.locate(path)
            message = f"aliases expand to more than {MAX_VALUES:,} values or {MAX_DEPTH} levels"
            raise _StopReadingError(Problem(path[:MAX_DEPTH], message, "", mark.line, mark.column))
        for marks in (self.document.keys, self.document.values):
            if origin in marks:
                marks[path] = marks[origin]
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for part, child in items:
            self.copy_marks(child, (*origin, part), (*path, part))

    def scalar(self, event: Any, path: Path) -> Any:
        text = _show_variables(event.value)
        plain = event.implicit[0]
        if "${" in text:
            text = self.substitute(text, event, path)
        if not plain or f"{_OPEN}{_OPEN}file:" in event.value:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INT.fullmatch(text):
            return int(text)
        return float(text) if _FLOAT.fullmatch(text) else text

    def substitute(self, text: str, event: Any, path: Path) -> str:
        def replace(match: re.Match[str]) -> str:
            if match[0] == "$${":
                return "${"
            if match["file"] is not None:
                return self.secret(match["file"], event, path)
            name, default = match["name"], match["default"]
            if name is None:
                hint = "write ${NAME} or ${NAME:-default}; $${ stands for a literal ${"
                self.report(path, "this variable is not closed, or its name is not valid", event, hint)
                return ""
            value = self.env.get(name, "")
            if value or (name in self.env and default is None):
                return value
            if default is None:
                hint = f"set it, or write ${{{name}:-default}}"
                self.report(path, f"the environment variable {name} is not set", event, hint)
                return ""
            return default

        return _VARIABLE.sub(replace, text)

    def secret(self, name: str, event: Any, path: Path) -> str:
        """Return the text of a file."""
        try:
            with open(name, "rb") as file:
                text = file.read(MAX_SECRET_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "not UTF-8"
            self.report(path, f"the file {name} cannot be read: {why}", event)
            return ""
        if len(text) > MAX_SECRET_BYTES:
            self.report(path, f"the file {name} is larger than {MAX_SECRET_BYTES:,} bytes", event)
        text = text.removesuffix("\n").removesuffix("\r")
        if len(text) >= SHORTEST_SECRET:
            self.document.secrets.append(text)
        return text

    def report(self, path: Path, message: str, event: Any, hint: str = "") -> None:
        mark = _mark(event)
        self.document.problems.append(Problem(path, message, hint, mark.line, mark.column))

    def stop(self, path: Path, message: str, event: Any, hint: str = "") -> None:
        mark = _mark(event)
        raise _StopReadingError(Problem(path, message, hint, mark.line, mark.column))


def _hide_variables(text: str) -> str:
    text = text.replace(_OPEN, "\x00").replace(_CLOSE, "\x00")  # YAML refuses \x00
    return REFERENCE.sub(rf"{_OPEN}{_OPEN}\1{_CLOSE}", text)


def _show_variables(text: str) -> str:
    return text.replace(_OPEN * 2, "${").replace(_CLOSE, "}")


def _mark(event: Any) -> Mark:
    start, end = event.start_mark, event.end_mark
    scalar = isinstance(event, yaml.ScalarEvent)
    literal = scalar and start.line == end.line and _OPEN not in event.value and "${" not in event.value
    quoted = scalar and not event.implicit[0]
    if literal and quoted:
        literal = end.column - start.column == len(event.value) + 2
    return Mark(start.line + 1, start.column + 1, quoted, literal)


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    message = f"not YAML: {error.problem or error.context or 'cannot be read'}"
    shown = text.splitlines()[line - 1] if 0 < line <= text.count("\n") + 1 and text.splitlines()[line - 1 :] else ""
    hint = ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())] or "'\\t'" in message:
        hint = "indent with spaces: YAML does not allow tabs"
    elif line > 1 and text.lstrip().startswith("{"):
        hint = "is it a file of rows? `aurorad new FILE` writes a network for rows"
    elif "mapping values are not allowed" in message:
        hint = "quote a string that contains ': '"
    elif "cannot start any token" in message:
        hint = "quote a string that begins with this character"
    return Problem((), message, hint, line, column)
