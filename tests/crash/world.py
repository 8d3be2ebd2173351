"""A small world around the real keeper and the real engine: one client, one named reader, a disk that forgets.

The client numbers its batches and keeps its own journal: what it has sent and what was acknowledged. The reader keeps
its own place. Nothing runs by itself but the engine's threads: groups and checkpoints happen when the test says so, so
a power cut can come before any deed of the disk. The oracle is plain Python over the client's journal.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from random import Random
from typing import Any

from catalog.build import read_network
from engine.boxes import box_kinds
from engine.core import Engine
from engine.durable.committer import Outcome
from engine.durable.desk import KeeperDesk, OutputHistory
from engine.durable.keeper import Keeper
from router.event_time import EventTime
from scheduler.state import SchedulerSettings
from storage.admission import Entry, Verdict
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
"""The third one comes by two ways: a replay may bring its tuples in another order."""


def row(number: int) -> tuple[int, str, int]:
    """The tuple with this number: one a second, four in a row with one key."""
    return BEGIN_NS + number * SECOND, "abc"[number // 4 % 3], number


def expected_totals(numbers: list[int]) -> Counter[tuple[Any, ...]]:
    """Every window of ten seconds and key: when it began, how many, their sum."""
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
"""Those that have not ended: a test that fails leaves one behind, and ``end_all`` ends it."""


def end_all() -> None:
    for life in LIVES:
        life.end()


class Life:
    """One life of the daemon, from its start to its power cut."""

    def __init__(
        self,
        files: CrashFiles,
        network: str = NETWORK,
        *,
        memory_bytes: int = 2**20,
        segment_bytes: int = SEGMENT_BYTES,
        piece_bytes: int = PIECE_BYTES,
        **options: Any,
    ) -> None:
        self.files = files
        self.network = read_network(network, box_kinds())
        self.now_ns = BEGIN_NS
        self.outcomes: list[Outcome] = []
        self.admitted = 0
        self.keeper = Keeper(self.network, "", now_ns=lambda: self.now_ns, files=files, threads=False, **options)
        self.keeper.log.segment_bytes, self.keeper.log.piece_bytes = segment_bytes, piece_bytes
        event_time = EventTime(self.network, self.keeper.clock)
        self.engine = Engine(
            self.network,
            [self._outlet(o.number) for o in self.network.outputs],
            workers=1,
            settings=SchedulerSettings(),
            stamps=event_time.stamps,
            spill=self.keeper.spill if any(s.overload == "spill" for s in self.network.streams) else None,
            memory_bytes=memory_bytes,
        )
        self.keeper.attach(self.engine, self, event_time.clocks)
        self.desk = KeeperDesk(self.keeper, lambda stream, train: None)
        self.histories = [OutputHistory(self.keeper, o.number) for o in self.network.outputs]
        self.failure: Exception | None = None
        self.is_started = False

    def start(self) -> None:
        self.keeper.open()
        self.engine.start()
        self.is_started = True
        LIVES.append(self)
        self.keeper.replay(self.files.look)
        self.keeper.start()

    def end(self) -> None:
        """The engine's threads end; nothing more is written."""
        if self.is_started:
            self.engine.stop()
            self.is_started = False
            LIVES.remove(self)

    def _outlet(self, number: int) -> Any:
        return lambda train: self.keeper.emit(number, train)

    # -- what the keeper needs ----------------------------------------------------------------------------------------

    def enter(self, stream: int, train: Train) -> None:
        self.admitted += train.count
        self.engine.routes.admit(stream, train)

    def told(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def readable(self, output: int) -> None: ...

    def room_again(self) -> None: ...

    def counters(self) -> dict[str, Any]:
        return {"admitted": self.admitted}

    def restore_counters(self, data: Mapping[str, Any]) -> None:
        self.admitted = data["admitted"]

    def failed(self, error: Exception) -> None:
        self.failure = error


class World:
    """The client's and the reader's side, over all lives."""

    def __init__(self, seed: int = 0, *, batch: int = 10, network: str = NETWORK, **options: Any) -> None:
        self.rng = Random(seed)
        self.files = CrashFiles()
        self.batch = batch
        self.network = network
        self.options = options
        self.sent = 0  # the client's last sequence
        self.acknowledged = 0
        self.after = [0] * OUTPUTS  # the reader's places
        self.got: list[list[tuple[Any, ...]]] = [[] for _ in range(OUTPUTS)]
        self.repeats: list[list[tuple[Any, ...]]] = [[] for _ in range(OUTPUTS)]
        self.ack_share = 0.5  # how often the reader acknowledges what it has read
        self.lives = 0
        self.life: Life | None = None

    # -- lives --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a life; PowerCut when the disk ends it before it has begun."""
        self.life = Life(self.files, self.network, **self.options)
        self.lives += 1
        self.life.start()
        for output in range(OUTPUTS):
            self.life.histories[output].subscribe("reader", self.after[output])
        standing = self.life.desk.greet(0, _Hello("client", 1))
        assert isinstance(standing, int)
        assert standing >= self.acknowledged, f"{self.acknowledged} was acknowledged, {standing} is left"
        self.acknowledged = standing
        self.sent = standing

    def cut(self) -> None:
        """The power goes."""
        if self.life is not None:
            self.life.end()
        self.files = self.files.crash(self.rng)
        self.life = None

    def kill(self) -> None:
        """kill -9: the kernel keeps what was written."""
        if self.life is not None:
            self.life.end()
        self.files = self.files.killed()
        self.life = None

    # -- deeds --------------------------------------------------------------------------------------------------------

    def publish(self, resend: int = 0) -> None:
        """The next batch; or once more one that was sent already."""
        assert self.life is not None
        if resend:
            self._offer(max(1, self.sent - resend + 1))
        else:
            self.sent += 1
            self._offer(self.sent)

    def _offer(self, sequence: int) -> None:
        assert self.life is not None
        entry = Entry("client", 1, sequence)
        verdict = self.life.desk.offer(0, entry)
        if verdict is Verdict.NEW:
            self.life.desk.submit(0, self.train(sequence), entry)
        else:
            assert verdict is Verdict.DUPLICATE, f"{sequence} of {self.sent}: {verdict}"

    def train(self, sequence: int) -> Train:
        rows = [row(n) for n in range((sequence - 1) * self.batch, sequence * self.batch)]
        schema = self.life.network.streams[0].schema  # type: ignore[union-attr]
        columns = dict(zip(("ts", "k", "v"), map(list, zip(*rows, strict=True)), strict=True))
        return Train.from_pylists(schema, columns, BEGIN_NS + sequence)

    def commit(self) -> None:
        """One group; then the client hears."""
        assert self.life is not None
        before = len(self.life.outcomes)
        try:
            self.life.keeper.committer.step()
        finally:
            self._hear(before)

    def _hear(self, before: int) -> None:
        assert self.life is not None
        for outcome in self.life.outcomes[before:]:
            for _, entry in outcome.committed:
                self.acknowledged = max(self.acknowledged, entry.sequence)
            for _, entry, _, _ in outcome.refused:
                self.sent = min(self.sent, entry.sequence - 1)

    def settle(self) -> None:
        """Until the engine rests and everything that it emitted is in the log."""
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
        raise AssertionError("it does not come to rest")

    def checkpoint(self) -> bool:
        assert self.life is not None
        return self.life.keeper.checkpoint()

    def read(self) -> None:
        """The reader takes what there is, and acknowledges some of it."""
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
        """Everything that was sent comes to its end, and is what the oracle says."""
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
        assert not any(self.repeats), "the replay was the same, so nothing is flagged"


class _Hello:
    """What ``KeeperDesk.greet`` looks at."""

    def __init__(self, source: str, epoch: int) -> None:
        self.source = source
        self.epoch = epoch
        self.ack = "disk"


def _plain(train: Train) -> list[tuple[Any, ...]]:
    data = train.to_pydict()
    if "window_start" in data:
        return list(zip(data["window_start"], data["k"], data["n"], data["s"], strict=True))
    columns = ("ts", "k", "a", "b") if "a" in data else ("ts", "k", "v")
    return list(zip(*(data[name] for name in columns), strict=True))


def run_script(world: World, batches: int, *, checkpoint_every: int = 10, read_every: int = 7) -> None:
    """Publish so many batches, whatever the disk does; PowerCut begins a new life on what it left."""
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
            world.cut()
