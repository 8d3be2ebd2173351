"""``bench durable``: the cost of durability, against a daemon without a log and against the disk alone, in one run.

- ``log.py``: the throughput of numbered batches of 10,000 tuples with the log, against the same daemon without one;
  bytes a second into the log, against sequential write + fdatasync of pieces of the same size; the wait of a client for
  its acknowledgement, against one write + fdatasync
- ``spilling.py``: spilling and reading back, against sequential writing and reading
- ``checkpoints.py``: recovery of 1,000,000 logged tuples, against the rate at which they came in; the latency that a
  checkpoint of 100 MB of window state adds while it runs
- ``daemons.py``: the daemon and the disk, as all parts use them; ``bench.py`` runs the parts
"""
