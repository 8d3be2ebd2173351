"""The boundary: bytes on one side, trains on the other.

Read in this order:

    boundary.py           the protocols by which the boundary uses the engine
    codecs/base.py        what a codec is; then line_framer.py (bytes to lines) and codecs/ndjson.py
    server.py             all listeners and connections, back-pressure, limits; connection.py serves a sender's socket,
                          reader_connection.py a reader's; undecoded.py limits what all senders hold together
    client_protocol.py    numbered batches and named readers, as bytes; source_session.py serves one such sender,
                          named_reader.py one such reader
    routes.py             where a train goes inside the network
    subscribers.py        an output's readers: encode once, queue for each, write
    event_time.py         watermarks of streams
    http.py, tap.py       metrics, statistics, the page, and taps on the tuples of a place
    dead_letters.py       the input that was refused
    spark/                sources and sinks by way of Spark
"""
