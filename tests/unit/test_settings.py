"""The scheduler section of a network file reaches the scheduler, and what makes no sense is refused."""

from __future__ import annotations

import pytest

from catalog.config.models import SchedulerSection
from catalog.errors import NetworkError
from engine.run.network_file import read_network
from engine.run.settings import scheduler_settings
from scheduler.state import BatchRule, SchedulerSettings

REST = """
http: {listen: "off"}
streams:
  s: {schema: {x: int}}
boxes:
  a: {filter: s, where: "x > 1"}
outputs:
  o: {from: a, qos: {deadline: 200ms}}
"""


def test_every_key_is_handed_on() -> None:
    text = (
        "scheduler: {policy: ats, unit: superbox, spanner: 3, grid: 7, tune: [grid, controller],"
        " batch: {basic: 40ms, k: 5, proportional: 2, integral: 3, interval: 1s, step: 1ms, window: 25%, whole: true,"
        " overdue: true, total: true}}"
    )
    settings = scheduler_settings(read_network(text + REST).config.scheduler, seed=4)
    assert (settings.spanner, settings.grid, settings.seed) == (3, 7, 4)
    assert settings.tune == {"grid", "controller"}
    assert settings.batch == BatchRule(
        40_000_000, 5, 2.0, 3.0, 1_000_000_000, 1_000_000, window=0.25, whole=True, overdue=True, total=True
    )


def test_an_empty_section_is_the_scheduler_as_it_is() -> None:
    """But for the traversal, where the file chooses for itself and code asks for the plainest."""
    settings = scheduler_settings(SchedulerSection())
    assert settings == SchedulerSettings(traversal="auto")


@pytest.mark.parametrize(
    ("section", "said", "hint"),
    [
        ("{unit: box, spanner: 3}", "a spanner is a part of a superbox, but the unit is box", ""),
        ("{unit: box, tune: [spanner]}", "a spanner is a part of a superbox, but the unit is box", ""),
        ("{tune: [grind]}", "is not one of", "grid"),
        ("{spanner: -1}", "should be at least 0", ""),
        ("{grid: 0}", "should be at least 1", ""),
        ("{batch: {k: 0}}", "should be at least 1", ""),
        ("{batch: {basic: 5}}", "a duration needs a unit", ""),
        ("{batch: {bassic: 5ms}}", "unknown key 'bassic'", "basic"),
        ("{policy: qoss}", "unknown policy 'qoss'", "qos"),
        ("{unit: boxx}", "is not one of", "box"),
        ("{traversal: min_lat}", "is not one of", "min_latency"),
    ],
)
def test_refusals(section: str, said: str, hint: str) -> None:
    with pytest.raises(NetworkError) as error:
        read_network(f"scheduler: {section}{REST}")
    [problem] = error.value.problems
    assert said in problem.message and hint in (problem.hint or "")


@pytest.mark.parametrize(
    ("policy", "lacks", "nearest"), [("ats", "deadlines", "fcfs"), ("qos", "latency graphs", "fcfs")]
)
def test_a_policy_that_needs_what_the_network_lacks(policy: str, lacks: str, nearest: str) -> None:
    with pytest.raises(NetworkError) as error:
        read_network(f"scheduler: {{policy: {policy}}}" + REST.replace(", qos: {deadline: 200ms}", ""))
    [problem] = error.value.problems
    assert lacks in problem.message and problem.hint == f"or use {nearest}"
