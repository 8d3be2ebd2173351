"""A daemon under load whose queries come, go, change and get other names, and what each of them must have delivered.

A sender counts up without end over a socket. Each query is a filter (rows ``n`` with ``n % step = 0``) or a window of
``WINDOW`` rows over the whole stream, which gives its least and its greatest ``n``. So the oracle is arithmetic:

- A filter's rows are those of its definition, from some number on to some other, without a hole, a repetition or a
  step back. When its definition changes, there is one number at which the new one takes over.
- A window begins where the one before it ended, as long as its box lives, whatever it is called.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from qos_monitor.conservation import breaches
from storage.train import Train

WINDOW = 64
BATCH = 700  # the most that is sent at once
SECONDS = 60.0
BASE = """
http: {listen: off}
streams:
  s: {schema: {n: bigint}, source: {tcp: "127.0.0.1:0"}, overload: block}
"""


@dataclass
class Pause:
    """Numbers of the sender: those up to ``begin`` had come out, none between the silent ones may, and from ``end`` on
    all must."""

    begin: int
    silent_from: int
    silent_to: int = 2**62
    end: int = 2**62


@dataclass
class Query:
    """One output with its box, for as long as it lives."""

    name: str
    is_window: bool
    box: str
    steps: list[int]  # of a filter: those of its definitions, in order
    rows: list[tuple[int, ...]] = field(default_factory=list)
    sent_at_birth: int = 0
    sent_at_death: int = -1
    is_paused: bool = False
    pauses: list[Pause] = field(default_factory=list)

    def lines(self) -> tuple[str, str]:
        if self.is_window:
            select = 'low: "min(n)", high: "max(n)", rows: "count(*)"'
            box = f"  {self.box}: {{aggregate: s, window: {{count: {WINDOW}}}, select: {{{select}}}}}"
        else:
            box = f'  {self.box}: {{filter: s, where: "n % {self.steps[-1]} = 0"}}'
        return box, f"  {self.name}: {{from: {self.box}{', paused: true' if self.is_paused else ''}}}"

    @property
    def slack(self) -> int:
        return 2 * (WINDOW if self.is_window else max(self.steps))

    def may_jump(self, last: int, first: int) -> bool:
        """Tell whether a pause lies between two numbers: all of its silent part, and not much more. Two pauses with no
        row between them count as one. ``sent`` may be behind by what is on its way."""
        reach = BATCH + self.slack
        for at, begun in enumerate(self.pauses):
            is_young = begun.begin <= self.sent_at_birth + self.slack  # it had to have no row yet
            if not (is_young or begun.begin - self.slack <= last) or last > begun.silent_from + reach:
                continue
            for ended in self.pauses[at:]:
                if ended.silent_to <= first <= ended.end + reach:
                    return True
                if not self._follows(ended):
                    break
        return False

    def _follows(self, pause: Pause) -> bool:
        """Tell whether the next pause began so soon after this one that no row had to come between them."""
        after = [p for p in self.pauses if p.begin >= pause.end]
        return bool(after) and after[0].begin <= pause.end + BATCH + self.slack

    def deliver(self, train: Train) -> None:
        self.rows += [row[-3:] for row in train.to_rows()]  # of a window without its times

    def wrong(self) -> str:
        """Say what is wrong with the rows; empty when they are right."""
        return self._wrong_windows() if self.is_window else self._wrong_rows()

    def _wrong_windows(self) -> str:
        for before, after in zip(self.rows, self.rows[1:], strict=False):
            if after[0] != before[1] + 1 and not self.may_jump(before[1], after[0]):
                return f"{self.name}: the window {after} follows {before}"
        odd = [row for row in self.rows if row[2] != WINDOW or not self._is_whole(row)]
        return f"{self.name}: windows {odd[:3]}" if odd else self._wrong_span(WINDOW * 2, 1)

    def _is_whole(self, row: tuple[int, ...]) -> bool:
        """Tell whether a window has one run of numbers, or two with a pause between them."""
        return row[1] - row[0] + 1 == WINDOW or any(row[0] <= p.end and p.begin <= row[1] for p in self.pauses)

    def _wrong_rows(self) -> str:
        found, at = [row[0] for row in self.rows], 0
        for number, step in enumerate(self.steps):
            start = at
            while (
                at < len(found)
                and found[at] % step == 0
                and (at == start or found[at] == found[at - 1] + step or self.may_jump(found[at - 1], found[at]))
            ):
                at += 1
            following = sum(self.steps[number + 1 :])  # a definition that was changed at once may have no row
            is_far = start < at < len(found) and following and found[at] > found[at - 1] + step + following
            if is_far and not self.may_jump(found[at - 1], found[at]):
                return f"{self.name}: {found[at - 1]} is followed by {found[at]}"
        if at < len(found):
            return f"{self.name}: {found[at - 1]} is followed by {found[at]}, with the steps {self.steps}"
        return self._wrong_span(max(self.steps) * 2, 0)

    def _wrong_span(self, slack: int, column: int) -> str:
        """Check that the rows begin at the latest with the first tuple sent after the birth, and reach the death."""
        if not self.rows:
            return f"{self.name}: no row" if self.sent_at_death - self.sent_at_birth > slack else ""
        if any(p.begin <= self.sent_at_birth + slack for p in self.pauses):
            return ""  # it was paused before it had to have a row
        first, last = self.rows[0][0], self.rows[-1][column]
        if first > self.sent_at_birth + slack:
            return f"{self.name}: begins with {first}, and {self.sent_at_birth} were sent at its birth"
        resumed = max([self.sent_at_birth, *(p.end + BATCH for p in self.pauses if p.end < 2**62)])
        is_over = self.sent_at_death - resumed > slack
        if is_over and last < self.sent_at_death - slack:
            return f"{self.name}: ends with {last}, and {self.sent_at_death} were sent at its death"
        return ""


class LiveWorld:
    """``change`` makes one random change. Owner: one thread; the sender has its own."""

    def __init__(self, seed: int, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self.seed = seed
        self.random = random.Random(seed)
        self.queries: list[Query] = []
        self.gone: list[Query] = []
        self.every = Query("every", False, "all", [1])
        self.made = 0
        self.changes = 0
        self.is_shared = True  # equal boxes are one
        self.sent = 0
        self._ended = Event()
        self._sender = Thread(target=self._send)
        self.daemon = Daemon(read_network(self.text(), {}))

    def start(self) -> None:
        self.daemon.start()
        self._sender.start()

    def _send(self) -> None:
        sizes = random.Random(self.seed)
        with socket.create_connection(self.daemon.server.address("stream s")) as connection:
            while not self._ended.is_set():
                rows = range(self.sent, self.sent + sizes.choice((1, 40, BATCH)))
                connection.sendall(b"".join(b'{"n":%d}\n' % n for n in rows))
                self.sent = rows.stop
                sleep(0.002)

    def text(self) -> str:
        lines = [query.lines() for query in self.queries]
        boxes, outputs = "\n".join(box for box, _ in lines), "\n".join(output for _, output in lines)
        begin = f'{BASE}{self.engine()}boxes:\n  all: {{filter: s, where: "n >= 0"}}'
        return f"{begin}\n{boxes}\noutputs:\n  every: {{from: all}}\n{outputs}\n"

    def engine(self) -> str:
        data_dir = "" if self.data_dir is None else f", data_dir: {self.data_dir}, checkpoint: 200ms"
        return f"engine: {{share: {str(self.is_shared).lower()}{data_dir}}}\n"

    def change(self) -> None:
        kind = self.random.choice(("add", "add", "remove", "alter", "rename", "reload", "share", "pause", "pause"))
        filters = [query for query in self.queries if not query.is_window and not query.is_paused]
        new: Query | None = None
        if (kind == "add" and len(self.queries) < 12) or not self.queries:
            self.made += 1
            is_window = self.random.random() < 0.4
            new = Query(f"q{self.made}", is_window, f"b{self.made}", [self.random.choice((1, 2, 3, 5))])
            self.queries.insert(self.random.randrange(len(self.queries) + 1), new)
        elif kind == "remove":
            self._remove(self.random.choice(self.queries))
            return
        elif kind == "pause":
            self._pause_or_resume(self.random.choice(self.queries))
            return
        elif kind == "alter" and filters:
            query = self.random.choice(filters)
            query.steps.append(self.random.choice([s for s in (1, 2, 3, 5) if s != query.steps[-1]]))
        elif kind == "rename":
            self.made += 1
            self.random.choice(self.queries).box = f"b{self.made}"
        elif kind == "share":
            self.is_shared = not self.is_shared
        self.apply()
        if new is not None:
            self.daemon.subscribe(new.name, new.deliver)
            new.sent_at_birth = self.sent

    def _pause_or_resume(self, query: Query) -> None:
        if query.is_paused:
            query.is_paused, pause = False, query.pauses[-1]
            sent = self.sent
            self.wait_until(lambda: self.every.rows[-1][0] >= sent)  # what was sent before has passed the gate
            pause.silent_to = sent
            self.apply()
            pause.end = self.sent
            return
        sent = self.sent
        self.wait_until(lambda: self._reached(query, sent))
        query.is_paused = True
        self.apply()
        query.pauses.append(Pause(sent, self.sent))

    def _remove(self, query: Query) -> None:
        """Remove a query. What it has delivered by now must reach to what was sent a moment ago."""
        sent = query.pauses[-1].begin if query.is_paused else self.sent
        self.wait_until(lambda: query.is_paused or self._reached(query, sent))
        query.sent_at_death = sent
        self.queries.remove(query)
        self.gone.append(query)
        self.apply()

    def _reached(self, query: Query, sent: int) -> bool:
        slack = query.slack
        if sent - max(query.sent_at_birth, *(p.end for p in query.pauses), 0) <= slack:
            return True
        return bool(query.rows) and query.rows[-1][1 if query.is_window else 0] >= sent - slack

    def apply(self) -> None:
        self.daemon.changes.put(self.text(), dry_run=False, drop_state=True)
        self.changes += 1

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        deadline = monotonic() + SECONDS
        while not is_true():
            assert monotonic() < deadline, "waited too long"
            sleep(0.005)

    def end(self) -> list[str]:
        """Stop sending, let everything through, and return all that is wrong."""
        self._ended.set()
        self._sender.join()
        self.wait_until(lambda: self.daemon.ingress.admitted[0] == self.sent and self.daemon.engine.is_quiet())
        for query in self.queries:
            query.sent_at_death = query.pauses[-1].begin if query.is_paused else self.sent
        found = [why for query in (*self.gone, *self.queries) if (why := query.wrong())]
        return found + [str(breach) for breach in breaches(self.daemon.readings())]


@contextmanager
def live_world(seed: int, data_dir: Path | None = None) -> Iterator[LiveWorld]:
    world = LiveWorld(seed, data_dir)
    daemon = world.daemon
    daemon.subscribe("every", world.every.deliver)
    world.gone.append(world.every)
    world.start()
    try:
        yield world
        world.every.sent_at_death = -1
    finally:
        world._ended.set()
        world._sender.join()
        daemon.stop(0.0)
