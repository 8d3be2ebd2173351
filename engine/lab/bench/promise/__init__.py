"""``bench promise``: does the engine keep its promise on networks that nobody tuned it for?

The promise: under overload every output stays as useful as its QoS graphs allow. This benchmark generates networks of
eleven kinds, with random parameters by seed, and drives each at multiples of its measured knee. Under each policy the
daemon sheds by its own rules. The same daemon then stands behind naive strategies: block, drop oldest, drop newest,
and a random drop at the sender that lets in 0.85 or all of the knee. Contenders take turns; the median round counts.

Everything is measured by processes of its own over TCP: latency from the moment a row was due until a reader had its
result, utility by the graphs. Beside it stand the ideal (``ideal``), what the daemon claimed, and what it dropped.

Files: ``kinds`` (the networks), ``scenario`` (their files and samples), ``truth`` (the results that are due), ``trial``
(the knee, and one run), ``measured`` (what readers felt), ``ideal`` and ``packing`` (the upper bound), ``bench`` (the
plan of all runs), ``report``. Senders and readers are those of ``bench overload``.
"""
