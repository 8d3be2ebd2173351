"""How far along the road map: fast up, slow down, and never to and fro.

The controller turns the excess of each tick into the share of the work that is to be saved. The excess is of what the
streams offer, shed or not, so it does not move when the controller does: there is no loop to swing in, except through
what waits, and that only ever asks for more. Its rules:

- Up at once, by what is missing. The first plan of an overload comes in the tick that sees it.
- Down only when less has been needed for ``HOLD_S``, and then by a time constant of ``RELEASE_TAU_S``: a burst that
  comes back within a second finds the plan still there. What is needed in the meantime is the floor.
- What is asked for the sake of a backlog (``melt``) comes and goes with it: it is never held.
- Never beyond what may be shed (``most``): a demand that no plan meets must not have to be waited out afterwards.
- A change of less than ``STEP`` of the work is none: every plan costs the engine a moment.
- The state is a share of the work and not an amount: when the load falls, the plan does not bite harder before it goes.

Pure: verdicts and time come in, a share comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

HOLD_S = 0.3
RELEASE_TAU_S = 0.4
STEP = 0.01
GONE = 0.02  # of the work: less than this is not worth a plan when the engine has room


@dataclass(frozen=True, slots=True)
class Control:
    """Where the controller stands."""

    share: float = 0.0  # of the work that arrives, to be saved
    held: float = 0.0  # of that, what the load alone needs, or needed a moment ago
    wanted_at_ns: int = 0  # when that much was last needed
    at_ns: int = 0
    lacks: float = 0.0  # of the work: needed for the load alone and beyond what may be shed

    @property
    def is_shedding(self) -> bool:
        return self.share > 0


def steer(
    control: Control,
    *,
    excess_ns: float,
    load_ns: float,
    is_overloaded: bool,
    now_ns: int,
    melt_ns: float = 0.0,
    most: float = 1.0,
) -> Control:
    """The next position. Work a second: ``excess_ns`` may be below 0 (room); ``melt_ns`` is the part for a backlog."""
    if load_ns <= 0:
        excess_ns, melt_ns, load_ns = 0.0, 0.0, 1.0
    wanted = (excess_ns - melt_ns) / load_ns
    needed = min(most, max(0.0, wanted))
    whole = min(most, max(0.0, excess_ns / load_ns))
    if not control.is_shedding:
        if not is_overloaded or whole <= 0:
            return Control(at_ns=now_ns)
        return Control(whole, needed, now_ns, now_ns, max(0.0, wanted - most))
    held, wanted_at_ns = _held(control, needed, is_overloaded, now_ns)
    return Control(max(held, whole if is_overloaded else 0.0), held, wanted_at_ns, now_ns, max(0.0, wanted - most))


def _held(control: Control, needed: float, is_overloaded: bool, now_ns: int) -> tuple[float, int]:
    """What the load alone needs: up at once, down slowly. And when it was last needed."""
    if needed >= control.held:
        rises = needed > control.held + STEP or not control.held
        return needed if rises else control.held, now_ns
    if now_ns - control.wanted_at_ns < HOLD_S * 1e9 or 0.0 < control.held - STEP < needed:
        return control.held, control.wanted_at_ns
    elapsed_s = (now_ns - control.at_ns) / 1e9
    held = needed + (control.held - needed) * exp(-elapsed_s / RELEASE_TAU_S)
    return 0.0 if held < GONE and not is_overloaded else held, control.wanted_at_ns
