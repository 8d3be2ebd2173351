"""``bench auto``: does ``policy: auto`` choose well? ``bench.py`` compares it with every fixed policy in the simulator,
``workloads.py`` makes the networks and arrivals, ``pieces.py`` divides the work among processes and keeps results.
``real.py`` does the same on the engine: ``real_run.py`` is one run of it, ``real_report.py`` prints its tables.
"""
