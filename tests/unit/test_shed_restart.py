"""What is missing outlives a restart: a window that lost tuples before a checkpoint is still known to lack them."""

from __future__ import annotations

from typing import Any

import pytest

from engine.daemon.durable.cut import restore_runtime, runtime_data
from engine.run.network_file import read_network
from storage.tree import decode_tree, encode_tree
from tests.unit.shed_harness import Shedder

MS = 10**6
NETWORK = """
streams: {{s: {{schema: {{ts: timestamp, v: bigint}}, time: ts}}}}
boxes:
  agg: {{aggregate: s, window: {window}, select: {{n: "count(*)", total: "sum(v)"}}, bounds: [window_start]{more}}}
outputs: {{out: {{from: agg}}}}
"""


def restarted(before: Shedder, text: str) -> Shedder:
    """Through the bytes of a checkpoint, into another engine."""
    parts = [encode_tree(runtime_data(runtime)) for runtime in before.engine.runtimes]
    shed = encode_tree(before.engine.shedding.snapshot())
    after = Shedder(read_network(text, {}), workers=1)
    after.engine.shedding.restore(decode_tree(b"".join(map(bytes, shed))))
    for runtime, part in zip(after.engine.runtimes, parts, strict=True):
        assert restore_runtime(runtime, decode_tree(b"".join(map(bytes, part))))
    return after


def run(text: str, times: list[int], share: float, restart_at: int) -> tuple[dict[int, Any], dict[str, int]]:
    """Rows by window; tuples are dropped only in the first life."""
    first = Shedder(read_network(text, {}), workers=1)
    first.engine.start()
    first.shed({"s->agg": ("random", share)})
    columns = {"ts": times, "v": [1] * len(times)}
    first.feed("s", {k: v[:restart_at] for k, v in columns.items()}, 50, "ts")
    assert first.engine.drain(10)
    first.engine.stop()
    second = restarted(first, text)
    second.engine.start()
    second.feed("s", {k: v[restart_at:] for k, v in columns.items()}, 50, "ts")
    second.close()
    second.engine.stop()
    rows = first.rows["out"] + second.rows["out"]
    return {row[0] // MS: row[1:] for row in rows}, second.dropped("s->agg")


@pytest.mark.parametrize("window", ["{tumbling: 100ms}", "{sliding: 200ms, advance: 100ms}"])
def test_a_window_that_lacked_tuples_before_the_restart_is_held_back_after_it(window: str) -> None:
    text = NETWORK.format(window=window, more="")
    rows, dropped = run(text, [i * MS for i in range(1_000)], 0.1, 450)
    whole = {"{tumbling: 100ms}": (500, 1_000), "{sliding: 200ms, advance: 100ms}": (500, 1_000)}[window]
    assert set(rows) == set(range(whole[0], whole[1], 100))
    assert {row[0] for start, row in rows.items() if start < 900} == {100 if "tumbling" in window else 200}
    assert dropped["shed"] == pytest.approx(45, abs=8)


def test_the_share_seen_is_exact_over_a_restart() -> None:
    text = NETWORK.format(window="{sliding: 200ms, advance: 100ms}", more=", approximate: true")
    rows, dropped = run(text, [i * MS for i in range(1_000)], 0.4, 450)
    assert dropped["shed"] > 100
    for start, (n, total, share) in rows.items():
        there = 200 if 0 <= start < 900 else 100
        assert n == total
        assert share == pytest.approx(n / there), start
    assert rows[500][2] == 1.0
    assert rows[400][2] < 1.0
