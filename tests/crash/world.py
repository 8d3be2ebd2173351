"""A small world around the real keeper and the real engine: one client, one named reader, a disk that forgets.

The client numbers its batches and keeps a journal of what it sent and what was acknowledged. The reader keeps its own
place. Only the engine's threads run by themselves: the test triggers each group commit and each checkpoint, so it can
cut the power before any file operation. The oracle is plain Python over the client's journal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any

from catalog.build import build_network
from catalog.network import Network
from engine.daemon.durable import recovery
from engine.daemon.durable.committer import GroupOutcome
from engine.daemon.durable.keeper import Keeper
from engine.operators.boxes import box_kinds
from engine.run.core import Engine
from router.boundary import SOCKET
from router.event_time import EventTime
from scheduler.state import SchedulerSettings
from storage.admission import AdmissionVerdict, BatchNumber
from storage.log import PIECE_BYTES, SEGMENT_BYTES
from storage.train import Train
from tests.crash.crash_files import CrashFiles, PowerCut

SECOND = 10**9
BEGIN_NS = 1_700_000_000 * SECOND
END_NS = 2**62

NETWORK = """
streams:
  sales: {schema: {ts: timestamp, k: string, v: bigint}, time: ts, max_skew: 36500d}
boxes:
  good: {filter: sales, where: "v % 5 <> 0"}
  sums: {aggregate: good, window: {tumbling: 10s}, by: [k], select: {n: "count(*)", s: "sum(v)"}}
  odd:  {filter: sales, where: "v % 2 = 1"}
  even: {filter: sales, where: "v % 2 = 0"}
  pairs: {join: [odd, even], on: "l.k = r.k", within: 1s, select: {ts: l.ts, k: l.k, a: l.v, b: r.v}}
  mixed: {union: [odd, even]}
outputs:
  totals: {from: sums}
  joined: {from: pairs}
  both: {from: mixed}
"""
OUTPUTS = 3
"""The third output merges two paths, so a replay may emit its tuples in another order."""


def row(number: int) -> tuple[int, str, int]:
    """Return the tuple with this number: one each second, four in a row with the same key."""
    return BEGIN_NS + number * SECOND, "abc"[number // 4 % 3], number


def expected_totals(numbers: list[int]) -> Counter[tuple[Any, ...]]:
    """Compute, for each window of ten seconds and key: its start, its count and its sum."""
    windows: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for ts, k, v in map(row, numbers):
        if v % 5:
            windows[ts // (10 * SECOND) * 10 * SECOND, k].append(v)
    return Counter((start, k, len(vs), sum(vs)) for (start, k), vs in windows.items())


def expected_pairs(numbers: list[int]) -> Counter[tuple[Any, ...]]:
    rows = list(map(row, numbers))
    by_second: defaultdict[int, list[tuple[int, str, int]]] = defaultdict(list)
    for r in rows:
        by_second[r[0] // SECOND].append(r)
    out: Counter[tuple[Any, ...]] = Counter()
    for l_ts, l_k, l_v in rows:
        if l_v % 2 == 1:
            for second in (l_ts // SECOND - 1, l_ts // SECOND, l_ts // SECOND + 1):
                for _, r_k, r_v in by_second[second]:
                    if r_v % 2 == 0 and r_k == l_k:
                        out[l_ts, l_k, l_v, r_v] += 1
    return out


LIVES: list[Life] = []
"""The lives that have not ended. A failing test leaves one behind, and ``end_all`` ends it."""


def end_all() -> None:
    for life in LIVES:
        life.end()


class Life:
    """One life of the daemon, from its start to a kill or a power cut."""

    def __init__(
        self,
        files: CrashFiles,
        network: str | Network = NETWORK,
        *,
        memory_bytes: int = 2**20,
        segment_bytes: int = SEGMENT_BYTES,
        piece_bytes: int = PIECE_BYTES,
        **options: Any,
    ) -> None:
        self.files = files
        self.network = build_network(network, box_kinds()) if isinstance(network, str) else network
        self.now_ns = BEGIN_NS
        self.outcomes: list[GroupOutcome] = []
        self.failure: Exception | None = None
        self.keeper = Keeper(
            self.network,
            "",
            now_ns=lambda: self.now_ns,
            on_failure=self._failed,
            files=files,
            threads=False,
            **options,
        )
        self.keeper.log.segment_bytes, self.keeper.log.piece_bytes = segment_bytes, piece_bytes
        event_time = self.event_time = EventTime(self.network, lambda: self.now_ns)
        self.engine = Engine(
            self.network,
            [_ignore] * len(self.network.outputs),
            workers=1,
            settings=SchedulerSettings(),
            event_time=event_time,
            spill=self.keeper.spill if any(s.overload == "spill" for s in self.network.streams) else None,
            memory_bytes=memory_bytes,
            log=self.keeper,
            state_home=self.keeper.state_home,
        )
        self.keeper.attach(self.engine, event_time, self, self)
        self.histories = self.keeper.histories
        self.is_started = False

    def start(self) -> None:
        recovery.PROGRESS_EVERY_SECONDS = 0.02  # how soon the replay notices that the power failed on a worker
        self.keeper.open()
        self.engine.start()
        self.is_started = True
        LIVES.append(self)
        self.keeper.replay(self.files.look)
        self.keeper.start()

    def end(self) -> None:
        """End the engine's threads, so that nothing more is written."""
        if self.is_started:
            self.engine.stop()
            self.is_started = False
            LIVES.remove(self)

    def _failed(self, error: Exception) -> None:
        self.failure = error

    # -- what the keeper needs ----------------------------------------------------------------------------------------

    def batches_settled(self, committed: Any, refused: Any) -> None:
        self.outcomes.append(GroupOutcome(committed, refused))

    def history_grew(self, output: int) -> None: ...

    def snapshot(self) -> dict[str, Any]:
        return {"admitted": list(self.engine.ingress.admitted)}

    def restore(self, data: Mapping[str, Any]) -> None:
        self.engine.ingress.admitted[:] = data["admitted"]


