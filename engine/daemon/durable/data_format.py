"""The format of a data_dir: its version, and the fields of everything that is in it.

A record of the log has no fields of its own, only a mark: a short hash of its schema. ``format.json`` has the schema of
every mark, so that a tuple is always read with the fields with which it was written, and then becomes one of the
present fields (``storage/evolution.py``) or is refused. It is written, synced and renamed into place after a start has
checked everything and before anything else in the folder changes.

| format | written by | difference |
|---|---|---|
| 1 | 0.2 | has no ``format.json``; records of outputs have no mark. The checkpoint has the schema of every arc |
| 2 | 0.3 | small parts of a checkpoint have files of their own |
| 3 | from 0.4 on | |

Owner: the keeper, before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from catalog.network import Network, Output
from catalog.schema import Field, Schema
from engine.daemon.durable.records import schema_mark
from storage.encode import TrainReader
from storage.evolution import adapted, obstacles
from storage.files import Files, StorageError
from storage.train import Train

FORMAT = 3
FILE = "format.json"
_NEW = "format.new"


class FormatError(StorageError):
    """The folder has tuples that this network or this version cannot read. Nothing was changed."""


class DataFormat:
    """The schemas of a folder. ``outputs`` has, by name, the marks of the records that readers may still ask for."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.schemas: dict[str, Schema] = {}  # by mark
        self.outputs: dict[str, list[str]] = {}
        self.revision = 0  # of the network that the outputs are of
        self.unmarked: dict[str, str] = {}  # by output: the mark of its records of format 1, which have none
        self._on_disk = b""

    def read(self) -> None:
        """Read ``format.json``. FormatError when a newer aurorad has written the folder."""
        if FILE not in self._files.list(""):
            return
        file = self._files.attach(FILE)
        try:
            self._on_disk = file.read(0, file.size)
        finally:
            file.close()
        try:
            data = orjson.loads(self._on_disk)
            number = int(data["format"])
            if number > FORMAT:
                raise self._error(
                    f"format {number} is newer than {FORMAT}, the newest that this aurorad knows: upgrade"
                )
            self.schemas = {mark: _schema(fields) for mark, fields in data["schemas"].items()}
            self.outputs.update({name: list(marks) for name, marks in data["outputs"].items()})
            self.unmarked = dict(data["unmarked"])
            self.revision = int(data.get("revision", 0))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._error(f"cannot be read: {error}") from error

    def learn_from_checkpoint(self, arcs: Mapping[str, Mapping[str, Any]], outputs: Iterable[str]) -> None:
        """Take the schemas of a folder of format 1 from the arcs of its checkpoint. ``outputs`` names its outputs."""
        if self._on_disk:
            return
        names = set(outputs)
        for name, saved in arcs.items():
            schema = _parse(saved["schema"])
            if schema is None:
                continue  # its records are refused, if there are any
            mark, output = self._learn(schema), name.rpartition("->")[2]
            if output in names:
                self.unmarked[output] = mark
                self.outputs[output] = [mark]

    def use(self, network: Network, kept: Iterable[str]) -> None:
        """Add the network's schemas. ``kept`` names the outputs of which readers may still ask for older tuples."""
        for stream in network.streams:
            self._learn(stream.schema)
        known, wanted = dict(self.outputs), set(kept)
        self.revision = network.version
        self.outputs.clear()
        for output in network.outputs:
            mark = self._learn(output.schema)
            before = known.get(output.name, []) if output.name in wanted else []
            self.outputs[output.name] = [*(m for m in before if m != mark), mark]

    def foresee(self, network: Network) -> None:
        """Add the schemas of a network that may follow, and write them: a start finds all fields, whichever runs."""
        for schema in [part.schema for part in network.streams] + [part.schema for part in network.outputs]:
            self._learn(schema)
        self.write()

    def learn_outputs(self, revision: int, outputs: Mapping[str, Sequence[str]]) -> None:
        """Take the marks of a checkpoint if it is of a later network: a crash came between it and ``format.json``."""
        if revision > self.revision:
            self.revision = revision
            self.outputs.clear()
            self.outputs.update({name: list(marks) for name, marks in outputs.items()})

    def _learn(self, schema: Schema) -> str:
        mark = schema_mark(schema)
        if self.schemas.setdefault(mark, schema) != schema:
            raise self._error(f"two schemas have the mark {mark}: rename a field of {schema}")
        return mark

    def write(self) -> None:
        """Write ``format.json``, if it has changed."""
        text = orjson.dumps(
            {
                "format": FORMAT,
                "schemas": {mark: _fields(schema) for mark, schema in self.schemas.items()},
                "outputs": self.outputs,
                "unmarked": self.unmarked,
                "revision": self.revision,
            },
            option=orjson.OPT_INDENT_2,
        )
        if text == self._on_disk:
            return
        if _NEW in self._files.list(""):
            self._files.remove(_NEW)
        file = self._files.create(_NEW)
        try:
            file.append([text])
            file.sync()
        finally:
            file.close()
        self._files.rename(_NEW, FILE)
        self._files.sync_folder("")
        self._on_disk = text

    # -- records ------------------------------------------------------------------------------------------------------

    def why_unreadable(self, mark: str | None, schema: Schema) -> str:
        """Say why records with this mark cannot become tuples of a schema; empty when they can."""
        if mark == schema_mark(schema):
            return ""
        before = self.schemas.get(mark or "")
        if before is None:
            return "it had fields that nothing in the folder tells"
        return ", ".join(obstacles(before, schema))

    def decode(self, reader: TrainReader, data: memoryview, mark: str | None, schema: Schema) -> Train:
        """Decode a train with the fields that it was written with, and return it with the present ones.

        The caller has asked ``why_unreadable``. Raises EncodingError.
        """
        if mark is None or mark == schema_mark(schema):
            return reader.decode(data, schema)
        return adapted(reader.decode(data, self.schemas[mark]), schema)

    def output_mark(self, note: Mapping[str, Any]) -> str | None:
        """Return the mark of an output's record."""
        mark: str | None = note.get("f", self.unmarked.get(note["o"]))
        return mark

    def reads_history(self, output: Output) -> str:
        """Say why some of the tuples that an output's readers may still ask for cannot be read; empty: all can."""
        why = [self.why_unreadable(mark, output.schema) for mark in self.outputs.get(output.name, [])]
        return "; ".join(dict.fromkeys(w for w in why if w))

    def _error(self, why: str) -> FormatError:
        return FormatError(self._files.where(FILE), None, why)


def _fields(schema: Schema) -> list[list[str]]:
    return [[f.name, f"{f.type}{'?' if f.nullable else ''}"] for f in schema]


def _schema(fields: list[list[str]]) -> Schema:
    return Schema(tuple(Field.parse(name, text) for name, text in fields))


def _parse(text: str) -> Schema | None:
    """Parse what ``str`` makes of a schema; None where a field's name makes that ambiguous."""
    pairs = [part.rpartition(": ") for part in text[1:-1].split(", ") if part]
    try:
        schema = Schema(tuple(Field.parse(name, kind) for name, _, kind in pairs))
    except (ValueError, AssertionError):
        return None
    return schema if str(schema) == text else None
