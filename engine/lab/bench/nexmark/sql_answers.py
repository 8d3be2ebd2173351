"""The same queries as SQL over the whole batch, for DuckDB: the network's answers are checked against them.

Tables persons, auctions and bids; times are nanoseconds since 1970 in a BIGINT, ``arrival`` beside ``ts``.
"""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, Any

from engine.lab.bench.nexmark.generator import Events
from storage.train import Train

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN_BIDS = "auctions a JOIN bids b ON a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires"
_DAY = "strftime(make_timestamp(ts // 1000), '%Y-%m-%d') AS day"
_RANK = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_BIDS = ", ".join(f"count(*) FILTER (WHERE {r})" for r in _RANK)
_DISTINCT = ", ".join(
    f"count(DISTINCT {column})" + "".join(f", count(DISTINCT {column}) FILTER (WHERE {r})" for r in _RANK)
    for column in ("bidder", "auction")
)

_PARTS = {"open_bids": _OPEN_BIDS, "day": _DAY, "bids": _BIDS, "distinct": _DISTINCT}
_TEXTS: dict[str, str] = {
    "q0": "SELECT auction, bidder, price, ts, extra FROM bids",
    "q1": "SELECT auction, bidder, 0.908::double * price, ts, extra FROM bids",
    "q2": "SELECT auction, price FROM bids WHERE auction % 123 = 0",
    "q3": """
        SELECT p.name, p.city, p.state, a.id FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """
        SELECT category, avg(final) FROM (SELECT a.id, a.category, max(b.price) AS final FROM $open_bids GROUP BY ALL)
        GROUP BY category""",
    "q5": """
        WITH counted AS (
          SELECT auction, count(*) AS num, opened + 10000000000 AS ended FROM (
            SELECT auction, unnest(range(ts // 2000000000 * 2000000000 - 8000000000, ts + 1, 2000000000)) AS opened
            FROM bids)
          GROUP BY auction, opened)
        SELECT c.auction, c.num, c.ended
        FROM counted c JOIN (SELECT ended, max(num) AS num FROM counted GROUP BY ended) m
        ON c.ended = m.ended AND c.num >= m.num""",
    "q6": """
        WITH winning AS (
          SELECT a.id, a.seller, a.expires, max(b.price) AS final FROM $open_bids GROUP BY ALL)
        SELECT seller, mean FROM (
          SELECT seller, row_number() OVER w AS place,
            avg(final) OVER (PARTITION BY seller ORDER BY expires ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean
          FROM winning WINDOW w AS (PARTITION BY seller ORDER BY expires))
        WHERE place >= 10""",
    "q7": """
        SELECT b.auction, b.price, b.bidder, b.ts, b.extra FROM bids b JOIN (
          SELECT max(price) AS price, ts // 10000000000 * 10000000000 + 10000000000 AS ended FROM bids GROUP BY ended) m
        ON b.price = m.price AND b.ts BETWEEN m.ended - 10000000000 AND m.ended""",
    "q8": """
        SELECT p.id, p.name, p.opened FROM
          (SELECT DISTINCT id, name, ts // 10000000000 * 10000000000 AS opened FROM persons) p JOIN
          (SELECT DISTINCT seller, ts // 10000000000 * 10000000000 AS opened FROM auctions) a
        ON p.id = a.seller AND p.opened = a.opened""",
    "q11": """
        WITH marked AS (
          SELECT bidder, ts, ts - lag(ts) OVER (PARTITION BY bidder ORDER BY ts) >= 10000000000 AS begins FROM bids),
        numbered AS (
          SELECT bidder, ts, count(*) FILTER (WHERE begins)
            OVER (PARTITION BY bidder ORDER BY ts ROWS UNBOUNDED PRECEDING) AS session FROM marked)
        SELECT bidder, min(ts), max(ts) + 10000000000, count(*) FROM numbered GROUP BY bidder, session""",
    "q12": """
        SELECT bidder, arrival // 10000000000 * 10000000000 AS opened, opened + 10000000000, count(*)
        FROM bids GROUP BY bidder, opened""",
    "q14": """
        SELECT auction, bidder, 0.908::double * price AS euros,
          CASE WHEN hour(moment) >= 8 AND hour(moment) <= 18 THEN 'dayTime'
            WHEN hour(moment) <= 6 OR hour(moment) >= 20 THEN 'nightTime' ELSE 'otherTime' END,
          ts, extra, len(extra) - len(replace(extra, 'c', ''))
        FROM (SELECT *, make_timestamp(ts // 1000) AS moment FROM bids) WHERE euros > 1000000 AND euros < 50000000""",
    "q15": "SELECT $day, count(*), $bids, $distinct FROM bids GROUP BY day",
    "q16": """
        SELECT channel, $day, max(strftime(make_timestamp(ts // 1000), '%H:%M')), count(*), $bids, $distinct
        FROM bids GROUP BY channel, day""",
    "q17": """
        SELECT auction, $day, count(*), $bids, min(price), max(price), avg(price), sum(price)
        FROM bids GROUP BY auction, day""",
    "q18": """
        SELECT auction, bidder, price, channel, url, ts, extra FROM bids
        QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) = 1""",
    "q20": """
        SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts,
          a.item, a.initial_bid, a.reserve, a.ts, a.expires, a.seller, a.category
        FROM bids b JOIN auctions a ON b.auction = a.id WHERE a.category = 10""",
}
SQL = {name: Template(text).substitute(_PARTS) for name, text in _TEXTS.items()}


def connect(events: Events) -> Any:
    """Open a DuckDB connection with the three tables; the caller closes it."""
    import duckdb

    connection = duckdb.connect()
    for stream in ("persons", "auctions", "bids"):
        connection.register("incoming", as_arrow(events.train(stream)))
        connection.table("incoming").create(stream)
        connection.unregister("incoming")
    return connection


def as_arrow(train: Train) -> pa.Table:
    """Make a table with strings as dictionaries, and the arrival time as a column."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for at, f in enumerate(train.schema):
        values, pool = train.columns[at], train.pools[at]
        if pool is None:
            columns[f.name] = pa.array(values)
        else:
            columns[f.name] = pa.DictionaryArray.from_arrays(values, pa.array(pool.values))
    columns["arrival"] = pa.array(train.arrival_ns)
    return pa.table(columns)