def _ignore(train: Train) -> None: ...


class World:
    """The side of the client and of the reader, across all lives."""

    def __init__(self, seed: int = 0, *, batch: int = 10, network: str = NETWORK, **options: Any) -> None:
        self.rng = Random(seed)
        self.files = CrashFiles()
        self.batch = batch
        self.network = network
        self.options = options
        self.sent = 0  # the last sequence that the client sent
        self.acknowledged = 0
        self.after = [0] * OUTPUTS  # the last number that the reader got, by output
        self.got: list[list[tuple[Any, ...]]] = [[] for _ in range(OUTPUTS)]
        self.repeats: list[list[tuple[Any, ...]]] = [[] for _ in range(OUTPUTS)]
        self.ack_share = 0.5  # the share of reads that the reader acknowledges
        self.lives = 0
        self.life: Life | None = None

    # -- lives --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life. PowerCut when the power fails during the start."""
        self.life = self.make_life()
        self.lives += 1
        self.life.start()
        for output in range(OUTPUTS):
            self.life.histories[output].subscribe("reader", self.after[output])
        standing = self.life.keeper.numbers.greet(0, "client", 1)
        assert isinstance(standing, int)
        assert standing >= self.acknowledged, f"{self.acknowledged} was acknowledged, {standing} is left"
        self.acknowledged = standing
        self.sent = standing

    def make_life(self) -> Life:
        return Life(self.files, self.network, **self.options)

    def lose_power(self) -> None:
        """End the life by a power failure: the disk forgets what was not synced."""
        if self.life is not None:
            self.life.end()
        self.files = self.files.crash(self.rng)
        self.life = None

    def kill(self) -> None:
        """End the life by kill -9: the kernel keeps what was written."""
        if self.life is not None:
            self.life.end()
        self.files = self.files.killed()
        self.life = None

    # -- actions ------------------------------------------------------------------------------------------------------

    def publish(self, resend: int = 0) -> None:
        """Send the next batch, or an earlier one again."""
        assert self.life is not None
        if resend:
            self._offer(max(1, self.sent - resend + 1))
        else:
            self.sent += 1
            self._offer(self.sent)

    def _offer(self, sequence: int) -> None:
        assert self.life is not None
        batch = BatchNumber("client", 1, sequence)
        verdict = self.life.keeper.numbers.offer(0, batch)
        if verdict is AdmissionVerdict.NEW:
            self.life.engine.ingress.admit(0, self.train(sequence), SOCKET.numbered(batch))
        else:
            assert verdict is AdmissionVerdict.DUPLICATE, f"{sequence} of {self.sent}: {verdict}"

    def train(self, sequence: int) -> Train:
        rows = [row(n) for n in range((sequence - 1) * self.batch, sequence * self.batch)]
        schema = self.life.network.streams[0].schema  # type: ignore[union-attr]
        columns = dict(zip(("ts", "k", "v"), map(list, zip(*rows, strict=True)), strict=True))
        return Train.from_pylists(schema, columns, BEGIN_NS + sequence)

    def commit(self) -> None:
        """Commit one group, and give the client its acknowledgements and refusals."""
        assert self.life is not None
        before = len(self.life.outcomes)
        try:
            self.life.keeper.committer.step()
        finally:
            self._read_answers(before)

    def _read_answers(self, before: int) -> None:
        assert self.life is not None
        for outcome in self.life.outcomes[before:]:
            for _, batch in outcome.committed:
                self.acknowledged = max(self.acknowledged, batch.sequence)
            for _, batch, _, _ in outcome.refused:
                self.sent = min(self.sent, batch.sequence - 1)

    def settle(self) -> None:
        """Wait until the engine is idle and everything that it emitted is in the log."""
        assert self.life is not None
        keeper, engine = self.life.keeper, self.life.engine
        for _ in range(1_000):
            for _ in range(100):
                self.files.look()
                if engine.drain(0.2):
                    break
            else:
                raise AssertionError("the engine does not come to rest")
            if keeper.committer.is_idle or keeper.committer.refusal:
                return
            self.commit()
        raise AssertionError("the committer does not come to rest")

    def checkpoint(self) -> bool:
        assert self.life is not None
        return self.life.keeper.checkpointer.make()

    def read(self) -> None:
        """Let the reader take all that is there, and acknowledge some of it."""
        assert self.life is not None
        for output, history in enumerate(self.life.histories):
            while pieces := history.read("reader", self.after[output], 10_000):
                for piece in pieces:
                    assert piece.first == self.after[output] + 1, "a number is missing"
                    rows = _plain(piece.train)
                    (self.repeats if piece.is_repeat else self.got)[output].extend(rows)
                    self.after[output] = piece.last
            if self.rng.random() < self.ack_share:
                history.acknowledge("reader", self.after[output])

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Process everything that was sent, and compare the results with the oracle."""
        assert self.life is not None
        while self.acknowledged < self.sent:
            self.commit()
        schema = self.life.network.streams[0].schema
        self.life.keeper.submit(0, Train.empty(schema, END_NS))
        self.settle()
        self.read()
        self.life.end()
        self.check()

    def check(self) -> None:
        numbers = list(range(self.acknowledged * self.batch))
        assert Counter(self.got[0]) == expected_totals(numbers)
        assert Counter(self.got[1]) == expected_pairs(numbers)
        assert Counter(self.got[2]) == Counter(map(row, numbers))
        assert not any(self.repeats), "the replay emitted the same tuples, so none may be flagged as a repeat"


def _plain(train: Train) -> list[tuple[Any, ...]]:
    data = train.to_pydict()
    if "window_start" in data:
        return list(zip(data["window_start"], data["k"], data["n"], data["s"], strict=True))
    columns = ("ts", "k", "a", "b") if "a" in data else ("ts", "k", "v")
    return list(zip(*(data[name] for name in columns), strict=True))


def run_script(world: World, batches: int, *, checkpoint_every: int = 10, read_every: int = 7) -> None:
    """Publish batches until this number is acknowledged. Begin a new life on the remaining disk after each PowerCut."""
    while True:
        try:
            if world.life is None:
                world.start()
            while world.acknowledged < batches:
                if world.sent < batches:
                    world.publish()
                if world.sent % 3 == 0 or world.sent == batches:
                    world.commit()
                if world.sent % checkpoint_every == 0:
                    world.settle()
                    world.checkpoint()
                if world.sent % read_every == 0:
                    world.read()
            return
        except PowerCut:
            world.lose_power()
