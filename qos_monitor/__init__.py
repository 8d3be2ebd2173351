"""Measure the running engine: latencies, statistics, rates, load, and whether every tuple is accounted for.

Read in this order: ``histogram`` (written at delivery), ``sampler`` (one tick as arithmetic), ``verdict`` (the load
against the capacity), ``loop`` (the thread around them), ``conservation`` (the laws), ``metrics`` and ``exposition``
(Prometheus), ``report`` (JSON for ``top`` and the page), ``busy`` (for ``explain``).
"""
