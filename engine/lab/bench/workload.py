"""The tuples and networks of the benchmarks: four columns, chains of five filters, all from a seed.

Each filter passes about nine tuples in ten, a chain about six. Every query has bounds of its own, so that no two boxes
compute the same and no work can be shared: the engine and the bare loop have the same work.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO

import numpy as np
import numpy.typing as npt

from catalog.schema import Schema
from storage.strings import StringPool
from storage.train import Array, Train, constant_ns

SCHEMA = Schema.of(seq="bigint", symbol="string", price="double", size="int")
SYMBOLS = tuple(f"SYM{i:02d}" for i in range(24))
FILTERS = 5

Columns = tuple[Array, ...]
"""seq, symbol (codes into SYMBOLS), price, size."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The five bounds of one query."""

    price_above: float
    price_below: float
    size_above: int
    size_below: int
    seq_above: int

    @property
    def predicates(self) -> tuple[str, ...]:
        return (
            f"price > {self.price_above}",
            f"price < {self.price_below}",
            f"size > {self.size_above}",
            f"size < {self.size_below}",
            f"seq > {self.seq_above}",
        )

    def mask(self, columns: Columns) -> npt.NDArray[np.bool_]:
        """Compute the mask in place: the fastest way in plain numpy."""
        seq, _, price, size = columns
        mask: npt.NDArray[np.bool_] = price > self.price_above
        mask &= price < self.price_below
        mask &= size > self.size_above
        mask &= size < self.size_below
        mask &= seq > self.seq_above
        return mask


def bounds(query: int) -> Bounds:
    return Bounds(9.0 + query * 0.01, 91.0 - query * 0.01, 80 + query % 50, 920 - query % 40, 1_000 + query)


def columns(count: int, seed: int = 0) -> Columns:
    """Draw uniform values: seq in [0, 10,000), price in [0, 100) with two decimals, size in [0, 1,000)."""
    random = np.random.default_rng(seed)
    return (
        random.integers(0, 10_000, count, np.int64),
        random.integers(0, len(SYMBOLS), count, np.int32),
        np.round(random.random(count) * 100, 2),
        random.integers(0, 1_000, count, np.int32),
    )


def trains(count: int, size: int, arrival_ns: int = 0) -> list[Train]:
    """Make trains of ``size`` tuples that share one pool of symbols."""
    pool = StringPool(SYMBOLS)
    pools = (None, pool, None, None)
    return [Train(SCHEMA, columns(size, i), constant_ns(arrival_ns, size), pools=pools) for i in range(count)]


def survivors(data: Columns, query: int = 0) -> list[Array]:
    """Return the tuples that pass one chain: the bare loop's inner step, and the count that the engine must match."""
    index = np.flatnonzero(bounds(query).mask(data))
    return [column.take(index) for column in data]


# -- as bytes ------------------------------------------------------------------------------------------------------


def ndjson_bytes(data: Columns) -> bytes:
    rows = zip(*(column.tolist() for column in data), strict=True)
    lines = [f'{{"seq":{s},"symbol":"{SYMBOLS[y]}","price":{p},"size":{z}}}\n' for s, y, p, z in rows]
    return "".join(lines).encode()


def csv_bytes(data: Columns) -> bytes:
    """Encode without the header; a connection sends ``CSV_HEADER`` once at its start."""
    rows = zip(*(column.tolist() for column in data), strict=True)
    return "".join([f"{s},{SYMBOLS[y]},{p},{z}\n" for s, y, p, z in rows]).encode()


CSV_HEADER = b"seq,symbol,price,size\n"


def arrow_bytes(data: Columns, batch: int, repeat: int) -> bytes:
    """Encode a whole Arrow IPC stream: the tuples ``repeat`` times, in batches."""
    import pyarrow as pa

    seq, symbol, price, size = data
    strings = pa.array(np.array(SYMBOLS, object)[symbol], pa.string())
    names = ["seq", "symbol", "price", "size"]
    whole = pa.record_batch([pa.array(seq), strings, pa.array(price), pa.array(size)], names=names)
    sink = BytesIO()
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        for _ in range(repeat):
            for start in range(0, whole.num_rows, batch):
                writer.write_batch(whole.slice(start, batch))
    return sink.getvalue()


# -- as networks ---------------------------------------------------------------------------------------------------


def chain_network(queries: int, *, workers: int = 1, unit: str = "superbox", idle_boxes: int = 0) -> str:
    """Write a network file: chains of five filters on one stream, and idle ones on a stream without tuples."""
    stream = "schema: {seq: bigint, symbol: string, price: double, size: int}"
    lines = [
        f"engine: {{workers: {workers}, memory: 1GiB, share: false}}",  # filters of two chains may be equal
        'http: {listen: "off"}',
        f"scheduler: {{policy: round_robin, unit: {unit}}}",
        "streams:",
        f"  rows: {{{stream}}}",
        *([f"  silent: {{{stream}}}"] if idle_boxes else []),
        "boxes:",
    ]
    outputs = ["outputs:"]
    for query in range(queries):
        lines += chain_boxes(f"q{query}", "rows", bounds(query))
        outputs.append(f"  q{query}: {{from: q{query}_{FILTERS - 1}}}")
    for chain in range(idle_boxes // FILTERS):
        lines += chain_boxes(f"i{chain}", "silent", bounds(chain))
        outputs.append(f"  i{chain}: {{from: i{chain}_{FILTERS - 1}}}")
    return "\n".join(lines + outputs) + "\n"


def chain_boxes(prefix: str, source: str, limits: Bounds) -> list[str]:
    lines = []
    for step, predicate in enumerate(limits.predicates):
        lines.append(f'  {prefix}_{step}: {{filter: {source}, where: "{predicate}"}}')
        source = f"{prefix}_{step}"
    return lines


def socket_network(
    format: str, ports: tuple[int, int, int], *, workers: int = 1, data_dir: str = "", keep: str = ""
) -> str:
    """Write a network file: one chain of five filters from a listener to a listener. The reader blocks the writer, so
    that no row is lost. With a ``data_dir`` rows go to the log first, and with ``keep`` to the history too."""
    http, source, sink = ports
    lines = [
        f"engine: {{workers: {workers}, memory: 512MiB{f', data_dir: {data_dir}' if data_dir else ''}}}",
        f"http: {{listen: 127.0.0.1:{http}}}",
        "log: {level: warning}",
        "streams:",
        "  rows:",
        "    schema: {seq: bigint, symbol: string, price: double, size: int}",
        f"    source: {{tcp: 127.0.0.1:{source}, format: {format}}}",
        "    overload: block",
        *([f"    keep: {keep}"] if keep else []),
        "boxes:",
        *chain_boxes("q0", "rows", bounds(0)),
        "outputs:",
        "  out:",
        f"    from: q0_{FILTERS - 1}",
        f"    sink: {{tcp: 127.0.0.1:{sink}, format: {format}, when_slow: block}}",
    ]
    return "\n".join(lines) + "\n"
