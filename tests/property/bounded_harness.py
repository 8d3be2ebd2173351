"""Runs one box as a worker does, with a share of the memory budget, and collects everything that it emits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from catalog.build import build_network
from catalog.network import BoxNode
from engine.operators.boxes import box_kinds
from engine.operators.boxes.base import Box
from engine.run.runtime import BoxRuntime
from engine.run.state_home import StateHome
from storage.train import NO_WATERMARK, Train
from storage.tree import decode_tree, encode_tree

SECOND = 1_000_000_000
STREAM = "{schema: {ts: timestamp, k: bigint?, name: 'string?', v: double}, time: ts}"


def node_of(text: str) -> BoxNode:
    network = f"streams: {{s: {STREAM}, t: {STREAM}}}\nboxes: {{b: {text}}}\n"
    network += "outputs: {o: {from: b, qos: {deadline: 1h}}, x: {from: t, qos: {deadline: 1h}}}\n"
    return build_network(network, box_kinds()).boxes[0]


class Account:
    """A budget of ``share_bytes`` for one box."""

    has_room = True

    def __init__(self, share_bytes: int) -> None:
        self.share_bytes = share_bytes
        self.is_full = False

    def state_share(self, box: int) -> int:
        return self.share_bytes

    def waits_on(self, arc: int) -> bool:
        return False

    def note_state(self, box: int, nbytes: int, *, is_full: bool = False) -> None:
        self.is_full = is_full


@dataclass
class Fed:
    """A box as a worker runs it, and everything that it has emitted."""

    node: BoxNode
    share_bytes: int
    is_in_time: bool = True  # no tuple is late
    out: list[tuple[int, Train]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.home = StateHome()
        self.account = Account(self.share_bytes)
        self.runtime = BoxRuntime(self.node, self.account, self.home)
        self.watermark_ns = NO_WATERMARK
        self.divided = 0

    @property
    def box(self) -> Box:
        return self.runtime.box

    def emit(self, port: int, train: Train) -> None:
        train.verify()
        times = self.node.box.time_out(("ts",) * len(self.node.in_arcs))[port]
        if train.count and port == 0 and times and self.is_in_time:
            low_ns = min(train.to_pydict()[times])
            assert low_ns >= self.low_ns, "a result below the watermark of the output"
        self.out.append((port, train))

    low_ns = NO_WATERMARK

    def feed(self, port: int, train: Train, watermark_ns: int, *, hurry: bool) -> None:
        state, tally = self.runtime.state, self.runtime.tally
        self.box.run(state, port, train, self.emit, tally)
        if watermark_ns > self.watermark_ns:
            self.watermark_ns = watermark_ns
            self.box.advance(state, watermark_ns, self.emit, tally)
            self.low_ns = self.box.out_watermark_ns(state, watermark_ns)
        self.runtime.measure()
        if not hurry:
            self.go_on()

    def go_on(self) -> None:
        bounded = self.runtime.bounded
        assert bounded is not None
        self.divided += self.runtime.state.divided is not None
        while bounded.wants_call(self.runtime.state):
            bounded.go_on(self.runtime.state, self.emit, self.runtime.tally)
            self.low_ns = bounded.out_watermark_ns(self.runtime.state, self.watermark_ns)
            self.runtime.measure()

    def restart(self) -> None:
        """Go through plain data, as a checkpoint does. The files stay open."""
        data = b"".join(map(bytes, encode_tree(self.box.snapshot(self.runtime.state))))
        self.runtime.state = self.box.restore(decode_tree(data))

    def rows(self) -> Counter[str]:
        return Counter(f"{port} {row!r}" for port, train in self.out for row in train.to_rows())
