"""docs/metrics.md: every family of /metrics, with its type, its labels and its help text."""

from __future__ import annotations

from prometheus_client.metrics_core import Metric

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from qos_monitor.metrics import EngineCollector
from tests.docs.prose import NOTE, table

HEAD = """# Metrics

`GET /metrics` answers in the text format of Prometheus, or as OpenMetrics when the client asks for it. Every name
begins with `aurorad_`. Units are seconds, bytes, tuples and ratios. A counter ends in `_total`. Labels are names from
the network file, so their number is bounded. A family exists from the first scrape on, also when it has no samples
yet.

`aurorad_conservation_residual` must be 0: it counts the tuples that no conservation law accounts for
([architecture.md](architecture.md)). Alert on it, on `aurorad_load_ratio` above 1 and on
`aurorad_output_utility_ratio`.
"""
NETWORK = """
http: {listen: off}
streams: {t: {schema: {a: int}}}
boxes: {f: {filter: t, where: "a > 0"}}
outputs: {o: {from: f, qos: {deadline: 1s}}}
"""


def families() -> list[Metric]:
    daemon = Daemon(read_network(NETWORK, {}))
    return list(EngineCollector(daemon.readings).collect())


def labels(family: Metric) -> str:
    named = getattr(family, "_labelnames", ())
    return ", ".join(f"`{label}`" for label in named)


def page() -> str:
    rows = []
    for family in sorted(families(), key=lambda f: f.name):
        ending = "_total" if family.type == "counter" else "_info" if family.type == "info" else ""
        rows.append([f"`{family.name}{ending}`", family.type, labels(family), family.documentation])
    return NOTE + HEAD + "\n" + table(["name", "type", "labels", "meaning"], rows) + "\n"
