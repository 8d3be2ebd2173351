"""The controller: how far to go along the road map. Fast up, slow down, no oscillation.

On each tick the controller turns the excess into the share of the work that must be saved. The excess counts the tuples
that the streams offer, shed or not, so it does not move when the controller acts. This is no feedback loop that could
oscillate, except through the backlog, and the backlog only ever asks for more. The rules:

- Up at once, by the full amount. The first plan of an overload comes in the tick that detects it.
- Down only after less was needed for ``HOLD_S``, and then with a time constant of ``RELEASE_TAU_S``: a burst that
  returns within a second finds the plan still in force. The share needed in the meantime is the floor. Where deadlines
  leave so much slack that a burst may return unnoticed for ``HOLD_S``, nothing is held and the release is quick, also
  while an overload goes on behind the burst.
- The part that works off a backlog (``catch_up``) comes and goes with the backlog. It is never held.
- Never beyond the share that may be shed (``most``): a demand that no plan can meet must not have to decay afterwards.
- A change below ``STEP`` of the work is ignored: every plan costs the engine a moment.
- The state is a share of the work, not an amount. When the load falls, the plan does not bite harder before it ends.

Pure: verdicts and time come in, a share comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

HOLD_S = 0.3
RELEASE_TAU_S, QUICK_TAU_S, LOADED_TAU_S = 0.4, 0.1, 0.2
STEP = 0.01
GONE = 0.02  # of the work: a smaller share is not worth a plan when the engine has room


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The position of the controller."""

    share: float = 0.0  # of the arriving work, to be saved
    held: float = 0.0  # the part of it that the load alone needs, or needed a moment ago
    wanted_at_ns: int = 0  # when that part was last needed in full
    at_ns: int = 0
    lacks: float = 0.0  # of the work: needed for the load alone, but beyond what may be shed

    @property
    def is_shedding(self) -> bool:
        return self.share > 0


def steer(
    control: ControllerState,
    *,
    excess_ns: float,
    load_ns: float,
    is_overloaded: bool,
    now_ns: int,
    catch_up_ns: float = 0.0,
    most: float = 1.0,
    slack_s: float = 0.0,
) -> ControllerState:
    """Return the next position. Work is in ns per second. ``excess_ns`` below 0 means room; ``catch_up_ns`` is the part
    of the excess that works off the backlog; ``slack_s`` is how much more work may wait, in seconds of capacity."""
    if load_ns <= 0:
        excess_ns, catch_up_ns, load_ns = 0.0, 0.0, 1.0
    wanted = (excess_ns - catch_up_ns) / load_ns
    needed = min(most, max(0.0, wanted)) if is_overloaded or slack_s < HOLD_S else 0.0
    whole = min(most, max(0.0, excess_ns / load_ns))
    if not control.is_shedding:
        if not is_overloaded or whole <= 0:
            return ControllerState(at_ns=now_ns)
        return ControllerState(whole, needed, now_ns, now_ns, max(0.0, wanted - most))
    has_slack = slack_s >= HOLD_S
    held, wanted_at_ns = _held(control, needed, is_overloaded, has_slack, now_ns)
    return ControllerState(
        max(held, whole if is_overloaded else 0.0), held, wanted_at_ns, now_ns, max(0.0, wanted - most)
    )


def _held(
    control: ControllerState, needed: float, is_overloaded: bool, has_slack: bool, now_ns: int
) -> tuple[float, int]:
    """Return the share that the load alone needs (up at once, down slowly), and when it was last needed in full."""
    if needed >= control.held:
        rises = needed > control.held + STEP or not control.held
        return needed if rises else control.held, now_ns
    is_recent = now_ns - control.wanted_at_ns < HOLD_S * 1e9 and not has_slack
    if is_recent or 0.0 < control.held - STEP < needed:
        return control.held, control.wanted_at_ns
    elapsed_s = (now_ns - control.at_ns) / 1e9
    tau_s = RELEASE_TAU_S if not has_slack else LOADED_TAU_S if is_overloaded else QUICK_TAU_S
    held = needed + (control.held - needed) * exp(-elapsed_s / tau_s)
    return 0.0 if held < GONE and (needed <= 0 or not is_overloaded) else held, control.wanted_at_ns
