"""Loops without an engine: the program that a good engineer would write by hand for these rows and nothing else.

    python -m engine.lab.bench.sockets.bare_loops LOOP IN_PORT OUT_PORT

The loop listens on two ports of loopback. It reads rows on the first, applies the five filters of query 0 and writes
the survivors to the reader that is connected to the second. It has no scheduler, no second stream and no metrics, and
it handles neither bad lines nor slow readers: the engine's ratio pays for those.

- ``polars`` decodes, filters and encodes large reads in columns; the fastest loop for throughput.
- ``orjson`` handles the same reads row by row.
- ``latency`` handles rows one by one with blocking calls and answers each read at once; the fastest for latency.
- ``csv`` and ``arrow`` handle their formats in columns.
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections.abc import Callable
from io import BytesIO
from typing import Any

import orjson

from engine.lab.bench.workload import CSV_HEADER, bounds

LARGE_READ_BYTES = 8 << 20
SMALL_READ_BYTES = 64 << 10
LIMITS = bounds(0)

Transform = Callable[[bytes], bytes]


def listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LARGE_READ_BYTES)
    listener.bind(("127.0.0.1", port))
    listener.listen()
    return listener


def keeps(row: dict[str, Any]) -> bool:
    return bool(
        row["price"] > LIMITS.price_above
        and row["price"] < LIMITS.price_below
        and row["size"] > LIMITS.size_above
        and row["size"] < LIMITS.size_below
        and row["seq"] > LIMITS.seq_above
    )


def orjson_rows(body: bytes) -> bytes:
    out = []
    for line in body.splitlines():
        row = orjson.loads(line)
        if keeps(row):
            out.append(orjson.dumps(row))
    out.append(b"")
    return b"\n".join(out)


def polars_predicates() -> tuple[dict[str, Any], list[Any]]:
    import polars as pl

    schema = {"seq": pl.Int64, "symbol": pl.String, "price": pl.Float64, "size": pl.Int32}
    price, size = pl.col("price"), pl.col("size")
    predicates = [price > LIMITS.price_above, price < LIMITS.price_below, size > LIMITS.size_above]
    return schema, [*predicates, size < LIMITS.size_below, pl.col("seq") > LIMITS.seq_above]


def polars_ndjson() -> Transform:
    import polars as pl

    schema, predicates = polars_predicates()

    def transform(body: bytes) -> bytes:
        out = BytesIO()
        pl.read_ndjson(body, schema=schema).filter(*predicates).write_ndjson(out)
        return out.getvalue()

    return transform


def polars_csv() -> Transform:
    import polars as pl

    schema, predicates = polars_predicates()

    def transform(body: bytes) -> bytes:
        out = BytesIO()
        frame = pl.read_csv(body.removeprefix(CSV_HEADER), schema=schema, has_header=False)
        frame.filter(*predicates).write_csv(out, include_header=False)
        return out.getvalue()

    return transform


TRANSFORMS: dict[str, Callable[[], Transform]] = {
    "polars": polars_ndjson,
    "orjson": lambda: orjson_rows,
    "csv": polars_csv,
}


def read_large(connection: socket.socket) -> bytes:
    """Read everything that has arrived, up to ``LARGE_READ_BYTES``."""
    chunks = [connection.recv(LARGE_READ_BYTES)]
    size = len(chunks[0])
    while chunks[-1] and size < LARGE_READ_BYTES:
        try:
            chunks.append(connection.recv(LARGE_READ_BYTES - size, socket.MSG_DONTWAIT))
        except BlockingIOError:
            break
        size += len(chunks[-1])
    return b"".join(chunks)


def serve(sources: socket.socket, sinks: socket.socket, transform: Transform) -> None:
    """Serve many writers and one reader for ever, whole lines in and whole lines out."""
    selector = selectors.DefaultSelector()
    selector.register(sources, selectors.EVENT_READ)
    tails: dict[socket.socket, bytes] = {}
    reader, _ = sinks.accept()
    while True:
        for key, _ in selector.select():
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if connection is sources:
                reader = newest_reader(sinks, reader)
                accepted, _ = sources.accept()
                selector.register(accepted, selectors.EVENT_READ)
                tails[accepted] = b""
                continue
            chunk = read_large(connection)
            if not chunk:
                selector.unregister(connection)
                del tails[connection]
                connection.close()
                continue
            body = tails[connection] + chunk
            end = body.rfind(b"\n") + 1
            tails[connection] = body[end:]
            if end:
                reader.sendall(transform(body[:end]))


def newest_reader(sinks: socket.socket, reader: socket.socket) -> socket.socket:
    """Return the reader of this round: the last one that connected. Readers connect before writers."""
    sinks.setblocking(False)
    try:
        while True:
            accepted, _ = sinks.accept()
            reader.close()
            accepted.setblocking(True)
            reader = accepted
    except BlockingIOError:
        return reader
    finally:
        sinks.setblocking(True)


def serve_latency(sources: socket.socket, sinks: socket.socket) -> None:
    """Serve one writer and one reader with blocking calls: nothing but the work delays an answer."""
    while True:
        reader, _ = sinks.accept()
        writer, _ = sources.accept()
        reader.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with reader, writer:
            tail = b""
            while chunk := writer.recv(SMALL_READ_BYTES):
                body = tail + chunk
                end = body.rfind(b"\n") + 1
                tail = body[end:]
                if end:
                    reader.sendall(orjson_rows(body[:end]))


def serve_arrow(sources: socket.socket, sinks: socket.socket) -> None:
    """Serve one writer at a time, batch by batch: numpy evaluates the predicates, Arrow gathers the rows."""
    import pyarrow as pa

    while True:
        reader, _ = sinks.accept()
        writer, _ = sources.accept()
        with reader, writer, writer.makefile("rb", LARGE_READ_BYTES) as source, reader.makefile("wb") as sink:
            stream = pa.ipc.open_stream(source)
            with pa.ipc.new_stream(sink, stream.schema) as out:
                for batch in stream:
                    seq, price, size = (batch[name].to_numpy() for name in ("seq", "price", "size"))
                    out.write_batch(batch.filter(pa.array(LIMITS.mask((seq, seq, price, size)))))


def main(loop: str, in_port: int, out_port: int) -> None:
    sources, sinks = listen(in_port), listen(out_port)
    transform = (
        TRANSFORMS[loop]() if loop in TRANSFORMS else None
    )  # imports its packages before it says that it is ready
    print('{"ready":true}', flush=True)
    if transform is not None:
        serve(sources, sinks, transform)
    elif loop == "latency":
        serve_latency(sources, sinks)
    else:
        serve_arrow(sources, sinks)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
