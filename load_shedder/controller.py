"""How far along the road map: fast up, slow down, and never to and fro.

The controller turns the excess of each tick into the share of the work that is to be saved. The excess is of what the
streams offer, shed or not, so it does not move when the controller does: there is no loop to swing in, except through
what waits, and that only ever asks for more. Its rules:

- Up at once, by what is missing. The first plan of an overload comes in the tick that sees it.
- Down only when less has been needed for ``HOLD_S``, and then by a time constant of ``RELEASE_TAU_S``: a burst that
  comes back within a second finds the plan still there. What is needed in the meantime is the floor.
- A change of less than ``STEP`` of the work is none: every plan costs the engine a moment.
- The state is a share of the work and not an amount: when the load falls, the plan does not bite harder before it goes.

Pure: verdicts and time come in, a share comes out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp

HOLD_S = 0.3
RELEASE_TAU_S = 0.4
STEP = 0.01
GONE = 0.02  # of the work: less than this is not worth a plan when the engine has room


@dataclass(frozen=True, slots=True)
class Control:
    """Where the controller stands."""

    share: float = 0.0  # of the work that arrives, to be saved
    wanted_at_ns: int = 0  # when that much was last needed
    at_ns: int = 0

    @property
    def is_shedding(self) -> bool:
        return self.share > 0


def steer(control: Control, *, excess_ns: float, load_ns: float, is_overloaded: bool, now_ns: int) -> Control:
    """The next position. ``excess_ns`` and ``load_ns`` are work a second; the excess may be below 0 (room)."""
    needed = min(1.0, max(0.0, excess_ns) / load_ns) if load_ns > 0 else 0.0
    if not control.is_shedding:
        if not is_overloaded or needed <= 0:
            return replace(control, at_ns=now_ns)
        return Control(needed, now_ns, now_ns)
    if needed >= control.share:
        rises = needed > control.share + STEP
        return Control(needed if rises else control.share, now_ns, now_ns)
    if now_ns - control.wanted_at_ns < HOLD_S * 1e9 or needed > control.share - STEP:
        return replace(control, at_ns=now_ns)
    elapsed_s = (now_ns - control.at_ns) / 1e9
    share = needed + (control.share - needed) * exp(-elapsed_s / RELEASE_TAU_S)
    if share < GONE and not is_overloaded:
        share = 0.0
    return replace(control, share=share, at_ns=now_ns)
