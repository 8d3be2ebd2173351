"""A whole file that is wrong in many places: each is told once, where it is, with the word that was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.build import build_network
from catalog.config.models import NetworkFile, TrainSize
from catalog.errors import NetworkError, Problem
from tests.unit.network_kinds import KINDS

GOOD = """\
streams:
  trades: {schema: {ts: timestamp, price: double, size: int}, time: ts}
boxes:
  big: {pick: trades, where: price}
outputs:
  alerts: {from: big}
"""


def problems(text: str, **words: object) -> list[Problem]:
    with pytest.raises(NetworkError) as caught:
        build_network(text, KINDS, {}, **words)  # type: ignore[arg-type]
    assert caught.value.text == text
    return list(caught.value.problems)


def told(text: str) -> list[tuple[str, int, str, str]]:
    return [(p.place, p.line, p.message, p.hint) for p in problems(text, formats=("ndjson", "csv", "arrow"))]


def one(text: str) -> Problem:
    [problem] = problems(text)
    return problem


def test_every_error_at_once() -> None:
    text = """\
engine: {worker: 3, memory: 512}
http: {listen: 9401}
scheduler: {unit: superbocks, train: {tuple: 5}}
streams:
  trades: {schema: {ts: timestamp, price: dubble}, slack: 200}
  quotes: {schema: {ts: timestamp, bid: double}, time: bid, source: {tcp: 9401, format: cvs}}
  2nd: {schema: {a: int}}
boxes:
  big: {pick: quotes, where: bidd}
  lost: {pick: qoutes, where: bid}
  odd: {pikk: quotes, where: bid}
  short: {pick: quotes}
  after: {pick: big, where: nonsense}
outputs:
  alerts: {from: big.x, qos: {latency: [[0ms, 1], [1s, 1.5]]}, sink: {tcp: 9402, wen_slow: drop}}
  rest: {form: quotes}
