"""docs/network-file.md: every key of a network file, from the comments of configs/default.yaml and the models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from pydantic import BaseModel

from catalog.config import models
from catalog.config.document import Document, read_document
from engine.operators.parameter_docs import kind_of
from router.codecs import CODECS
from tests.docs.prose import NOTE, table

FILE = Path(__file__).parents[2] / "configs" / "default.yaml"
SECTIONS = [  # heading, where its keys stand in default.yaml, its model, the key whose comment opens the section
    ("engine", "engine", models.EngineSection, ""),
    ("http", "http", models.HttpSection, ""),
    ("scheduler", "scheduler", models.SchedulerSection, ""),
    ("scheduler.batch", "scheduler.batch", models.BatchSection, ""),
    ("limits", "limits", models.LimitsSection, "limits"),
    ("log", "log", models.LogSection, ""),
    ("access", "access", models.AccessSection, "access"),
    ("access.tls", "access.tls", models.TlsSection, ""),
    ("access.users.NAME", "access.users.ops", models.UserModel, "access.users"),
    ("spark", "spark", models.SparkSection, "spark"),
    ("admission", "admission", models.AdmissionSection, "admission"),
    ("streams.NAME", "streams.trades", models.StreamModel, "streams"),
    ("streams.NAME.source: TCP", "streams.trades.source", models.TcpSource, ""),
    ("streams.NAME.source: a file", "streams.from_file.source", models.FileSource, "streams.from_file"),
    ("streams.NAME.source: standard input", "streams.piped.source", models.StdinSource, "streams.piped"),
    ("streams.NAME.source: Spark", "streams.history.source", models.SparkSource, "streams.history"),
    ("streams.NAME.keep", "streams.trades.keep", models.KeepModel, ""),
    ("boxes.NAME", "boxes.big", models.BoxEntry, "boxes"),
    ("outputs.NAME", "outputs.alerts", models.OutputModel, "outputs"),
    ("outputs.NAME.qos: graphs", "outputs.alerts.qos", models.QoSModel, "outputs.alerts.qos"),
    ("outputs.NAME.qos: presets", "outputs.listed_trades.qos", models.QoSModel, "outputs.listed_trades"),
    ("outputs.NAME.qos: the error", "outputs.trades_counted.qos", models.QoSModel, "outputs.trades_counted"),
    ("outputs.NAME.sink: TCP", "outputs.alerts.sink", models.TcpSink, ""),
    ("outputs.NAME.sink: a file", "outputs.to_file.sink", models.FileSink, "outputs.to_file"),
    ("outputs.NAME.sink: standard output", "outputs.shown.sink", models.StdoutSink, "outputs.shown"),
    ("outputs.NAME.sink: Spark", "outputs.archive.sink", models.SparkSink, "outputs.archive"),
]
GRAPHS = ("latency", "loss", "value")
SPECIAL = {  # what no annotation says
    "train": "`auto`, `all` or a limit", "schema": "fields with types", "latency": "graph", "loss": "graph",
    "value": "field and graph", "listen": "address or `off`", "tcp": "address", "source": "keys below",
    "sink": "keys below", "users": "keys below", "access.tls": "keys below",
    "password": "bcrypt hash", "rate": "size a second", "qos": "keys below",
    "scheduler.batch": "keys below", "prefer": "SQL predicate",
    "config": "names with values", "options": "names with values", "order_by": "list of fields",
    "partition_by": "list of fields", "time": "field", "from": "stream, box or port",
    "pace": "`as_fast`, `realtime`, `10x`",
    "policy": "a [policy](policies.md)",
    "keep": "keys below", "start": "`earliest`, `now`, `-1h` or a time",
    "workers": "`auto` or a whole number",
    **dict.fromkeys(("streams.format", "outputs.format"), ", ".join(f"`{name}`" for name in CODECS)),
}  # fmt: skip


def page() -> str:
    text = FILE.read_text(encoding="utf-8")
    doc = read_document(uncommented(text), FILE.name, {})
    lines = text.splitlines()
    head = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[: lines.index("")])
    parts = [NOTE + OPENING.strip(), opening(head[head.index("Quantities carry") :])]
    for title, place, model, about in SECTIONS:
        said = comment_above(lines, doc.keys[tuple(about.split("."))].line - 1) + "\n\n" if about else ""
        parts.append(f"## {title}\n\n{said}" + table(HEAD, keys(doc, lines, tuple(place.split(".")), model)))
    parts.append(TAIL)
    return "\n\n".join(parts) + "\n"


HEAD = ["key", "type", "default", "what it does"]
OPENING = """# The network file

