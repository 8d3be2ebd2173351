"""``engine.stop`` in the network file, and the warning of windows that only a later tuple closes."""

from __future__ import annotations

import pytest

from catalog.errors import NetworkError
from engine.run.network_file import read_network


def network(box: str, stream: str = "", engine: str = "") -> str:
    return f"""
engine: {{{engine}}}
streams:
  s: {{schema: {{ts: timestamp, k: string, v: int}}, time: ts, overload: block, {stream}}}
  t: {{schema: {{ts: timestamp, k: string, v: int}}, time: ts, overload: block, idle: 1s}}
boxes:
  b: {{{box}}}
outputs: {{o: {{from: b}}}}
"""


NDJSON = "source: {tcp: 127.0.0.1:0, format: ndjson}"
CSV = "source: {tcp: 127.0.0.1:0, format: csv}"
WINDOW = 'aggregate: s, window: {tumbling: 1s}, select: {n: "count(*)"}'
JOIN = 'join: [s, t], "on": "l.k = r.k", within: 1s'


@pytest.mark.parametrize(
    ("engine", "at_stop"),
    [
        ("", "close"),
        ("data_dir: x", "keep"),
        ("stop: drop", "drop"),
        ("stop: close, data_dir: x", "close"),
        ("stop: keep, data_dir: x", "keep"),
    ],
)
def test_the_default_depends_on_the_data_dir(engine: str, at_stop: str) -> None:
    assert read_network(network(WINDOW, engine=engine), {}).config.engine.at_stop == at_stop


def test_keep_without_a_data_dir_is_refused_at_its_line() -> None:
    with pytest.raises(NetworkError, match="stop: keep needs a data_dir") as caught:
        read_network(network(WINDOW, engine="stop: keep"), {})
    assert [(p.line, p.place) for p in caught.value.problems] == [(2, "engine.stop")]


def warnings(box: str, stream: str) -> list[str]:
    found = read_network(network(box, stream), {}).warnings
    return [f"{w.place}: {w.message}" for w in found if "the last tuples wait" in w.message]


@pytest.mark.parametrize(
    "box",
    [
        WINDOW,
        'aggregate: s, window: {session: 1s}, select: {n: "count(*)"}',
        "top: s, n: 1, of: v, window: {tumbling: 1s}",
        f"{JOIN}, type: left",
        'join: [t, s], "on": "l.k = r.k", asof: true',
        "bsort: s, slack: 1s",
    ],
)
@pytest.mark.parametrize("stream", [CSV, NDJSON])
def test_a_stream_whose_last_tuples_only_a_later_one_frees_gets_a_warning(box: str, stream: str) -> None:
    assert warnings(box, stream) == ["streams.s: the last tuples wait in b until a later one comes"]


def test_the_hint_names_heartbeats_only_where_the_format_has_them() -> None:
    for stream, has_them in ((CSV, False), (NDJSON, True)):
        found = read_network(network(WINDOW, stream), {}).warnings
        assert ["heartbeats" in w.hint for w in found if w.place == "streams.s"] == [has_them]


def test_idle_off_needs_an_event_time() -> None:
    with pytest.raises(NetworkError, match="idle: off needs time"):
        read_network(network(WINDOW, "idle: off").replace("time: ts, ", ""), {})


@pytest.mark.parametrize(
    ("box", "stream"),
    [
        (WINDOW, f"{CSV}, idle: 5s"),
        (WINDOW, f"{CSV}, idle: off"),
        (WINDOW, f"{NDJSON}, idle: off"),
        (WINDOW, ""),
        ('aggregate: s, window: {count: 3}, select: {n: "count(*)"}', CSV),
        (f"{WINDOW}, timeout: 1s", CSV),
        (f"{WINDOW}, emit: update", CSV),
        (JOIN, CSV),
        ("filter: s, where: v > 0", CSV),
    ],
)
def test_no_warning_where_something_else_closes_it_or_nothing_waits(box: str, stream: str) -> None:
    assert warnings(box, stream) == []
