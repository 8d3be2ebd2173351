"""Checks of ``keep``: it needs a data_dir, and its ports must exist."""

from __future__ import annotations

from catalog.config.boxes import BoxDraft
from catalog.config.document import Document, Path
from catalog.config.read import Config
from catalog.config.words import did_you_mean
from catalog.errors import Problem


def check_keep(config: Config) -> list[Problem]:
    """Refuse history without a data_dir, and ports of a stream."""
    file = config.file
    kept: list[Path] = [("streams", name, "keep") for name, stream in file.streams.items() if stream.keep is not None]
    kept += [("boxes", name, "keep") for name, box in file.boxes.items() if box.keep is not None]
    problems = []
    if file.engine.data_dir is None:
        message = "keep needs a data_dir: without one nothing outlives the process"
        hint = "set engine.data_dir, for example to ./data"
        problems += [config.document.problem(path, message, hint, at_key=True) for path in kept]
    for name, stream in file.streams.items():
        if stream.keep is not None and stream.keep.ports:
            problems.append(config.document.problem(("streams", name, "keep", "ports"), "a stream has no ports"))
    return problems


def check_kept_ports(draft: BoxDraft, document: Document) -> list[Problem]:
    """Refuse to keep the tuples of a port that the box does not have."""
    keep = draft.entry.keep
    if keep is None or draft.parameters is None:
        return []
    at: Path = (*draft.path, "keep", "ports")
    return [
        document.problem(
            (*at, i), f"'{draft.name}' has no port '{port}'", did_you_mean(port, [p for p in draft.ports if p])
        )
        for i, port in enumerate(keep.ports)
        if port not in draft.ports
    ]
