"""``aurorad bench``: a group of commands, one for each benchmark of ``engine/lab/bench``.

``benchmarks.py`` has those that print one table, ``change.py`` changes of a network that runs, ``figures.py`` the
papers' figures, ``on_spark.py`` networks on Spark, ``overload.py`` the experiment that drives the daemon beyond its
capacity, ``promise.py`` the same on generated networks. To add one: write ``engine/lab/bench/NAME.py`` with
``run(options)``, and a function with ``@bench.command()`` in ``benchmarks.py`` that passes ``run`` to ``take``.
"""

from __future__ import annotations

from importlib import import_module

import typer


def register(app: typer.Typer) -> None:
    from engine.cli.bench.group import bench

    for name in ("benchmarks", "auto", "change", "figures", "on_spark", "overload", "promise"):
        import_module(f"{__name__}.{name}")  # a module adds its commands to the group as it is imported
    app.add_typer(bench, name="bench")
