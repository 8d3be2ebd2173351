"""The history in a data_dir as a reader beside the daemon finds it. Nothing is changed."""

from __future__ import annotations

from catalog.network import KeptPlace, PortRef
from storage.files import Files
from storage.history.segment import load_segment


def kept_places(files: Files) -> dict[str, KeptPlace]:
    """Return the places with history in the folder, as the newest file of each describes them."""
    found: dict[str, KeptPlace] = {}
    for name in files.list("history"):
        names = [n for n in files.list(f"history/{name}") if n.endswith(".parquet")]
        if names:
            segment = load_segment(files, f"history/{name}/{names[-1]}")
            found[name] = KeptPlace(
                name, PortRef(stream=0), segment.info.schema, segment.time_field, segment.slack_ns, None, 0
            )
    return found
