"""Walk with a tuple from socket to socket, and count what a reader has to open to follow it.

A daemon runs in this process with a profiler on its I/O, scheduler and worker threads. The profiler notes each call of
a function of ours between the moment the bytes are sent and the moment the result is read: from which line, to which
function. Two walks: one row that finds the engine idle (it takes the idle fast path, all on the I/O thread), and a
train that goes through queues, scheduler and a worker. Each is repeated, and only the calls that every repetition made
count, so that a tick of the monitor or a timer does not.

Only the way counts, not the work on the tuple: calls inside or into codecs, boxes, expressions and the plain data types
(trains, strings, schemas) are left out.

- files: the files of ours in which a function ran.
- crossings: pairs of files of two packages, one of which calls the other.
- callables: call sites that name another function than the one that ran. The name is that of an attribute or a
  variable that somebody filled elsewhere: a reader cannot follow the call with a search for its name.
"""

from __future__ import annotations

import ast
import inspect
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import CodeType, FrameType
from typing import Any

from tests.tidy.source import PACKAGES, ROOT, Source

ROUNDS = 5
THREADS = ("aurorad-io", "scheduler", "worker-")
CALLS_BACK = ("run_forever",)  # asyncio calls our protocols: every program of asyncio does so
WORK = (
    "catalog/", "router/codecs/", "engine/operators/", "storage/train.py", "storage/rows.py", "storage/strings.py",
)  # fmt: skip
WALKS = {"a row at rest": 1, "a train": 2_000}

NETWORK = """
engine: {{workers: 1, explain: false}}
http: {{listen: "off"}}
log: {{level: error}}
streams:
  trades: {{schema: {{symbol: string, price: double}}, source: {{tcp: 127.0.0.1:{0}, format: ndjson}}}}
boxes:
  big: {{filter: trades, where: "price > 1"}}
  pairs: {{map: big, add: {{twice: "price * 2"}}}}
outputs:
  out: {{from: pairs, sink: {{tcp: 127.0.0.1:{1}, format: ndjson}}}}
"""
ROW = b'{"symbol":"ABC","price":99.5}\n'


@dataclass(frozen=True, order=True)
class Call:
    """From a line of a file of ours to a function of ours; ``name`` is what the line calls it."""

    file: str
    line: int
    name: str
    to_file: str
    to_function: str
    is_handed_over: bool


@dataclass
class Walk:
    calls: set[Call] = field(default_factory=set)

    @property
    def files(self) -> list[str]:
        return sorted({c.file for c in self.calls} | {c.to_file for c in self.calls})

    @property
    def crossings(self) -> list[str]:
        pairs = {(c.file, c.to_file) for c in self.calls}
        return sorted(f"{a} -> {b}" for a, b in pairs if a.split("/")[0] != b.split("/")[0])

    @property
    def callables(self) -> list[str]:
        return sorted({f"{c.file}:{c.line} {c.name} is {c.to_function}" for c in self.calls if c.is_handed_over})


class Recorder:
    """The profiler of the daemon's threads; it notes calls while ``walk`` is set."""

    def __init__(self) -> None:
        self.walk: Walk | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        walk = self.walk
        if walk is None or event != "call" or not threading.current_thread().name.startswith(THREADS):
            return
        to_file, caller = our_file(frame.f_code), frame.f_back
        if not to_file or caller is None or not (file := our_file(caller.f_code)) or _resumes(frame.f_code):
            return
        if to_file.startswith(WORK) or file.startswith(WORK):
            return
        node = call_node(caller)
        name = _called_name(node)
        if name and name not in CALLS_BACK:
            walk.calls.add(
                Call(
                    file, caller.f_lineno, name, to_file, frame.f_code.co_qualname, _is_handed_over(node, caller, frame)
                )
            )


@cache
def our_file(code: CodeType) -> str:
    """Return the path of a file of ours from the root, or nothing."""
    name = code.co_filename
    root = f"{ROOT}/"
    if not name.startswith(root) or name.removeprefix(root).split("/")[0] not in PACKAGES:
        return ""
    return name.removeprefix(root)


def _resumes(code: CodeType) -> bool:
    """Whether this is a generator or a coroutine: the code that iterates resumes it, which is no call of its name."""
    return bool(code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE)) or code.co_name.startswith("<")


