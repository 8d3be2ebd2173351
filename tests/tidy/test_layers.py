"""Imports go one way: a breach is how a design with owners turns into one without."""

from __future__ import annotations

from tests.tidy.source import CODE, PACKAGES

# What each package may import of ours. Siblings never meet here: they meet in the catalog, or through a callable that
# engine hands over.
ALLOWED = {
    "catalog": {"catalog"},
    "storage": {"catalog", "storage"},
    "scheduler": {"catalog", "storage", "scheduler"},
    "router": {"catalog", "storage", "router"},
    "load_shedder": {"catalog", "storage", "load_shedder"},
    "qos_monitor": {"catalog", "qos_monitor"},
    "engine": set(PACKAGES),
}

# Heavy or optional packages, and the only places that may load them as they are imported themselves. `version` and
# `validate` must answer at once, and a network of sockets never pays for a JVM.
HEAVY = {
    "pyspark": ("router/spark/", "engine/spark/", "engine/bench/"),
    "pandas": ("router/spark/", "engine/spark/", "engine/bench/"),
    "duckdb": ("engine/bench/",),
}


def test_imports_go_one_way() -> None:
    breaches = [
        f"{s.name}:{line} imports {module}"
        for s in CODE
        for module, line in s.imports()
        if (package := module.split(".")[0]) in PACKAGES and package not in ALLOWED[s.package]
    ]
    assert not breaches


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
        if s.under("router/protocol.py", "router/codecs/")
        for module, line in s.imports()
        if module.split(".")[0] in banned
    ]
    assert not breaches


def test_every_package_of_ours_is_found() -> None:
    assert {s.package for s in CODE} == set(PACKAGES)
