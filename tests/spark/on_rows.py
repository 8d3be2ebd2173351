"""Many rows of Parquet through ``run --on spark --once`` as a process: windows, a join and the rows that pass, against
DuckDB over the same files.

    python -m tests.spark.on_spark_long --rows 20000000
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import duckdb

from engine.lab.processes import command

TRADES = "{ts: timestamp, symbol: string, price: double, size: int}"
NETWORK = """
spark: {config: {spark.driver.memory: 2g}}
streams:
  trades: {schema: TRADES, time: ts, slack: 2s, source: {spark: parquet, path: FOLDER/trades, options: FILES}}
  quotes: {schema: TRADES, time: ts, slack: 2s, source: {spark: parquet, path: FOLDER/quotes, options: FILES}}
boxes:
  bars: {aggregate: trades, window: {tumbling: 10s}, by: [symbol],
         select: {n: "count(*)", volume: "sum(size)", high: "max(price)", traded: "sum(price * size)"}}
  large: {filter: trades, where: "price * size > 90000"}
  pairs: {join: [large, quotes], on: "l.symbol = r.symbol", within: 1s,
          select: {ts: l.ts, symbol: l.symbol, price: l.price, size: r.size}}
outputs:
  out_bars: {from: bars, sink: {spark: parquet, path: FOLDER/out/bars}}
  out_large: {from: large, sink: {spark: parquet, path: FOLDER/out/large}}
  out_pairs: {from: pairs, sink: {spark: parquet, path: FOLDER/out/pairs}}
  out_late: {from: bars.late, sink: {spark: parquet, path: FOLDER/out/late}}
"""
SUMS = {
    "bars": (
        "select count(*), sum(n), sum(volume), sum(high), sum(traded) from '{out}/bars/*.parquet'",
        """select count(*), sum(n), sum(volume), sum(high), sum(traded) from (
           select count(*) n, sum(size) volume, max(price) high, sum(price * size) traded
           from '{folder}/trades/*.parquet' group by symbol, epoch_us(ts) // 10000000)""",
    ),
    "large": (
        "select count(*), sum(size), sum(price) from '{out}/large/*.parquet'",
        "select count(*), sum(size), sum(price) from '{folder}/trades/*.parquet' where price * size > 90000",
    ),
    "pairs": (
        "select count(*), sum(size), sum(price) from '{out}/pairs/*.parquet'",
        """select count(*), sum(r.size), sum(l.price) from '{folder}/trades/*.parquet' l
           join '{folder}/quotes/*.parquet' r on l.symbol = r.symbol
           and epoch_us(r.ts) between epoch_us(l.ts) - 1000000 and epoch_us(l.ts) + 1000000
           where l.price * l.size > 90000""",
    ),
}


def write(folder: Path, rows: int, files: int = 8) -> None:
    """Write trades, a tenth as many quotes, up to a second out of order within a file."""
    for seed, (name, count) in enumerate({"trades": rows, "quotes": rows // 10}.items()):
        (folder / name).mkdir(parents=True)
        duckdb.sql(f"select setseed({0.1 + seed / 10})")
        for part in range(files):
            first, last = part * count // files, (part + 1) * count // files
            # 20,000 trades a second; a part of a quarter of a second is shuffled
            at = f"1700000000000000 + (i * 1000000 * {rows // count}) // 20000 - cast(random() * 250000 as bigint)"
            duckdb.sql(f"""copy (
                select make_timestamptz({at}) ts, 'S' || (random() * 1000)::int symbol, random() * 100 price,
                       1 + (random() * 998)::int size from range({first}, {last}) t(i)
            ) to '{folder}/{name}/{part:03}.parquet' (format parquet)""")


def run(rows: int, work: Path, *words: str) -> dict[str, Any]:
    """Write, run and compare. Return what was found, with the seconds of the run."""
    write(work, rows)
    file = work / "network.yaml"
    text = NETWORK.replace("FOLDER", str(work)).replace("TRADES", TRADES)
    file.write_text(text.replace("FILES", "{maxFilesPerTrigger: 2}"))
    begun = time.monotonic()
    done = subprocess.run(
        command("run", str(file), "--on", "spark", "--once", "--checkpoint", str(work / "checkpoint"), *words),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.monotonic() - begun
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    assert not list((work / "out/late").glob("*.parquet")), "nothing is late"
    found: dict[str, Any] = {"rows": rows + rows // 10, "seconds": seconds}
    for name, queries in SUMS.items():
        ours, wanted = (duckdb.sql(q.format(out=work / "out", folder=work)).fetchall()[0] for q in queries)
        assert ours[0] and all(abs(a - b) <= 1e-9 * abs(b) for a, b in zip(ours, wanted, strict=True)), (ours, wanted)
        assert [a for a in ours if isinstance(a, int)] == [b for b in wanted if isinstance(b, int)], (ours, wanted)
        found[name] = ours[0]
    return found