sterams: {}
"""
    assert told(text) == [
        ("engine.worker", 1, "unknown key 'worker'", "did you mean 'workers'?"),
        ("engine.memory", 1, "a size needs a unit: write 512MiB or 512B", ""),
        ("scheduler.unit", 3, "'superbocks' is not one of tuple, box, superbox, vpipe", "did you mean 'superbox'?"),
        (
            "scheduler.train",
            3,
            "a train is auto, all, {tuples: 1000}, {fraction: 20%}, {cost: 1ms}, {memory: 1MiB} or {spread: 10ms}",
            "did you mean 'tuples'?",
        ),
        ("streams.trades.schema.price", 5, "'dubble' is not a type", "did you mean 'double'?"),
        ("streams.trades.slack", 5, "a duration needs a unit: write 200ms or 200s", ""),
        ("streams.quotes.time", 6, "'bid' is a double; the event time must be a timestamp", ""),
        ("streams.quotes.source.format", 6, "'cvs' is not one of ndjson, csv, arrow", "did you mean 'csv'?"),
        (
            "streams.2nd",
            7,
            "'2nd' is not a name: letters, digits, _ and -, beginning with a letter",
            "",
        ),
        ("boxes.big.where", 9, "no field 'bidd'", "look again"),
        ("boxes.odd.pikk", 11, "unknown kind of box 'pikk'", "did you mean 'pick'?"),
        ("boxes.short.where", 12, "the key 'where' is missing", ""),
        ("outputs.alerts.from", 15, "'big' has no port 'x'", "write 'big'"),
        ("outputs.alerts.qos.latency.1.1", 15, "a utility is between 0 and 1, not 1.5", ""),
        ("outputs.alerts.sink.wen_slow", 15, "unknown key 'wen_slow'", "did you mean 'when_slow'?"),
        ("outputs.rest.from", 16, "the key 'from' is missing", ""),
        ("outputs.rest.form", 16, "unknown key 'form'", "did you mean 'from'?"),
        ("sterams", 17, "unknown key 'sterams'", "did you mean 'streams'?"),
    ]


def test_columns_point_at_the_spot() -> None:
    problem = one(GOOD.replace("where: price", 'where: "price > sise"'))
    assert (problem.line, problem.column) == (4, 39)
    assert GOOD.replace("where: price", 'where: "price > sise"').splitlines()[3][38:].startswith("sise")
    problem = one(GOOD.replace("time: ts", "tiem: ts"))
    assert (problem.place, problem.line, problem.column) == ("streams.trades.tiem", 2, 63)


def test_a_network_that_is_meant_to_be_empty_says_so() -> None:
    network = build_network("streams: {}\noutputs: {}\n", KINDS, {})
    assert not network.streams and not network.boxes and not network.outputs
    wider = build_network("engine: {workers: 3}\nstreams: {}\noutputs: {}\n", KINDS, {})
    assert wider.config.engine.workers == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("outputs: {}\n", "a network needs streams"),
        ("# nothing but a comment\n", "empty"),
        ("[a, b]\n", "must be a mapping"),
        ("just a text\nin two lines\n", "must be a mapping"),
        ("streams: {}\n", "a network needs"),
        ("streams:\noutputs:\n", "a network needs"),
        ("a:\n\t- b\n", "not YAML"),
        ("streams: 5\noutputs: {}\n", "should be a mapping"),
        ("streams: {a: 5}\noutputs: {b: {from: a}}\n", "should be a mapping"),
        ("streams: {a: {schema: {}}}\noutputs: {b: {from: a}}\n", "must not be empty"),
        ("streams: {a: {schema: {x: int, X: int}}}\noutputs: {b: {from: a}}\n", "only in case"),
        ("streams: {a: {schema: {x.y: int}}}\noutputs: {b: {from: a}}\n", "not a field name"),
        ("streams: {a: {schema: {x: varchar(10)}}}\noutputs: {b: {from: a}}\n", "not a type"),
        ("streams: {a: {schema: {x: int}, time: y}}\noutputs: {b: {from: a}}\n", "no field 'y'"),
        ("streams: {a: {schema: {x: timestamp?}, time: x}}\noutputs: {b: {from: a}}\n", "may be NULL"),
        (GOOD + "engine: {workers: true}\n", "whole number"),
        (GOOD + "engine: {workers: 0}\n", "auto or a whole number from 1 to 256"),
        (GOOD + "engine: {workers: 1.5}\n", "whole number"),
        (GOOD + "http: {listen: ':80'}\n", "who may connect"),
        (GOOD + "log: {level: loud}\n", "not one of"),
        (GOOD + "scheduler: {train: {tuples: 0}}\n", "above 0"),
        (GOOD + "engine: {data_dir: ${UNSET}}\n", "UNSET is not set"),
        (GOOD.replace("{from: big}", "{from: big, sink: {tpc: 9402}}"), "a sink is"),
        (GOOD.replace("{from: big}", "{from: big, sink: file}"), "a sink is"),
        (GOOD.replace("{from: big}", "{from: [big]}"), "should be a string"),
        (GOOD.replace("big: {pick", "big.x: {pick"), "not a name"),
    ],
)
def test_files_that_are_no_network(text: str, words: str) -> None:
    found = problems(text)
    assert any(words in p.message for p in found), [p.message for p in found]
    assert all(p.line >= 1 and p.column >= 1 for p in found)


def test_what_cannot_be_read_at_all(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="No such file"):
        build_network(tmp_path / "none.yaml", KINDS, {})
    with pytest.raises(NetworkError, match="Is a directory"):
        build_network(tmp_path, KINDS, {})
    (tmp_path / "latin.yaml").write_bytes(b"streams:\n  caf\xe9: 1\n")
    with pytest.raises(NetworkError, match="not UTF-8: byte 0xe9") as caught:
        build_network(tmp_path / "latin.yaml", KINDS, {})
    assert (caught.value.problems[0].line, caught.value.problems[0].column) == (2, 6)


def test_a_file_and_its_text_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "net.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    from_file, from_name, from_text = (build_network(s, KINDS, {}) for s in (path, str(path), GOOD))
    assert from_file.config == from_name.config == from_text.config


def test_a_wrong_part_does_not_hide_the_rest() -> None:
    """The stream's slack and its box's predicate are both wrong; the schema between them is not."""
    text = GOOD.replace("time: ts}", "time: ts, slack: 5}").replace("where: price", "where: prise")
    assert [p.place for p in problems(text)] == ["streams.trades.slack", "boxes.big.where"]


def test_what_is_missing_for_a_known_reason_is_not_told() -> None:
    text = GOOD.replace("price: double", "price: dubble")
    assert [p.place for p in problems(text)] == ["streams.trades.schema.price"]
    text = GOOD.replace("streams:", "steams:")
    assert [p.place for p in problems(text)] == ["steams"]


def test_policies_are_those_handed_over() -> None:
    text = GOOD + "scheduler: {policy: round_robbin}\n"
    assert build_network(text, KINDS, {}).config.scheduler.policy == "round_robbin"
    [problem] = problems(text, policies=("round_robin", "qos"))
    assert (problem.place, problem.hint) == ("scheduler.policy", "did you mean 'round_robin'?")


def test_formats_are_those_handed_over() -> None:
    text = GOOD.replace("time: ts", "time: ts, overload: block, source: {tcp: 9401, format: morze}")
    source = build_network(text, KINDS, {}).streams[0].source
    assert source is not None and source.format == "morze"  # type: ignore[union-attr]
    [problem] = problems(text, formats=("morse", "csv"))
    assert (problem.place, problem.message) == ("streams.trades.source.format", "'morze' is not one of morse, csv")
    assert problem.hint == "did you mean 'morse'?"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("auto", TrainSize("auto")),
        ("all", TrainSize("all")),
        ("{tuples: 1000}", TrainSize("tuples", 1000)),
        ("{fraction: 0.2}", TrainSize("fraction", 0.2)),
        ("{fraction: 20%}", TrainSize("fraction", 0.2)),
        ("{cost: 1ms}", TrainSize("cost", 10**6)),
        ("{memory: 1MiB}", TrainSize("memory", 2**20)),
        ("{spread: 10ms}", TrainSize("spread", 10**7)),
    ],
)
def test_trains(text: str, size: TrainSize) -> None:
    assert build_network(GOOD + f"scheduler: {{train: {text}}}\n", KINDS, {}).config.scheduler.train == size


def test_variables_reach_typed_keys() -> None:
    text = GOOD + "engine: {workers: ${W}, memory: ${M:-64MiB}}\n"
    engine = build_network(text, KINDS, {"W": "3"}).config.engine
    assert (engine.workers, engine.memory_bytes) == (3, 64 << 20)


def test_http_can_be_switched_off() -> None:
    for word in ("off", "null"):
        assert build_network(GOOD + f"http: {{listen: {word}}}\n", KINDS, {}).config.http.listen is None


def test_the_sections_of_spark_are_kept() -> None:
    text = """\
