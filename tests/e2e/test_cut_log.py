"""A log that was cut, replaced or removed while the daemon was away: a start refuses, and says what is missing.

What is left of such a log looks like a shorter log. Only the mark beside it knows what was acknowledged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from aurorad_client import Sender

from storage.log import LogDamageError
from tests.e2e.test_data_dir import fill, make, recovered


def segment(data: Path) -> Path:
    return sorted((data / "log").glob("*.log"))[-1]


def cut_to(share: float) -> Callable[[Path], None]:
    def cut(data: Path) -> None:
        file = segment(data)
        with file.open("r+b") as out:
            out.truncate(int(file.stat().st_size * share))

    return cut


def remove_file(data: Path) -> None:
    segment(data).unlink()


def remove_folder(data: Path) -> None:
    shutil.rmtree(data / "log")


def snapshot(data: Path) -> dict[str, bytes]:
    return {str(p.relative_to(data)): p.read_bytes() for p in sorted(data.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("harm", [cut_to(0.55), cut_to(0.99), cut_to(0.0), remove_file, remove_folder])
@pytest.mark.parametrize("crash", [True, False])
def test_a_log_that_lost_acknowledged_records_refuses_to_start(
    tmp_path: Path, harm: Callable[[Path], None], crash: bool
) -> None:
    data = tmp_path / "data"
    fill(data, crash=crash)
    shutil.copytree(data, tmp_path / "backup")
    harm(data)
    before = snapshot(data)
    with pytest.raises(LogDamageError, match="put the files back") as refused:
        make(data).start()
    assert "/log" in refused.value.file
    after = snapshot(data)
    assert {**before, "lock": b""} == {**after, "lock": b""}, "a refused start changes nothing"
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "backup", data)
    assert recovered(data) == (100 if crash else 0, 100)


def test_without_the_mark_a_start_goes_on_with_what_is_left(tmp_path: Path) -> None:
    """The way that the error names, for somebody without a backup."""
    data = tmp_path / "data"
    fill(data, crash=True)
    cut_to(0.55)(data)
    shutil.rmtree(data / "log.mark")
    replayed, known = recovered(data)
    assert replayed == known < 100


def test_a_torn_tail_behind_the_mark_is_still_cut(tmp_path: Path) -> None:
    """Bytes that no client has an acknowledgement for."""
    data = tmp_path / "data"
    fill(data, crash=True)
    with segment(data).open("ab") as out:
        out.write(b"AuL1" + b"\x07" * 100)
    daemon = make(data)
    daemon.start()
    assert daemon.keeper is not None and daemon.keeper.recovered.torn_bytes == 104
    with Sender("127.0.0.1", daemon.server.address("stream t")[1], "x", epoch=1) as sender:
        assert sender.resumed_at == 100
    daemon.stop(5.0)
