"""Benchmarks: the engine against a bare loop without an engine, in one run.

A rate by itself says more about the machine and its other processes than about the engine, so every figure is a ratio.
Engine and baseline take turns, so that a slow minute hits both, and each is judged by its best round, because a
disturbance only ever makes a run slower. The baseline is the best program that a good engineer would write by hand for
the same rows. It must produce the same rows: each benchmark counts them.

Shared by all: ``workload`` (tuples and networks), ``harness`` (turns and child processes), ``report`` (results as a
table or as JSON).

One module or folder for each command of ``aurorad bench``; each has ``run(options)``, which yields results:

- in memory: ``chain``, ``overhead`` (with ``overhead_by_policy``), ``explain``, ``window``, ``join``,
  ``nexmark/``, ``change``, ``admission``
- over sockets: ``sockets/`` (``socket`` and ``latency``), ``startup``, ``overload/``, ``promise/``
- disk and Spark: ``durable/``, ``state/``, ``spark/``
- simulated: ``auto/``

To add one: write ``NAME.py`` with ``run(options: Options) -> Iterator[Result]``. Yield one ``Result`` for each case,
with a value, a baseline and, if there is a goal, ``at_least`` or ``at_most`` of their ratio. Honour ``options.quick``.
Then add the command in ``engine/cli/bench/benchmarks.py``.
"""
