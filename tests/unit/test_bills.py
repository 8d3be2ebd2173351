"""Bills: who pays for which box, and that nothing is paid twice or by nobody."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from catalog.build import build_network
from catalog.catalog import Epoch
from catalog.network import Network
from catalog.readings import BillingReading, BoxReading, Readings, WorkerReading
from engine.cli.views.bills import bills_line, draw_bills
from engine.operators.boxes import box_kinds
from qos_monitor.bills import Ledger
from qos_monitor.report import bills_json
from tests.unit.monitored import SECOND_NS, busy, diamond, idle

SHARED = """
streams: {s: {schema: {n: bigint}}}
boxes:
  all: {filter: s, where: "n >= 0"}
  split: {case: all, when: {few: "n < 10"}, otherwise: many}
  lost: {filter: all, where: "n > 5"}
outputs:
  few: {from: split.few}
  many: {from: split.many}
  every: {from: all}
"""


def network_of(text: str) -> Network:
    return build_network(text, box_kinds(), {})


def billing(network: Network, before: Readings, after: Readings) -> BillingReading:
    ledger = Ledger(Epoch.of(network))
    ledger.fold(before)
    return ledger.reading(after)


def by_query(billing: BillingReading) -> dict[str, Any]:
    return {bill.query: bill for bill in billing.bills}


def worked(network: Network, costs: dict[str, tuple[int, int, tuple[int, ...]]], busy_ns: int) -> Readings:
    """A second later: by box its cost, its calls, and its tuples out by port."""
    boxes = [
        BoxReading(
            b.name, b.kind, calls=costs[b.name][1], tuples_in=sum(costs[b.name][2]), cost_ns=costs[b.name][0],
            tuples_out=sum(costs[b.name][2]), tuples_out_by_port=costs[b.name][2],
        )
        for b in network.boxes
    ]  # fmt: skip
    return idle(network, SECOND_NS)._replace(boxes=boxes, workers=[WorkerReading(0, busy_ns)])


def test_a_shared_box_is_paid_by_the_tuples_consumed() -> None:
    network = network_of(SHARED)
    costs = {"all": (300, 10, (1_000,)), "split": (100, 10, (100, 900)), "lost": (50, 0, (0,))}
    found = billing(network, idle(network), worked(network, costs, 450))
    # ``lost`` leads to no output, so only ``split`` and ``every`` share ``all``, and ``split`` passes its
    # half on by its ports, one to nine.
    bills = by_query(found)
    assert bills["every"].boxes_ns == 150
    assert bills["few"].boxes_ns == pytest.approx(0.1 * (100 + 150), abs=1)
    assert bills["many"].boxes_ns == pytest.approx(0.9 * (100 + 150), abs=1)
    assert found.no_output_ns == 50
    assert found.busy_ns == 450 and found.residual_ns == 0
    assert bills["every"].tuples == 500 and bills["few"].tuples == pytest.approx(0.1 * 1_500)


def test_time_between_boxes_is_shared_by_calls_and_bills_add_up() -> None:
    network = network_of(SHARED)
    costs = {"all": (300, 30, (1_000,)), "split": (100, 10, (500, 500)), "lost": (0, 0, (0,))}
    found = billing(network, idle(network), worked(network, costs, 1_000))
    bills = by_query(found)
    assert bills["every"].overhead_ns == pytest.approx(600 * 0.75 / 2, abs=1)
    assert bills["few"].overhead_ns == pytest.approx((600 * 0.75 / 2 + 600 * 0.25) / 2, abs=1)
    assert sum(bill.cpu_ns for bill in found.bills) == pytest.approx(found.busy_ns, abs=2) == 1_000
    assert bills["every"].busy_ratio > 0


def test_a_plan_under_way_is_the_residual_until_it_has_ended() -> None:
    network = network_of(SHARED)
    costs = {"all": (300, 30, (1_000,)), "split": (100, 10, (500, 500)), "lost": (0, 0, (0,))}
    ledger = Ledger(Epoch.of(network))
    ledger.fold(idle(network))
    during = worked(network, costs, 0)
    assert ledger.reading(during).residual_ns == -400, "boxes have ended, their plan has not"
    after = during._replace(workers=[WorkerReading(0, 500)], engine=during.engine._replace(now_ns=2 * SECOND_NS))
    assert ledger.reading(after).residual_ns == 100, "no call has been made to which it belongs"
    more = {**costs, "all": (400, 40, (1_000,))}
    last = worked(network, more, 600)
    assert ledger.reading(last._replace(engine=last.engine._replace(now_ns=3 * SECOND_NS))).residual_ns == 0


def test_drops_queues_and_state_of_the_diamond() -> None:
    network = diamond()
    bills = by_query(billing(network, idle(network), busy(network)))
    assert bills["alerts"].dropped == 4 * 50 + 40  # on four arcs, and for slow readers
    assert bills["others"].dropped == 50 + 40 and bills["raw"].dropped == 40
    assert sum(bill.queue_bytes for bill in bills.values()) == pytest.approx(4 * 1_600, abs=2)
    assert bills["raw"].queue_bytes == 0
    assert bills["alerts"].boxes_ns == pytest.approx(41e6 + 20e6 * 950 / 9_950, rel=0.01)


def test_the_bills_go_on_in_the_next_network() -> None:
    before = network_of(SHARED)
    after = network_of(SHARED.replace("  few: {from: split.few}\n", "").replace("all", "renamed"))
    costs = {"all": (300, 30, (1_000,)), "split": (100, 10, (100, 900)), "lost": (0, 0, (0,))}
    first = worked(before, costs, 800)
    ledger = Ledger(Epoch.of(before))
    ledger.fold(idle(before))
    paid = by_query(ledger.reading(first))
    boxes = {after.box(now).number: before.box(was).number for now, was in (("renamed", "all"), ("split", "split"))}
    outputs = {after.output(name).number: before.output(name).number for name in ("many", "every")}
    following = ledger.follow(first, Epoch.of(after), boxes, outputs)
    same = worked(after, {"renamed": costs["all"], "split": costs["split"], "lost": (0, 0, (0,))}, 800)
    found = following.reading(same._replace(engine=same.engine._replace(now_ns=2 * SECOND_NS)))
    assert by_query(found)["many"].cpu_ns == paid["many"].cpu_ns, "the counters of a renamed box are not paid twice"
    assert found.gone_ns == pytest.approx(paid["few"].cpu_ns, abs=2)
    assert found.busy_ns == 800 and abs(found.residual_ns) <= 1


def test_readings_of_another_network_are_not_counted() -> None:
    network = network_of(SHARED)
    ledger = Ledger(Epoch.of(network))
    ledger.fold(idle(diamond()))
    assert ledger.reading(busy(diamond())) == BillingReading()


def test_the_table_and_the_line() -> None:
    network = diamond()
    readings = busy(network)
    readings = readings._replace(billing=billing(network, idle(network), readings))
    answer = bills_json(readings, network)
    assert [bill["query"] for bill in answer["bills"]] == ["alerts", "others", "raw"]
    assert answer["bills"][0]["boxes"] == ["big", "both"] and answer["bills"][0]["shared"] == ["split"]
    console = Console(width=200, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(draw_bills(answer, 2))
    text = capture.get()
    assert "and 1 queries that cost less" in text and "split" in text and "busy 700ms" in text
    assert bills_line(answer).startswith("busy 700ms, billed 700ms, in no bill 0.00% | alerts ")
