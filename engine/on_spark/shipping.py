"""Ship our packages to the executors: one archive that Spark gives to every Python worker.

The archive has our sources, and those of ``format("aurorad")`` where the network reads a daemon. The packages that ours
stand on (``NEEDED``) must be in the Python of the executors, as pyspark itself must: they have compiled parts, which an
archive cannot bring. ``check_executors`` asks for them before the first batch.
"""

from __future__ import annotations

import struct
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec
from pathlib import Path
from typing import Any

from router.spark.wire.errors import SparkUnavailableError

PACKAGES = ("catalog", "storage", "router", "load_shedder", "scheduler", "engine")
NEEDED = ("numpy", "pyarrow", "pydantic", "yaml", "sqlglot", "orjson", "re2")
NAMES = {"yaml": "pyyaml", "re2": "google-re2"}  # as pip calls them, where it differs
CLIENT = "pyspark_aurorad"
ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = (ROOT / "engine" / "lab", ROOT / "engine" / "cli", ROOT / "engine" / "daemon")
TASKS_A_CORE = 3  # tasks go where a core is free: more of them reach more executors


def client_folder() -> Path | None:
    """Return the folder of ``format("aurorad")``: as it is installed, or that of the checkout; None without both."""
    found = find_spec(CLIENT)
    if found is not None and found.origin is not None:
        return Path(found.origin).parent
    beside = ROOT / "clients" / "spark" / CLIENT
    return beside if beside.is_dir() else None


def archive(folder: Path) -> Path:
    """Write the sources of our packages as an archive from which Python imports."""
    path = folder / "aurorad_packages.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for file, name in _sources():
            out.write(file, name)
            if (code := _compiled(file)) is not None:
                out.writestr(f"{name}c", code)
    return path


def _compiled(file: Path) -> bytes | None:
    """Return the compiled module, if Python has kept it: 0.4 s of CPU less for each worker that starts.

    The header says that nobody needs to compare it with the source. Another version of Python takes the source.
    """
    try:
        code = Path(cache_from_source(str(file))).read_bytes()
        written = file.stat()
    except OSError:
        return None
    found = struct.pack("<III", 0, int(written.st_mtime) & 0xFFFFFFFF, written.st_size & 0xFFFFFFFF)
    if code[:4] != MAGIC_NUMBER or code[4:16] != found:
        return None
    return code[:4] + struct.pack("<IQ", 1, 0) + code[16:]


def _sources() -> Iterator[tuple[Path, str]]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            if not any(folder in file.parents for folder in LEFT_OUT):
                yield file, file.relative_to(ROOT).as_posix()
    client = client_folder()
    for file in sorted(client.glob("*.py")) if client is not None else ():
        yield file, f"{CLIENT}/{file.name}"


def ship(session: Any) -> None:
    """Give our packages to the executors, once for a session."""
    if getattr(session, "_aurorad_shipped", False):
        return
    context = session.sparkContext
    context.addPyFile(str(archive(Path(context._temp_dir))))  # Spark serves it from there, and removes it at its end
    session._aurorad_shipped = True


def add_client(session: Any) -> None:
    """Let Spark know ``format("aurorad")``. Its workers import it from the archive."""
    client = client_folder()
    assert client is not None, "refused before"
    if find_spec(CLIENT) is None:
        sys.path.append(str(client.parent))
    session.dataSource.register(import_module(CLIENT).AuroradSource)


def check_executors(session: Any, cores: int) -> None:
    """Let the executors import what the stages need. Raises SparkUnavailableError with all that is missing there."""
    needed = NEEDED

    def lacking(_: int) -> list[tuple[str, str]]:
        missing = []
        for name in needed:
            try:
                import_module(name)
            except ImportError:
                missing.append(name)
        if not missing:
            try:
                import_module("engine.on_spark.stage_task")
            except ImportError as error:  # a version that is too old for us
                missing.append(f"what aurorad needs ({error})")
        return [(sys.executable, name) for name in missing]

    tasks = cores * TASKS_A_CORE
    found = set(session.sparkContext.parallelize(range(tasks), tasks).flatMap(lacking).collect())
    if found:
        names = ", ".join(sorted({NAMES.get(name, name) for _, name in found}))
        raise SparkUnavailableError(
            f"the executors' Python ({sorted({python for python, _ in found})[0]}) lacks {names}: install it there, or "
            "name another Python with spark: {config: {spark.pyspark.python: ...}}, one that spark.archives brings"
        )
