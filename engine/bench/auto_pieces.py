"""A long bench in pieces: done by several processes, kept one file each, and not done twice.

A piece is kept with a fingerprint of the code that its answer depends on, so a change makes anew what it touches and
nothing else: what only ``policy: auto`` reads leaves the fixed policies as they are. Files appear whole or not at all,
so two commands may work into one folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import orjson

from engine.bench.auto_set import Case
from engine.bench.harness import kept, make_folder
from scheduler.choice import AUTO

ROOT = Path(__file__).resolve().parents[2]
READ_BY_ALL = ("catalog", "scheduler", "engine/simulate", "engine/bench/auto_set.py", "configs/demo.yaml")
READ_BY_AUTO = ("engine/chooser.py",)
ONLY_AUTO = ("scheduler/choice.py", "engine/simulate/what_if.py", "engine/simulate/pilot.py")


class Piece(NamedTuple):
    case: Case
    policy: str
    seed: int

    @property
    def file(self) -> str:
        family, load, amount = self.case
        return f"{family}-{load:g}-{amount:g}-{self.seed}-{self.policy}.json".replace(" ", "-")


class Done(NamedTuple):
    utility: float
    chose: list[str]


@dataclass(frozen=True)
class Keep:
    """Where pieces are kept (None: nowhere), how many processes do them, and who hears of each: done, of, which."""

    folder: Path | None = None
    processes: int = 1
    on_done: Callable[[int, int, Piece, float], None] = lambda done, of, piece, seconds: None


def each(pieces: Sequence[Piece], do: Callable[[Piece], Done], keep: Keep) -> Iterator[tuple[Piece, Done]]:
    """Every piece with its answer, those that are kept first."""
    if keep.folder is not None:
        make_folder(keep.folder)
    left = []
    for piece in pieces:
        if (done := stored(keep.folder, piece)) is not None:
            yield piece, done
        else:
            left.append(piece)
    count = len(pieces) - len(left)
    for piece, done, seconds in _work(left, do, keep.processes):
        count += 1
        keep.on_done(count, len(pieces), piece, seconds)
        if keep.folder is not None:
            save(keep.folder, piece, done)
        yield piece, done


def _work(pieces: Sequence[Piece], do: Callable[[Piece], Done], processes: int) -> Iterator[tuple[Piece, Done, float]]:
    if processes <= 1:
        for piece in pieces:
            yield piece, *_timed(do, piece)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_timed, do, piece): piece for piece in pieces}
        try:
            for future in as_completed(futures):
                yield futures[future], *future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _timed(do: Callable[[Piece], Done], piece: Piece) -> tuple[Done, float]:
    begun = perf_counter()
    return do(piece), perf_counter() - begun


def stored(folder: Path | None, piece: Piece) -> Done | None:
    path = folder / piece.file if folder is not None else None
    if path is None or not path.exists():
        return None
    done, code = kept(path, lambda d: (Done(float(d["utility"]), list(d["chose"])), d["code"]), "`bench auto` keeps")
    return done if code == fingerprint(piece.policy == AUTO) else None


def save(folder: Path, piece: Piece, done: Done) -> None:
    part = folder / f"{piece.file}.{os.getpid()}"
    part.write_bytes(orjson.dumps({**done._asdict(), "code": fingerprint(piece.policy == AUTO)}))
    part.replace(folder / piece.file)


@cache
def fingerprint(for_auto: bool) -> str:
    """Of the code that an answer depends on."""
    found = blake2b(digest_size=8)
    only_auto = {ROOT / name for name in ONLY_AUTO}
    for name in (*READ_BY_ALL, *(READ_BY_AUTO if for_auto else ())):
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if for_auto or file not in only_auto:
                found.update(file.read_bytes())
    return found.hexdigest()
