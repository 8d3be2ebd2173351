"""What ``validate`` says of streams that shed, and of QoS graphs that are worth nothing."""

from __future__ import annotations

from engine.run.network_file import read_network

HEAD = 'http: {listen: "off"}\nstreams:\n  s: {schema: {ts: timestamp, x: double}, time: ts, overload: shed}\n'


def warnings(text: str) -> list[tuple[str, str, str]]:
    return [(p.place, p.message, p.hint) for p in read_network(HEAD + text).warnings]


def test_a_load_that_no_legal_shedding_can_cure() -> None:
    boxes = "boxes:\n  a: {universal: s, cost: 90us}\n  b: {universal: s, cost: 10us}\n"
    free = "outputs:\n  cheap: {from: b, qos: {lossy: 50%}}\n  dear: {from: a, qos: {deadline: 1s"
    [(place, message, hint)] = warnings(f"{boxes}{free}}}}}\n")
    assert place == "streams.s.overload"
    assert message == "overload: shed, but at most 10% of its work can be shed"
    assert hint == (
        "give 'dear' a loss graph or lossy: an output without one may lose nothing; "
        "'dear' needs 90% of the work, so from 1.1 times the knee on no plan saves it"
    )
    assert warnings(f"{boxes}{free}, lossy: 10%}}}}\n") == []


def test_a_box_that_may_lose_nothing_is_named() -> None:
    boxes = 'boxes:\n  last: {aggregate: s, window: {count: 10}, select: {n: "count(*)"}}\n'
    [(_, message, hint)] = warnings(f"{boxes}outputs:\n  o: {{from: last, qos: {{lossy: 50%}}}}\n")
    assert "none of its tuples" in message or "at most" in message
    assert hint == "'last' would answer wrongly if tuples were missing"


def test_a_loss_graph_that_is_not_concave() -> None:
    text = "boxes:\n  a: {universal: s, cost: 9us}\noutputs:\n  o: {from: a, qos: {loss: GRAPH}}\n"
    [(place, message, _)] = warnings(text.replace("GRAPH", "[[100%, 1], [90%, 0.2], [0%, 0]]"))
    assert place.startswith("outputs.o.qos") and "not concave" in message
    assert warnings(text.replace("GRAPH", "[[100%, 1], [50%, 0.8], [0%, 0]]")) == []


def test_streams_that_wait_are_not_spoken_of() -> None:
    network = read_network(HEAD.replace("shed", "block") + "boxes: {}\noutputs: {o: {from: s}}\n")
    assert not network.warnings


def test_a_graph_that_is_worth_nothing_anywhere() -> None:
    text = "boxes: {}\noutputs:\n  o: {from: s, qos: {lossy: 50%, latency: GRAPH}}\n"
    [(place, message, _)] = warnings(text.replace("GRAPH", "[[0ms, 0], [1s, 0]]"))
    assert place == "outputs.o.qos.latency" and message.startswith("the latency graph is 0 everywhere")
    assert warnings(text.replace("GRAPH", "[[0ms, 0.1], [1s, 0]]")) == []
