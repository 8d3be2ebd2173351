"""``format("aurorad")``: read the outputs and fill the streams of an aurorad from Spark. See README.md.

Spark finds this package by its name (pyspark_...) and takes ``DefaultSource`` from it; ``spark.dataSource.register``
works as well. Spark makes readers and writers anew in every process that needs one. So they keep nothing between calls:
everything they know comes from the options, and the result of a task travels in its commit message.

``wire.py`` is the client's end of the protocol. In the repository it is a link to
``router/spark/wire/aurorad_wire.py``, so there is one source; the installed package has a copy.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyspark_aurorad.wire import Connection, read_batches, send_batches

__all__ = ["AuroradSource", "DefaultSource", "offsets", "read_sink", "release"]


class OptionError(ValueError):
    """An option is missing or has a wrong value."""


class Settings:
    """The options of one ``load`` or ``save``."""

    def __init__(self, options: Any) -> None:
        self._options = {str(key).lower(): str(value) for key, value in dict(options).items()}
        self.address = self.need("address", "the daemon's Spark port, host:port")
        self.token = self._options.get("token", "")
        self.trust = self._options.get("cacert", "")

    def get(self, key: str, default: str = "") -> str:
        return self._options.get(key.lower(), default)

    def need(self, key: str, what: str) -> str:
        value = self.get(key)
        if not value:
            raise OptionError(f'format("aurorad") needs the option {key}: {what}')
        return value

    def number(self, key: str, default: int | None = None) -> int | None:
        text = self.get(key)
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise OptionError(f"the option {key} must be a number, not {text}") from None

    def connect(self) -> Connection:
        return Connection(self.address, self.token, self.trust)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        with self.connect() as connection:
            return connection.ask(do, **arguments)


class AuroradSource(DataSource):
    """What Spark calls to get the schema, and a reader or a writer."""

    @classmethod
    def name(cls) -> str:
        return "aurorad"

    def _settings(self) -> Settings:
        return Settings(self.options)

    def schema(self) -> str:
        settings = self._settings()
        output = settings.need("output", "which output to read")
        fields = settings.ask("describe", output=output)["fields"]
        return ", ".join(f"`{name}` {kind}" for name, kind, _ in fields)

    def reader(self, schema: Any) -> AuroradReader:
        return AuroradReader(self._settings())

    def streamReader(self, schema: Any) -> AuroradStreamReader:  # noqa: N802  Spark's name
        return AuroradStreamReader(self._settings())

    def writer(self, schema: Any, overwrite: bool) -> AuroradWriter:
        if overwrite:
            raise OptionError('a stream cannot be overwritten: use mode("append")')
        return AuroradWriter(self._settings())

    def streamWriter(self, schema: Any, overwrite: bool) -> AuroradStreamWriter:  # noqa: N802
        return AuroradStreamWriter(self._settings())


DefaultSource = AuroradSource


def offsets(address: str, output: str, reader: str, token: str = "", cacert: str = "") -> dict[str, int]:
    """Return where a reader stands (``start``), and the range that can be read (``oldest`` to ``newest``)."""
    with Connection(address, token, cacert) as connection:
        answer = connection.ask("offsets", output=output, reader=reader)
        return {key: int(answer[key]) for key in ("start", "oldest", "newest")}


def release(address: str, output: str, reader: str, end: int, token: str = "", cacert: str = "") -> None:
    """Let the daemon forget everything up to ``end`` for this reader. Its next batch begins behind it."""
    with Connection(address, token, cacert) as connection:
        connection.ask("release", output=output, reader=reader, end=end)


def read_sink(spark: Any, path: str, format: str = "parquet", **options: str) -> Any:
    """Read what an output's Spark sink has committed, by its manifests: whole commits, each row once, at any time."""
    texts = spark.read.option("wholetext", True).text(f"{path}/_aurorad/commits/*.json").collect()
    entries = [json.loads(row.value) for row in texts]
    replaced = {name for entry in entries for name in entry.get("removes", ())}
    files = [file["to"] for entry in entries for file in entry["files"] if file["to"] not in replaced]
    return spark.read.format(format).options(**options).option("basePath", path).load([f"{path}/{f}" for f in files])


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass
class Range(InputPartition):
    """The tuples with numbers above ``start``, up to and including ``end``."""

    start: int
    end: int


