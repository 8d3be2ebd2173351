"""The pieces of ``bench auto``: each runs once, is stored with a fingerprint of its code, and gives one answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.lab.bench.auto import pieces
from engine.lab.bench.auto.pieces import AutoPiece, PieceResult, PieceStore, run_pieces
from engine.lab.bench.auto.workloads import ALL, AutoCase
from engine.lab.bench.harness import BenchError

CASES = (AutoCase("one", 0.5, 1.0), AutoCase("two", 0.9, 2.0))
PIECES = [AutoPiece(case, policy, 7) for case in CASES for policy in ("auto", "fcfs")]


def do(piece: AutoPiece) -> PieceResult:
    return PieceResult(piece.case.load, [piece.policy])


def answers(keep: PieceStore) -> tuple[dict[AutoPiece, PieceResult], list[AutoPiece]]:
    """Run all pieces; return the results, and the pieces that had to run."""
    told: list[AutoPiece] = []
    keep = PieceStore(keep.folder, keep.processes, lambda done, of, piece, seconds: told.append(piece))
    return dict(run_pieces(PIECES, do, keep)), told


def test_a_piece_that_is_kept_is_not_done_again(tmp_path: Path) -> None:
    first, done = answers(PieceStore(tmp_path))
    assert done == PIECES and first[PIECES[0]] == PieceResult(0.5, ["auto"])
    (tmp_path / PIECES[3].file).unlink()
    second, done = answers(PieceStore(tmp_path))
    assert second == first and done == [PIECES[3]]
    assert not [p for p in tmp_path.iterdir() if p.suffix != ".json"], "files appear whole"


@pytest.mark.parametrize("text", [b"{", b"[]", b"{}", b'{"utility": "x", "chose": [], "code": ""}'])
def test_a_piece_that_holds_something_else_is_named(tmp_path: Path, text: bytes) -> None:
    (tmp_path / PIECES[0].file).write_bytes(text)
    with pytest.raises(BenchError, match="is not what `bench auto` keeps"):
        answers(PieceStore(tmp_path))


def test_several_processes_give_the_same(tmp_path: Path) -> None:
    found, done = answers(PieceStore(tmp_path, processes=2))
    assert found == answers(PieceStore())[0] and set(done) == set(PIECES)


def test_a_change_of_what_only_auto_reads_leaves_the_fixed_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    for name in ("scheduler/choice.py", "scheduler/loop.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("1")
    monkeypatch.setattr(pieces, "ROOT", root)
    monkeypatch.setattr(pieces, "READ_BY_ALL", ("scheduler",))
    monkeypatch.setattr(pieces, "READ_BY_AUTO", ())
    fresh = pieces.fingerprint.__wrapped__
    fixed, auto = fresh(False), fresh(True)
    (root / "scheduler/choice.py").write_text("2")
    assert fresh(False) == fixed and fresh(True) != auto
    (root / "scheduler/loop.py").write_text("2")
    assert fresh(False) != fixed


def test_every_piece_has_a_file_of_its_own() -> None:
    files = [AutoPiece(case, "fcfs", 7).file for case in ALL]
    assert len(set(files)) == len(files)
