"""``bench socket`` (``throughput.py``) and ``bench latency`` (``latency.py``): from client to client over TCP.

``clients.py`` has the client processes, ``servers.py`` starts the daemon or a bare loop between them, ``bare_loops.py``
has the loops without an engine. ``batch_sender.py`` is the client of ``bench durable``.
"""
