"""A long benchmark in pieces: several processes run them, each result is a file, and no piece runs twice.

A result is stored with a fingerprint of the code that it depends on. A change of the code invalidates only the results
that depend on it: code that only ``policy: auto`` reads leaves the results of fixed policies valid. Files are written
atomically, so two commands may share one folder.
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

from engine.lab.bench.auto.workloads import AutoCase
from engine.lab.bench.harness import make_folder, read_kept
from scheduler.choice import AUTO

ROOT = Path(__file__).resolve().parents[4]
READ_BY_ALL = (
    "catalog",
    "scheduler",
    "engine/simulate",
    "engine/run/declared_costs.py",
    "engine/lab/bench/auto/workloads.py",
    "configs/demo.yaml",
)
READ_BY_AUTO = ("engine/simulate/chooser.py",)
ONLY_AUTO = ("scheduler/choice.py", "engine/simulate/what_if.py", "engine/simulate/autopilot.py")


class AutoPiece(NamedTuple):
    case: AutoCase
    policy: str
    seed: int

    @property
    def file(self) -> str:
        family, load, amount = self.case
        return f"{family}-{load:g}-{amount:g}-{self.seed}-{self.policy}.json".replace(" ", "-")


class PieceResult(NamedTuple):
    utility: float
    chose: list[str]


@dataclass(frozen=True)
class PieceStore:
    """The folder of the results (None: keep none), the number of processes, and the callback for progress."""

    folder: Path | None = None
    processes: int = 1
    on_done: Callable[[int, int, AutoPiece, float], None] = lambda done, of, piece, seconds: None


def run_pieces(
    pieces: Sequence[AutoPiece], run: Callable[[AutoPiece], PieceResult], store: PieceStore
) -> Iterator[tuple[AutoPiece, PieceResult]]:
    """Yield every piece with its result, the stored ones first."""
    if store.folder is not None:
        make_folder(store.folder)
    left = []
    for piece in pieces:
        if (done := stored(store.folder, piece)) is not None:
            yield piece, done
        else:
            left.append(piece)
    count = len(pieces) - len(left)
    for piece, done, seconds in _work(left, run, store.processes):
        count += 1
        store.on_done(count, len(pieces), piece, seconds)
        if store.folder is not None:
            save(store.folder, piece, done)
        yield piece, done


def _work(
    pieces: Sequence[AutoPiece], run: Callable[[AutoPiece], PieceResult], processes: int
) -> Iterator[tuple[AutoPiece, PieceResult, float]]:
    if processes <= 1:
        for piece in pieces:
            yield piece, *_timed(run, piece)
        return
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(_timed, run, piece): piece for piece in pieces}
        try:
            for future in as_completed(futures):
                yield futures[future], *future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _timed(run: Callable[[AutoPiece], PieceResult], piece: AutoPiece) -> tuple[PieceResult, float]:
    begun = perf_counter()
    return run(piece), perf_counter() - begun


def stored(folder: Path | None, piece: AutoPiece) -> PieceResult | None:
    path = folder / piece.file if folder is not None else None
    if path is None or not path.exists():
        return None
    done, code = read_kept(
        path, lambda d: (PieceResult(float(d["utility"]), list(d["chose"])), d["code"]), "`bench auto` keeps"
    )
    return done if code == fingerprint(piece.policy == AUTO) else None


def save(folder: Path, piece: AutoPiece, done: PieceResult) -> None:
    part = folder / f"{piece.file}.{os.getpid()}"
    part.write_bytes(orjson.dumps({**done._asdict(), "code": fingerprint(piece.policy == AUTO)}))
    part.replace(folder / piece.file)


@cache
def fingerprint(for_auto: bool) -> str:
    """Hash the code that a result depends on."""
    found = blake2b(digest_size=8)
    only_auto = {ROOT / name for name in ONLY_AUTO}
    for name in (*READ_BY_ALL, *(READ_BY_AUTO if for_auto else ())):
        path = ROOT / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if for_auto or file not in only_auto:
                found.update(file.read_bytes())
    return found.hexdigest()
