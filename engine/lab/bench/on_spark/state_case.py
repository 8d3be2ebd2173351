"""What a batch costs on a large state: the same batches on one of 1 GB and on one of some MB.

The first batch brings the keys, each later one a hundredth as many tuples or more. One shard and one worker: with more,
Spark may give a shard to a worker that has to read its state.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LATER = 6
BYTES_A_KEY = 72  # of the state of this box in a file
STATE_NETWORK = """
streams:
  a:
    schema: {{ts: timestamp, k: bigint, x: double}}
    time: ts
    source: {{spark: parquet, path: {folder}, options: {{maxFilesPerTrigger: 1}}}}
boxes:
  w: {{aggregate: a, window: {{tumbling: 1h}}, by: [k], select: {{n: "count(*)", s: "sum(x)", m: "max(x)"}}}}
  few: {{filter: w, where: "n > 1000000"}}
outputs:
  out: {{from: few, sink: {{spark: parquet, path: {out}}}}}
"""


def write_state_rows(folder: Path, keys: int, rows: int) -> None:
    """Write the keys as the first batch, and the later batches."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for number in range(1 + LATER):
        k = rng.permutation(keys) if number == 0 else rng.integers(0, keys, rows)
        table = pa.table({
            "ts": pa.array(np.full(k.shape[0], 1_700_000_000 * 10**6), pa.timestamp("us", "UTC")),
            "k": k.astype(np.int64),
            "x": rng.random(k.shape[0]),
        })  # fmt: skip
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=500_000)
