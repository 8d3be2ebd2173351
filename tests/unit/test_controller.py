"""The verdict, the road map and the controller against a plant: up fast, down slowly, and not to and fro."""

from __future__ import annotations

from itertools import pairwise
from math import sin

import pytest

from load_shedder.decide.controller import ControllerState, steer
from tests.unit.shed_plant import Moment, Plant

STEP_AT_S, STEP_ENDS_S = 5.0, 15.0


def step(at_s: float) -> float:
    return 3.0 if STEP_AT_S < at_s <= STEP_ENDS_S else 0.5


def peaks(moments: list[Moment], above: float) -> int:
    """How often the share dropped rises beyond this."""
    return sum(a.dropped <= above < b.dropped for a, b in pairwise(moments))


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2])
def test_a_step_to_three_times_the_load_settles_within_two_seconds_and_ends_within_five(noise: float) -> None:
    moments = Plant(step, noise).run(25.0)
    before = [m for m in moments if m.at_s <= STEP_AT_S]
    settled = [m for m in moments if STEP_AT_S + 2.0 < m.at_s <= STEP_ENDS_S]
    after = [m for m in moments if m.at_s > STEP_ENDS_S + 5.0]
    assert not any(m.dropped for m in before + after)
    needed = 1 - 1 / 3.0
    assert all(needed - 0.03 - 0.1 * noise < m.dropped < needed + 0.03 + 0.5 * noise for m in settled)
    assert all(m.wait_s < 0.1 for m in settled), "the backlog of the first moments is gone"
    assert sum(m.served for m in settled) / len(settled) > 0.85 - noise / 2, "and not more is dropped than must be"
    assert max(m.wait_s for m in moments) < 0.6
    if not noise:
        rising = [m for m in moments if STEP_AT_S < m.at_s <= STEP_ENDS_S]
        assert peaks(rising, needed + 0.08) <= 1, "one overshoot at most"


def test_what_fits_is_not_touched() -> None:
    moments = Plant(lambda at_s: 0.9 + 0.05 * sin(at_s), noise=0.05).run(20.0)
    assert not any(m.dropped for m in moments)


def test_shedding_does_not_keep_up_the_load_that_it_answers() -> None:
    """Shedding keeps queues short, short trains make tuples dear, and dear tuples look like an overload."""
    moments = Plant(lambda at_s: 3.0 if 2.0 < at_s <= 4.0 else 0.7, calls=1.0).run(20.0)
    assert any(m.dropped for m in moments)
    assert not any(m.dropped for m in moments if m.at_s > 10.0)


def test_a_ramp_is_followed_up_and_down() -> None:
    def ramp(at_s: float) -> float:
        return 0.5 + (at_s / 10 if at_s < 20 else 4 - at_s / 10) * 1.25

    moments = Plant(ramp, noise=0.05).run(45.0)
    for m in moments:
        if m.offered > 1.2:
            assert abs(m.dropped - (1 - 1 / m.offered)) < 0.15
            assert m.wait_s < 0.2
    assert not moments[-1].dropped


def test_a_burst_that_fits_into_what_may_wait_is_no_overload_and_a_longer_one_is() -> None:
    def burst(length_s: float) -> Plant:
        return Plant(lambda at_s: 3.0 if 5.0 < at_s <= 5.0 + length_s else 0.5, deadline_ms=1_000)

    assert not any(m.dropped for m in burst(0.1).run(10.0))
    assert any(m.dropped for m in burst(1.0).run(10.0))


def test_bursts_that_come_again_and_again_do_not_make_it_swing() -> None:
    moments = Plant(lambda at_s: 4.0 if at_s % 1.0 < 0.5 else 0.2, noise=0.05).run(20.0)
    late = [m for m in moments if m.at_s > 4.0]
    assert peaks(late, 0.5) <= 17, "at most once a burst"
    assert max(m.wait_s for m in late) < 0.5


def test_steering_goes_up_at_once_and_waits_before_it_goes_down() -> None:
    def go(control: ControllerState, excess: float, at_s: float, overloaded: bool = True) -> ControllerState:
        return steer(control, excess_ns=excess, load_ns=1.0, is_overloaded=overloaded, now_ns=round(at_s * 1e9))

    control = go(ControllerState(), 0.3, 1.0, overloaded=False)
    assert not control.is_shedding, "what may wait waits"
    control = go(control, 0.3, 1.1)
    assert control.share == 0.3
    control = go(control, 0.5, 1.2)
    assert control.share == 0.5
    assert go(control, 0.1, 1.4).share == 0.5
    released = go(go(control, 0.1, 1.5), 0.1, 1.6)
    assert 0.1 < released.share < 0.5
    assert go(control, 5.0, 1.3).share == 1.0, "more than all cannot be saved"
    for tick in range(40):
        control = go(control, -0.5, 1.3 + tick / 10, overloaded=False)
    assert control.share == 0.0


def test_what_is_for_a_backlog_goes_with_it_and_no_demand_is_waited_out() -> None:
    def go(control: ControllerState, excess: float, catch_up: float, at_s: float, most: float = 1.0) -> ControllerState:
        now_ns = round(at_s * 1e9)
        return steer(
            control, excess_ns=excess, load_ns=1.0, is_overloaded=True, now_ns=now_ns, catch_up_ns=catch_up, most=most
        )

    control = go(ControllerState(), 0.8, 0.5, 1.0)
    assert (control.share, control.held) == pytest.approx((0.8, 0.3))
    assert go(control, 0.3, 0.0, 1.1).share == pytest.approx(0.3), "the backlog is gone, and so is its part"
    beyond = go(control, 2.0, 0.0, 1.1, most=0.6)
    assert beyond.share == 0.6 and beyond.lacks == pytest.approx(1.4)
    assert go(beyond, 0.1, 0.0, 1.6, most=0.6).share < 0.55, "released from there, and not from 2"


def test_with_slack_for_a_return_nothing_is_held() -> None:
    control = ControllerState(share=0.7, held=0.7, wanted_at_ns=10**9, at_ns=10**9)
    after = [
        steer(control, excess_ns=0.5, load_ns=1.0, is_overloaded=False, now_ns=11 * 10**8, slack_s=slack_s).share
        for slack_s in (0.05, 0.5)
    ]
    assert after[0] == 0.7
    assert after[1] < 0.3, "the burst is over: what comes now fits"


def test_the_last_bit_of_a_plan_goes_too() -> None:
    control = ControllerState(share=0.009, held=0.009, wanted_at_ns=0, at_ns=10**9)
    gone = steer(control, excess_ns=-0.5, load_ns=1.0, is_overloaded=False, now_ns=11 * 10**8)
    assert not gone.is_shedding


@pytest.mark.parametrize(("slack_s", "share"), [(0.05, 0.77), (1.0, 0.56)])
def test_behind_a_burst_what_has_slack_is_given_back_at_once_although_the_overload_goes_on(
    slack_s: float, share: float
) -> None:
    """Twice the load, and a moment of twenty times: where a burst may come again unseen, nothing is held for it."""
    control = ControllerState()
    for tick in range(1, 14):
        is_burst = 5 <= tick < 10
        control = steer(
            control, excess_ns=19e9 if is_burst else 1e9, load_ns=20e9 if is_burst else 2e9, is_overloaded=True,
            now_ns=tick * 10**8, slack_s=0.0 if is_burst else slack_s,
        )  # fmt: skip
    assert control.share == pytest.approx(share, abs=0.05)
