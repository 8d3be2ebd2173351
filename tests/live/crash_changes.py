"""Changes of the network on a disk that forgets: the power is cut before any file operation of a change.

The world of ``tests/crash`` with networks that follow each other. Its client and its reader know nothing of them: the
three outputs must have exactly what plain Python computes, whichever boxes compute it, under whatever names.
"""

from __future__ import annotations

from contextlib import nullcontext
from random import Random
from typing import Any, NamedTuple

from catalog.build import build_network
from engine.operators.boxes import box_kinds
from engine.run.change.compare import compare
from engine.run.change.move import move
from engine.run.core import Engine
from engine.run.quiet import quiet
from router.event_time import EventTime
from scheduler.state import SchedulerSettings
from storage.checkpoint import Checkpoints
from tests.crash.world import NETWORK, Life, World

HEAD = NETWORK.partition("boxes:")[0]
POOL = ("u", "v", "w", "x", "y")
OUTPUTS = ("totals", "joined", "both")


class TriedNetwork(NamedTuple):
    """A network that was applied, or was to be applied when the power failed."""

    text: str
    names: dict[str, str]  # of the window and the join
    groups: list[list[str]]  # names of boxes that were one


def next_network(
    rng: Random, number: int, names: dict[str, str], taken: set[str], head: str, had_twin: bool = False
) -> tuple[str, dict[str, str]]:
    """Return a network with the three outputs, and the names of its window and its join. ``taken``: by boxes that run.

    The two get names that others had before, too. Beside them come and go a box that is equal to the window, its twin,
    which may be one with it, and other queries. ``had_twin``: it is there in the network that runs.
    """
    free = [name for name in POOL if name not in taken]
    rng.shuffle(free)
    before = names
    names = {box: free.pop() if free and rng.random() < 0.4 else name for box, name in names.items()}
    if had_twin:  # else it could be either that was renamed
        names["sums"] = before["sums"]
    sums, pairs = names["sums"], names["pairs"]
    window = 'window: {tumbling: 10s}, by: [k], select: {n: "count(*)", s: "sum(v)"}}'
    join = 'on: "l.k = r.k", within: 1s, select: {ts: l.ts, k: l.k, a: l.v, b: r.v}}'
    boxes = [
        'good: {filter: sales, where: "v % 5 <> 0"}',
        f"{sums}: {{aggregate: good, {window}",
        'odd: {filter: sales, where: "v % 2 = 1"}',
        'even: {filter: sales, where: "v % 2 = 0"}',
        f"{pairs}: {{join: [odd, even], {join}",
        "mixed: {union: [odd, even]}",
    ]
    outputs = [f"totals: {{from: {sums}}}", f"joined: {{from: {pairs}}}", "both: {from: mixed}"]
    if free and names["sums"] == before["sums"] and rng.random() < 0.6:  # as above
        more = free.pop()
        boxes.insert(rng.randrange(len(boxes)), f"{more}: {{aggregate: good, {window}")
        outputs.insert(rng.randrange(len(outputs)), f"more: {{from: {more}}}")
    if rng.random() < 0.5:
        boxes.append(f'side{number}: {{filter: sales, where: "v > {number}"}}')
        outputs.insert(rng.randrange(len(outputs)), f"side: {{from: side{number}}}")
    share = f"engine: {{share: {'true' if rng.random() < 0.6 else 'false'}}}\n"
    lines = ["boxes:", *(f"  {box}" for box in boxes), "outputs:", *(f"  {output}" for output in outputs)]
    return share + head + "\n".join(lines) + "\n", names


class ChangingWorld(World):
    """``tried``: by revision."""

    def __init__(self, seed: int = 0, *, head: str = HEAD, **options: Any) -> None:
        super().__init__(seed, **options)
        self.head = head
        names = {"sums": "sums", "pairs": "pairs"}
        first, names = next_network(Random(seed), 1, names, set(POOL), head)
        self.tried = {1: TriedNetwork(first, names, [])}
        self.must_run = 1  # the last revision that was answered
        self.changes = 0

    def make_life(self) -> Life:
        facts = Checkpoints(self.files, lambda: None).newest_facts()
        number = 1 if facts is None else int(facts["revision"])
        assert number >= self.must_run, f"revision {self.must_run} was answered, {number} runs"
        text, _, groups = self.tried[number]
        life = Life(self.files, build_network(text, box_kinds(), version=number, groups=groups), **self.options)
        self.in_order(life)
        return life

    def change(self) -> None:
        """Apply another network, as ``engine/daemon/change`` does. PowerCut when the power fails meanwhile."""
        life = self.life
        assert life is not None
        number, before = life.network.version + 1, life.network
        taken = {name for node in before.boxes for name in node.names}
        has_twin = "more" in before.config.outputs
        text, names = next_network(self.rng, number, self.tried[before.version].names, taken, self.head, has_twin)
        after = build_network(text, box_kinds(), version=number, before=before)
        groups = [list(node.names) for node in after.boxes if node.also]
        self.tried[number] = TriedNetwork(text, names, groups)
        change = compare(before, after)
        life.keeper.prepare(after)
        following, event_time = life.keeper.foresee(after), EventTime(after, lambda: life.now_ns)
        old = life.engine
        new = Engine(
            after,
            [_ignore] * len(after.outputs),
            workers=1,
            settings=SchedulerSettings(),
            event_time=event_time,
            spill=life.keeper.spill if any(s.overload == "spill" for s in after.streams) else None,
            memory_bytes=self.options.get("memory_bytes", 2**20),
            log=life.keeper,
            state_home=life.keeper.state_home,
        )
        spilling = nullcontext() if old.spiller is None else old.spiller.paused()
        try:
            with life.keeper.checkpointer.swapping(), quiet(old, 10.0), spilling:
                with old.ingress.closed():
                    move(old, new, change, (life.event_time, event_time))
                    life.engine, life.network, life.event_time = new, after, event_time
                    life.keeper.adopt(following, new, event_time, life, change)
                life.keeper.commit_change()
        except TimeoutError:
            self.files.look()  # a worker that a power cut ended never finishes its plan
            raise
        finally:
            if life.engine is new:  # also after a power cut, so that the threads of both end
                new.start()
                old.stop()
        life.keeper.settle()
        self.must_run = number
        self.changes += 1
        self.in_order(life)

    def in_order(self, life: Life) -> None:
        """Look at the outputs in the order of the world: each network numbers them in its own way."""
        by_name = {history.outbox.output.name: history for history in life.keeper.histories}
        life.histories = [by_name[name] for name in OUTPUTS]


def _ignore(train: Any) -> None: ...
