"""Name each part of a network that Spark cannot run, or runs in another way, with its place, before Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errors import NetworkError, Problem
from engine.on_spark.service import read_for_spark

STREAM = "  {name}: {{schema: {{ts: timestamp, k: int, x: double, seq: bigint}}, {more}, source: {source}}}\n"
FILES = "{spark: parquet, path: in}"
BOX = "b: {aggregate: a, window: {tumbling: 1m}, by: [k], select: {n: 'count(*)'}}"


def read(folder: Path, box: str = BOX, more: str = "time: ts", source: str = FILES, out: str = "") -> list[Problem]:
    file = folder / "network.yaml"
    streams = STREAM.format(name="a", more=more, source=source) + STREAM.format(name="c", more=more, source=FILES)
    output = f"  o: {{from: b, sink: {{spark: parquet, path: out}}{out}}}"
    file.write_text(f"engine: {{data_dir: {folder}}}\nstreams:\n{streams}boxes:\n  {box}\noutputs:\n{output}\n")
    return read_for_spark(file)[1]


ORDER = "has no order of arrival"


@pytest.mark.parametrize(
    ("box", "place", "why"),
    [
        ("b: {universal: a, cost: 1us}", "boxes.b.universal", "universal boxes run in the daemon only"),
        ("v: {view: a, key: [k]}\n  " + BOX, "boxes.v.view", "a view is asked over HTTP"),
        ("b: {dedup: a, by: [k], within: 1s}", "boxes.b", ORDER),
        ("b: {latest: a, by: [k], changes: [x]}", "boxes.b", ORDER),
        (BOX.replace("tumbling: 1m", "count: 3"), "boxes.b", ORDER),
        (BOX.replace("count(*)", "first(x)"), "boxes.b", ORDER),
        (BOX.replace("count(*)", "last(x)"), "boxes.b", ORDER),
        ("b: {bsort: a, by: x, slack: 3}", "boxes.b", ORDER),
        ("u: {union: [a, c]}\n  b: {dedup: u, by: [k], within: 1s}", "boxes.b", ORDER),
    ],
)
def test_boxes_that_cannot_run_there(box: str, place: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=why) as refused:
        read(tmp_path, box)
    [problem] = [p for p in refused.value.problems if not p.warning]
    assert problem.place == place and problem.line > 0
    if why == ORDER:
        assert "order: seq" in problem.hint
        assert not [p for p in read(tmp_path, box, "time: ts, order: seq") if "order" in p.message]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{tcp: 127.0.0.1:9401}", "a cluster does not listen for senders"),
        ("{stdin: ndjson}", "a cluster does not listen for senders"),
        ("{spark: jdbc, options: {url: x, dbtable: t}}", "Spark reads jdbc once and not as a stream"),
        ("{spark: parquet, path: in, sql: select * from source}", "a stream has no end"),
        ("{spark: parquet, path: in, order_by: [x]}", "a stream has no end"),
        ("{file: x.arrow}", "Spark reads no arrow"),
    ],
)
def test_sources_that_are_none_there(source: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match=why):
        read(tmp_path, source=source)


def test_an_output_that_begins_in_the_past_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="no history is kept there"):
        read(tmp_path, more="time: ts, keep: {for: 1h}", out=", start: -1h")


@pytest.mark.parametrize(
    ("box", "more", "out", "place", "why"),
    [
        (BOX, "time: ts, overload: shed", "", "streams.a.overload", "nothing is shed there"),
        (BOX, "time: ts", ", qos: {deadline: 50ms}", "outputs.o.qos", "QoS has no effect there"),
        (BOX, "time: ts, keep: {for: 1h}", "", "streams.a.keep", "no history is kept there"),
        (BOX, "overload: block", "", "streams.a", "of the time of their batch"),
        (BOX.replace("by: [k], ", ""), "time: ts", "", "boxes.b", "one shard does all of its work"),
        (BOX.replace("by:", "emit: update, by:"), "time: ts", "", "boxes.b.emit", "one update for each batch"),
        (BOX.replace("by:", "state: {keys: 9}, by:"), "time: ts", "", "boxes.b.state", "limits of the state are"),
    ],
)  # fmt: skip
def test_what_has_no_effect_there_is_told(box: str, more: str, out: str, place: str, why: str, tmp_path: Path) -> None:
    told = [p for p in read(tmp_path, box, more, out=out) if p.place == place]
    assert [p for p in told if why in p.message and p.warning], told
    assert not [p for p in read(tmp_path) if why in p.message]
