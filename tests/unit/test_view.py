"""A view keeps the last rows of each key: against a plain dict, with evictions, restarts and questions meanwhile."""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from random import Random
from threading import Thread

import pytest

from catalog.errors import ExpressionError
from catalog.schema import Schema
from engine.operators.boxes.base import Tally
from engine.operators.boxes.view import View, ViewParameters, ViewState
from engine.run.core import Engine
from engine.run.network_file import read_network
from engine.run.views import list_views, view_rows
from storage.train import Train

SCHEMA = Schema.of(key="string?", n="bigint")


def view(**parameters: int) -> View:
    box = View(ViewParameters.model_validate({"key": ["key"], **parameters}))
    box.bind((SCHEMA,), (None,))
    return box


def train(rows: list[tuple[str | None, int]]) -> Train:
    return Train.from_pylists(SCHEMA, {"key": [k for k, _ in rows], "n": [n for _, n in rows]}, 1)


def _collect(passed: list[Train], _: int, out: Train) -> None:
    passed.append(out)


@pytest.mark.parametrize("last", [1, 3])
def test_the_last_rows_of_each_key_are_those_of_a_plain_dict(last: int) -> None:
    random, box = Random(last), view(last=last)
    state: ViewState = box.new_state()
    expected: dict[str | None, deque[int]] = {}
    n = 0
    for step in range(60):
        rows: list[tuple[str | None, int]] = []
        for _ in range(random.choice((1, 5, 400))):
            n += 1
            rows.append((random.choice((None, *(f"k{i}" for i in range(random.choice((3, 300)))))), n))
        tally = Tally()
        passed: list[Train] = []
        box.run(state, 0, train(rows), partial(_collect, passed), tally)
        assert sum(t.count for t in passed) == len(rows) and not tally.evicted
        for key, number in rows:
            expected.setdefault(key, deque(maxlen=last)).append(number)
        if step % 20 == 7:
            state = box.restore(box.snapshot(state))
        found = box.asked(state).to_rows()
        assert sorted(found, key=lambda r: r[1]) == found
        assert sorted(found, key=lambda r: r[1]) == sorted(
            ((k, v) for k, d in expected.items() for v in d), key=lambda r: r[1]
        )


def test_too_many_keys_forget_those_that_were_silent_for_the_longest_time() -> None:
    box = view(keys=64)
    state: ViewState = box.new_state()
    tally, seen = Tally(), OrderedDict[str, int]()
    for n in range(1_000):
        key = f"k{n}" if n % 5 else "often"
        box.run(state, 0, train([(key, n)]), lambda _, out: None, tally)
        seen[key] = n
        seen.move_to_end(key)
    found = dict(box.asked(state).to_rows())
    assert len(found) <= 64 and found == dict(list(seen.items())[-len(found) :]) and "often" in found
    assert tally.evicted == len(seen) - len(found)


NETWORK = """
streams: {s: {schema: {key: string, n: bigint}, overload: block}}
boxes: {latest_n: {view: s, key: [key]}}
outputs: {out: {from: s}}
"""


def test_a_question_sees_whole_trains_while_tuples_come() -> None:
    """Each train gives every key the same number: so does every answer."""
    network = read_network(NETWORK)
    assert not network.warnings  # a view need not lead to an output
    engine = Engine(network, [lambda _: None], workers=1)
    engine.start()
    schema, keys = network.stream("s").schema, [f"k{i}" for i in range(50)]

    def feed() -> None:
        for n in range(300):
            engine.ingress.admit(0, Train.from_pylists(schema, {"key": keys, "n": [n] * 50}, 1))

    feeder = Thread(target=feed)
    feeder.start()
    while feeder.is_alive():
        assert len(set(view_rows(engine, "latest_n", "").to_pylist(1))) <= 1
    feeder.join()
    assert engine.drain(30)
    assert view_rows(engine, "latest_n", "key = 'k7' AND n > 0").to_rows() == [("k7", 299)]
    assert [(v["name"], v["keys"]) for v in list_views(engine)] == [("latest_n", 50)]
    with pytest.raises(ExpressionError):
        view_rows(engine, "latest_n", "price > 1")
    engine.stop()
