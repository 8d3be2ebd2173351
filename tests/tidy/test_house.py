"""The numbers of ``tests/tidy/measure.py`` stay where they are, or go down: a ceiling is lowered, never raised."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.tidy import measure
from tests.tidy.measure import Finding

CEILINGS: list[tuple[Callable[[], Finding], int]] = [
    (measure.doors, 2),
    (measure.entrances, 13),
    (measure.hooks_set_later, 2),
    (measure.defaults_that_do_nothing, 0),
    (measure.repeated_class_names, 0),
    (measure.planted, 0),
    (measure.loose_files, 1),
    (measure.readme_lines, 150),
]


@pytest.mark.parametrize(("finding", "most"), CEILINGS, ids=[f.__name__ for f, _ in CEILINGS])
def test_no_more_than_there_are(finding: Callable[[], Finding], most: int) -> None:
    found = finding()
    assert found.number <= most, found.listed


def test_only_the_ingress_and_the_routes_put_trains_on_arcs() -> None:
    assert set(measure.queues_a_train().places) == {
        "engine/run/ingress.py _queue",
        "engine/run/ingress.py _drop",
        "router/routes.py enqueue",
        "router/routes.py enqueue_without_waking",
    }
