"""``configs/default.yaml`` is the manual: it loads, it names every key, and what it says of defaults is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from catalog.build import build_network
from catalog.config import models
from catalog.config.document import Document, read_document
from engine.operators.boxes import box_kinds

FILE = Path(__file__).resolve().parents[2] / "configs" / "default.yaml"
TEXT = FILE.read_text(encoding="utf-8")

# Where each model stands in the file, and the least that it must be given.
PLACES: list[tuple[str, type[BaseModel], dict[str, Any]]] = [
    ("", models.NetworkFile, {}),
    ("engine", models.EngineSection, {}),
    ("http", models.HttpSection, {}),
    ("scheduler", models.SchedulerSection, {}),
    ("scheduler.batch", models.BatchSection, {}),
    ("limits", models.LimitsSection, {}),
    ("log", models.LogSection, {}),
    ("access", models.AccessSection, {}),
    ("access.tls", models.TlsSection, {"cert_file": "a", "key_file": "b"}),
    ("access.users.ops", models.UserModel, {}),
    ("spark", models.SparkSection, {}),
    ("admission", models.AdmissionSection, {}),
    ("streams.trades", models.StreamModel, {"schema": {"a": "int"}}),
    ("streams.trades.source", models.TcpSource, {"tcp": 1}),
    ("streams.from_file.source", models.FileSource, {"file": "x.ndjson"}),
    ("streams.piped.source", models.StdinSource, {"stdin": "ndjson"}),
    ("streams.history.source", models.SparkSource, {"spark": "parquet", "path": "x"}),
    ("streams.trades.keep", models.KeepModel, {}),
    ("boxes.big", models.BoxEntry, {}),
    ("outputs.alerts", models.OutputModel, {"from": "x"}),
    ("outputs.alerts.sink", models.TcpSink, {"tcp": 1}),
    ("outputs.to_file.sink", models.FileSink, {"file": "x.ndjson"}),
    ("outputs.shown.sink", models.StdoutSink, {"stdout": "table"}),
    ("outputs.archive.sink", models.SparkSink, {"spark": "parquet", "path": "x"}),
]
QOS_PLACES = ("outputs.alerts.qos", "outputs.listed_trades.qos", "outputs.trades_counted.qos")
SECTIONS = {"streams", "boxes", "outputs", "source", "sink", "qos", "users"}  # described by what is in them


def uncommented(text: str) -> str:
    """The file with every key switched on that is there as a comment."""
    return re.sub(r"^(\s*)# (\s*[a-z_]+:(?: .*)?)$", r"\1\2", text, flags=re.MULTILINE)


def document() -> Document:
    return read_document(uncommented(TEXT), "default.yaml", {})


def path_of(place: str) -> tuple[str, ...]:
    return tuple(place.split(".")) if place else ()


def comment_of(doc: Document, path: tuple[str, ...]) -> str:
    line = doc.line(doc.keys[path].line)
    return line.partition(" # ")[2].strip()


def fields() -> list[tuple[str, type[BaseModel], dict[str, Any], str, str]]:
    found = [(at, m, least, n, f.alias or n) for at, m, least in PLACES for n, f in m.model_fields.items()]
    for name, f in models.QoSModel.model_fields.items():
        at = QOS_PLACES[0] if name in ("latency", "loss", "value") else QOS_PLACES[2 if name == "max_error" else 1]
        found.append((at, models.QoSModel, {}, name, f.alias or name))
    return found


def test_it_is_a_network_as_it_stands() -> None:
    network = build_network(FILE, box_kinds(), {})
    assert not network.warnings
    assert [s.name for s in network.streams] == ["trades"]


def test_it_is_a_network_with_every_comment_switched_on() -> None:
    network = build_network(uncommented(TEXT), box_kinds(), {})
    assert [s.name for s in network.streams] == ["trades", "from_file", "piped", "history"]
    assert network.output("archive").sink.spark == "parquet"
    assert {str(w.path[-1]) for w in network.warnings} == {"from_file", "piped", "history", "increasing"}


def test_every_model_is_in_the_list_of_this_test() -> None:
    """A model that is added to the file must be added to the manual too."""
    known = {m for _, m, _ in PLACES} | {models.QoSModel, models.Section}
    mine = {m for m in vars(models).values() if isinstance(m, type) and issubclass(m, BaseModel) and m is not BaseModel}
    assert mine == known


@pytest.mark.parametrize(
    ("at", "model", "least", "name", "key"), fields(), ids=lambda v: v if isinstance(v, str) else ""
)
def test_every_key_is_there_with_its_true_default(
    at: str, model: type[BaseModel], least: dict[str, Any], name: str, key: str
) -> None:
    doc = document()
    path = (*path_of(at), key)
    assert path in doc.keys, f"{'.'.join(path)} is not in default.yaml"
    if key in SECTIONS or (at == "" and name in models.NetworkFile.model_fields):
        return
    comment = comment_of(doc, path)
    if model.model_fields[name].is_required():
        assert comment.startswith("required")
        return
    match = re.match(r"default: ([^,]+)", comment)
    assert match, f"{'.'.join(path)} does not say its default"
    default = model.model_fields[name].get_default(call_default_factory=True)
    written = match[1].strip()
    if written == "none":
        assert default is None
        return
    said = getattr(model.model_validate({**least, key: read_document(f"- {written}", "", {}).data[0]}), name)
    assert said == default, f"default.yaml says {written}, the model has {default}"


def test_keys_that_are_not_commented_out_show_the_default_itself() -> None:
    """Someone who copies a section as it stands must not change a setting by it."""
    data = read_document(TEXT, "", {}).data
    shown = models.NetworkFile.model_validate(
        {k: v for k, v in data.items() if k not in ("streams", "boxes", "outputs")}
    )
    assert shown == models.NetworkFile()


def test_it_shows_every_kind_of_box() -> None:
    kinds = {node.kind for node in build_network(FILE, box_kinds(), {}).boxes}
    assert set(box_kinds()) - kinds == {"python"}, "which needs a module of the user"
    assert "{python: trades, call: " in TEXT