def call_node(caller: FrameType) -> ast.Call | None:
    """Find the call expression that the caller is at."""
    where = list(caller.f_code.co_positions())[caller.f_lasti // 2]
    return _calls(our_file(caller.f_code)).get(where)


@cache
def _calls(file: str) -> dict[tuple[int | None, ...], ast.Call]:
    return {
        (n.lineno, n.end_lineno, n.col_offset, n.end_col_offset): n
        for n in Source(file).walked
        if isinstance(n, ast.Call)
    }


def _called_name(node: ast.Call | None) -> str:
    if node is None:
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)


def _is_handed_over(node: ast.Call | None, caller: FrameType, callee: FrameType) -> bool:
    """Whether the call goes through something filled elsewhere: an attribute of the object instead of its class, or a
    variable of another name."""
    assert node is not None
    code = callee.f_code
    if code.co_name.startswith("__"):
        return False  # len(x), X(), x + y: Python finds these by itself
    if isinstance(node.func, ast.Attribute):
        owner = _value(node.func.value, caller)
        if owner is None:
            return node.func.attr != code.co_name
        kind = owner if isinstance(owner, type) or inspect.ismodule(owner) else type(owner)
        method = inspect.getattr_static(kind, node.func.attr, None)
        method = getattr(method, "__func__", method)  # of a class method or a static one
        return getattr(inspect.unwrap(method), "__code__", None) is not code if callable(method) else True
    return _called_name(node) != code.co_name


def _value(node: ast.expr, frame: FrameType) -> Any:
    """Evaluate a dotted name in a frame, by attribute access alone; None for any other expression."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute) and (owner := _value(node.value, frame)) is not None:
        return (
            inspect.getattr_static(owner, node.attr, None)
            if inspect.ismodule(owner)
            else getattr(owner, node.attr, None)
        )
    return None


def walk(rows: int) -> Walk:
    """Send ``rows`` rows in one piece, several times; return the calls that every round made."""
    recorder = Recorder()
    with daemon(recorder) as (source, sink):
        rounds = [_one_round(recorder, source, sink, rows) for _ in range(ROUNDS + 2)]
    return Walk(set.intersection(*(r.calls for r in rounds[2:])))  # the first ones warm caches and codecs


def _one_round(recorder: Recorder, source: socket.socket, sink: socket.socket, rows: int) -> Walk:
    recorder.walk = Walk()
    source.sendall(ROW * rows)
    left = rows
    while left > 0:
        chunk = sink.recv(1 << 20)
        assert chunk, "the daemon closed the sink"
        left -= chunk.count(b"\n")
    found, recorder.walk = recorder.walk, None
    return found


def _wait_until_subscribed(source: socket.socket, sink: socket.socket) -> None:
    """Send rows until one comes back, and read all that come: a reader gets what is made after it was accepted."""
    sink.settimeout(0.3)
    answered = False
    for _ in range(100):
        source.sendall(ROW)
        try:
            while sink.recv(1 << 20):
                answered = True
        except TimeoutError:
            if answered:
                break
    assert answered, "the daemon sends nothing"
    sink.settimeout(30)


@contextmanager
def daemon(recorder: Recorder) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Run a daemon with profiled threads; yield a socket to each end of it."""
    from engine.daemon.daemon import Daemon
    from engine.run.network_file import read_network
    from tests.e2e.daemon import free_ports

    ports = free_ports(2)
    threading.setprofile(recorder)
    try:
        running = Daemon(read_network(NETWORK.format(*ports)))
        running.start()
    finally:
        threading.setprofile(None)
    try:
        with (
            socket.create_connection(("127.0.0.1", ports[0])) as source,
            socket.create_connection(("127.0.0.1", ports[1])) as sink,
        ):
            _wait_until_subscribed(source, sink)
            yield source, sink
    finally:
        running.stop()


def walks() -> Iterator[tuple[str, list[str]]]:
    """Yield (what is counted, the items) of each walk."""
    for name, rows in WALKS.items():
        found = walk(rows)
        for what in ("files", "crossings", "callables"):
            yield f"walk of {name}: {what}", getattr(found, what)
