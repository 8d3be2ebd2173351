"""The closed forms of P2 against independent results of queueing theory."""

from __future__ import annotations

import pytest

from engine.lab.figures.p2_closed_forms import (
    base_wait,
    broken_share,
    copied_wait,
    derived_cubic,
    high_wait,
    ids_wait,
    low_wait,
    memory_ratio,
    printed_cubic,
    queue_wait,
    residual,
)

SYSTEMS = [(rate, r, 1.0, c) for rate in (0.02, 0.1, 0.15) for r in (0.5, 1.0, 4.0) for c in (0.0, 0.5, 1.0, 2.0)]


@pytest.mark.parametrize(("load", "waits"), [(0.5, 1.0), (0.8, 4.0), (0.9, 9.0)])
def test_one_service_is_the_queue_of_the_textbooks(load: float, waits: float) -> None:
    """M/M/1: rho/(1 - rho); M/D/1: half of it."""
    assert base_wait(load, 1.0, 0.0, 1.0) == pytest.approx(waits)
    assert base_wait(load, 1.0, 0.0, 0.0) == pytest.approx(waits / 2)


@pytest.mark.parametrize("system", SYSTEMS)
def test_priorities_do_not_change_the_work_that_waits(system: tuple[float, float, float, float]) -> None:
    """Kleinrock's conservation law, with arrivals apart and, as batches of two, with copies."""
    rate, first, second, variation = system
    load1, load2 = rate * first, rate * second
    under_way = load1 * residual(first, variation) + load2 * residual(second, variation)
    waiting = load1 * high_wait(*system)
    free = 1 - load1 - load2
    assert waiting + load2 * low_wait(*system) + under_way == pytest.approx(under_way / free)
    assert waiting + load2 * copied_wait(*system) + under_way == pytest.approx((under_way + load1 * second) / free)


@pytest.mark.parametrize("system", SYSTEMS)
def test_equation_2_is_the_square_of_the_waits(system: tuple[float, float, float, float]) -> None:
    rate, first, second, variation = system
    ratio = memory_ratio(rate * first, first / second, variation)
    assert ratio == pytest.approx((low_wait(*system) / base_wait(*system)) ** 2)


def test_equation_2_by_hand() -> None:
    """r = 1, c = 1, rho1 = 0.4: ((1+1+1+1) / (0.6 (4+2)))^2."""
    assert memory_ratio(0.4, 1.0, 1.0) == pytest.approx((4 / 3.6) ** 2)
    assert memory_ratio(0.5, 1.0, 0.0) == pytest.approx(1.0)  # (2 / (0.5 * 4))^2


def test_equation_3_without_broken_pipelines_is_the_low_priority_of_two_alike() -> None:
    assert ids_wait(0.01, 20.0, 0.0) == pytest.approx(low_wait(0.01, 21.0, 21.0, 1.0))


@pytest.mark.parametrize("x", [0.05, 0.1, 0.25, 0.4, 0.49])
def test_the_cubic_that_follows_from_equations_3_and_4(x: float) -> None:
    """At the derived root both equations give the same wait, for a large join. At the printed root they do not."""
    n = 1e9
    share = broken_share(derived_cubic(x))
    assert ids_wait(x / n, n, share) == pytest.approx(queue_wait(x / n, share), rel=1e-6)
    printed = broken_share(printed_cubic(x))
    assert ids_wait(x / n, n, printed) < 0.5 * queue_wait(x / n, printed)


def test_a_share_of_time_does_not_exceed_the_load() -> None:
    assert broken_share(derived_cubic(0.25)) == pytest.approx(0.4406, abs=1e-4)
    assert broken_share(derived_cubic(0.25)) < 0.5 < broken_share(printed_cubic(0.25))
    assert broken_share(derived_cubic(0.5)) == pytest.approx(1.0) == broken_share(printed_cubic(0.5))
