"""The queries as network files: NEXMark q0 to q8, q11, q12, q14 to q18 and q20.

Some of the published SQL keeps everything for ever (a join of two whole streams, a total since the start). A stream
engine with bounded memory needs a bound and states it: joins reach an hour, totals are per day. In a shorter test the
answers are the same, so ``sql_answers`` has the SQL as published.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.schema import Schema
from engine.lab.bench.nexmark.generator import SCHEMAS


@dataclass(frozen=True, slots=True)
class Query:
    """``boxes`` is as in a network file; the box ``out`` gives the answer. ``by_arrival``: event time is arrival."""

    name: str
    title: str
    streams: tuple[str, ...]
    boxes: str
    by_arrival: bool = False

    def network(self, *, slack: str = "0s", workers: int = 1, memory: str = "1GiB") -> str:
        """Write the whole network file."""
        time = "" if self.by_arrival else f", time: ts, slack: {slack}"
        lines = [f"engine: {{workers: {workers}, memory: {memory}}}", 'http: {listen: "off"}', "streams:"]
        lines += [f"  {name}: {{schema: {{{_fields(SCHEMAS[name])}}}{time}}}" for name in self.streams]
        return "\n".join([*lines, "boxes:", self.boxes.strip("\n"), "outputs:", "  answer: {from: out}", ""])


def _fields(schema: Schema) -> str:
    return ", ".join(str(f) for f in schema)


_RANKS = """
    rank1_bids: "count(*) filter (where price < 10000)",
    rank2_bids: "count(*) filter (where price >= 10000 and price < 1000000)",
    rank3_bids: "count(*) filter (where price >= 1000000)",
"""
_DISTINCT = """
    total_bidders: "count(distinct bidder)",
    rank1_bidders: "count(distinct bidder) filter (where price < 10000)",
    rank2_bidders: "count(distinct bidder) filter (where price >= 10000 and price < 1000000)",
    rank3_bidders: "count(distinct bidder) filter (where price >= 1000000)",
    total_auctions: "count(distinct auction)",
    rank1_auctions: "count(distinct auction) filter (where price < 10000)",
    rank2_auctions: "count(distinct auction) filter (where price >= 10000 and price < 1000000)",
    rank3_auctions: "count(distinct auction) filter (where price >= 1000000)"
"""
_DAY = "day: \"date_format(window_start, 'yyyy-MM-dd')\""

# The bids of an auction while it was open. Auctions are open for less than ten seconds at 400 events a second or more.
_OPEN_BIDS = """
  open_bids: {join: [auctions, bids], within: {before: 0s, after: 10s},
    on: "l.id = r.auction and r.ts >= l.ts and r.ts <= l.expires",
    select: {id: l.id, category: l.category, seller: l.seller, expires: l.expires, price: r.price, ts: r.ts}}
"""

QUERIES: tuple[Query, ...] = (
    Query(
        "q0",
        "pass through",
        ("bids",),
        "  out: {map: bids, select: {auction: auction, bidder: bidder, price: price, ts: ts, extra: extra}}",
    ),
    Query(
        "q1",
        "currency conversion",
        ("bids",),
        '  out: {map: bids, select: {auction: auction, bidder: bidder, price: "0.908 * price", ts: ts, extra: extra}}',
    ),
    Query(
        "q2",
        "selection",
        ("bids",),
        """
  some: {filter: bids, where: "auction % 123 = 0"}
  out: {map: some, select: {auction: auction, price: price}}
""",
    ),
    Query(
        "q3",
        "local item suggestion",
        ("persons", "auctions"),
        """
  tens: {filter: auctions, where: "category = 10"}
  near: {filter: persons, where: "state in ('OR', 'ID', 'CA')"}
  out: {join: [tens, near], on: "l.seller = r.id", within: 1h,
    select: {name: r.name, city: r.city, state: r.state, id: l.id}}
""",
    ),
    Query(
        "q4",
        "average price for a category",
        ("auctions", "bids"),
        _OPEN_BIDS
        + """
  winning: {aggregate: open_bids, window: {tumbling: 1d}, by: [id, category], select: {final: "max(price)"}}
  out: {aggregate: winning, window: {tumbling: 1d}, by: [category], bounds: [], select: {mean: "avg(final)"}}
""",
    ),
    Query(
        "q5",
        "hot items",
        ("bids",),
        """
  counted: {aggregate: bids, window: {sliding: 10s, advance: 2s}, by: [auction], select: {num: "count(*)"}}
  most: {aggregate: counted, window: {tumbling: 2s}, select: {num: "max(num)"}}
  out: {join: [counted, most], on: "l.window_time = r.window_time and l.num >= r.num", within: 0s,
    select: {auction: l.auction, num: l.num, window_end: l.window_end}}
