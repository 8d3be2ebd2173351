"""Sources and sinks that are files, standard input or standard output."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from catalog.config.section import Format, NanForm, Section
from catalog.config.units import PositiveSize
from catalog.config.words import RefusedValueError, did_you_mean

ENDINGS = {
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".json": "ndjson",
    ".csv": "csv",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
TABLE = "table"


def _check_path(path: str, format: str | None) -> None:
    if "\0" in path:
        raise RefusedValueError("a path must not contain NUL", at=("file",))
    if format is None and PurePath(path).suffix.lower() not in ENDINGS:
        raise RefusedValueError(
            f"the format does not follow from the name '{path}'",
            f"write format: ndjson, or give the file one of the endings {' '.join(ENDINGS)}",
            at=("file",),
        )


def _check_shown(value: str, info: ValidationInfo) -> str:
    """Check what standard output shows: a format, or a table for people."""
    formats = (info.context or {}).get("formats")
    if formats is not None and value not in (*formats, TABLE):
        known = (*formats, TABLE)
        raise RefusedValueError(f"'{value}' is not one of {', '.join(known)}", did_you_mean(value, known))
    return value


class FileSource(Section):
    file: str = Field(min_length=1)
    format: Format | None = None
    timestamps: Literal["ns", "us", "ms", "s"] = "ns"
    follow: bool = False

    @model_validator(mode="after")
    def _has_a_format(self) -> FileSource:
        _check_path(self.file, self.format)
        return self

    @property
    def codec(self) -> str:
        return self.format or ENDINGS[PurePath(self.file).suffix.lower()]


class StdinSource(Section):
    stdin: Format
    timestamps: Literal["ns", "us", "ms", "s"] = "ns"

    @property
    def codec(self) -> str:
        return self.stdin


class FileSink(Section):
    file: str = Field(min_length=1)
    format: Format | None = None
    mode: Literal["append", "replace"] = "append"
    buffer_bytes: PositiveSize = Field(default=16 * 1024**2, alias="buffer")
    timestamps: Literal["iso", "ns", "us", "ms", "s"] = "iso"
    nan: NanForm = "null"

    @model_validator(mode="after")
    def _has_a_format(self) -> FileSink:
        _check_path(self.file, self.format)
        return self

    @property
    def codec(self) -> str:
        return self.format or ENDINGS[PurePath(self.file).suffix.lower()]


class StdoutSink(Section):
    stdout: Annotated[str, AfterValidator(_check_shown)]
    buffer_bytes: PositiveSize = Field(default=4 * 1024**2, alias="buffer")
    timestamps: Literal["iso", "ns", "us", "ms", "s"] = "iso"
    nan: NanForm = "null"

    @property
    def codec(self) -> str:
        return self.stdout
