"""The history of connection points: the tuples that passed a stream or a port of a box, in Parquet files.

    append -> tail (in memory) -> segment (a Parquet file) -> merged with its neighbours -> removed, the oldest first

The tuples of a place have numbers, from 1 on without a gap. A segment is named by the numbers of its first and its last
tuple: ``history/trades/000000000000000001-000000000000250000.parquet``. DuckDB, polars and Spark read it as it is.

Rules
- A segment is written under another name, synced and renamed. So a file with its name is whole.
- The log and the checkpoints decide what is there after a crash. A checkpoint names the next number of each place, and
  everything below is in segments by then. A start removes segments from that number on: the replay of the log brings
  the same tuples again. For that a segment never lies across the moment of a checkpoint.
- Merging keeps to segments that the oldest checkpoint covers, for the same reason.
- On a disk that is nearly full no segment is written: the log has precedence. The tuples are counted as lost to the
  history, and everything else goes on.
"""
