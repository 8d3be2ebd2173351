"""Check the files of a network against each other: nothing is read or written twice, and no loop of files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

from catalog.config.document import Path
from catalog.config.models import FileSink, FileSource, StdinSource, StdoutSink
from catalog.config.read import Config
from catalog.errors import Problem


def check_files(config: Config) -> list[Problem]:
    """Return the problems of sources and sinks that are files, standard input or standard output."""
    sources = {(("streams", name, "source")): s.source for name, s in config.file.streams.items()}
    sinks = {(("outputs", name, "sink")): o.sink for name, o in config.file.outputs.items()}
    return [
        *_twice(config, [p for p, s in sources.items() if isinstance(s, StdinSource)], "stdin", "one stream reads it"),
        *_twice(config, [p for p, s in sinks.items() if isinstance(s, StdoutSink)], "stdout", "one output writes it"),
        *_same_file(config, sources, sinks),
        *_lost_at_restart(config, sinks),
    ]


def _twice(config: Config, paths: list[tuple[str, str, str]], key: str, rule: str) -> Iterator[Problem]:
    for path in paths[1:]:
        yield config.document.problem((*path, key), f"{paths[0][1]} has {key} already: only {rule}")


def _same_file(
    config: Config, sources: Mapping[tuple[str, str, str], object], sinks: Mapping[tuple[str, str, str], object]
) -> Iterator[Problem]:
    used: dict[str, str] = {os.path.abspath(s.file): p[1] for p, s in sources.items() if isinstance(s, FileSource)}
    for path, sink in sinks.items():
        if isinstance(sink, FileSink):
            other = used.setdefault(os.path.abspath(sink.file), path[1])
            if other != path[1]:
                at: Path = (*path, "file")
                yield config.document.problem(
                    at, f"'{sink.file}' is the file of '{other}' already", "name another file"
                )


def _lost_at_restart(config: Config, sinks: Mapping[tuple[str, str, str], object]) -> Iterator[Problem]:
    for path, sink in sinks.items():
        if isinstance(sink, FileSink) and sink.mode == "replace" and config.file.engine.data_dir is not None:
            message = "replace would delete results at a restart that are not computed again: there is a data_dir"
            yield config.document.problem((*path, "mode"), message, "write mode: append")
