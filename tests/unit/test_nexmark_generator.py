"""The NEXMark events are those of the published description, and always the same."""

from __future__ import annotations

import numpy as np
import pytest

from engine.lab.bench.nexmark.generator import AUCTIONS, BIDS, CYCLE, PERSONS, STATES, Events, generate
from engine.lab.bench.nexmark.queries import QUERIES
from engine.run.network_file import read_network

COUNT = 50_000
STREAMS = ("persons", "auctions", "bids")


@pytest.fixture(scope="module")
def events() -> Events:
    return generate(COUNT, rate=1_000, seed=3)


def test_the_shares_of_persons_auctions_and_bids(events: Events) -> None:
    cycles = COUNT // CYCLE
    assert [events.train(s).count for s in STREAMS] == [cycles * n for n in (PERSONS, AUCTIONS, BIDS)]
    for stream in STREAMS:
        events.train(stream).verify()


def test_the_same_seed_gives_the_same_events_and_another_seed_others(events: Events) -> None:
    for stream in STREAMS:
        again, other = (
            generate(COUNT, rate=1_000, seed=3).train(stream),
            generate(COUNT, rate=1_000, seed=4).train(stream),
        )
        assert all((a == b).all() for a, b in zip(events.train(stream).columns, again.columns, strict=True))
        assert not all((a == b).all() for a, b in zip(events.train(stream).columns, other.columns, strict=True))


def test_identities_count_up_and_references_are_near(events: Events) -> None:
    assert (np.diff(events.persons.columns[0]) == 1).all()
    assert (np.diff(events.auctions.columns[0]) == 1).all()
    known = set(events.persons.columns[0].tolist())
    sellers = events.auctions.columns[events.auctions.schema.index("seller")].tolist()
    assert sum(s in known for s in sellers) > 0.95 * len(sellers)  # the others come later
    auctions = set(events.auctions.columns[0].tolist())
    bids = events.bids.columns[0].tolist()
    assert sum(a in auctions for a in bids) > 0.95 * len(bids)


def test_half_of_the_bids_are_for_hot_auctions_and_prices_are_log_uniform(events: Events) -> None:
    auction, _, price = events.bids.columns[:3]
    hot = np.count_nonzero((auction - 1_000) % 100 == 0) / auction.shape[0]
    assert 0.5 < hot < 0.6
    quartiles = np.quantile(np.log10(price), [0.25, 0.5, 0.75])
    assert quartiles == pytest.approx([3.5, 5.0, 6.5], abs=0.1)
    assert set(events.persons.to_pylist(events.persons.schema.index("state"))) == set(STATES)


def test_jitter_moves_arrivals_by_no_more_than_said() -> None:
    bids = generate(10_000, rate=1_000, jitter_ns=5_000_000).bids
    ts = bids.columns[bids.schema.index("ts")]
    assert (np.diff(bids.arrival_ns) >= 0).all()
    assert (np.diff(ts) < 0).any()
    assert int((bids.arrival_ns - ts).min()) >= 0
    assert int((bids.arrival_ns - ts).max()) <= 5_000_000


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: q.name)
def test_every_query_is_a_valid_network(query: object) -> None:
    network = read_network(query.network(slack="1s"), {})  # type: ignore[attr-defined]
    assert [o.name for o in network.outputs] == ["answer"]
    assert not network.warnings
