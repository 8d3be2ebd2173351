"""Imports go one way, between packages and between the folders of ``engine/``."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.tidy.source import CODE, PACKAGES, ROOT

# What each package may import of ours. Siblings do not import each other: they share the catalog, or get a callable
# from engine.
ALLOWED = {
    "catalog": {"catalog"},
    "storage": {"catalog", "storage"},
    "scheduler": {"catalog", "storage", "scheduler"},
    "router": {"catalog", "storage", "router"},
    "load_shedder": {"catalog", "storage", "load_shedder"},
    "qos_monitor": {"catalog", "qos_monitor"},
    "engine": set(PACKAGES),
}

# What each folder of engine/ may import of the others, from the bottom up. The daemon simulates only to choose a policy
# (`auto`) and to forecast a change of the network (`admission`). lab and cli are the top: nothing that serves a network
# may need them.
ENGINE_ALLOWED = {
    "operators": set(),
    "run": {"operators"},
    "simulate": {"operators", "run"},
    "daemon": {"operators", "run", "simulate"},
    "on_spark": {"operators", "run", "daemon"},
    "lab": {"operators", "run", "simulate", "daemon", "on_spark"},
    "cli": {"operators", "run", "simulate", "daemon", "lab", "on_spark"},
}
SIMULATING = ("engine/daemon/autopilot.py", "engine/daemon/admission.py")  # of the daemon, only these may

# Heavy or optional packages, and the only places that may import them at the top of a module. `version` and `validate`
# must answer at once, and a network of sockets never pays for a JVM.
HEAVY = {
    "pyspark": ("router/spark/", "engine/lab/bench/"),
    "pandas": ("router/spark/", "engine/lab/bench/"),
    "duckdb": ("engine/lab/bench/",),
}

PLANTED = re.compile(r"\bplanted\b|AURORAD_(?:PLANT|CRASH)")


def test_imports_go_one_way() -> None:
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in CODE
        for module, line in s.imports()
        if (package := module.split(".")[0]) in PACKAGES and package not in ALLOWED[s.package]
    ]
    assert not breaches


def test_imports_go_one_way_inside_the_engine() -> None:
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in CODE
        if s.package == "engine" and s.name.count("/") > 1
        for module, line in s.imports()
        if module.startswith("engine.") and (folder := module.split(".")[1]) != (own := s.name.split("/")[1])
        if folder not in ENGINE_ALLOWED[own] or (own == "daemon" and folder == "simulate" and not s.under(*SIMULATING))
    ]
    assert not breaches


def test_every_folder_of_the_engine_has_its_layer() -> None:
    assert {s.name.split("/")[1] for s in CODE if s.package == "engine" and s.name.count("/") > 1} == set(
        ENGINE_ALLOWED
    )


def test_heavy_packages_stay_at_the_edge() -> None:
    breaches = [
        f"{s.name}:{line} imports {module} as it is loaded"
        for s in CODE
        for module, line in s.imports(top_level=True)
        if (places := HEAVY.get(module.split(".")[0])) is not None and not s.under(*places)
    ]
    assert not breaches


def test_a_policy_is_a_pure_function_of_what_it_is_given() -> None:
    """No clock, lock, log, random number or I/O inside a policy, and none in the state that policies read."""
    banned = {"time", "threading", "logging", "random", "secrets", "socket", "asyncio", "os", "queue"}
    pure = [s for s in CODE if s.under("scheduler/policies/", "scheduler/state.py", "scheduler/plan.py")]
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in pure
        for module, line in s.imports()
        if module.split(".")[0] in banned
    ]
    breaches += [
        f"{s.name}:{line} calls {c}" for s in pure for c, line in s.calls if c.startswith(("np.random", "open"))
    ]
    assert not breaches


def test_protocols_and_codecs_know_no_socket() -> None:
    """Bytes in, events out, as in h11: a protocol with a socket in it can only be tested with a socket."""
    banned = {"socket", "asyncio", "uvloop", "selectors"}
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in CODE
        if s.under("router/line_framer.py", "router/client_protocol.py", "router/codecs/")
        for module, line in s.imports()
        if module.split(".")[0] in banned
    ]
    assert not breaches


def test_the_product_knows_nothing_of_its_tests() -> None:
    """Deliberate bugs and crashes are patches that ``tests/crash`` applies, not branches of the product."""
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in CODE
        for module, line in s.imports()
        if module.split(".")[0] in {"tests", "pytest", "hypothesis"}
    ]
    breaches += [
        f"{s.name}:{number}: {line.strip()}"
        for s in CODE
        for number, line in enumerate(s.text.splitlines(), 1)
        if PLANTED.search(line)
    ]
    assert not breaches


def test_the_simulator_is_loaded_only_where_it_is_asked_for() -> None:
    """`validate` answers at once, and a daemon pays for the simulator only under `policy: auto`."""
    commands = (
        "import engine.run.network_file",
        "import engine.daemon.daemon, engine.daemon.process.service",
        "from engine.cli.validate import validate; validate(['configs/demo.yaml'])",
    )
    report = "print(*(m for m in sys.modules if m.startswith('engine.simulate')))"
    for command in commands:
        run = subprocess.run(
            [sys.executable, "-c", f"import sys; {command}; sys.stdout.flush(); {report}"],
            cwd=ROOT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert "engine.simulate" not in run.stdout, command


def test_the_layers_of_expressions() -> None:
    """Each folder imports those before it, as ``engine/operators/expressions/__init__.py`` says."""
    layers = ("tree", "kernels", "functions", "compiler", "aggregates")
    home = "engine/operators/expressions/"
    breaches = [
        f"{s.name}:{line} imports {module}"
        for at, layer in enumerate(layers)
        for s in CODE
        if s.under(f"{home}{layer}/")
        for module, line in s.imports(top_level=True)
        if module.startswith(tuple(f"engine.operators.expressions.{later}" for later in layers[at + 1 :]))
    ]
    tables = "engine.operators.expressions.aggregates.table"
    assert not [
        breach for breach in breaches if not (breach.startswith(f"{home}compiler/") and breach.endswith(tables))
    ]


def test_every_package_of_ours_is_found() -> None:
    assert {s.package for s in CODE} == set(PACKAGES)
