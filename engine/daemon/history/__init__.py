"""The history of connection points in a daemon: ``keeper`` writes and trims it, ``starts`` lets queries begin in it.

``storage/history`` has the files. The engine appends trains (``engine/run/ingress.ConnectionPoint``); checkpoints say
which of them are there for good (``engine/daemon/durable``).
"""
