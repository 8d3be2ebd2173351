"""Measure how the house is built: the numbers that make a feature easy or hard to follow across files.

    python -m tests.tidy.measure            the table, with everything that each number counts
    python -m tests.tidy.measure --brief    the table alone

``test_house.py`` holds each number below its ceiling. All but the walk come from the source alone (``ast``); the walk
sends one tuple through a daemon and watches which functions it meets (``tests/tidy/walk.py``).
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.tidy.source import CODE, ROOT, Function, Source, python_sources

CLIENTS = python_sources("clients/python", "clients/spark")
PRODUCT = [s for s in CODE if not s.under("engine/lab/")]
"""What a daemon or a command runs. Benchmarks and figures may do to the engine what a user may not."""


@dataclass(frozen=True)
class Finding:
    """One row of the table: what is counted, how many there are, where each one is."""

    what: str
    number: int
    places: tuple[str, ...] = ()

    @property
    def listed(self) -> str:
        return "\n".join([f"{self.what}: {self.number}", *(f"    {place}" for place in self.places)])


def findings() -> list[Finding]:
    """Every number that the source alone can tell."""
    return [
        doors(),
        entrances(),
        hooks_set_later(),
        defaults_that_do_nothing(),
        repeated_class_names(),
        planted(),
        loose_files(),
        readme_lines(),
    ]


# -- names ------------------------------------------------------------------------------------------------------------


def repeated_class_names() -> Finding:
    """Count the public class names that two or more modules define: one word then has two meanings."""
    modules: dict[str, list[str]] = defaultdict(list)
    files = {source.text: source for source in CLIENTS + CODE}  # a file that lies in two places is one definition
    for source in files.values():
        for name, line in _public_classes(source.tree):
            modules[name].append(f"{source.name}:{line}")
    repeated = {name: places for name, places in sorted(modules.items()) if len(places) > 1}
    return Finding(
        "public class names in two or more modules",
        len(repeated),
        tuple(f"{name}: {', '.join(places)}" for name, places in repeated.items()),
    )


def _public_classes(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the classes of a module, and those inside public classes. A class inside a function has no public name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda):
            continue
        if isinstance(child, ast.ClassDef):
            if child.name.startswith("_"):
                continue
            yield child.name, child.lineno
        yield from _public_classes(child)


def planted() -> Finding:
    """Count what is left of deliberate bugs in product code; the crash tests apply theirs as patches."""
    places = tuple(
        f"{s.name}:{node.lineno}"
        for s in CODE + CLIENTS
        for node in s.nodes(ast.Name, ast.Attribute, ast.alias)
        if (isinstance(node, ast.Name) and node.id == "planted")
        or (isinstance(node, ast.Attribute) and node.attr == "planted")
        or (isinstance(node, ast.alias) and node.name == "planted")
    )
    return Finding("mentions of `planted` in product packages", len(places), places)


def loose_files() -> Finding:
    """Count the files directly in ``engine/``: only the ``__init__.py`` that tells the whole belongs there."""
    places = tuple(s.name for s in CODE if s.under("engine/") and s.name.count("/") == 1)
    return Finding("loose files in engine/", len(places), places)


def readme_lines() -> Finding:
    return Finding("lines of README.md", len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()))


# -- the tuple's way in -----------------------------------------------------------------------------------------------


INGRESS = "engine/run/ingress.py"


def doors() -> Finding:
    """Count the functions by which a train enters the network: the callers of ``Ingress._enter``.

    ``_enter`` is the only function that puts a stream's trains on queues: see ``queues_a_train``.
    """
    places = tuple(
        f"{s.name}:{f.lineno} {f.name}"
        for s in PRODUCT
        for f in s.functions()
        if s.name == INGRESS and _calls(f, "self._enter")
    )
    return Finding("functions by which a train enters the network", len(places), places)


def queues_a_train() -> Finding:
    """Find the functions that put a train on an arc: the ingress and the routes, and nothing beside them."""
    places = tuple(
        f"{s.name} {f.name}"
        for s in PRODUCT
        if not s.under("engine/simulate/")  # its trains are counts
        for f in s.functions()
        if _calls(f, "enqueue_without_waking", "_storage.enqueue", "storage.enqueue")
    )
    return Finding("functions that put a train on an arc", len(places), places)


def _calls(function: Function, *names: str) -> bool:
    called = (ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call))
    return any(name == n or name.endswith("." + n) for name in called for n in names)


def entrances() -> Finding:
    """Count the functions that take a train for a stream: a parameter named ``stream`` beside one that is a Train.

    The declaration of such a method in a Protocol counts as well: it is one more name for the same door.
    """
    places = tuple(
        f"{s.name}:{f.lineno} {f.name}"
        for s in PRODUCT
        for f in s.functions()
        if takes_a_train_for_a_stream(f) and not returns_bytes(f)
    )
    return Finding("functions that take a train for a stream", len(places), places)


def takes_a_train_for_a_stream(function: Function) -> bool:
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    has_stream = any(a.arg == "stream" for a in arguments)
    return has_stream and any(a.annotation is not None and ast.unparse(a.annotation) == "Train" for a in arguments)


def returns_bytes(function: Function) -> bool:
    """Whether this only writes the train down (a record of the log), instead of letting it in."""
    return function.returns is not None and "Bytes" in ast.unparse(function.returns)


# -- callables that are handed over -----------------------------------------------------------------------------------


def hooks_set_later() -> Finding:
    """Count the callables that are assigned to an attribute of another object, after its construction.

    Such an object is incomplete for a while, and nothing says when it is whole: a collaborator belongs in the
    constructor. An attribute is a hook if its class annotates it as a Callable or as one of our Protocols, directly, or
    by way of a parameter that its constructor keeps.
    """
    hooks, data = annotated_attributes(PRODUCT)
    places = tuple(
        f"{s.name}:{node.lineno} {ast.unparse(target)}"
        for s in PRODUCT
        for node in s.nodes(ast.Assign)
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr in hooks and not _is_self(target.value)
        if not (target.attr in data and _is_plain_call(node.value))  # data of another class with the same attribute
    )
    return Finding("hooks set after construction", len(places), places)


def _is_plain_call(value: ast.expr) -> bool:
    """Whether this is the result of a function; a constructor, which makes a collaborator, is none."""
    return isinstance(value, ast.Call) and not ast.unparse(value.func).rpartition(".")[2][:1].isupper()


def annotated_attributes(sources: list[Source]) -> tuple[set[str], set[str]]:
    """Name the attributes that hold a callable or one of our Protocols in some class of these files, and those that
    hold anything else in some class."""
    protocols = {
        node.name
        for s in sources
        for node in s.nodes(ast.ClassDef)
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith("Protocol") for base in node.bases)
    }
    hooks: set[str] = set()
    data: set[str] = set()
    for source in sources:
        for node in source.nodes(ast.ClassDef):
            assert isinstance(node, ast.ClassDef)
            for name, annotation in _attributes(node):
                (hooks if _is_hook(annotation, protocols | {"Callable"}) else data).add(name)
    return hooks, data


def _is_hook(annotation: ast.expr, kinds: set[str]) -> bool:
    if isinstance(annotation, ast.BinOp):  # X | None
        return _is_hook(annotation.left, kinds) or _is_hook(annotation.right, kinds)
    if isinstance(annotation, ast.Subscript):
        return _is_hook(annotation.value, kinds)
    return isinstance(annotation, ast.Name) and annotation.id in kinds


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """(name, annotation) of what a class declares in its body, annotates on self, or keeps of what it is handed."""
    for step in node.body:
        if isinstance(step, ast.AnnAssign) and isinstance(step.target, ast.Name):
            yield step.target.id, step.annotation
        if not isinstance(step, Function):
            continue
        handed = {a.arg: a.annotation for a in [*step.args.args, *step.args.kwonlyargs] if a.annotation is not None}
        for inner in ast.walk(step):
            if isinstance(inner, ast.AnnAssign) and (name := _own(inner.target)):
                yield name, inner.annotation
            if isinstance(inner, ast.Assign) and isinstance(inner.value, ast.Name) and inner.value.id in handed:
                yield from ((name, handed[inner.value.id]) for t in inner.targets if (name := _own(t)))


def _own(target: ast.expr) -> str:
    """The name of an attribute of self, or nothing."""
    return target.attr if isinstance(target, ast.Attribute) and _is_self(target.value) else ""


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def defaults_that_do_nothing() -> Finding:
    """Count the callables whose default does nothing, of an attribute or a parameter: each hides a forgotten wire."""
    places = tuple(
        f"{s.name}:{line} {name}" for s in PRODUCT for name, value, line in _defaults(s) if _does_nothing(value, s)
    )
    return Finding("callables with a default that does nothing", len(places), places)


def _defaults(source: Source) -> Iterator[tuple[str, ast.expr, int]]:
    for node in source.walked:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            yield ast.unparse(node.target), node.value, node.lineno
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            yield ast.unparse(node.targets[0]), node.value, node.lineno
        elif isinstance(node, Function):
            positional = [*node.args.posonlyargs, *node.args.args]
            pairs = zip(positional[len(positional) - len(node.args.defaults) :], node.args.defaults, strict=True)
            for argument, default in [*pairs, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]:
                if default is not None:
                    yield f"{node.name}({argument.arg})", default, argument.lineno


def _does_nothing(value: ast.expr, source: Source) -> bool:
    if isinstance(value, ast.Lambda):
        return isinstance(value.body, ast.Constant) and value.body.value is None
    if not isinstance(value, ast.Name):
        return False
    named = [f for f in source.tree.body if isinstance(f, Function) and f.name == value.id]
    return any(all(isinstance(s, ast.Pass) or _is_text(s) for s in f.body) for f in named)


def _is_text(step: ast.stmt) -> bool:
    return isinstance(step, ast.Expr) and isinstance(step.value, ast.Constant)


def main(words: list[str]) -> None:
    from tests.tidy.walk import walks

    found = [*findings(), *(Finding(what, len(places), tuple(places)) for what, places in walks())]
    width = max(len(f.what) for f in found)
    print("\n".join(f"{f.what:{width}}  {f.number:>5}" for f in found))
    if "--brief" not in words:
        print("\n" + "\n\n".join(f.listed for f in found if f.places))


if __name__ == "__main__":
    main(sys.argv[1:])
