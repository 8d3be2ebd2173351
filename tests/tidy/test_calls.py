"""Calls that this project does without, each with its reason."""

from __future__ import annotations

import ast
from collections.abc import Callable

import pytest

from tests.tidy.source import CODE

# Code of threads that must never sleep: the I/O loop, the scheduler, the workers and their boxes.
HOT = (
    "scheduler/",
    "storage/",
    "router/",
    "engine/operators/",
    "engine/run/worker.py",
    "engine/run/fuse.py",
)
TALKS = ("engine/cli/", "engine/lab/bench/", "engine/lab/demo/", "engine/simulate/report.py")

# (what, why, whether a call is a breach, files that may)
BANNED: list[tuple[str, str, Callable[[str], bool], tuple[str, ...]]] = [
    ("eval", "text from a network file must never reach Python", lambda c: c in {"eval", "exec", "compile"}, ()),
    ("pickle", "loading a pickle runs it", lambda c: c.split(".")[0] in {"pickle", "marshal", "shelve"}, ()),
    ("os.system", "a shell takes names apart", lambda c: c in {"os.system", "os.popen"}, ()),
    (
        "yaml.load",
        "only a safe loader",
        lambda c: c in {"yaml.load", "yaml.unsafe_load", "yaml.full_load"},
        ("catalog/config/",),
    ),
    ("print", "a daemon logs; commands print", lambda c: c == "print", TALKS),
]


@pytest.mark.parametrize(("what", "why", "breach", "may"), BANNED, ids=[b[0] for b in BANNED])
def test_banned_everywhere(what: str, why: str, breach: Callable[[str], bool], may: tuple[str, ...]) -> None:
    found = [f"{s.name}:{line} {c}" for s in CODE if not s.under(*may) for c, line in s.calls if breach(c)]
    assert not found, why


def test_hot_threads_never_sleep() -> None:
    found = [f"{s.name}:{line}" for s in CODE if s.under(*HOT) for c, line in s.calls if c in {"time.sleep"}]
    assert not found


CLOCKS = {f"time.{name}{unit}" for name in ("time", "monotonic", "perf_counter") for unit in ("", "_ns")}


def test_time_comes_in_as_an_argument() -> None:
    """Only the loops read a clock: elsewhere the simulator would give another answer each time."""
    below = (
        "catalog/",
        "storage/",
        "scheduler/",
        "qos_monitor/",
        "load_shedder/",
        "engine/operators/boxes/",
        "engine/operators/expressions/",
    )
    loops = ("scheduler/loop.py", "qos_monitor/loop.py", "storage/files.py")
    found = [
        f"{s.name}:{line} {c}"
        for s in CODE
        if s.under(*below) and not s.under(*loops)
        for c, line in s.calls
        if c in CLOCKS or c in {"datetime.now", "datetime.datetime.now"}
    ]
    assert not found


def test_storage_opens_files_in_one_place() -> None:
    """A test replaces that place to lose bytes that were not synced."""
    opens = {"open", "os.open", "io.open", "mmap.mmap", "np.memmap"}
    methods = (".read_text", ".read_bytes", ".write_text", ".write_bytes", ".open")
    found = [
        f"{s.name}:{line} {c}"
        for s in CODE
        if s.package == "storage" and s.name != "storage/files.py"
        for c, line in s.calls
        if c in opens or c.endswith(methods)
    ]
    assert not found


def test_nothing_is_swallowed() -> None:
    """There is no bare except, and no handler of every exception that only passes."""
    found = [f"{s.name}:{node.lineno}" for s in CODE for node in s.nodes(ast.ExceptHandler) if swallows(node)]
    assert not found


def swallows(handler: ast.AST) -> bool:
    assert isinstance(handler, ast.ExceptHandler)
    if handler.type is None:
        return True
    everything = isinstance(handler.type, ast.Name) and handler.type.id in {"Exception", "BaseException"}
    return everything and all(isinstance(step, ast.Pass | ast.Continue) for step in handler.body)


def test_no_import_that_runs_what_it_reads() -> None:
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert not [f"{s.name}:{line} {m}" for s in CODE for m, line in s.imports() if m.split(".")[0] in banned]
