"""A made-up stock market: prices follow a random walk, and bursts come and go. The demo sends it, samples are taken
from it. Time and the seed are arguments: the same seed makes the same market.

Bursts are the point of it. For a few seconds the rate is four to ten times the usual one, spreads widen, and more
quotes cross. Each event time lags behind the clock by a delay of its own, so tuples are out of order as on a real feed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

SYMBOLS = (  # the most traded one first
    "NVDA", "AAPL", "AMZN", "MSFT", "INTC", "F", "BAC", "GOOG", "T", "PFE", "CSCO", "WFC", "XOM", "KO", "VZ", "DIS",
    "ORCL", "JPM", "C", "MRK", "WMT", "GE", "CVX", "JNJ", "NKE", "ABT", "QCOM", "PG", "IBM", "TXN", "PEP", "MCD",
    "CAT", "HON", "UPS", "DE",
)  # fmt: skip
VENUES = ("N", "P", "Q", "D", None)
VENUE_SHARES = (0.35, 0.20, 0.25, 0.10, 0.10)

_RANKED = np.arange(1, len(SYMBOLS) + 1) ** -0.8
SYMBOL_SHARES: npt.NDArray[np.float64] = _RANKED / _RANKED.sum()
"""The n-th symbol is traded in proportion to n**-0.8: the first of 36 makes 17 % of the trades, the first ten 61 %."""

VOLATILITY_PER_ROOT_S = 0.0015
USUAL_SPREAD = 0.0006  # of the price
BLOCK_SHARE = 0.002
CROSSED_SHARE = 0.0005
LAG_MEAN_NS = 15_000_000
LAG_MAX_NS = 150_000_000


class Burst(NamedTuple):
    begin_s: float
    end_s: float
    factor: float


class Bursts:
    """Quiet periods of 5 to 12 s alternate with bursts of 1.5 to 4 s at four to ten times the rate."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._next = self._after(0.0)

    def _after(self, time_s: float) -> Burst:
        begin_s = time_s + self._random.uniform(5, 12)
        return Burst(begin_s, begin_s + self._random.uniform(1.5, 4), self._random.uniform(4, 10))

    def factor(self, time_s: float) -> float:
        """Return the multiple of the usual rate at a time. Times must not decrease from call to call."""
        while time_s >= self._next.end_s:
            self._next = self._after(self._next.end_s)
        return self._next.factor if time_s >= self._next.begin_s else 1.0


class Market:
    """The moving prices of a few symbols. One step returns the trades and quotes of a short period as ndjson."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.prices: npt.NDArray[np.float64] = np.exp(self._random.normal(4.3, 0.7, len(SYMBOLS)))

    def step(self, now_ns: int, elapsed_s: float, per_s: float, factor: float) -> tuple[bytes, bytes]:
        """Return (trades, quotes) of the last ``elapsed_s`` seconds: ``per_s * factor`` tuples a second of each."""
        random = self._random
        heat = factor**0.5
        moves = random.normal(0, VOLATILITY_PER_ROOT_S * heat * elapsed_s**0.5, len(SYMBOLS))
        self.prices *= np.exp(moves)
        trades, quotes = random.poisson(per_s * factor * elapsed_s, 2)
        return self._trades(now_ns, int(trades)), self._quotes(now_ns, int(quotes), heat)

    def _times(self, now_ns: int, count: int) -> list[int]:
        lag_ns = np.minimum(self._random.exponential(LAG_MEAN_NS, count), LAG_MAX_NS)
        times: list[int] = (now_ns - lag_ns.astype(np.int64)).tolist()
        return times

    def _trades(self, now_ns: int, count: int) -> bytes:
        random = self._random
        chosen = random.choice(len(SYMBOLS), count, p=SYMBOL_SHARES)
        prices = np.round(self.prices[chosen] * (1 + random.normal(0, USUAL_SPREAD / 4, count)), 2)
        lots = np.maximum(1, random.lognormal(0.7, 0.8, count)).astype(np.int64)
        odd = random.random(count) < 0.2
        sizes = np.where(odd, random.integers(1, 100, count), lots * 100)
        blocks = random.random(count) < BLOCK_SHARE
        sizes = np.where(blocks, random.integers(100, 1_000, count) * 100, sizes)
        venues = random.choice(len(VENUES), count, p=VENUE_SHARES)
        columns = (self._times(now_ns, count), chosen.tolist(), prices.tolist(), sizes.tolist(), venues.tolist())
        return _lines(
            {"ts": ts, "symbol": SYMBOLS[s], "price": p, "size": z, "venue": VENUES[v]}
            for ts, s, p, z, v in zip(*columns, strict=True)
        )

    def _quotes(self, now_ns: int, count: int, heat: float) -> bytes:
        random = self._random
        chosen = random.choice(len(SYMBOLS), count, p=SYMBOL_SHARES)
        mids = self.prices[chosen]
        half = mids * USUAL_SPREAD / 2 * random.lognormal(0, 0.5, count) * heat**0.5
        half = np.where(random.random(count) < CROSSED_SHARE * heat, -half, half)
        bids, asks = np.round(mids - half, 2), np.round(mids + np.where(np.abs(half) < 0.005, 0.01, half), 2)
        sizes = random.integers(1, 50, (2, count)) * 100
        columns = (self._times(now_ns, count), chosen.tolist(), bids.tolist(), asks.tolist(), *sizes.tolist())
        return _lines(
            {"ts": ts, "symbol": SYMBOLS[s], "bid": b, "ask": a, "bid_size": bs, "ask_size": az}
            for ts, s, b, a, bs, az in zip(*columns, strict=True)
        )


def _lines(rows: Iterable[dict[str, object]]) -> bytes:
    lines = [orjson.dumps(row) for row in rows]
    return b"\n".join([*lines, b""]) if lines else b""
