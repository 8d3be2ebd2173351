"""NEXMark on Spark itself, each query against the daemon's engine (``tests/property`` has the same without a JVM)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from engine.lab.bench.nexmark.generator import SCHEMAS, Events, generate
from engine.lab.bench.nexmark.queries import QUERIES, Query
from engine.lab.bench.nexmark.run_query import run_query
from engine.on_spark.lanes import result_batch, result_schema
from engine.on_spark.plan import make_plan
from engine.run.network_file import read_network
from router.codecs.encode.pool_arrays import PoolArrays
from storage.train import Train
from tests.property.on_spark_local import shown_train
from tests.spark.on_spark_world import read_out, run_spark, spark_session

SLACK = "300ms"


def in_us(train: Train) -> Train:
    columns = [c // 1_000 * 1_000 if f.type == "timestamp" else c for f, c in zip(train.schema, train.columns)]
    return Train(train.schema, tuple(columns), train.arrival_ns, valid=train.valid, pools=train.pools)


def write(folder: Path, events: Events, query: Query) -> None:
    """Write the events in pieces of time, a file of each stream for each."""
    parts = list(events.in_time(query.streams, 1_500))
    for number, train in enumerate(parts):
        name = query.streams[number % len(query.streams)]
        (folder / name).mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(folder / name / f"{number:06}.parquet", result_schema(train.schema)) as out:
            out.write_batch(result_batch(train, PoolArrays()))


def text_of(query: Query, folder: Path) -> str:
    text = query.network(slack=SLACK)
    for name in query.streams:
        source = f"source: {{spark: parquet, path: {folder}/{name}, options: {{maxFilesPerTrigger: 1}}}}"
        before, found, after = text.partition(f"  {name}: {{schema")
        text = before + found + after.replace(f"slack: {SLACK}}}", f"slack: {SLACK}, {source}}}", 1)
    return text.replace("{from: out}", f"{{from: out, sink: {{spark: parquet, path: {folder}/out/answer}}}}")


def main() -> None:
    made = generate(4_000, rate=500, seed=7, jitter_ns=300_000_000)
    events = Events(*(in_us(made.train(stream)) for stream in SCHEMAS))
    with spark_session() as session:
        for query in QUERIES:
            if query.by_arrival:
                print(f"{query.name}: by the time of arrival, which is that of the batch there: not compared")
                continue
            with TemporaryDirectory() as folder:
                work = Path(folder)
                write(work, events, query)
                text = text_of(query, work)
                if refused := make_plan(read_network(text, {})).refusals:
                    print(f"{query.name}: refused there: {refused[0].message}")
                    continue
                run_spark(session, text, work, shards=3)
                found = read_out(work / "out", read_network(text, {}))["answer"]
            wanted = Counter(row for t in run_query(query, events, slack=SLACK).trains for row in shown_train(t))
            assert wanted and found == wanted, (
                query.name,
                (found - wanted).most_common(2),
                (wanted - found).most_common(2),
            )
            print(f"{query.name}: {wanted.total()} rows are those of the daemon", flush=True)


if __name__ == "__main__":
    main()
