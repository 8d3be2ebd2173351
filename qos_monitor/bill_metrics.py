"""The metrics of bills (``qos_monitor/bills.py``)."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from catalog.readings import BillingReading
from qos_monitor.families import counter, gauge


def bills(b: BillingReading) -> Iterator[Metric]:
    query = ["query"]
    yield counter(
        "query_cpu_seconds", "Time that a query has cost, by part. A shared box counts in part.", ["query", "part"],
        (
            ([x.query, part], ns / 1e9)
            for x in b.bills
            for part, ns in (("boxes", x.boxes_ns), ("delivery", x.delivery_ns), ("overhead", x.overhead_ns))
        ),
    )  # fmt: skip
    yield counter("query_tuples", "Tuples that the boxes of a query took in.", query,
                   (([x.query], x.tuples) for x in b.bills))  # fmt: skip
    yield gauge("query_queue_bytes", "Bytes that wait before the boxes of a query.", query,
                 (([x.query], x.queue_bytes) for x in b.bills))  # fmt: skip
    yield gauge("query_state_bytes", "Bytes of state in memory that a query uses.", query,
                 (([x.query], x.state_bytes) for x in b.bills))  # fmt: skip
    yield counter("query_dropped_tuples", "Tuples dropped before a query, or for its slow readers.", query,
                   (([x.query], x.dropped) for x in b.bills))  # fmt: skip
    yield counter(
        "billed_seconds", "Busy time, by who pays: queries, queries that were removed, or nobody (no output).", ["by"],
        (
            (["queries"], sum(x.cpu_ns for x in b.bills) / 1e9),
            (["gone"], b.gone_ns / 1e9),
            (["no_output"], b.no_output_ns / 1e9),
        ),
    )  # fmt: skip
    yield gauge("bills_residual_seconds", "Busy time that is in no bill: of plans that run just now.", [],
                 [([], b.residual_ns / 1e9)])  # fmt: skip
