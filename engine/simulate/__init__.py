"""The simulator: the daemon's scheduler under a virtual clock, with simulated workers and seeded arrivals.

It is part of the product: `aurorad simulate` says what a network will do before it is deployed, and `policy: auto` asks
it which policy would do best. The scheduler's loop, state and policies are the daemon's own; tuples are only counted.

- One run: ``core`` (events and plans), ``threads`` (the GIL, the I/O thread, workers, cores), ``execution``,
  ``sequences`` and ``interruptible`` (a plan on counts), ``storage`` and ``drops`` (tuples at rest, tuples shed),
  ``quality`` (the quality of a run).
- What goes in: ``arrivals``, ``sketch`` (networks drawn in code), ``overheads``, and the costs of boxes, which are
  declared (``engine/run/declared_costs``), learned by a daemon (``learned_costs``) or measured on samples of tuples
  (``measure_costs``).
- What is asked: ``experiment`` (loads and policies), ``contract`` (what outputs deliver under overload), ``check`` (the
  simulation against the engine), ``what_if`` and ``chooser`` (`policy: auto`), ``report`` (tables and plots).

The same seed gives the same results, to the byte.
"""
