"""What a change does to the outputs that are there: forecast by the simulator from measured costs."""

from __future__ import annotations

import numpy as np
import pytest

from catalog.network import Network
from catalog.stats import Statistics
from engine.daemon.admission import check_admission
from engine.run.change.report import forecast_lines
from engine.run.network_file import read_network
from engine.simulate.admission import ChangeForecast, Outlook, foresee, trusted, try_out
from engine.simulate.overheads import Overheads
from router.http.change import ChangeRefusedError
from storage.train import Train

BASE = """
admission: {min_utility: 0.9}
streams: {s: {schema: {n: bigint}, overload: shed}}
boxes:
  a: {universal: s, cost: 200us}
outputs:
  o: {from: a, qos: {deadline: 50ms, dead: 200ms, lossy: 50%}}
"""


def with_query(box: str) -> str:
    return BASE.replace("outputs:\n", f"  added: {{{box}}}\noutputs:\n  p: {{from: added, qos: {{deadline: 50ms}}}}\n")


def measured(network: Network) -> Statistics:
    statistics = Statistics(network)
    statistics.observe_streams(np.array([2_000]), 10**9)
    statistics.observe_boxes(np.array([500]), np.array([2_000]), np.array([2_000]), np.array([400_000_000]), 10**9)
    return statistics


def forecast(box: str) -> tuple[ChangeForecast, Network]:
    before = read_network(BASE, {})
    after = read_network(with_query(box), {}, version=2, before=before)
    latest = {"s": Train.from_pylists(before.stream("s").schema, {"n": list(range(100))}, 0)}
    return foresee(before, after, measured(before), latest, 1, Overheads(), "round_robin"), after


def test_a_cheap_query_harms_nobody() -> None:
    found, after = forecast('filter: s, where: "n < 50"')
    assert found.load[0] == pytest.approx(0.4, rel=0.1) and found.load[1] < 0.6
    [outlook] = found.outputs
    assert outlook.name == "o" and outlook.utility[0] > 0.95 and outlook.utility[1] > 0.95
    check_admission(found, after, {})


def test_a_dear_query_is_refused_with_the_figures() -> None:
    found, after = forecast("universal: s, cost: 2ms")
    assert found.load[1] > 3
    [outlook] = found.broken(0.9)
    assert outlook.utility[1] < 0.9 < outlook.utility[0]
    with pytest.raises(
        ChangeRefusedError, match=r"at load 4\d% -> \d\d\d%: o: utility [01].\d\d -> 0.\d\d, p99"
    ) as why:
        check_admission(found, after, {"parts": []})
    assert why.value.hint == "admission.min_utility is 0.9; --force applies it all the same"
    assert forecast_lines(found.to_json())[1].startswith("forecast output o: utility ")


def test_only_outputs_that_get_worse_are_broken() -> None:
    same = Outlook("x", (0.5, 0.495), (1.0, 1.0), (1.0, 1.0))
    worse = Outlook("y", (0.5, 0.4), (1.0, 1.0), (1.0, 1.0))
    assert ChangeForecast((0.5, 0.6), (same, worse)).broken(0.9) == [worse]


def test_new_boxes_are_tried_on_the_last_tuples() -> None:
    before = read_network(BASE, {})
    after = read_network(with_query('filter: s, where: "n < 25"'), {}, before=before)
    statistics = trusted(after, measured(before), before)
    latest = {"s": Train.from_pylists(after.stream("s").schema, {"n": list(range(100))}, 0)}
    number = after.box("added").number
    try_out(after, statistics, {number}, latest)
    assert statistics.selectivity[number] == pytest.approx(0.25)
    assert statistics.train_tuples[number] == 100
    assert statistics.selectivity[after.box("a").number] == pytest.approx(1.0, rel=0.05)
