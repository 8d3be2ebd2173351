"""join: tuples of two inputs whose times lie within a band and for which a condition holds.

    paired: {join: [nyse, arca], on: "l.symbol = r.symbol and l.price > r.price", within: 100ms}
    priced: {join: [trades, quotes], on: "l.symbol = r.symbol", asof: true, within: 5s}

- ``within: 100ms``: the times differ by at most that; ``{before: 1s, after: 0s}``: the right one is at most 1 s before
  the left one and not after it. Both ends belong to it.
- ``type``: inner; left, right and full also give the tuples of one side or both for which the other has nothing, once
  the band has passed and nothing can come any more. A key with a NULL matches nothing.
- ``asof``: each left tuple with the latest right one at or before it (of equal times the last to arrive), not more
  than ``within`` before. It waits until the watermark has passed the left tuple: before that, a better one may come.
  ``type`` may be inner or left. Without ``within`` the last right tuple of every key is kept for ever.
- Fields: all of the left, then all of the right, under their own names, but l_x and r_x where both have an x;
  or those of ``select``, expressions over l.x and r.x.
- A result's arrival is the later of the two. Its event time is the left's field if the result has it, else the
  right's; a side that may be missing cannot give it, so a full join has none. Pairs are given as soon as both are
  there.
- Tuples below the watermark are late: counted, not joined.

State: the tuples of both sides whose band is still open (``engine/joins``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field as Parameter

from catalog.errors import BindError
from catalog.schema import Schema, Type
from catalog.shed import UnderLoss
from engine.boxes.base import LOST_TIME, Box, BoxParameters, Emit, Tally
from engine.joins.index import Chunk, Column, Needles, clamped, shifted
from engine.joins.keys import KeyTable
from engine.joins.on import LEFT, RIGHT, Band, Within, check_time, combined, parse_on
from engine.joins.pairs import MAX_PAIRS, Pairs, Selection, blocks
from engine.joins.side import Held, Side, tidy_keys
from storage.train import NO_WATERMARK, Train


class JoinParameters(BoxParameters):
    on: str | None = None
    within: Within = None
    type: Literal["inner", "left", "right", "full"] = "inner"
    asof: bool = False
    select: dict[str, str] = Parameter(default_factory=dict)


class JoinState:
    """Owned by the worker that runs the box."""

    __slots__ = ("helds", "keys", "watermark_ns")

    def __init__(self, sides: tuple[Side, Side], key_types: Sequence[Type]) -> None:
        self.keys = KeyTable(key_types, nulls_alike=False)
        self.helds = (Held(sides[0]), Held(sides[1]))
        self.watermark_ns = NO_WATERMARK


class Join(Box):
    kind = "join"
    summary = "tuples of two inputs that are close in time and for which a condition holds; as-of join"
    parameters_model = JoinParameters
    min_inputs = 2
    max_inputs = 2
    row_wise = False
    needs_time = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: JoinParameters = self.parameters
        check_time("join", times, inputs)
        self._check(p)
        self._outer = (p.type in ("left", "full"), p.type in ("right", "full"))
        condition = parse_on(p.on, combined(*inputs))
        if p.asof and condition.residual:
            message = f"an as-of join takes equalities between l. and r. only, not {condition.residual[0].text!r}"
            raise BindError(message, ("on",), "filter an input or the result instead")
        both = combined(*inputs, left_null=self._outer[1], right_null=self._outer[0])
        selection = Selection(inputs[0], inputs[1], both, p.select)
        used = selection.fields.union(*(e.fields for e in condition.residual))
        self._sides = (
            Side(LEFT, inputs[0], times[0], condition.left, used),
            Side(RIGHT, inputs[1], times[1], condition.right, used),
        )
        self._key_types = condition.types
        self._pairs = Pairs(selection, condition.residual)
        self._band = p.within or Band(2**63 - 1, 0)
        self._set_time(times, selection)
        return (selection.schema,)

    def _check(self, p: JoinParameters) -> None:
        if p.within is None and not p.asof:
            raise BindError("a join needs within: how far apart in time two tuples may be", ("within",))
        if p.asof and p.type not in ("inner", "left"):
            raise BindError("an as-of join gives each left tuple its right one: its type is inner or left", ("type",))
        if p.asof and p.within is not None and p.within.after_ns and p.within.after_ns != p.within.before_ns:
            raise BindError("an as-of join looks back only: within has no after", ("within",))

    def _set_time(self, times: tuple[str | None, ...], selection: Selection) -> None:
        """Whose time the result has, and how far below the inputs' watermark it may still be."""
        band, asof = self._band, self.parameters.asof
        # A left tuple comes out while it is held: up to `after` after its time has passed; a right one up to `before`.
        # As-of, a left tuple comes out as its time passes.
        delays_ns = (0 if asof else band.after_ns, band.before_ns)
        self._time: str | None = LOST_TIME
        self._delay_ns = 0
        if times == (None, None):  # a result has the later arrival; only a tuple without a partner is held back
            self._time = None
            self._delay_ns = max(delays_ns) if any(self._outer) and not asof else 0
            return
        for side, (prefix, may_be_missing) in enumerate(zip((LEFT, RIGHT), reversed(self._outer), strict=True)):
            name = None if times[side] is None else selection.name_of(f"{prefix}{times[side]}")
            if name is not None and not may_be_missing:
                self._time, self._delay_ns = name, delays_ns[side]
                return

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (self._time,)

    def under_loss(self, port: int = 0) -> UnderLoss:
        """A pair needs both. But what has no partner, or has another one, because it was dropped is wrong."""
        asof_partner = self.parameters.asof and port == 1
        return "wrong" if asof_partner or self._outer[1 - port] else "subset"

    def reach_ns(self) -> tuple[int, int]:
        """Whichever of the two gives the time, the other is within the band of it."""
        widest_ns = max(self._band.before_ns, self._band.after_ns)
        return widest_ns, widest_ns

    def out_watermark_ns(self, state: JoinState, watermark_ns: int) -> int:
        return clamped(watermark_ns - self._delay_ns)

    def new_state(self) -> JoinState:
        state = JoinState(self._sides, self._key_types)
        if self.parameters.asof:
            state.helds[1].index.latest_only_ns = NO_WATERMARK
        return state

    # -- tuples come -------------------------------------------------------------------------------------------------

    def run(self, state: JoinState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        held = state.helds[port]
        train = held.side.kept(train)
        late = held.side.times(train) < state.watermark_ns
        if late.any():
            honest = train.where(~late)
            tally.late += train.count - honest.count
            train = honest
        tally.absorbed += train.count
        if not train.count:
            return
        chunk = held.take(train, state.keys)
        if not self.parameters.asof:
            self._join(state, port, chunk, emit, tally)
        held.index.insert(chunk)
        tidy_keys(state.keys, state.helds)

    def _join(self, state: JoinState, port: int, chunk: Chunk, emit: Emit, tally: Tally) -> None:
        """New rows of one side with what the other holds."""
        band = self._band
        below, above = (band.before_ns, band.after_ns) if port == 0 else (band.after_ns, band.before_ns)
        needles = Needles(chunk, shifted(chunk.times, -below), shifted(chunk.times, above))
        mine, others = state.helds[1 - port].index.band(needles)
        left, right = (mine, others) if port == 0 else (others, mine)
        for some_left, some_right in blocks(left, right):
            self._emit_matching(state, some_left, some_right, emit, tally)

    def _emit_matching(self, state: JoinState, left: Column, right: Column, emit: Emit, tally: Tally) -> None:
        left, right, errors = self._pairs.matching(state.helds, left, right)
        tally.null_errors += errors
        for side, rows in enumerate((left, right)):
            if self._outer[side]:
                state.helds[side].store.flags[rows] = True
        if left.shape[0]:
            self._emit(state, left, right, emit, tally)

    def _emit(self, state: JoinState, left: Column | None, right: Column | None, emit: Emit, tally: Tally) -> None:
        train, errors = self._pairs.train(state.helds, left, right)
        tally.null_errors += errors
        emit(0, train)

    # -- time moves --------------------------------------------------------------------------------------------------

    def advance(self, state: JoinState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        state.watermark_ns = watermark_ns
        if self.parameters.asof:
            self._advance_asof(state, watermark_ns, emit, tally)
        else:
            for side, held_for_ns in enumerate((self._band.after_ns, self._band.before_ns)):
                gone = state.helds[side].index.expire(clamped(watermark_ns - held_for_ns))
                if gone is not None and self._outer[side]:
                    self._emit_unmatched(state, side, gone.rows, emit, tally)
        for held in state.helds:
            held.tidy()
        tidy_keys(state.keys, state.helds)

    def _emit_unmatched(self, state: JoinState, side: int, rows: Column, emit: Emit, tally: Tally) -> None:
        rows = rows[~state.helds[side].store.flags.take(rows)]
        for start in range(0, rows.shape[0], MAX_PAIRS):
            some = rows[start : start + MAX_PAIRS]
            left, right = (some, None) if side == 0 else (None, some)
            self._emit(state, left, right, emit, tally)

    def _advance_asof(self, state: JoinState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        left, right = state.helds
        ready = left.index.expire(watermark_ns)
        if ready is not None:
            needles = Needles(ready, shifted(ready.times, -self._band.before_ns), ready.times)
            found, _ = right.index.latest(needles)
            for start in range(0, found.shape[0], MAX_PAIRS):
                block = slice(start, start + MAX_PAIRS)
                self._emit_asof(state, ready.rows[block], found[block], emit, tally)
        right.index.latest_only_ns = watermark_ns
        if self.parameters.within is not None:
            right.index.expire(clamped(watermark_ns - self._band.before_ns))

    def _emit_asof(self, state: JoinState, left: Column, right: Column, emit: Emit, tally: Tally) -> None:
        hit = right >= 0
        if hit.any():
            self._emit(state, left[hit], right[hit], emit, tally)
        if self._outer[0] and not hit.all():
            self._emit(state, left[~hit], None, emit, tally)

    # -- the state ---------------------------------------------------------------------------------------------------

    def state_nbytes(self, state: JoinState) -> int:
        return state.keys.nbytes + sum(h.nbytes for h in state.helds)

    def snapshot(self, state: JoinState) -> dict[str, Any]:
        return {"watermark_ns": state.watermark_ns, "sides": [h.snapshot() for h in state.helds]}

    def restore(self, data: Any) -> JoinState:
        state = self.new_state()
        state.watermark_ns = int(data["watermark_ns"])
        if self.parameters.asof:
            state.helds[1].index.latest_only_ns = state.watermark_ns
        for held, side in zip(state.helds, data["sides"], strict=True):
            held.restore(side, state.keys)
        return state
