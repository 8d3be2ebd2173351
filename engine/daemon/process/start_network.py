"""Which network a start runs: the network file, or the network that was applied last.

Without a data_dir always the file. With one:

| the last applied network | the start runs |
|---|---|
| came from the file: by a start, a reload, or `apply` of the same text | the file, also if it was edited since |
| came by another door: `query add`, `apply` of another file, a rollback | that network; the log says how to return |

So an edited file is never ignored where the file is the only door, and a query that was added live outlives a restart.
`aurorad run --from-file` runs the file in any case.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.config import read_text
from catalog.config.overrides import Overrides
from catalog.errors import NetworkError
from catalog.network import Network
from engine.run.network_file import read_network

if TYPE_CHECKING:
    from engine.daemon.revisions import Revision, Revisions

log = logging.getLogger("aurorad")


def read_start(file: Path | None, empty: str, overrides: Overrides, *, from_file: bool) -> tuple[Network, str]:
    """Return the network that a start runs, and its text: ``empty`` without a file. Raises NetworkError and OSError."""
    if file is None:
        return read_network(empty, overrides=overrides), empty
    network, text = read_network(file, overrides=overrides), read_text(file)[0]
    last = _last_applied(network)
    if last is None:
        return network, text
    if last.text == text:
        if last.groups or any(node.also for node in network.boxes):  # which boxes are one may not change now
            network = read_network(file, overrides=overrides, version=last.number, groups=last.groups)
        return replace(network, version=last.number), text
    if from_file or last.is_file or not last.text:
        return replace(network, version=last.number + 1), text
    try:
        applied = read_network(last.text, overrides=overrides, version=last.number, named=str(file), groups=last.groups)
    except NetworkError:
        log.error("revision %d, the last applied network, cannot be read: --from-file runs %s", last.number, file)
        raise
    return applied, last.text


def _last_applied(network: Network) -> Revision | None:
    if (root := network.config.engine.data_dir) is None:
        return None
    from engine.daemon.durable.applied import last_applied

    return last_applied(root)


def say_what_runs(revisions: Revisions, number: int, file: Path | None) -> None:
    """Log it if the network that runs is not that of the file."""
    revision = revisions.find(number)
    if file is None or revision is None or revision.is_file or not revision.text or revision.text == read_text(file)[0]:
        return
    by = f" by {revision.author}" if revision.author else ""
    log.warning(
        "%s is not what runs: revision %d runs, which was applied at %s%s (%s); `aurorad apply %s`, a reload (SIGHUP) "
        "or a start with --from-file goes back to the file",
        file, revision.number, revision.time, by, revision.door, file,
    )  # fmt: skip