""",
    ),
    Query(
        "q6",
        "average selling price of a seller's last ten auctions",
        ("auctions", "bids"),
        _OPEN_BIDS
        + """
  winning: {aggregate: open_bids, window: {session: 10s}, by: [id, seller, expires], select: {final: "max(price)"}}
  ended: {bsort: winning, by: expires, slack: 30s}
  out: {aggregate: ended, window: {count: 10, advance: 1}, by: [seller], bounds: [], select: {mean: "avg(final)"}}
""",
    ),
    Query(
        "q7",
        "highest bid",
        ("bids",),
        """
  highest: {aggregate: bids, window: {tumbling: 10s}, select: {price: "max(price)"}}
  out: {join: [bids, highest], within: {before: 1ns, after: 10s},
    on: "l.price = r.price and l.ts >= r.window_start and l.ts <= r.window_end",
    select: {auction: l.auction, price: l.price, bidder: l.bidder, ts: l.ts, extra: l.extra}}
""",
    ),
    Query(
        "q8",
        "new users who sell at once",
        ("persons", "auctions"),
        """
  came: {aggregate: persons, window: {tumbling: 10s}, by: [id, name], select: {n: "count(*)"}}
  sold: {aggregate: auctions, window: {tumbling: 10s}, by: [seller], select: {n: "count(*)"}}
  out: {join: [came, sold], on: "l.id = r.seller and l.window_start = r.window_start", within: 0s,
    select: {id: l.id, name: l.name, window_start: l.window_start}}
""",
    ),
    Query(
        "q11",
        "user sessions",
        ("bids",),
        """
  out: {aggregate: bids, window: {session: 10s}, by: [bidder], bounds: [window_start, window_end],
    select: {bid_count: "count(*)"}}
""",
    ),
    Query(
        "q12",
        "windows of processing time",
        ("bids",),
        """
  out: {aggregate: bids, window: {tumbling: 10s}, by: [bidder], bounds: [window_start, window_end],
    select: {bid_count: "count(*)"}}
""",
        by_arrival=True,
    ),
    Query(
        "q14",
        "calculation",
        ("bids",),
        """
  some: {filter: bids, where: "0.908 * price > 1000000 and 0.908 * price < 50000000"}
  out: {map: some, select: {auction: auction, bidder: bidder, price: "0.908 * price",
    kind: "case when hour(ts) >= 8 and hour(ts) <= 18 then 'dayTime'
           when hour(ts) <= 6 or hour(ts) >= 20 then 'nightTime' else 'otherTime' end",
    ts: ts, extra: extra, c_counts: "length(extra) - length(replace(extra, 'c', ''))"}}
""",
    ),
    Query(
        "q15",
        "bidding statistics",
        ("bids",),
        f"""
  out: {{aggregate: bids, window: {{tumbling: 1d}}, bounds: [], select: {{{_DAY}, total_bids: "count(*)",
    {_RANKS}{_DISTINCT}}}}}
""",
    ),
    Query(
        "q16",
        "channel statistics",
        ("bids",),
        f"""
  out: {{aggregate: bids, window: {{tumbling: 1d}}, by: [channel], bounds: [],
    select: {{{_DAY}, minute: "max(date_format(ts, 'HH:mm'))", total_bids: "count(*)",
    {_RANKS}{_DISTINCT}}}}}
""",
    ),
    Query(
        "q17",
        "auction statistics",
        ("bids",),
        f"""
  out: {{aggregate: bids, window: {{tumbling: 1d}}, by: [auction], bounds: [],
    select: {{{_DAY}, total_bids: "count(*)", {_RANKS}
    min_price: "min(price)", max_price: "max(price)", avg_price: "avg(price)", sum_price: "sum(price)"}}}}
""",
    ),
    Query(
        "q18",
        "the last bid of each bidder on each auction",
        ("bids",),
        """
  last: {top: bids, n: 1, of: ts, by: [bidder, auction], window: {tumbling: 1d}}
  out: {map: last, select: {auction: auction, bidder: bidder, price: price, channel: channel, url: url, ts: ts,
    extra: extra}}
""",
    ),
    Query(
        "q20",
        "bids with their auction",
        ("bids", "auctions"),
        """
  tens: {filter: auctions, where: "category = 10"}
  out: {join: [bids, tens], on: "l.auction = r.id", within: 1h,
    select: {auction: l.auction, bidder: l.bidder, price: l.price, channel: l.channel, url: l.url, ts: l.ts,
      item: r.item, initial_bid: r.initial_bid, reserve: r.reserve, opened: r.ts, expires: r.expires,
      seller: r.seller, category: r.category}}
""",
    ),
)
BY_NAME = {query.name: query for query in QUERIES}
