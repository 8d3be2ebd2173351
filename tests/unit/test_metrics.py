"""The exposition: every promised name, in form as promtool wants it, with the right numbers; and who queries it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import generate_latest as classic_writer
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics_writer
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse
from prometheus_client.utils import floatToGoString

from catalog.readings import Readings
from qos_monitor.exposition import _number
from qos_monitor.metrics import EngineCollector, expose, registry_for
from tests.unit.monitored import busy, diamond, idle

NETWORK = diamond()
CONFIGS = Path(__file__).resolve().parents[2] / "configs"

# Section 8 of the design: what a user may count on. Name, type, labels.
PROMISED = {
    "aurorad_tuples_in_total": ("counter", {"stream"}),
    "aurorad_tuples_out_total": ("counter", {"output"}),
    "aurorad_tuples_dropped_total": ("counter", {"arc", "reason"}),
    "aurorad_tuples_rejected_total": ("counter", {"stream", "reason"}),
    "aurorad_output_latency_seconds": ("histogram", {"output"}),
    "aurorad_output_utility_ratio": ("gauge", {"output", "kind"}),
    "aurorad_queue_tuples": ("gauge", {"arc"}),
    "aurorad_queue_bytes": ("gauge", {"arc"}),
    "aurorad_box_cost_seconds_total": ("counter", {"box"}),
    "aurorad_box_tuples_total": ("counter", {"box", "direction"}),
    "aurorad_train_tuples": ("histogram", {"box"}),
    "aurorad_scheduler_decision_seconds": ("histogram", set()),
    "aurorad_scheduler_steps_total": ("counter", set()),
    "aurorad_execution_queue_length": ("gauge", set()),
    "aurorad_worker_busy_seconds_total": ("counter", {"worker"}),
    "aurorad_load_ratio": ("gauge", set()),
    "aurorad_shed_level": ("gauge", set()),
    "aurorad_late_tuples_total": ("counter", {"box"}),
    "aurorad_spill_bytes": ("gauge", set()),
    "aurorad_conservation_residual": ("gauge", {"law"}),
    "aurorad_build_info": ("gauge", {"version", "policy", "unit"}),
}
NUMBERS = [
    0,
    1,
    -1,
    0.1,
    1e-9,
    99_999,
    1e5,
    123_456,
    999_999.5,
    1e6,
    1_234_567,
    1e15,
    1e16,
    2**62,
    -1e9,
    float("inf"),
    float("nan"),
]
ABBREVIATIONS = re.compile(r"_(?:ms|us|ns|secs?|minutes|kb|kib|mb|mib|percent|pct)(?:_|$)")


def text(readings: Readings, accept: str = "text/plain") -> str:
    return expose(registry_for(EngineCollector(lambda: readings)), accept)[0].decode()


def families(readings: Readings) -> dict[str, Metric]:
    return {m.name: m for m in parse(text(readings))}


def sample(metrics: Iterable[Metric], name: str, **labels: str) -> float:
    found = [s.value for m in metrics for s in m.samples if s.name == name and s.labels == labels]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


@pytest.mark.parametrize("name", PROMISED)
def test_promised(name: str) -> None:
    kind, labels = PROMISED[name]
    metric = families(busy(NETWORK))[name.removesuffix("_total") if kind == "counter" else name]
    assert metric.type == kind
    assert {frozenset(s.labels) - {"le"} for s in metric.samples} == {frozenset(labels)}


def test_every_family_is_there_before_anything_happened() -> None:
    assert set(families(idle(NETWORK))) == set(families(busy(NETWORK)))


def test_form() -> None:
    """What ``promtool check metrics`` complains about, and the project's own rules."""
    for name, metric in families(busy(NETWORK)).items():
        assert re.fullmatch(r"(aurorad|process)_[a-z0-9_]+", name), "one prefix, lower case"
        assert metric.documentation.strip(), f"{name} has no HELP"
        assert not ABBREVIATIONS.search(name), f"{name}: base units, written out"
        assert not name.endswith(("_count", "_sum", "_bucket", "_info_info")), f"{name}: reserved ending"
        assert metric.type != "unknown", f"{name} has no TYPE"
        if metric.type == "counter":
            assert all(s.name == f"{name}_total" for s in metric.samples)
        elif name != "process_start_time_seconds":
            assert not name.endswith("_total"), f"{name}: only counters end in _total"
        if metric.type == "histogram":
            assert {s.name for s in metric.samples} == {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
        keys = [(s.name, tuple(sorted(s.labels.items()))) for s in metric.samples]
        assert len(keys) == len(set(keys)), f"{name}: a series twice"


def test_histograms_are_cumulative_and_end_at_their_count() -> None:
    metrics = families(busy(NETWORK))
    for metric in (m for m in metrics.values() if m.type == "histogram"):
        series: dict[frozenset[tuple[str, str]], list[tuple[float, float]]] = {}
        for s in metric.samples:
            if s.name.endswith("_bucket"):
                key = frozenset((k, v) for k, v in s.labels.items() if k != "le")
                series.setdefault(key, []).append((float(s.labels["le"]), s.value))
        for key, buckets in series.items():
            assert buckets == sorted(buckets), "bounds and counts rise"
            assert [v for _, v in buckets] == sorted(v for _, v in buckets)
            assert buckets[-1][0] == float("inf")
            assert buckets[-1][1] == sample([metric], f"{metric.name}_count", **dict(key))


def test_numbers_arrive_in_base_units() -> None:
    metrics = list(families(busy(NETWORK)).values())
    assert sample(metrics, "aurorad_tuples_in_total", stream="trades") == 10_050
    assert sample(metrics, "aurorad_tuples_rejected_total", stream="trades", reason="malformed") == 20
    assert sample(metrics, "aurorad_tuples_dropped_total", arc="trades->big", reason="shed") == 50
    assert sample(metrics, "aurorad_box_cost_seconds_total", box="big") == 0.04
    assert sample(metrics, "aurorad_box_tuples_total", box="split", direction="out") == 10_000
    assert sample(metrics, "aurorad_train_tuples_sum", box="both") == 5_000
    assert sample(metrics, "aurorad_output_latency_seconds_bucket", output="alerts", le="0.1") == 4_000
    assert sample(metrics, "aurorad_output_latency_seconds_bucket", output="alerts", le="1.0") == 4_900
    assert sample(metrics, "aurorad_output_latency_seconds_sum", output="alerts") == 500
    assert sample(metrics, "aurorad_output_latency_window_seconds", output="alerts", statistic="p99") == 0.9
    assert sample(metrics, "aurorad_output_slowdown_l2_ratio", output="alerts") == 800
    assert sample(metrics, "aurorad_output_delivered_tuples_total", output="raw") == 4_900
    assert sample(metrics, "aurorad_output_dropped_tuples_total", output="raw") == 40
    assert sample(metrics, "aurorad_output_subscribers", output="raw") == 1, "who left is not a reader"
    assert sample(metrics, "aurorad_scheduler_decision_seconds_count") == 170
    assert sample(metrics, "aurorad_scheduler_decision_seconds_bucket", le="2e-06") == 160
    assert sample(metrics, "aurorad_worker_busy_seconds_total", worker="1") == 0.3
    assert sample(metrics, "aurorad_overhead_seconds_total", part="storage") == 0.004
    assert sample(metrics, "aurorad_build_info", version="1.2.3", policy="round_robin", unit="superbox") == 1
    assert sample(metrics, "process_resident_memory_bytes") > 1e6


def test_the_residual_is_that_of_the_reading_unless_someone_knows_better() -> None:
    readings = busy(NETWORK)
    broken = readings._replace(streams=[readings.streams[0]._replace(received=10_053)])
    assert sample(families(broken).values(), "aurorad_conservation_residual", law="stream") == 3
    registry = registry_for(EngineCollector(lambda: broken, lambda: {"stream": 0}))
    assert sample(parse(expose(registry)[0].decode()), "aurorad_conservation_residual", law="stream") == 0


def test_openmetrics_is_given_to_who_asks_for_it() -> None:
    registry = registry_for(EngineCollector(lambda: busy(NETWORK)))
    body, content_type = expose(registry, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
    names = {m.name for m in parse_openmetrics(body.decode())}
    assert {"aurorad_tuples_in", "aurorad_output_latency_seconds", "aurorad_build"} <= names
    assert expose(registry, "text/html")[1].startswith("text/plain")


@pytest.mark.parametrize("readings", [idle(NETWORK), busy(NETWORK)], ids=["idle", "busy"])
def test_the_writers_give_the_bytes_of_prometheus_own(readings: Readings) -> None:
    odd = 'a"b\\c\nd'
    readings = readings._replace(arcs=[readings.arcs[0]._replace(name=odd, tuples=7, bytes=2**62)])
    registry = CollectorRegistry()
    registry.register(EngineCollector(lambda: readings))
    assert expose(registry, "")[0] == classic_writer(registry)
    assert expose(registry, "application/openmetrics-text")[0] == openmetrics_writer(registry)
    assert [_number(v) for v in NUMBERS] == [floatToGoString(v) for v in NUMBERS]


def test_a_name_from_the_network_file_cannot_break_a_line() -> None:
    readings = idle(NETWORK)
    odd = 'a"b\\c\nd'
    readings = readings._replace(arcs=[readings.arcs[0]._replace(name=odd, tuples=7)])
    assert sample(families(readings).values(), "aurorad_queue_tuples", arc=odd) == 7


# -- who queries it ---------------------------------------------------------------------------------------------------


def dashboard_queries() -> list[tuple[str, str]]:
    board = json.loads((CONFIGS / "grafana" / "aurorad.json").read_text())
    queries = [(p["title"], t["expr"]) for p in board["panels"] for t in p.get("targets", [])]
    return queries + [(v["name"], v["query"]["query"]) for v in board["templating"]["list"] if v["type"] == "query"]


def test_the_dashboard_asks_only_for_what_there_is() -> None:
    known = {s.name: set(s.labels) for m in families(busy(NETWORK)).values() for s in m.samples}
    asked = [(title, expr) for title, expr in dashboard_queries() if "aurorad_" in expr or "process_" in expr]
    assert len(asked) > 30
    for title, expr in asked:
        names = re.findall(r"\b(?:aurorad|process)_[a-z0-9_]+", expr)
        assert names, title
        assert not [n for n in names if n not in known], title
        labels = set(re.findall(r"([a-z]+)=~?\"", expr)) | set(re.findall(r"by \(([^)]*)\)", ",".join([expr])))
        used = {w for group in labels for w in re.split(r",\s*", group)} - {"job", "instance"}
        assert used <= set().union(*(known[n] for n in names)), title


def test_the_dashboards_panels_do_not_overlap_and_say_their_unit() -> None:
    board = json.loads((CONFIGS / "grafana" / "aurorad.json").read_text())
    taken: dict[tuple[int, int], str] = {}
    for panel in board["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert x < 24
                assert (x, y) not in taken, f"{panel['title']} over {taken[x, y]}"
                taken[x, y] = panel["title"]
        if panel["type"] in ("timeseries", "stat"):
            assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])


def test_the_shipped_scrape_config_points_at_the_default_address() -> None:
    config = yaml.safe_load((CONFIGS / "prometheus.yml").read_text())
    assert config["scrape_configs"][0]["static_configs"] == [{"targets": ["127.0.0.1:9400"]}]
