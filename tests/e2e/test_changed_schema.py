"""A network file that changes over a data_dir: tuples on disk are read right, or the start is refused and changes
nothing. And a data_dir of version 0.2, kept as it was written."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aurorad_client import Reader, Sender

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from storage.files import StorageError

NETWORK = """
engine: {{data_dir: {data}, checkpoint: 1h{engine}}}
http: {{listen: off}}
streams:
  s: {{schema: {schema}, overload: block, source: {{tcp: 127.0.0.1:0}}}}
outputs:
  {output}: {{from: s, sink: {{tcp: 127.0.0.1:0}}}}
"""
BEFORE = "{n: bigint, name: string?, x: float, k: int}"
ROWS = [{"n": n, "name": None if n % 3 == 0 else f"name {n}", "x": n / 4, "k": -n} for n in range(40)]

READ_RIGHT: list[tuple[str, Any]] = [
    ("{n: bigint, name: string?, x: float, k: int, more: string?}", lambda row: {**row, "more": None}),
    ("{more: bigint?, n: bigint, name: string?, x: float, k: int}", lambda row: {"more": None, **row}),
    ("{k: int, x: float, name: string?, n: bigint}", lambda row: row),
    ("{n: bigint, k: int}", lambda row: {"n": row["n"], "k": row["k"]}),
    ("{n: bigint?, name: string?, x: double, k: bigint}", lambda row: row),
    ("{more: double?, k: bigint, name: string?}", lambda r: {"more": None, "k": r["k"], "name": r["name"]}),
]
REFUSED = [
    ("{n: double, name: string?, x: float, k: int}", "n: bigint has become double"),
    ("{n: timestamp, name: string?, x: float, k: int}", "n: bigint has become timestamp"),
    ("{n: int, name: string?, x: float, k: int}", "n: bigint has become int"),
    ("{n: bigint, name: string, x: float, k: int}", "may have NULLs"),
    ("{n: bigint, name: string?, x: float, k: int, more: int}", "more: int is new and not nullable"),
    ("{n: string, name: string?, x: float, k: int}", "n: bigint has become string"),
]


@contextmanager
def running(
    data: Path, schema: str = BEFORE, *, output: str = "o", engine: str = "", crash: bool = False
) -> Iterator[Daemon]:
    text = NETWORK.format(data=data, schema=schema, output=output, engine=engine)
    daemon = Daemon(read_network(text, {}))
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.failed = crash
        daemon.stop(5.0)


def fill(data: Path, *, crash: bool = False) -> None:
    """Forty tuples, half of them before a checkpoint, and a reader that has read none of them."""
    with running(data, crash=crash) as daemon:
        Reader("127.0.0.1", daemon.server.address("output o")[1], "billing", after=0).close()
        with Sender("127.0.0.1", daemon.server.address("stream s")[1], "till", epoch=1) as sender:
            for start in range(0, 40, 4):
                sender.send(ROWS[start : start + 4])
                if start == 20:
                    sender.flush()
                    assert daemon.keeper is not None and daemon.keeper.checkpointer.make()


def read_all(daemon: Daemon, count: int, output: str = "o", name: str = "billing") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with Reader("127.0.0.1", daemon.server.address(f"output {output}")[1], name, idle_s=30) as reader:
        for batch in reader:
            assert batch.first == len(rows) + 1 and not batch.missing
            rows += [dict(row) for row in batch.rows]
            batch.ack()
            if len(rows) >= count:
                return rows
    raise AssertionError(f"{len(rows)} rows came of {count}")


def contents(data: Path) -> dict[str, bytes]:
    return {str(p.relative_to(data)): p.read_bytes() for p in sorted(data.rglob("*")) if p.is_file()}


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(("schema", "expected"), READ_RIGHT)
def test_fields_that_are_added_dropped_moved_or_widened_are_read_right(
    tmp_path: Path, schema: str, expected: Any, crash: bool
) -> None:
    """A field added or moved once made the reader's history unreadable, whatever it asked for."""
    data = tmp_path / "data"
    fill(data, crash=crash)
    with running(data, schema) as daemon:
        assert read_all(daemon, 40) == [expected(row) for row in ROWS]
        with Sender("127.0.0.1", daemon.server.address("stream s")[1], "till", epoch=1) as sender:
            assert sender.resumed_at == 10
    with running(data, schema) as daemon:  # and once more, now that both schemas are in the log
        assert daemon.keeper is not None and not daemon.keeper.outboxes[0].unread()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(("schema", "why"), REFUSED)
def test_fields_that_cannot_be_read_refuse_the_start_and_change_nothing(
    tmp_path: Path, schema: str, why: str, crash: bool
) -> None:
    """bigint that became double once reached a named reader as 5e-324."""
    data = tmp_path / "data"
    fill(data, crash=crash)
    before = contents(data)
    with pytest.raises(StorageError, match="other fields") as refused, running(data, schema):
        pass
    assert why in str(refused.value)
    assert contents(data) == before
    with running(data) as daemon:
        assert read_all(daemon, 40) == ROWS


