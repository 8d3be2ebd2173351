"""The generator of persons, auctions and bids, by the published description, in columns: a million events a second.

Of every 50 events one is a person, three are auctions and 46 are bids. Half of all bids go to a few hot auctions, three
in four come from hot bidders, and hot sellers open three in four auctions. The rest is spread over the recent auctions
and persons. Prices are log-uniform from 100 to 100 million cents. The same seed makes the same events.

Event times are ``1/rate`` apart, as in the description. ``jitter_ns`` delays events at random by at most that time, so
that they arrive out of order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from catalog.schema import Schema
from storage.strings import StringPool
from storage.train import Array, Train, constant_ns

PERSONS, AUCTIONS, BIDS = 1, 3, 46
CYCLE = PERSONS + AUCTIONS + BIDS
FIRST_PERSON = FIRST_AUCTION = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS = 1_000  # the latest persons, who may sell or bid
OPEN_AUCTIONS = 100  # the latest auctions, which get bids
AHEAD = 10  # a bid or a seller may refer to an auction or person that comes this much later
HOT_AUCTION, HOT_BIDDER, HOT_SELLER = 2, 4, 4  # all but one in this many are hot
HOT_STRIDE = 100
BASE_NS = 1_436_918_400 * 10**9  # 2015-07-15, as in the description

FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
CITIES = ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent"]
CITIES += ["Cheyenne"]
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
HOT_CHANNELS = ["Google", "Facebook", "Baidu", "Apple"]
CHANNELS = 10_000

PERSON = Schema.of(id="bigint", name="string", city="string", state="string", ts="timestamp", extra="string")
AUCTION = Schema.of(
    id="bigint",
    item="string",
    initial_bid="bigint",
    reserve="bigint",
    ts="timestamp",
    expires="timestamp",
    seller="bigint",
    category="bigint",
    extra="string",
)
BID = Schema.of(
    auction="bigint", bidder="bigint", price="bigint", channel="string", url="string", ts="timestamp", extra="string"
)
SCHEMAS = {"persons": PERSON, "auctions": AUCTION, "bids": BID}

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """The events of a run: one long train for each stream, in the order of arrival."""

    persons: Train
    auctions: Train
    bids: Train

    def train(self, stream: str) -> Train:
        train: Train = getattr(self, stream)
        return train

    def in_time(self, streams: tuple[str, ...], size: int) -> Iterator[tuple[str, Train]]:
        """Yield trains of about ``size`` tuples of these streams, in the order of arrival."""
        total = sum(self.train(s).count for s in streams)
        steps = max(1, -(-total // size))
        for step in range(steps):
            for stream in streams:
                whole = self.train(stream)
                part = whole.slice(whole.count * step // steps, whole.count * (step + 1) // steps)
                if part.count:
                    yield stream, part


def generate(events: int, *, rate: int = 10_000, seed: int = 0, jitter_ns: int = 0) -> Events:
    """Make ``events`` events, ``rate`` a second of event time."""
    random = np.random.default_rng(seed)
    number = np.arange(events)
    ts = BASE_NS + number * (10**9 // rate)
    arrival = ts + random.integers(0, jitter_ns, events, endpoint=True) if jitter_ns else ts
    order = np.argsort(arrival, kind="stable")
    place = (number % CYCLE).take(order)
    picked = [
        order[place < PERSONS],
        order[(place >= PERSONS) & (place < PERSONS + AUCTIONS)],
        order[place >= PERSONS + AUCTIONS],
    ]
    persons, auctions, bids = [(n, ts.take(n), arrival.take(n)) for n in picked]
    return Events(_persons(random, *persons), _auctions(random, rate, *auctions), _bids(random, *bids))


def last_person(number: Numbers) -> Numbers:
    """Count the persons before an event, less one."""
    return number // CYCLE * PERSONS + np.minimum(number % CYCLE, PERSONS - 1)


def last_auction(number: Numbers) -> Numbers:
    """Count the auctions before an event, less one."""
    return number // CYCLE * AUCTIONS + np.clip(number % CYCLE - PERSONS, -1, AUCTIONS - 1)


def _someone(random: np.random.Generator, last: Numbers) -> Numbers:
    """Draw a recent person, or one who comes soon."""
    active = np.minimum(last, ACTIVE_PERSONS)
    return last - active + random.integers(0, active + AHEAD)


def _persons(random: np.random.Generator, number: Numbers, ts: Numbers, arrival: Numbers) -> Train:
    count = number.shape[0]
    names = StringPool(f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES)
    columns = (
        FIRST_PERSON + last_person(number),
        random.integers(0, len(names), count, np.int32),
        random.integers(0, len(CITIES), count, np.int32),
        random.integers(0, len(STATES), count, np.int32),
        ts,
        _extra_codes(random, count),
    )
    return _train(PERSON, columns, (None, names, StringPool(CITIES), StringPool(STATES), None, EXTRA), arrival)


def _auctions(random: np.random.Generator, rate: int, number: Numbers, ts: Numbers, arrival: Numbers) -> Train:
    count = number.shape[0]
    persons = last_person(number)
    hot = random.integers(0, HOT_SELLER, count) > 0
    seller = np.where(hot, persons // HOT_STRIDE * HOT_STRIDE, _someone(random, persons))
    initial = _price(random, count)
    items = StringPool(f"item {n:03d}" for n in range(500))
    # On average long enough that about OPEN_AUCTIONS are open at once.
    horizon_ns = OPEN_AUCTIONS * CYCLE // AUCTIONS * (10**9 // rate)
    columns = (
        FIRST_AUCTION + last_auction(number),
        random.integers(0, len(items), count, np.int32),
        initial,
        initial + _price(random, count),
        ts,
        ts + 1 + random.integers(0, max(2 * horizon_ns, 1), count),
        FIRST_PERSON + seller,
        FIRST_CATEGORY + random.integers(0, CATEGORIES, count),
        _extra_codes(random, count),
    )
    return _train(AUCTION, columns, (None, items, None, None, None, None, None, None, EXTRA), arrival)


def _bids(random: np.random.Generator, number: Numbers, ts: Numbers, arrival: Numbers) -> Train:
    count = number.shape[0]
    auctions, persons = last_auction(number), last_person(number)
    low = np.maximum(auctions - OPEN_AUCTIONS, 0)
    some = low + random.integers(0, auctions - low + 1 + AHEAD)
    hot = random.integers(0, HOT_AUCTION, count) > 0
    auction = np.where(hot, auctions // HOT_STRIDE * HOT_STRIDE, some)
    hot = random.integers(0, HOT_BIDDER, count) > 0
    bidder = np.where(hot, persons // HOT_STRIDE * HOT_STRIDE + 1, _someone(random, persons))
    names = (*HOT_CHANNELS, *(f"channel-{n}" for n in range(CHANNELS)))
    hot = random.integers(0, 2, count) > 0
    channel = np.where(hot, random.integers(0, 4, count), 4 + random.integers(0, CHANNELS, count)).astype(np.int32)
    urls = StringPool(f"https://www.nexmark.com/{name.lower()}/item.htm?query=1" for name in names)
    columns = (
        FIRST_AUCTION + auction,
        FIRST_PERSON + bidder,
        _price(random, count),
        channel,
        channel,
        ts,
        _extra_codes(random, count),
    )
    return _train(BID, columns, (None, None, None, StringPool(names), urls, None, EXTRA), arrival)


def _price(random: np.random.Generator, count: int) -> Numbers:
    price: Numbers = np.round(10.0 ** (random.random(count) * 6.0) * 100.0).astype(np.int64)
    return price


def _filler() -> StringPool:
    random = np.random.default_rng(0)
    letters = random.integers(0, 26, (1_024, 60))
    return StringPool("".join(chr(97 + c) for c in row) for row in letters.tolist())


EXTRA = _filler()
"""Padding: the description's random text, drawn from a thousand strings."""


def _extra_codes(random: np.random.Generator, count: int) -> Array:
    return random.integers(0, len(EXTRA), count, np.int32)


def _train(schema: Schema, columns: tuple[Any, ...], pools: tuple[Any, ...], arrival: Numbers) -> Train:
    return Train(schema, columns, arrival if arrival.shape[0] else constant_ns(0, 0), pools=pools)
