"""Outputs that a data_dir knows and the network file no longer has: renamed, or removed.

Their named readers may have tuples to read. A start must not drop them without a word: it is refused, unless the file
lists the output in ``engine.forget_outputs``.

Owner: the keeper, during a start.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from catalog.network import Network
from engine.daemon.durable.data_format import FormatError
from engine.daemon.durable.records import NAMED, OUTPUT
from storage.log_records import LogRecord

log = logging.getLogger("aurorad.durable")


class GoneOutputs:
    def __init__(self, network: Network, root: str) -> None:
        self._there = {output.name for output in network.outputs}
        self._may_go = set(network.config.engine.forget_outputs)
        self._root = root
        self._names: dict[str, dict[str, int]] = {}  # by output: its readers, with the last number each acknowledged
        self._newest: dict[str, int] = {}  # by output: the highest number in the log that is known here

    def restore(self, outputs: Mapping[str, Mapping[str, Any]]) -> None:
        """Take what a checkpoint knows."""
        for name, data in outputs.items():
            if name not in self._there:
                self._names[name] = {reader: int(number) for reader, number in data["names"].items()}
                self._newest[name] = int(data["next"]) - 1

    def note(self, record: LogRecord, note: Mapping[str, Any]) -> None:
        """Take a record behind the checkpoint."""
        output = note["o"]
        names = self._names.setdefault(output, {})
        if record.kind == NAMED:
            if note["q"] < 0:
                names.pop(note["name"], None)
            else:
                names[note["name"]] = max(int(note["q"]), names.get(note["name"], 0))
        elif record.kind == OUTPUT:
            self._newest[output] = max(int(note["q"]), self._newest.get(output, 0))

    def refuse_unread(self) -> None:
        """Raise FormatError if a reader of such an output has not read everything."""
        for output, names in self._names.items():
            newest = self._newest.get(output, 0)
            behind = [name for name, number in names.items() if number < newest]
            if behind and output not in self._may_go:
                raise FormatError(
                    self._root,
                    None,
                    f"output {output} is gone from the network file, but its readers {', '.join(behind[:5])} have not "
                    f"read everything. Put it back under its name until they have, or list it in "
                    f"engine.forget_outputs: [{output}]",
                )
            if names:
                log.warning("output %s is gone: the places of its readers %s are forgotten", output, ", ".join(names))
