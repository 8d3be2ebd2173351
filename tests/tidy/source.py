"""The project's own source as data: what the tidy tests read."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("catalog", "storage", "scheduler", "router", "qos_monitor", "load_shedder", "engine")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """A Python file. ``name`` is its path from the root, with slashes."""

    name: str

    @cached_property
    def text(self) -> str:
        return (ROOT / self.name).read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @cached_property
    def walked(self) -> list[ast.AST]:
        """Every node; computed once for all tests."""
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        return self.name.split("/", 1)[0]

    def under(self, *places: str) -> bool:
        """Whether the file is one of these, or below one of these folders (which end in a slash)."""
        return any(self.name == p or (p.endswith("/") and self.name.startswith(p)) for p in places)

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (n for n in self.walked if isinstance(n, kinds))

    def functions(self) -> Iterator[Function]:
        return (n for n in self.walked if isinstance(n, Function))

    def imports(self, *, top_level: bool = False) -> Iterator[tuple[str, int]]:
        """Yield (module, line) of each import; with ``top_level`` only those that run when the module is imported."""
        nodes = _loaded(self.tree) if top_level else self.walked
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module, node.lineno

    @cached_property
    def calls(self) -> list[tuple[str, int]]:
        """(dotted name, line) of each call: ``time.time`` (also after ``from time import time``), ``p.open``."""
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in self.walked
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        named = [(_dotted(node.func), node.lineno) for node in self.walked if isinstance(node, ast.Call)]
        return [(imported.get(name, name), line) for name, line in named]


def _loaded(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that runs at import: not inside a function, not under ``if TYPE_CHECKING``."""
    stack: list[ast.AST] = list(tree.body)
    while stack:
        node = stack.pop()
        if isinstance(node, Function | ast.Lambda):
            continue
        if isinstance(node, ast.If) and _dotted(node.test).endswith("TYPE_CHECKING"):
            stack.extend(node.orelse)
            continue
        yield node
        stack.extend(ast.iter_child_nodes(node))


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return ""


def tracked() -> list[str]:
    """List the files that git tracks or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(name for name in set(listing.stdout.splitlines()) if (ROOT / name).is_file())


def python_sources(*folders: str) -> list[Source]:
    """List the Python files below these folders, without caches."""
    paths = (p for folder in folders for p in (ROOT / folder).rglob("*.py") if "__pycache__" not in p.parts)
    return [Source(p.relative_to(ROOT).as_posix()) for p in sorted(paths)]


CODE = python_sources(*PACKAGES)
TESTS = python_sources("tests")
