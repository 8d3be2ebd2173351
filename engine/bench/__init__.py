"""Benchmarks: the engine against a bare loop without an engine, in one run.

A rate by itself says more about the machine and its neighbours than about the engine, so every figure comes as a
ratio. Engine and baseline take turns (a slow minute hits both), and each is judged by its best round: what disturbs a
run only ever makes it slower. The baseline is the best loop that a good engineer would write by hand for the same
rows, and it must produce the same rows: each benchmark counts them.

``workload`` makes the tuples, ``harness`` takes the turns, ``report`` prints; ``bare`` has the loops without an engine,
``clients`` the processes at both ends of a socket, ``servers`` what stands between them. Then one module per benchmark,
each with a ``run(options)`` that yields results: ``chain``, ``sockets``, ``latency``, ``overhead``, ``startup``.
"""
