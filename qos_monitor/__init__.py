"""What is happening: latencies, statistics, rates, load, and whether every tuple is accounted for.

Read in this order: ``histogram`` (written at delivery), ``sampler`` (the tick as arithmetic), ``loop`` (the thread
around it), ``conservation`` (the laws), ``metrics`` and ``exposition`` (Prometheus), ``report`` (JSON for ``top`` and
the page).
"""