def test_a_changed_type_is_no_obstacle_when_every_reader_has_everything(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    with running(data) as daemon:
        read_all(daemon, 40)
    schema = "{n: double, name: string?, x: float, k: int}"
    with running(data, schema) as daemon:
        with Sender("127.0.0.1", daemon.server.address("stream s")[1], "till", epoch=1) as sender:
            sender.send([{"n": 0.5, "name": "a", "x": 0.5, "k": 1}])
        with Reader("127.0.0.1", daemon.server.address("output o")[1], "billing", idle_s=30) as reader:
            batch = next(iter(reader))
            assert batch.first == 41 and batch.rows[0]["n"] == 0.5
        with Reader("127.0.0.1", daemon.server.address("output o")[1], "late", after=0, idle_s=30) as reader:
            batch = next(iter(reader))
            assert (batch.first, batch.missing) == (41, 40), "what cannot be read is a gap, and never another number"


def test_an_output_that_is_renamed_does_not_lose_its_readers(tmp_path: Path) -> None:
    """Their unread tuples were once dropped without a warning."""
    data = tmp_path / "data"
    fill(data)
    before = contents(data)
    with pytest.raises(StorageError, match=r"output o is gone.*readers billing.*forget_outputs"):
        running(data, output="new").__enter__()
    assert contents(data) == before
    with running(data, output="new", engine=", forget_outputs: [o]"):
        pass


def test_a_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    file = data / "format.json"
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), "format": 99}))
    before = contents(data)
    with pytest.raises(StorageError, match="format 99 is newer"):
        running(data).__enter__()
    assert contents(data) == before


# -- version 0.2 ------------------------------------------------------------------------------------------------------

OLD = Path(__file__).with_name("data_dir_0_2_0.tar.gz")
"""Two data_dirs that aurorad 0.2.0 has written with this network: one after a crash, one after a stop. The source
`till` has sent 20 batches of 5 rows, and the readers `billing` of both outputs have read nothing."""
OLD_NETWORK = """
engine: {{data_dir: {data}, checkpoint: 1h}}
http: {{listen: off}}
streams:
  sales: {{schema: {schema}, overload: block, source: {{tcp: 127.0.0.1:0}}}}
boxes:
  dear: {{filter: sales, where: "price >= 0"}}
  threes: {{aggregate: sales, window: {{count: 3}}, select: {{n: "max(n)", total: "sum(price)"}}}}
outputs:
  all: {{from: dear, sink: {{tcp: 127.0.0.1:0}}}}
  totals: {{from: threes, sink: {{tcp: 127.0.0.1:0}}}}
"""
OLD_SCHEMA = "{n: bigint, shop: string?, price: double}"
OLD_ROWS = [{"n": n, "shop": None if n % 3 == 0 else f"shop {n % 5}", "price": n / 4} for n in range(100)]


def old_daemon(tmp_path: Path, which: str, schema: str) -> Daemon:
    if not (tmp_path / which).exists():
        with tarfile.open(OLD) as archive:
            archive.extractall(tmp_path, filter="data")
    return Daemon(read_network(OLD_NETWORK.format(data=tmp_path / which, schema=schema), {}))


@pytest.mark.parametrize("which", ["crashed", "stopped"])
@pytest.mark.parametrize("schema", [OLD_SCHEMA, "{price: double, more: int?, n: bigint, shop: string?}"])
def test_a_data_dir_of_version_0_2_goes_on(tmp_path: Path, which: str, schema: str) -> None:
    daemon = old_daemon(tmp_path, which, schema)
    daemon.start()
    try:
        added = {"more": None} if "more" in schema else {}
        assert read_all(daemon, 100, "all") == [{**row, **added} for row in OLD_ROWS]
        with Sender("127.0.0.1", daemon.server.address("stream sales")[1], "till", epoch=1) as sender:
            assert sender.resumed_at == 20
            if not added:  # the window of three goes on with the hundredth row; a changed box would start empty
                sender.send([{"n": 100, "shop": "a", "price": 0.0}, {"n": 101, "shop": "a", "price": 0.0}])
        if not added:
            totals = read_all(daemon, 34, "totals")
            sums = [sum(r["price"] for r in OLD_ROWS[n : n + 3]) for n in range(0, 100, 3)]
            assert [row["total"] for row in totals] == sums
    finally:
        daemon.stop(5.0)


@pytest.mark.parametrize("which", ["crashed", "stopped"])
def test_a_data_dir_of_version_0_2_is_never_reinterpreted(tmp_path: Path, which: str) -> None:
    daemon = old_daemon(tmp_path, which, "{n: double, shop: string?, price: double}")
    before = contents(tmp_path / which)
    with pytest.raises(StorageError, match="n: bigint has become double"):
        daemon.start()
    assert {k: v for k, v in contents(tmp_path / which).items() if k != "lock"} == before