class _Reading:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._output = settings.need("output", "which output to read")
        self._reader = settings.need("reader", "a name; the daemon keeps what this name has not released")
        self._tasks = max(1, settings.number("partitions", 2) or 2)

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        return self._settings.ask(do, output=self._output, reader=self._reader, **arguments)

    def _split(self, start: int, end: int) -> list[Range]:
        size = max(1, -(-(end - start) // self._tasks))
        return [Range(at, min(at + size, end)) for at in range(start, end, size)]

    def _batches(self, part: Any) -> Iterator[Any]:
        with self._settings.connect() as connection:
            connection.ask("read", output=self._output, reader=self._reader, start=part.start, end=part.end)
            for batch in read_batches(connection):
                nullable = pa.schema([field.with_nullable(True) for field in batch.schema])  # like Spark's schema
                yield pa.RecordBatch.from_arrays(batch.columns, schema=nullable)


class AuroradReader(_Reading, DataSourceReader):
    """A batch read: from where the reader stands to the newest tuple, unless the options say otherwise."""

    def partitions(self) -> Sequence[InputPartition]:
        known = self._ask("offsets")
        start = self._settings.number("from", known["start"])
        end = min(self._settings.number("to", known["newest"]) or 0, known["newest"])
        assert start is not None
        return self._split(start, end) or [Range(start, start)]

    def read(self, partition: Any) -> Iterator[Any]:
        return self._batches(partition)


class AuroradStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read. Spark's commit of a batch releases its tuples."""

    _last: int | None = None  # with Trigger.AvailableNow: the offset where the query ends

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._last = int(self._ask("offsets")["newest"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"tuples": self._ask("offsets")["start"]}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        newest = int(self._ask("offsets")["newest"]) if self._last is None else self._last
        at = start["tuples"]
        if isinstance(limit, ReadMaxRows):
            newest = min(newest, at + limit.max_rows)
        return {"tuples": max(at, newest)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows = self._settings.number("maxRows")
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return self._split(start["tuples"], end["tuples"])

    def read(self, partition: Any) -> Iterator[Any]:
        return self._batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        self._ask("release", end=end["tuples"])


# -- writing ----------------------------------------------------------------------------------------------------------


@dataclass
class Staged(WriterCommitMessage):
    """The rows of one task, on the daemon's disk under this name."""

    name: str
    rows: int


class _Writing:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stream = settings.need("stream", "which stream to fill")

    def _stage(self, batches: Iterator[Any]) -> Staged:
        with self._settings.connect() as connection:
            connection.ask("stage", stream=self._stream)
            send_batches(connection, batches)
            answer = connection.hear()
            return Staged(answer["staged"], answer["rows"])

    def _commit(self, messages: list[Any], query: str, batch: int) -> None:
        names = [message.name for message in messages if message is not None and message.rows]
        self._settings.ask("commit", stream=self._stream, query=query, batch=batch, staged=names)

    def _abort(self, messages: list[Any]) -> None:
        names = [message.name for message in messages if message is not None]
        self._settings.ask("abort", stream=self._stream, staged=names)


class AuroradWriter(_Writing, DataSourceArrowWriter):
    """A batch write: one commit under a name of its own."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._stage(iterator)

    def commit(self, messages: list[Any]) -> None:
        self._commit(messages, f"write-{secrets.token_hex(8)}", 0)

    def abort(self, messages: list[Any]) -> None:
        self._abort(messages)


class AuroradStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """A streaming write: the daemon drops a batch that it has taken from this query before."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self._query = settings.get("query") or settings.need("checkpointLocation", "or query, a name of the query")

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._stage(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._commit(messages, self._query, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self._abort(messages)
