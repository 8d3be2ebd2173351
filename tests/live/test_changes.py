"""Random changes under load, and doors that refuse: nothing is lost, twice or out of order."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest

from catalog.errors import ListenError, NetworkError
from router.http.change import ChangeRefusedError
from tests.live.world import live_world


@pytest.mark.parametrize(("seed", "is_durable"), [(1, False), (2, False), (3, True), (4, True)])
def test_random_changes_lose_nothing(seed: int, is_durable: bool, tmp_path: Path) -> None:
    with live_world(seed, tmp_path / "data" if is_durable else None) as world:
        for _ in range(60):
            world.change()
        assert world.end() == []
        assert world.changes == 60
        assert len(world.gone) > 3 and sum(len(query.rows) for query in world.gone) > 1_000


def test_readers_and_senders_of_kept_parts_stay_connected() -> None:
    with live_world(3) as world:
        text = world.text().replace("every: {from: all}", 'every: {from: all, sink: {tcp: "127.0.0.1:0"}}')
        world.daemon.changes.put(text, dry_run=False, drop_state=True)
        address = world.daemon.server.address("output every")
        with socket.create_connection(address, timeout=30) as reader:
            first = reader.recv(10)
            for step in range(5):
                more = text.replace("outputs:", f"outputs:\n  x{step}: {{from: all}}")
                assert world.daemon.changes.put(more, dry_run=False, drop_state=True)["applied"]
            assert world.daemon.server.address("output every") == address
            rows = (first + b"".join(reader.recv(1 << 16) for _ in range(20))).split(b"\n")[:-1]
        numbers = [int(row[5:-1]) for row in rows]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        assert world.daemon.server.ports[0].connections == 1


def test_a_port_in_use_or_a_wrong_file_changes_nothing() -> None:
    with live_world(4) as world, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        before, engine = world.text(), world.daemon.engine
        sink = f'sink: {{tcp: "127.0.0.1:{taken.getsockname()[1]}"}}'
        with pytest.raises(ListenError, match="the port is in use"):
            world.daemon.changes.put(
                before.replace("{from: all}", f"{{from: all}}\n  more: {{from: all, {sink}}}"),
                dry_run=False,
                drop_state=False,
            )
        with pytest.raises(NetworkError) as wrong:
            world.daemon.changes.put(
                before.replace("n >= 0", "m >= 0").replace("from: all", "from: al"), dry_run=False, drop_state=False
            )
        assert len(wrong.value.problems) == 2
        assert world.daemon.engine is engine and world.daemon.network.version == 1
        assert not world.daemon.changes.put(before, dry_run=False, drop_state=False)["applied"]


def test_state_is_dropped_only_when_that_is_confirmed() -> None:
    with live_world(5) as world:
        while not any(query.is_window for query in world.queries):
            world.change()
        text = world.text().replace("count: 64", "count: 32")
        with pytest.raises(ChangeRefusedError, match="drops the state of") as refused:
            world.daemon.changes.put(text, dry_run=False, drop_state=False)
        assert refused.value.plan is not None and refused.value.plan["drops_state"]
        assert world.daemon.changes.put(text, dry_run=True, drop_state=False)["applied"] is False
        assert world.daemon.changes.put(text, dry_run=False, drop_state=True)["applied"] is True


def test_two_changes_at_once_are_made_one_after_the_other() -> None:
    with live_world(6) as world:
        answers: list[Any] = []
        texts = [world.text().replace("{from: all}", f"{{from: all}}\n  x{i}: {{from: all}}") for i in range(2)]
        together = Barrier(2)

        def put(text: str) -> None:
            together.wait()
            answers.append(world.daemon.changes.put(text, dry_run=False, drop_state=False))

        threads = [Thread(target=put, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answer["version"] for answer in answers) == [2, 3]
        assert {o.name for o in world.daemon.network.outputs} in ({"every", "x0"}, {"every", "x1"})


def test_bills_add_up_to_the_busy_time_over_changes() -> None:
    with live_world(11) as world:
        daemon = world.daemon
        while world.changes < 20 or (daemon.readings().billing.gone_ns == 0 and world.changes < 200):
            world.change()  # until a query that had cost something is gone
        assert world.end() == []
        billing = daemon.readings().billing
        pool = daemon.engine.pool
        busy_ns = sum(pool.busy_ns) + pool.caller_ns
        assert billing.gone_ns > 0 and billing.no_output_ns >= 0
        assert billing.busy_ns == pytest.approx(busy_ns, rel=0.05)  # without the time before the first tick
        paid_ns = sum(bill.cpu_ns for bill in billing.bills) + billing.gone_ns + billing.no_output_ns
        assert paid_ns == pytest.approx(billing.busy_ns, rel=0.01)
        assert billing.busy_ns - paid_ns == pytest.approx(billing.residual_ns, abs=10)
