"""Decide what to do with each file of a watched folder: a pure function of two looks and of what was taken before.

- A file is known by its path. It is taken once, when it has not changed for as long as a look is from the next one: a
  file that grows is waited for.
- A file that is another one now than when it was taken (longer, rewritten, deleted and made again) is not taken a
  second time: nobody can tell which of its rows are new. It is told, once for each change.
- A file that was taken under another name which is gone, with the same inode, size and time, was renamed. It is not
  taken again, and told. A copy has another inode: it is another file, and taken.
- A file that was deleted stays known: a folder that is gone for a moment (a mount) must not come back as new.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class FileSign(NamedTuple):
    """By what a file is recognized. Two files with one sign are one file under two names."""

    nbytes: int
    changed_ns: int  # since 1970
    device: int
    inode: int


class SeenFile(NamedTuple):
    sign: FileSign
    since_ns: int  # on the monotonic clock: it has looked like this since then


class Clocks(NamedTuple):
    monotonic_ns: int
    since_1970_ns: int


@dataclass
class Look:
    """What one look has found. Paths are in the order in which files are to be taken: the oldest first."""

    ready: list[str] = field(default_factory=list)
    waiting: int = 0  # files that may still grow
    changed: list[str] = field(default_factory=list)
    renamed: list[tuple[str, str]] = field(default_factory=list)  # from, to
    seen: dict[str, SeenFile] = field(default_factory=dict)  # for the next look


def look(
    found: Mapping[str, FileSign],
    taken: Mapping[str, FileSign],
    seen: Mapping[str, SeenFile],
    set_aside: Mapping[str, FileSign],
    settle_ns: int,
    clocks: Clocks,
) -> Look:
    """Compare what is there with what was taken and with what the look before has seen.

    ``set_aside``: files that could not be read as they were. They are tried again when they have changed."""
    out = Look()
    gone = {sign: path for path, sign in taken.items() if path not in found}
    for path, sign in found.items():
        if path in taken:
            if taken[path] != sign:
                out.changed.append(path)
        elif (before := gone.get(sign)) is not None:
            out.renamed.append((before, path))
        elif set_aside.get(path) != sign:
            known = seen.get(path)
            out.seen[path] = known if known is not None and known.sign == sign else SeenFile(sign, clocks.monotonic_ns)
            is_old = clocks.since_1970_ns - sign.changed_ns >= settle_ns
            if is_old or clocks.monotonic_ns - out.seen[path].since_ns >= settle_ns:
                out.ready.append(path)
            else:
                out.waiting += 1
    out.ready.sort(key=lambda path: (found[path].changed_ns, path))
    return out
