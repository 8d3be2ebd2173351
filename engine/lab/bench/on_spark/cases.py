"""The rows and the two networks of ``bench on-spark``, as a network file and in Spark's own SQL.

- window: trades above a bound, their count and turnover by symbol in windows of 10 s; 1,000 symbols.
- join: trades and quotes of a symbol that are at most a second apart; each trade meets about two quotes.

The rows come in four batches of files, each up to a second out of order.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq

Case = Literal["window", "join"]
GIVE_UP_SECONDS = 60.0  # on one run of Spark's own operators: then its rate is at most that
SYMBOLS = 1_000
BATCHES = 4
START_US = 1_700_000_000 * 10**6
DISORDER_US = 10**6
RATES = {"window": 20_000, "join": SYMBOLS}  # rows a second of event time
TRADES = "{ts: timestamp, symbol: string, price: double, size: int}"


def write_rows(folder: Path, case: Case, rows: int) -> None:
    """Write trades, and for a join as many quotes: as Parquet for Spark, as Arrow for the daemon."""
    for seed, name in enumerate(["trades"] if case == "window" else ["trades", "quotes"]):
        (folder / name).mkdir(parents=True)
        rng = np.random.default_rng(seed)
        at = START_US + np.arange(rows) * 10**6 // RATES[case]
        table = pa.table({
            "ts": pa.array(at - rng.integers(0, DISORDER_US, rows), pa.timestamp("us", "UTC")),
            "symbol": pa.array(np.array([f"S{i:04}" for i in range(SYMBOLS)])[rng.integers(0, SYMBOLS, rows)]),
            "price": rng.random(rows) * 100,
            "size": rng.integers(1, 1_000, rows).astype(np.int32),
        })  # fmt: skip
        size = -(-rows // BATCHES)
        for number in range(BATCHES):
            pq.write_table(
                table.slice(number * size, size), folder / name / f"{number}.parquet", row_group_size=250_000
            )
        with pa_ipc.new_stream(str(folder / f"{name}.arrow"), table.schema) as out:
            out.write_table(table, 65_536)


def network(case: Case, folder: Path, out: Path, *, on_spark: bool) -> str:
    """Return the network file: for Spark, or for the daemon."""

    def stream(name: str) -> str:
        files = f"{{spark: parquet, path: {folder / name}, options: {{maxFilesPerTrigger: 1}}}}"
        source = files if on_spark else f"{{file: {folder / name}.arrow}}"
        return f"  {name}: {{schema: {TRADES}, time: ts, slack: 2s, overload: block, source: {source}}}\n"

    sink = f"{{spark: parquet, path: {out}}}" if on_spark else f"{{file: {out}.arrow}}"
    if case == "window":
        boxes = """  large: {filter: trades, where: "price * size > 5000"}
  answer: {aggregate: large, window: {tumbling: 10s}, by: [symbol],
           select: {n: "count(*)", turnover: "sum(price * size)"}}"""
    else:
        boxes = (
            '  answer: {join: [trades, quotes], on: "l.symbol = r.symbol", within: 1s, select: {ts: l.ts, n: r.size}}'
        )
    streams = stream("trades") + (stream("quotes") if case == "join" else "")
    head = "http: {listen: 'off'}\nlog: {level: warning}\n"
    return f"{head}streams:\n{streams}boxes:\n{boxes}\noutputs:\n  out: {{from: answer, sink: {sink}}}\n"


def native(session: Any, case: Case, folder: Path) -> Any:
    """Return the same as a streaming frame of Spark's own operators."""

    def stream(name: str) -> Any:
        schema = "ts timestamp, symbol string, price double, size int"
        files = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
        return files.withWatermark("ts", "2 seconds")

    from pyspark.sql.functions import expr, window

    if case == "window":
        large = stream("trades").where("price * size > 5000")
        grouped = large.groupBy(window("ts", "10 seconds"), "symbol")
        return grouped.agg(expr("count(*) as n"), expr("sum(price * size) as turnover"))
    trades, quotes = stream("trades").alias("l"), stream("quotes").alias("r")
    band = "l.symbol = r.symbol and r.ts between l.ts - interval 1 second and l.ts + interval 1 second"
    return trades.join(quotes, expr(band)).selectExpr("l.ts as ts", "r.size as n")


def answer_of(files: list[Path]) -> tuple[int, int]:
    """Return the rows of an answer and the sum of ``n`` over them."""
    columns = [pq.read_table(f, columns=["n"], partitioning=None).column("n") for f in files]
    values = np.concatenate([c.to_numpy() for c in columns]) if columns else np.zeros(0, np.int64)
    return int(values.shape[0]), int(values.astype(np.int64).sum())
