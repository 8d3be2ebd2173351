"""Which network a data_dir holds the state of: the revision that its newest checkpoint names.

Read before the daemon is built, without the lock and without a change to the folder. Checksums of the parts are left to
the start itself (``keeper.open``). A checkpoint of which a file is missing is passed over, as the start does.
"""

from __future__ import annotations

import logging
import os

from engine.daemon.revisions import Revision, read_revision
from storage.checkpoint import Checkpoints
from storage.files import RealFiles, StorageError

log = logging.getLogger("aurorad.durable")


def last_applied(root: str) -> Revision | None:
    """Return the last applied revision; None for a folder that has none. Raises OSError.

    A revision without a file has no text. A change is refused when its file cannot be written; so it came with a start
    on a full disk, or somebody has removed it.
    """
    if not os.path.isdir(os.path.join(root, "checkpoint")):
        return None
    files = RealFiles(root)
    facts = Checkpoints(files, lambda: None).newest_facts()
    number = 0 if facts is None else int(facts.get("revision", 0))
    if not number:
        return None
    try:
        return read_revision(files, number)[0]
    except StorageError as error:
        log.warning("the last applied network is not known, so the network file runs: %s", error)
        return Revision(number, "", "", "", "", False, (), ())
