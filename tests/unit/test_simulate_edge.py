"""The edge in a contract: the knee is where decoding is full, and above it every output loses the same share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.run.declared_costs import declared_costs
from engine.run.network_file import read_network
from engine.simulate.contract import contract_text, run_contracts
from engine.simulate.edge_limits import decode_costs, decoded_shares, thinned
from engine.simulate.experiment import Experiment, knee_rates
from load_shedder.decide.edge import FULL

NET = """
engine: {workers: 2}
streams:
  rows: {schema: {v: double}, overload: shed, source: {tcp: "127.0.0.1:0", format: ndjson}}
  slow: {schema: {v: double}, source: {tcp: "127.0.0.1:0", format: arrow}}
boxes:
  some: {universal: rows, cost: 1us}
  other: {universal: slow, cost: 1us}
outputs:
  o: {from: some, qos: {deadline: 100ms, dead: 1s, lossy: 10%}}
  p: {from: other, qos: {deadline: 100ms, dead: 1s}}
"""


def experiment(decode_ns: tuple[float, float], rates: tuple[float, float]) -> Experiment:
    network = read_network(NET, {})
    statistics = declared_costs(network)
    statistics.rate_per_s[:] = rates
    return Experiment(
        network, statistics, ("qos",), (1.0,), workers=2, duration_ns=3_000_000_000, decode_ns=decode_ns,
        rates_per_s=rates, process="uniform",
    )  # fmt: skip


def test_the_knee_is_where_decoding_is_full() -> None:
    at_the_edge = experiment((20_000.0, 0.0), (30_000.0, 1_000.0))
    assert knee_rates(at_the_edge)[0] == pytest.approx(50_000, rel=0.01)
    free = knee_rates(replace(at_the_edge, decode_ns=()))
    assert free[0] > 200_000


def test_above_the_knee_of_the_edge_an_output_gets_the_share_that_is_decoded() -> None:
    [found] = run_contracts(experiment((20_000.0, 0.0), (150_000.0, 1_000.0)))
    lossy, whole = found.outputs
    assert found.streams[0].per_s == pytest.approx(150_000, rel=0.01)
    assert found.streams[0].decoded == pytest.approx(FULL / 3, abs=0.01)
    assert lossy.share == pytest.approx(found.streams[0].decoded, abs=0.02)
    assert lossy.utility == pytest.approx(lossy.share / 0.9, abs=0.03)
    assert whole.share == 1.0 and whole.utility == pytest.approx(1.0, abs=0.01)
    assert "150,000 rows/s of rows (33% decoded), 1,000 rows/s of slow, 3 times" in contract_text([found])


def test_a_stream_that_may_not_be_shed_takes_its_part_first() -> None:
    network = read_network(NET, {})
    shares = decoded_shares(network, np.array([1e6, 1e5]), (1_000.0, 5_000.0))
    assert shares.tolist() == pytest.approx([FULL - 0.5, 1.0])
    assert decoded_shares(network, np.array([1e5, 1e4]), (1_000.0, 5_000.0)).tolist() == [1.0, 1.0]


def test_costs_of_decoding_come_from_the_daemon_or_from_the_format() -> None:
    network = read_network(NET, {})
    by_format = decode_costs(network)
    assert by_format[0] > by_format[1] > 0
    edge = {"dropped": {"sampled": 4_000}, "decode_ns": 3_000_000}
    stats = {"streams": [{"name": "rows", "received": 10_000, "edge": edge}, {"name": "slow", "received": 5}]}
    assert decode_costs(network, stats) == (500.0, by_format[1])


def test_thinned_arrivals_are_even_and_exact_in_sum() -> None:
    times, counts = np.arange(1_000), np.full(1_000, 10)
    kept_times, kept = thinned((times, counts), 0.333)
    assert kept.sum() == 3_330 and kept.max() <= 4 and len(kept_times) == len(kept)