streams:
  old:
    schema: {a: int, ts: timestamp}
    time: ts
    source: {spark: jdbc, options: {url: "jdbc:x", fetchsize: 100}, sql: "select 1", pace: 10x, order_by: [a]}
outputs:
  out: {from: old, sink: {spark: parquet, path: ./out, every: 10s, partition_by: [a]}}
spark: {master: "local[2]", config: {spark.ui.enabled: false}}
"""
    network = build_network(text, KINDS, {})
    source, sink = network.streams[0].source, network.outputs[0].sink
    assert (source.spark, source.options["fetchsize"], source.pace, source.order_by) == ("jdbc", 100, "10x", ["a"])
    assert (sink.spark, sink.every_ns, sink.partition_by) == ("parquet", 10**10, ["a"])
    assert network.config.spark.config == {"spark.ui.enabled": False}


def test_a_box_has_one_kind() -> None:
    box = "  big: {pick: trades, where: price}\n"
    assert "two kinds" in one(GOOD.replace(box, "  big: {pick: trades, where: price, split: trades}\n")).message
    assert "needs a kind" in one(GOOD.replace(box, "  big: {}\n")).message
    assert "needs a kind" in one(GOOD.replace(box, "  big: {cost: 1us}\n")).message
    assert "name of a stream or a box" in one(GOOD.replace(box, "  big: {pick: 5, where: price}\n")).message
    assert "takes one input, not 2" in one(GOOD.replace(box, "  big: {pick: [trades, trades], where: price}\n")).message
    build_network(GOOD.replace(box, "  big: {cost: 1us, where: price, pick: trades}\n"), KINDS, {})
    merged = "  big: {merge: [trades, trades], pick: a}\n"
    assert build_network(GOOD.replace(box, merged), KINDS, {}).box("big").kind == "merge"


def test_common_keys_of_boxes() -> None:
    text = GOOD.replace("where: price", "where: price, cost: 250ns, selectivity: 0.1")
    node = build_network(text, KINDS, {}).box("big")
    assert (node.cost_ns, node.selectivity) == (250.0, 0.1)
    assert one(GOOD.replace("where: price", "where: price, cots: 1us")).hint == "did you mean 'cost'?"
    assert "at least 0" in one(GOOD.replace("where: price", "where: price, selectivity: -1")).message


def test_a_parameter_called_like_a_common_key_is_both() -> None:
    text = GOOD.replace("{pick: trades, where: price}", "{window: trades, size: {tumbling: 5}, cost: 1us}")
    node = build_network(text, KINDS, {}).box("big")
    assert (node.cost_ns, node.box.parameters.cost) == (1000.0, "1us")


def test_nested_parameters_have_hints_too() -> None:
    problem = one(GOOD.replace("{pick: trades, where: price}", "{window: trades, size: {tumblin: 5}}"))
    assert (problem.place, problem.hint) == ("boxes.big.size.tumblin", "did you mean 'tumbling'?")


def test_nothing_is_read_from_the_models_that_the_file_did_not_say() -> None:
    assert NetworkFile().streams == {}
    assert NetworkFile().engine.data_dir is None


WORDS = ["null", "[]", "{}", "true", "5", "-1", "''", "a.b", "trades", "big", "[big, big]", "${X}", "1s", "*x", ".nan"]


@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([*WORDS, "", ":", ",", "{", "}", "\n"])), max_size=4))
def test_a_mangled_file_is_refused_in_order(edits: list[tuple[int, str]]) -> None:
    """Any token replaced by any other: a network or problems with places, and no other exception."""
    tokens = re.findall(r"\w+|\W", GOOD + "engine: {workers: 2, memory: 64MiB}\nscheduler: {train: {tuples: 5}}\n")
    for at, word in edits:
        tokens[at % len(tokens)] = word
    try:
        found = list(build_network("".join(tokens) + "\n", KINDS, {}).warnings)
    except NetworkError as error:
        found = list(error.problems)
        assert not all(p.warning for p in found)
    assert all(p.message and p.line >= 1 and p.column >= 1 for p in found)
