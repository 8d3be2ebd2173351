"""Log lines that strangers cause, a connection each, have a limit."""

from __future__ import annotations

import logging

from engine.daemon.process.logs import KINDS, FloodFilter


def record(text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("aurorad.router", logging.WARNING, "", 0, text, values, None)


def test_lines_of_one_kind_have_a_limit_and_the_next_one_says_how_many_were_left_out() -> None:
    flood = FloodFilter(a_second=1e-9, burst=3)
    passed = [flood.filter(record("output %s took over %s", n, "r")) for n in range(10)]
    assert passed == [True] * 3 + [False] * 7
    assert flood.filter(record("something else")), "another kind is not held up"
    for pace in flood._kinds.values():
        pace._level = 1.0  # time has passed
    late = record("output %s took over %s", 11, "r")
    assert flood.filter(late)
    assert late.getMessage() == "output 11 took over r (and 7 more like it before)"


def test_the_audit_log_and_texts_of_values_alone() -> None:
    flood = FloodFilter(a_second=1e-9, burst=1)
    audit = logging.LogRecord("aurorad.audit", logging.WARNING, "", 0, "%s: %s", ("login refused", "x"), None)
    assert all(flood.filter(audit) for _ in range(50)), "it has a limit of its own"
    assert flood.filter(record("%s", "the first")) and flood.filter(record("%s", "the second"))
    assert not flood.filter(record("%s", "the second"))


def test_texts_with_values_in_them_take_no_memory() -> None:
    flood = FloodFilter()
    for n in range(3 * KINDS):
        assert flood.filter(record(f"text {n}"))
    assert len(flood._kinds) <= KINDS
