"""``bench history``: queries over the history of a connection point, against polars and DuckDB on the same files.

Two questions, each answered row for row by all three:

- five filters: the history goes through a chain of five filters, and the rows that pass are kept (as Arrow or columns)
- keyed sum: a filter, then a sum and a count for each of 100 symbols

The files are those that a daemon writes (``storage/history``), in a temporary folder. Every contender reads them from
the page cache. The baseline is the faster one of polars and DuckDB, each with all cores.

And what it costs to write history: ``bench socket --format arrow`` with a log, against the same with ``keep``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np

from catalog.network import KeptPlace, PortRef
from catalog.schema import Schema
from engine.lab.bench.harness import BenchError, Options, interleave
from engine.lab.bench.report import Result
from engine.lab.bench.sockets.servers import daemon
from engine.lab.bench.sockets.throughput import blocks_of, transfer
from engine.run.adhoc import AdHocRun, adhoc_network
from engine.run.tuning import tune_process
from storage.files import RealFiles
from storage.history.place import PlaceHistory
from storage.history.segment import ROW_GROUP_TUPLES
from storage.strings import StringPool
from storage.train import Train, constant_ns

ROWS = 10_000_000
QUICK_ROWS = 1_000_000
TRAIN_TUPLES = 10_000
SYMBOLS = 100
BEGIN_NS = 1_767_225_600 * 10**9  # 2026
SCHEMA = Schema.of(ts="timestamp", symbol="string", price="double", size="int")
PLACE = KeptPlace("trades", PortRef(stream=0), SCHEMA, "ts", 0, None, 2**50)

KEPT_OVER_LOGGED = 0.85
FILTERS = ("price > 5", "size > 50", "price < 95", "size < 900", "symbol <> 'S7'")
KEYED = "size > 500"


def run(options: Options, rows: int | None, folder: str | None) -> Iterator[Result]:
    tune_process()  # as the command does
    rows = rows or (QUICK_ROWS if options.quick else ROWS)
    with TemporaryDirectory(dir=folder) as made:
        seconds, nbytes = write_history(made, rows)
        case = f"rows={rows / 1e6:g} M"
        yield Result("history", f"write,{case}", "tuples_per_s", rows / seconds, extra={"bytes_a_tuple": nbytes / rows})
        yield _over_sockets(Path(made), options)
        files = str(Path(made, "history", "trades", "*.parquet"))
        for name, goal, contenders in (
            ("five filters", 0.5, _filters(made, files)),
            ("filter and keyed sum", 0.3, _keyed(made, files)),
        ):
            yield from _compare(f"{name},{case}", goal, contenders, rows, options.rounds)


def _over_sockets(folder: Path, options: Options) -> Result:
    """Measure ``bench socket --format arrow`` with a log, and with a log and history."""
    blocks = blocks_of("arrow", "arrow", options)
    logged = daemon("arrow", data_dir=str(folder / "logged"))
    kept = daemon("arrow", data_dir=str(folder / "kept"), keep="{size: 4GiB}")
    with logged as plain, kept as keeping:
        contenders = {
            "log": lambda: transfer(plain, "arrow", 1, blocks),
            "keep": lambda: transfer(keeping, "arrow", 1, blocks),
        }
        rates = interleave(contenders, options.rounds)
    case = "socket,format=arrow,log=on,keep=on"
    return Result.of_rounds(
        "history", case, "rows_per_s", rates["keep"], rates["log"], "from bytes", at_least=KEPT_OVER_LOGGED
    )


def _compare(
    case: str, goal: float, contenders: dict[str, Callable[[], Any]], rows: int, rounds: int
) -> Iterator[Result]:
    answers: dict[str, Any] = {}

    def timed(name: str, ask: Callable[[], Any]) -> Callable[[], float]:
        def measure() -> float:
            begun = perf_counter()
            answers[name] = ask()
            return rows / (perf_counter() - begun)

        return measure

    rates = interleave({name: timed(name, ask) for name, ask in contenders.items()}, rounds)
    if len({repr(answer) for answer in answers.values()}) != 1:
        raise BenchError(f"{case}: the answers differ: {answers}")
    typical = {name: median(found) for name, found in rates.items()}
    best = max(("polars", "duckdb"), key=lambda name: typical[name])
    extra = {"baseline_is": best, **{f"{name}_per_s": round(rate) for name, rate in typical.items()}}
    yield Result("history", case, "tuples_per_s", typical["aurorad"], typical[best], at_least=goal, extra=extra)


def write_history(folder: str, rows: int) -> tuple[float, int]:
    """Write made-up trades as a daemon would. Returns the seconds and the bytes."""
    random = np.random.default_rng(1)
    pool = StringPool(f"S{n}" for n in range(SYMBOLS))
    history = PlaceHistory(PLACE, RealFiles(folder))
    history.open(None)
    seconds = 0.0
    for first in range(0, rows, TRAIN_TUPLES):
        count = min(TRAIN_TUPLES, rows - first)
        times = BEGIN_NS + np.arange(first, first + count, dtype=np.int64) * 1_000
        columns = (
            times,
            random.integers(0, SYMBOLS, count).astype(np.int32),
            np.round(random.random(count) * 100, 2),
            random.integers(0, 1_000, count).astype(np.int32),
        )
        train = Train(
            SCHEMA,
            columns,
            constant_ns(int(times[0]), count),
            pools=(None, pool, None, None),
            watermark_ns=int(times[-1]),
        )
        begun = perf_counter()
        history.append(train, first)
        history.write()
        seconds += perf_counter() - begun
    begun = perf_counter()
    history.flush(history.next)
    reading = history.reading()
    if reading.lost:
        raise BenchError(f"the disk did not take the history: {reading.trouble}")
    return seconds + perf_counter() - begun, reading.nbytes


# -- five filters -----------------------------------------------------------------------------------------------------


def _filters(folder: str, files: str) -> dict[str, Callable[[], Any]]:
    boxes = {f"f{n}": {"filter": "trades" if n == 0 else f"f{n - 1}", "where": w} for n, w in enumerate(FILTERS)}
    query = {"boxes": boxes, "outputs": {"out": {"from": f"f{len(FILTERS) - 1}"}}}
    where = " AND ".join(FILTERS)

    def aurorad() -> Any:
        return _count(_replay(folder, query))

    def polars() -> Any:
        import polars as pl

        frame = pl.scan_parquet(files).filter(pl.sql_expr(where)).select(SCHEMA.names).collect()
        return frame.height, round(frame["price"].sum())

    def duckdb() -> Any:
        import duckdb as db

        asked = f"SELECT {', '.join(SCHEMA.names)} FROM '{files}' WHERE {where}"  # noqa: S608
        table = db.connect().sql(asked).to_arrow_table()
        return table.num_rows, round(float(np.asarray(table.column("price")).sum()))

    return {"aurorad": aurorad, "polars": polars, "duckdb": duckdb}


def _count(trains: list[Train]) -> tuple[int, int]:
    return sum(t.count for t in trains), round(float(sum(t.columns[2].sum() for t in trains)))


def _replay(folder: str, query: dict[str, Any]) -> list[Train]:
    """Run a query over the whole history, as ``aurorad query run`` does."""
    found: list[Train] = []
    asked = AdHocRun(adhoc_network(query, [PLACE]), [PLACE], lambda _, train: found.append(train))
    history = PlaceHistory(PLACE, RealFiles(folder))
    history.look()
    asked.read([history.trains(0, ROW_GROUP_TUPLES)], lambda: False)
    asked.end(closes=True)
    return found


# -- filter and keyed sum ---------------------------------------------------------------------------------------------


def _keyed(folder: str, files: str) -> dict[str, Callable[[], Any]]:
    select = {"total": "sum(size)", "n": "count(*)"}
    boxes = {
        "some": {"filter": "trades", "where": KEYED},
        "sums": {"aggregate": "some", "window": {"tumbling": "36500d"}, "by": ["symbol"], "select": select},
    }
    query = {"boxes": boxes, "outputs": {"out": {"from": "sums"}}}

    def aurorad() -> Any:
        rows = [row for train in _replay(folder, query) for row in train.select(("symbol", "total", "n")).to_rows()]
        return sorted(rows)

    def polars() -> Any:
        import polars as pl

        sums = [pl.col("size").cast(pl.Int64).sum().alias("total"), pl.len().alias("n")]
        return sorted(pl.scan_parquet(files).filter(pl.sql_expr(KEYED)).group_by("symbol").agg(sums).collect().rows())

    def duckdb() -> Any:
        import duckdb as db

        asked = f"SELECT symbol, sum(size)::BIGINT, count(*) FROM '{files}' WHERE {KEYED} GROUP BY symbol"  # noqa: S608
        return sorted(db.connect().execute(asked).fetchall())

    return {"aurorad": aurorad, "polars": polars, "duckdb": duckdb}
