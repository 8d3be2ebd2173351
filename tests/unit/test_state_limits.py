"""The limits of a box's state: what is forgotten, what is counted, and when the edge closes."""

from __future__ import annotations

import pytest

from catalog.errors import AuroraError
from storage.train import END_WATERMARK, Train
from tests.property.bounded_harness import SECOND, Fed, node_of

MIB = 2**20


def feed(fed: Fed, first: int, count: int, at_s: int, watermark_s: int | None = None) -> None:
    """Feed ``count`` new keys from ``first`` on, at one event time."""
    schema = fed.node.in_schemas[0]
    keys = list(range(first, first + count))
    columns = {"ts": [at_s * SECOND] * count, "k": keys, "name": ["x"] * count, "v": [1.0] * count}
    train = Train.from_pylists(schema, columns, at_s)
    fed.feed(0, train, (at_s if watermark_s is None else watermark_s) * SECOND, hurry=False)


def passed(fed: Fed) -> list[int]:
    """Return the keys of everything that came out, in order."""
    return [k for _, train in fed.out for k in train.to_pydict()["k"]]


def test_evict_forgets_the_keys_that_were_silent_longest_and_counts_them() -> None:
    fed = Fed(node_of("{dedup: s, by: [k], within: 1h, state: {keys: 1000, at_limit: evict}}"), 100 * MIB)
    for i in range(20):
        feed(fed, 100 * i, 100, i)
    reading = fed.runtime.reading()
    assert reading.state_keys <= 1_000 and reading.evicted >= 1_000
    assert reading.state_keys + reading.evicted == 2_000
    fed.out.clear()
    feed(fed, 0, 100, 30)  # evicted: they pass again
    feed(fed, 1_900, 100, 31)  # still known
    assert sorted(passed(fed)) == list(range(100))


def test_evict_by_memory_keeps_the_state_below_the_limit() -> None:
    node = node_of("{aggregate: s, window: {tumbling: 1h}, by: [k], select: {n: 'count(*)'}, "
                   "state: {memory: 1MiB, at_limit: evict}}")  # fmt: skip
    fed = Fed(node, 100 * MIB)
    for i in range(30):
        feed(fed, 1_000 * i, 1_000, i, 0)
    reading = fed.runtime.reading()
    assert reading.state_bytes <= MIB and reading.evicted > 0 and reading.absorbed == 30_000
    fed.feed(0, Train.from_pylists(node.in_schemas[0], {"ts": [0], "k": [0], "name": [""], "v": [0.0]}, 0),
             END_WATERMARK, hurry=False)  # fmt: skip
    results = sum(train.count for port, train in fed.out if port == 0)
    assert results >= 30_000 - reading.evicted


def test_a_silent_key_is_forgotten_after_its_ttl() -> None:
    fed = Fed(node_of("{latest: s, by: [k], changes: [v], state: {ttl: 1m}}"), 100 * MIB)
    feed(fed, 0, 10, 0)
    for at_s in range(10, 200, 10):
        feed(fed, 100, 1, at_s)  # one key goes on
    assert fed.runtime.reading().evicted == 10 and fed.runtime.reading().state_keys == 1
    fed.out.clear()
    feed(fed, 0, 10, 210)
    assert passed(fed) == list(range(10)), "new again"


def test_block_closes_the_edge_until_windows_close() -> None:
    node = node_of("{aggregate: s, window: {tumbling: 1m}, by: [k], select: {n: 'count(*)'}, "
                   "state: {memory: 1MiB, at_limit: block}}")  # fmt: skip
    fed = Fed(node, 100 * MIB)
    feed(fed, 0, 100, 0)
    assert not fed.account.is_full
    feed(fed, 0, 20_000, 1)
    assert fed.account.is_full
    feed(fed, 0, 1, 300)
    fed.box.trim(fed.runtime.state)
    fed.runtime.measure()
    assert not fed.account.is_full


@pytest.mark.parametrize("limits", ["{keys: 0}", "{memory: 0MiB}", "{at_limit: drop}", "{ttl: 0s}", "{size: 3}"])
def test_a_wrong_limit_is_refused(limits: str) -> None:
    with pytest.raises(AuroraError):
        node_of(f"{{dedup: s, by: [k], within: 1h, state: {limits}}}")


def test_a_state_that_has_shrunk_is_in_one_piece_again() -> None:
    node = node_of("{aggregate: s, window: {tumbling: 1m}, by: [k], select: {n: 'count(*)'}}")
    fed = Fed(node, 100_000)
    for i in range(10):
        feed(fed, 1_000 * i, 1_000, i, 0)
    assert fed.runtime.state.divided is not None and fed.home.disk_bytes
    feed(fed, 0, 1, 59, 61)
    assert fed.runtime.state.divided is None
    assert sum(train.count for port, train in fed.out if port == 0) == 10_000


def test_a_full_disk_closes_the_edge_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = Fed(node_of("{dedup: s, by: [k], within: 1h}"), 100_000)
    feed(fed, 0, 5_000, 0)
    files = fed.home.of("b")

    def no_room(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_block", no_room)
        feed(fed, 5_000, 5_000, 1)
        assert fed.account.is_full
    feed(fed, 10_000, 1, 2)
    assert not fed.account.is_full
    feed(fed, 0, 10_000, 3)
    assert sorted(passed(fed)) == list(range(10_001))
