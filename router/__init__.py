"""The boundary: bytes on one side, trains on the other.

Read in this order: ``codecs/base.py`` (what a codec is), ``protocol.py`` (lines out of bytes), ``codecs/ndjson.py``,
``connection.py`` and ``server.py`` (sockets in), ``routes.py`` (where a train goes), ``subscribers.py`` (sockets out).
"""
