"""join: pair the tuples of two inputs that are close in time and meet a condition.

    paired: {join: [nyse, arca], on: "l.symbol = r.symbol and l.price > r.price", within: 100ms}
    ordered: {join: [nyse, arca], on: "l.symbol = r.symbol", within: 100ms, order: time}
    priced: {join: [trades, quotes], on: "l.symbol = r.symbol", asof: true, within: 5s}

`l.` names a field of the first input, `r.` of the second. Equalities between the two sides are looked up; every other
part of `on` is computed for the pairs that are left. A key with a NULL matches nothing. Without `on` every pair within
the band matches.

- `within: 100ms`: the event times differ by at most 100 ms. `{before: 1s, after: 0s}`: the right tuple is at most 1 s
  before the left one and not after it. Both ends belong to the band.
- `type`: an inner join gives pairs. Left, right and full joins also give the tuples of one side or both that found no
  partner, when the band has passed and no partner can come any more.
- `asof: true`: each left tuple with the latest right one at or before it; of equal times the last to arrive. `within`
  limits how long before. The result waits until the watermark has passed the left tuple, because a later right tuple
  may still come. The type is inner or left.

- `order: time`: both inputs are read in the order of event time, whichever is faster. A tuple waits until the watermark
  has passed it on both sides. Pairs come out in the order of their later tuple. Only for inner joins; the results of
  an as-of join are in the order of the left tuples anyway.

Without `order` a pair comes out as soon as both tuples are there, so results are not in the order of event time: a
tuple without a partner comes out behind later pairs. The watermark of the result says what may still come; no result is
below it. A `bsort` behind the join waits for it. Tuples below the watermark are late: they are counted and not joined.

Result: all fields of the left input, then all of the right, under their names, or `l_x` and `r_x` where both have an
`x`; or the fields of `select`. A result has the later arrival of its two tuples. Its event time is that of the left
tuple if the result has the field, else that of the right one. A side that may be missing gives no event time, so the
result of a full join has none.

Cost: about 150 ns a tuple, and it does not grow with the number of keys. State: the tuples of both inputs whose band is
still open. An as-of join without `within` keeps the last right tuple of every key for ever.

Refused: a join without `within` that is not as-of; `order: time` for the types left, right and full; for an as-of join
the types right and full, an `after` in `within`, and conditions other than equalities; an input that has lost its event
time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field as Parameter

from catalog.errors import BindError, BindErrors
from catalog.loss import UnderLoss
from catalog.schema import Schema
from engine.operators.bounded.waiting import NEVER_NS
from engine.operators.boxes.base import LOST_TIME, Emit, Tally, check_time
from engine.operators.boxes.keyed import KeyedParameters
from engine.operators.joins.held import JoinState
from engine.operators.joins.on import LEFT, RIGHT, Band, Within, combined, parse_on
from engine.operators.joins.pairs import MAX_PAIRS, Pairs, Selection, blocks
from engine.operators.joins.side import Side
from engine.operators.joins.sided_box import SidedBox
from engine.operators.state.chunk import Chunk, Needles
from engine.operators.state.columns import Numbers
from engine.operators.state.time_index import MAX_NS, clamped, shifted
from storage.train import END_WATERMARK, NO_WATERMARK, Mask, Train


class JoinParameters(KeyedParameters):
    added: ClassVar[frozenset[str]] = frozenset({"order"})

    on: str | None = Parameter(default=None, description="boolean SQL expression over l.field and r.field")
    within: Within = Parameter(
        default=None, description="how far apart in event time: 100ms, or {before: 1s, after: 0s}; required unless asof"
    )
    type: Literal["inner", "left", "right", "full"] = Parameter(
        default="inner", description="which tuples come out without a partner: none, those of one side, or of both"
    )
    asof: bool = Parameter(default=False, description="pair each left tuple with the latest right one")
    order: Literal["time"] | None = Parameter(
        default=None, description="time: wait for the slower input and emit pairs in the order of event time"
    )
    select: dict[str, str] = Parameter(
        default_factory=dict, description="fields of the result, each with its SQL expression; without it all fields"
    )


class Join(SidedBox):
    kind = "join"
    summary = "pair the tuples of two inputs that are close in time and meet a condition; as-of join"
    parameters_model = JoinParameters
    typical_cost_ns = (100_000.0, 150.0)
    is_selective = True
    input_prefixes = (LEFT, RIGHT)
    min_inputs = 2
    max_inputs = 2
    row_wise = False
    needs_time = True

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: JoinParameters = self.parameters
        check_time("join", times, inputs)
        self._check(p)
        self._outer = (p.type in ("left", "full"), p.type in ("right", "full"))
        errors = BindErrors()
        with errors.part():
            condition = parse_on(p.on, combined(*inputs))
        both = combined(*inputs, left_null=self._outer[1], right_null=self._outer[0])
        with errors.part():
            selection = Selection(inputs[0], inputs[1], both, p.select)
        errors.check()
        if p.asof and condition.residual:
            message = f"an as-of join takes only equalities between l. and r., not {condition.residual[0].text!r}"
            raise BindError(message, ("on",), "filter an input or the result instead")
        used = selection.fields.union(*(e.fields for e in condition.residual))
        self._sides = (
            Side(LEFT, inputs[0], times[0], condition.left, used),
            Side(RIGHT, inputs[1], times[1], condition.right, used),
        )
        self._key_types = condition.types
        self._selection = selection
        self._pairs = Pairs(selection, condition.residual)
        self._band = p.within or Band(2**63 - 1, 0)
        self._is_ordered = p.order is not None and not p.asof
        self.is_divisible = bool(condition.types) and not self._is_ordered
        self.emits_at_once = not p.asof
        self._set_time(times, selection)
        return (selection.schema,)

    def met_ns(self) -> tuple[int, int] | None:
        if self.parameters.asof:
            return (1, 0)  # only a left tuple makes a result
        return self._band.before_ns, self._band.after_ns

    def _check(self, p: JoinParameters) -> None:
        if p.within is None and not p.asof:
            raise BindError("a join needs within: how far apart in time two tuples may be", ("within",))
        if p.order is not None and p.type != "inner" and not p.asof:
            message = f"order: time is for inner joins: in a {p.type} join a tuple without a partner comes out late"
            raise BindError(message, ("order",))
        if p.asof and p.type not in ("inner", "left"):
            raise BindError(
                "an as-of join must be of type inner or left: it looks for the partner of each left tuple", ("type",)
            )
        if p.asof and p.within is not None and p.within.after_ns and p.within.after_ns != p.within.before_ns:
            raise BindError("an as-of join looks back only: leave after out of within", ("within",))

    def _set_time(self, times: tuple[str | None, ...], selection: Selection) -> None:
        """Decide which side gives the event time of a result, and how far below the inputs' watermark it may be."""
        band, asof = self._band, self.parameters.asof
        # A left tuple may come out until `after` past its time, a right one until `before`. In an as-of join a left
        # tuple comes out when the watermark passes its time.
        delays_ns = (0 if asof else band.after_ns, band.before_ns)
        self._time: str | None = LOST_TIME
        self._delay_ns = 0
        if times == (None, None):  # a result has the later arrival; only a tuple without a partner waits
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

    def runs_behind(self, inputs: tuple[bool, ...]) -> bool:
        """A pair comes out at once, and a tuple without a partner after its band, so neither waits for the other.

        Only an inner as-of join has one way out, in the order of time.
        """
        return any(inputs) or not self.parameters.asof or any(self._outer)

    def under_loss(self, port: int = 0) -> UnderLoss:
        """A missing tuple only takes pairs away, unless its absence gives another tuple no partner or a wrong one."""
        asof_partner = self.parameters.asof and port == 1
        return "wrong" if asof_partner or self._outer[1 - port] else "subset"

    def reach_ns(self) -> tuple[int, int]:
        """One side gives the event time of a pair; the other tuple is within the band of it."""
        widest_ns = max(self._band.before_ns, self._band.after_ns)
        return widest_ns, widest_ns

    def out_watermark_ns(self, state: JoinState, watermark_ns: int) -> int:
        return clamped(watermark_ns - self._delay_ns)

    # -- the state by key --------------------------------------------------------------------------------------------

    def key_names(self, port: int) -> tuple[str | None, ...]:
        """A tuple that comes out without a partner has the key of its own side only."""
        kept = {"left": (0,), "right": (1,), "full": ()}.get(self.parameters.type, (0, 1))
        names: list[str | None] = [None] * len(self._key_types)
        for side in reversed(kept):
            for i, field in enumerate(self.key_fields(side)):
                found = None if field is None else self._selection.name_of((LEFT, RIGHT)[side] + field)
                names[i] = found or names[i]
        return tuple(names)

    def due_ns(self, state: JoinState) -> int:
        """Only tuples that come out without a partner, or with the latest one, come out by themselves."""
        return min(
            [state.sides[side].index.first_ns + delay_ns + 1 for side, delay_ns in self._due_after_ns.items()],
            default=NEVER_NS,
        )

    def first_due_ns(self, low_ns: int) -> int:
        return min([low_ns + delay_ns + 1 for delay_ns in self._due_after_ns.values()], default=NEVER_NS)

    @property
    def _due_after_ns(self) -> dict[int, int]:
        """By side whose tuples come out by themselves: how long after the watermark has passed them."""
        if self.parameters.asof:
            return {0: 0}
        return {side: ns for side, ns in enumerate((self._band.after_ns, self._band.before_ns)) if self._outer[side]}

    # -- the state ---------------------------------------------------------------------------------------------------

    def new_state(self) -> JoinState:
        state = JoinState(self._sides, self._key_types, is_ordered=self._is_ordered)
        if self.parameters.asof:
            state.sides[1].index.latest_only_ns = NO_WATERMARK
        return state

    # -- tuples come in ----------------------------------------------------------------------------------------------

    def run(self, state: JoinState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        train = state.absorb(port, train, tally)
        if not train.count:
            return
        if state.waiting is not None:
            state.waiting.put(port, train)
            return
        for left, right in self._take(state, port, train, tally):
            self._emit(state, left, right, emit, tally)
        state.forget_keys()

    def _take(self, state: JoinState, port: int, train: Train, tally: Tally) -> Iterator[tuple[Numbers, Numbers]]:
        """Keep new tuples of one side. Yield their pairs with the tuples that the other side holds, in blocks."""
        held = state.sides[port]
        chunk = held.take(train, state.keys)
        if not self.parameters.asof:
            yield from self._matches(state, port, chunk, tally)
        held.index.insert(chunk)

    def _matches(self, state: JoinState, port: int, chunk: Chunk, tally: Tally) -> Iterator[tuple[Numbers, Numbers]]:
        band = self._band
        below, above = (band.before_ns, band.after_ns) if port == 0 else (band.after_ns, band.before_ns)
        needles = Needles(chunk, shifted(chunk.times, -below), shifted(chunk.times, above))
        mine, others = state.sides[1 - port].index.band(needles)
        for left, right in blocks(*((mine, others) if port == 0 else (others, mine))):
            left, right, errors = self._pairs.matching(state.sides, left, right)
            tally.null_errors += errors
            for side, rows in enumerate((left, right)):
                if self._outer[side]:
                    state.sides[side].store.flags[rows] = True
            if left.shape[0]:
                yield left, right

    def _join_in_order(self, state: JoinState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        """Join the tuples that the watermark has passed on both sides. Their pairs leave in the order of the later
        tuple; the earlier pairs have left before."""
        assert state.waiting is not None
        horizon_ns = MAX_NS if watermark_ns >= END_WATERMARK else watermark_ns
        found: list[tuple[Numbers, Numbers]] = []
        for port, train, _ in state.waiting.release(horizon_ns):
            found += self._take(state, port, train, tally)
        if found:
            left, right = (np.concatenate(rows) for rows in zip(*found, strict=True))
            later = np.maximum(state.sides[0].times_of(left), state.sides[1].times_of(right))
            # Rows are numbered in the order of time, so of equal times the older partner comes first.
            order = np.lexsort((right, left, later))
            for some_left, some_right in blocks(left.take(order), right.take(order)):
                self._emit(state, some_left, some_right, emit, tally)
        state.forget_keys()

    def _emit(self, state: JoinState, left: Numbers | None, right: Numbers | None, emit: Emit, tally: Tally) -> None:
        train, errors = self._pairs.train(state.sides, left, right)
        tally.null_errors += errors
        emit(0, train)

    # -- time moves --------------------------------------------------------------------------------------------------

    def advance(self, state: JoinState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        if state.waiting is not None:
            self._join_in_order(state, watermark_ns, emit, tally)
        state.watermark_ns = watermark_ns
        if self.parameters.asof:
            self._advance_asof(state, watermark_ns, emit, tally)
        else:
            for side, held_for_ns in enumerate((self._band.after_ns, self._band.before_ns)):
                gone = state.sides[side].index.expire(clamped(watermark_ns - held_for_ns))
                if gone is not None and self._outer[side]:
                    self._emit_unmatched(state, side, gone.rows, emit, tally)
        state.close_gaps()

    def _emit_unmatched(self, state: JoinState, side: int, rows: Numbers, emit: Emit, tally: Tally) -> None:
        rows = rows[~state.sides[side].store.flags.take(rows)]
        for start in range(0, rows.shape[0], MAX_PAIRS):
            some = rows[start : start + MAX_PAIRS]
            left, right = (some, None) if side == 0 else (None, some)
            self._emit(state, left, right, emit, tally)

    def _advance_asof(self, state: JoinState, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        left, right = state.sides
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

    def _emit_asof(self, state: JoinState, left: Numbers, right: Numbers, emit: Emit, tally: Tally) -> None:
        hit = right >= 0
        if hit.any():
            self._emit(state, left[hit], right[hit], emit, tally)
        if self._outer[0] and not hit.all():
            self._emit(state, left[~hit], None, emit, tally)

    # -- the state ---------------------------------------------------------------------------------------------------

    def waits_for_time(self) -> bool:
        return bool(self.parameters.asof) or any(self._outer) or self._is_ordered

    def held_tuples(self, state: JoinState) -> int:
        """Count the tuples that wait for a partner. In an as-of join the right ones are answers and wait for none."""
        left, right = state.sides
        waiting = 0 if state.waiting is None else state.waiting.tuples
        return waiting + left.index.live + (0 if self.parameters.asof else right.index.live)

    def state_nbytes(self, state: JoinState) -> int:
        return state.nbytes

    def state_keys(self, state: JoinState) -> int:
        return state.keys.count

    def snapshot_of(self, state: JoinState, chosen: Mask | None) -> dict[str, Any]:
        return state.snapshot(chosen)

    def restore(self, data: Any) -> JoinState:
        state = self.new_state()
        state.restore(data)
        if self.parameters.asof:
            state.sides[1].index.latest_only_ns = state.watermark_ns
        return state