A network file is YAML. It has streams (inputs), boxes, outputs, and sections for the engine itself. Only streams and
outputs are required. `aurorad validate` reports every error at once, each with its line and the word that you may
have meant; it starts nothing and opens no port.

```sh
aurorad validate configs/default.yaml
aurorad graph configs/default.yaml
```
"""
TAIL = """## The whole file

`configs/default.yaml` has all of these keys in one network that runs, with the same text as comments.
`configs/demo.yaml` is the network of the demo, and `configs/batch.yaml` is a pipeline from files to files.

`aurorad run` takes some of these settings as flags and from the environment. A flag wins over the environment, and
the environment wins over the file: `--workers` or `AURORAD_WORKERS`, `--memory` or `AURORAD_MEMORY`, `--policy` or
`AURORAD_POLICY`, `--http` or `AURORAD_HTTP`, `--log-format` or `AURORAD_LOG_FORMAT`, `--log-level` or
`AURORAD_LOG_LEVEL`. `--port-base` or `AURORAD_PORT_BASE` moves all ports: the lowest one to this number, the others by
the same distance."""


def opening(head: str) -> str:
    """The first comment of the file as Markdown: its indented parts become fences."""
    out, code = [], []
    for line in [*head.splitlines(), ""]:
        if line.startswith("  "):
            code.append(line[2:])
            continue
        if code:
            out += ["", "```text", *code, "```", ""]
            code = []
        out.append(line)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip()


def uncommented(text: str) -> str:
    """The file with every key switched on that is there as a comment."""
    return re.sub(r"^(\s*)# (\s*[a-z_]+:(?: .*)?)$", r"\1\2", text, flags=re.MULTILINE)


OTHERS = re.compile(r"Or \w+(, \w+)*[.]")  # what the column of types says already
KEY = re.compile(r"^\s*(?:# )?\s*[a-z_]+:(?: .*)?$")


def keys(doc: Document, lines: list[str], path: tuple[str, ...], model: type[BaseModel]) -> Iterator[list[str]]:
    hints = get_type_hints(model, include_extras=True)
    for name, field in model.model_fields.items():
        key = field.alias or name
        if (*path, key) not in doc.keys:
            assert model is models.QoSModel
            continue
        if model is models.QoSModel and (key in GRAPHS) != (path[1] == "alerts"):
            continue
        at = doc.keys[*path, key].line - 1
        behind = lines[at].partition(" # ")[2] if not lines[at].lstrip().startswith("# ") else behind_key(lines[at])
        default, said = split_default(behind)
        said = "" if OTHERS.fullmatch(said) else said
        why = " ".join(part for part in (comment_above(lines, at), said) if part)
        kind = SPECIAL.get(f"{path[0]}.{key}") or SPECIAL.get(key) or kind_of(hints[name], field)
        yield [f"`{key}`", kind, default or "none", why]


def behind_key(line: str) -> str:
    """The comment behind a key that is itself commented out."""
    return line.lstrip().removeprefix("# ").partition(" # ")[2]


def split_default(comment: str) -> tuple[str, str]:
    comment = comment.strip()
    if comment.startswith("required"):
        return "required", sentence(comment.removeprefix("required").lstrip(", "))
    match = re.match(r"default: (\{[^}]*\}|\[[^]]*\]|[^,]+)(?:, (.*))?$", comment)
    if match is None:
        return "", ""
    default = match[1].strip()
    if (match[2] or "").startswith("which is "):
        return f"{default}, {match[2]}", ""
    return ("none" if default == "none" else f"`{default}`"), sentence(match[2] or "")


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def comment_above(lines: list[str], at: int) -> str:
    """The comment lines right above, as one paragraph; code in them stays code."""
    found: list[str] = []
    for line in reversed(lines[:at]):
        bare = line.strip()
        if not bare.startswith("#") or KEY.match(line):
            break
        found.append(re.sub(r"^#(?:\s*#)?\s?", "", bare).rstrip())
    text = " ".join(code(line) if line.startswith("  ") else line for line in reversed(found))
    return text.strip()


def code(line: str) -> str:
    """``{a: 1} of this   {b: 2} of that``, each as code with its words behind it."""
    parts = re.split(r" {3,}", line.strip())
    return ", ".join(re.sub(r"^(\{.*?\})", r"`\1`", part) for part in parts) + "."
