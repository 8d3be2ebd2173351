"""Folders of Spark on this machine. Of a sink: what a reader sees, moves between disks, a commit that lost its
files. Of a driver: who removes its scratch folder.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from router.spark.daemon.scratch import LOCK, ScratchFolder
from router.spark.driver.commits import SinkStore, manifest_of, staging_of
from router.spark.driver.folders import FoundFile, LocalFolder
from router.spark.wire.errors import SparkRefusedError


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_a_walk_finds_what_readers_look_at(tmp_path: Path) -> None:
    """A field may begin with any sign: its folders are none of Spark's own."""
    put(
        tmp_path,
        "s/part-0.parquet",
        "s/.part-0.parquet.crc",
        "s/_SUCCESS",
        "s/_temporary/0/x",
        "s/_h=1/k=a b/p",
        "s/.h=2/p",
    )
    found = LocalFolder(tmp_path).walk("s")
    assert [f.name for f in found] == [".h=2/p", "_h=1/k=a b/p", "part-0.parquet"]
    assert FoundFile("part-0.parquet", len("s/part-0.parquet")) in found
    with pytest.raises(FileNotFoundError):
        LocalFolder(tmp_path).walk("nowhere")


def test_a_file_moves_to_another_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "staged/f")
    replace = Path.replace

    def across(self: Path, target: Path) -> Path:
        if self.name == "f":
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", across)
    folder = LocalFolder(tmp_path)
    folder.move("staged/f", "k=1/g")
    folder.sync(["k=1/g", "was/removed"])
    assert folder.read("k=1/g") == b"staged/f" and folder.names("k=1") == ["g"] and not folder.has("staged/f")


def test_what_is_written_is_there_whole_and_what_is_deleted_may_be_missing(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path / "new")
    assert folder.names("a") == []
    folder.write("a/b.json", b"1")
    folder.write("a/b.json", b"2")
    assert (folder.read("a/b.json"), folder.names("a")) == (b"2", ["b.json"])
    assert folder.address("a b/c%20d") == f"file:{tmp_path}/new/a b/c%20d"
    folder.delete("a/b.json")
    folder.delete("a/b.json")
    folder.delete()
    assert not (tmp_path / "new").exists()


def test_a_commit_is_lost_when_all_its_files_are_and_no_compaction_has_joined_them(tmp_path: Path) -> None:
    store = SinkStore.__new__(SinkStore)
    store.folder = LocalFolder(tmp_path)
    entry = {"commit": "c-1", "rows": 5, "files": [{"from": "part-0", "to": "c-1-0000.parquet", "bytes": 5}]}
    store.record(entry)
    assert store._is_lost(entry)
    put(tmp_path, f"{staging_of('c-1')}/part-0")
    assert not store._is_lost(entry)
    store.publish(entry)
    assert not store._is_lost(entry) and store.folder.has("c-1-0000.parquet")
    store.folder.delete("c-1-0000.parquet")
    assert store._is_lost(entry)
    store.record({"commit": "compact-1", "rows": 0, "files": [], "removes": ["c-1-0000.parquet"]})
    assert not store._is_lost(entry) and store.has_commit("compact-1") and store.folder.has(manifest_of("c-1"))


def test_a_lock_is_held_by_one_and_free_again_after_its_end(tmp_path: Path) -> None:
    folder = LocalFolder(tmp_path)
    refused = pytest.raises(SparkRefusedError, match=r"another process holds .*_aurorad/l")
    with folder.lock("_aurorad/l"), refused, folder.lock("_aurorad/l"):
        pytest.fail("two hold it")
    with folder.lock("_aurorad/l"):
        pass


def test_the_scratch_folder_of_a_daemon_that_was_killed_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    put(tmp_path, f"aurorad-spark-killed/{LOCK}", "aurorad-spark-killed/blocks/b", "aurorad-spark-young/b")
    put(tmp_path, "aurorad-spark-old/b", "others/b")
    os.utime(tmp_path / "aurorad-spark-old", (0, 0))
    first = ScratchFolder()
    second = ScratchFolder()
    assert {path.name for path in tmp_path.iterdir()} == {
        "aurorad-spark-young",
        "others",
        first.path.name,
        second.path.name,
    }
    first.remove()
    second.remove()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["aurorad-spark-young", "others"]
