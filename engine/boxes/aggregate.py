"""aggregate: one tuple for each window and key, from the tuples in it.

    vwap: {aggregate: big, window: {tumbling: 1s}, by: [symbol],
           select: {vwap: "sum(price * size) / sum(size)", n: "count(*)"}}

    vwap:     {aggregate: trades, window: {tumbling: 1s}, by: [symbol],
               select: {vwap: "sum(price * size) / sum(size)", n: "count(*)"}, having: "n >= 10"}
    moving:   {aggregate: trades, window: {sliding: 10s, advance: 1s, offset: 500ms}, by: [symbol, venue],
               select: {high: "max(price)", spread: "stddev(price)", p99: "percentile(price, 0.99)"}}
    visits:   {aggregate: clicks, window: {session: 30s}, by: [user],
               select: {pages: "count(distinct page)", path: "string_agg(page, ' ')", left_at: "last(page)"}}
    last_100: {aggregate: trades, window: {count: 100, advance: 10}, by: [symbol], timeout: 5s,
               select: {mean: "avg(price)"}}
    now:      {aggregate: trades, window: {tumbling: 1h}, emit: update, bounds: [window_start],
               select: {traded: "sum(price * size)"}}

Windows
- ``tumbling``, and ``sliding`` with ``advance``: by event time, on a grid that begins at 1970 plus ``offset``;
- ``session``: the tuples of a key with less than that between neighbours;
- ``count``: so many tuples of a key in order of arrival, every ``advance`` of them (every ``count`` if not said).

A window of time closes when the watermark reaches its end. A tuple none of whose windows is open is late: it leaves
by the port ``late`` as it came, and is counted, whether anyone reads that port or not. ``timeout`` also closes
windows that got no tuple for so long in real time (for windows by count: keys).

What comes out: the fields of ``by``, the bounds of the window, then ``select`` in its order. The bounds are
``window_start``, ``window_end`` (the first moment after the window) and ``window_time``, which is the event time of
the result: one nanosecond before the end, as a result is known when its window ends and must still fall into the
window of a box downstream that ends at the same moment. (Spark's ``window_time`` is the same with microseconds.
Refused: the start, because a join as of some time would then see the future.) ``bounds`` names those that are wanted;
without ``window_time`` nothing downstream can go by event time. A window by count has no edges: its bounds are the
least and the greatest event time in it. A result's arrival is that of the newest tuple in it, so latency counts from
the tuple that could last change it.

Functions: count, sum, avg, min, max, stddev, variance (and _pop), first, last, bool_and, bool_or, median, percentile,
count(distinct), approx_count_distinct (HyperLogLog; relative standard error 5 % unless a second argument says
otherwise), string_agg; each with ``filter (where ...)``, and any expression over them. As in Spark: NULL is skipped (by
first and last only when told), NaN is greatest, a sum of integers that does not fit is NULL and counted. first, last
and string_agg go by event time, for windows by count by arrival; of equal times by arrival. A list is a string: there
are no arrays. Percentiles, distinct counts and lists keep every value (distinct ones once a train) until their windows
close.

``emit: update`` sends a window's result after each train that changed it, instead of once at its end (tumbling and
sliding only). ``having`` keeps results for which it is true; it may use aggregates and the fields of the result.

When tuples are dropped before the box (``overload: shed``), it is never wrong without a word: whole windows are
dropped, and one that lacks a tuple does not come out. With ``approximate: true`` (tumbling and sliding only) windows
come out of what was kept, each with a column ``share_seen``: the share of its tuples, over all keys, that it really
saw; 1 when nothing is missing. Exact when they were dropped right before the box, or with only map, union and bsort in
between; behind a filter it is the share kept where they were dropped.

NULL is one key of its own, and so is NaN. The order of results within a train says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field as Parameter
from pydantic import model_validator

from catalog.config.units import Duration, PositiveDuration
from catalog.errors import BindError, ExpressionError
from catalog.schema import Field, Schema, Type
from catalog.shed import UnderLoss
from engine.boxes.base import LOST_TIME, Box, BoxParameters, Emit, Tally
from engine.expressions import Scope
from engine.expressions.aggregates import AggregatedExpression, split_aggregates
from engine.joins.on import check_time
from engine.windows.counted import CountWindows
from engine.windows.panes import PaneWindows
from engine.windows.plan import BOUND_FIELDS, BOUNDS, SHARE_SEEN, WINDOW_TIME, Plan
from engine.windows.session import SessionWindows
from engine.windows.windows import Batch, Send, Windows
from storage.train import NO_WATERMARK, Train

if TYPE_CHECKING:
    from engine.shed.book import BoxLosses

Times = npt.NDArray[np.int64]
RESULT, LATE = 0, 1
MAX_WINDOW_PANES = 1_000_000
SPAN_WINDOWS = 4


class WindowParameters(BoxParameters):
    """Exactly one of tumbling, sliding, session and count."""

    tumbling: PositiveDuration | None = None
    sliding: PositiveDuration | None = None
    session: PositiveDuration | None = None
    count: int | None = Parameter(default=None, ge=1)
    advance: PositiveDuration | int | None = None
    offset: Duration = 0

    @model_validator(mode="after")
    def _one_kind(self) -> WindowParameters:
        given = [k for k in ("tumbling", "sliding", "session", "count") if getattr(self, k) is not None]
        if len(given) != 1:
            raise ValueError("a window is one of tumbling, sliding, session (each a duration) or count")
        kind = given[0]
        if self.advance is not None and kind in ("tumbling", "session"):
            raise ValueError(f"advance does not go with {kind}")
        if kind == "sliding" and self.advance is None:
            raise ValueError("a sliding window needs advance, how far it moves")
        if self.offset and kind in ("session", "count"):
            raise ValueError(f"offset does not go with {kind}")
        size = self.sliding if kind == "sliding" else self.count
        if size is not None and self.advance is not None and not 0 < self.advance <= size:
            raise ValueError(f"advance is above 0 and at most {kind}: tuples between windows would be in none")
        return self


class AggregateParameters(BoxParameters):
    window: WindowParameters
    by: tuple[str, ...] = ()
    select: dict[str, str] = Parameter(min_length=1)
    having: str | None = None
    bounds: tuple[Literal["window_start", "window_end", "window_time"], ...] = BOUNDS  # type: ignore[assignment]
    emit: Literal["close", "update"] = "close"
    timeout: PositiveDuration | None = None
    approximate: bool = False


class Aggregate(Box):
    kind = "aggregate"
    summary = "one tuple for each window and key, from the tuples in it"
    parameters_model = AggregateParameters
    row_wise = False
    needs_time = True

    def __init__(self, parameters: AggregateParameters) -> None:
        super().__init__(parameters)
        # Only a box that times out asks to be woken.
        self.needs_clock = parameters.timeout is not None  # type: ignore[misc]

    @classmethod
    def ports(cls, parameters: AggregateParameters) -> tuple[str, ...]:
        return ("", "late")

    # -- binding -----------------------------------------------------------------------------------------------------

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        schema, p = inputs[0], self.parameters
        check_time("aggregate", times, inputs)
        self._time = None if times[0] is None else schema.index(times[0])
        by = [self._key_field(schema, name) for name in dict.fromkeys(p.by)]
        group = Schema(tuple({f.name: f for f in (*by, *BOUND_FIELDS)}.values()))
        select = {name: self._split(text, schema, group, ("select", name)) for name, text in p.select.items()}
        self._plan = Plan(by, p.bounds, select, self._having(schema, group, select), tells_share=p.approximate)
        passed_on = self._split(WINDOW_TIME, schema, group, ()).outer.key
        self._time_out = next((name for name, e in select.items() if e.outer.key == passed_on), LOST_TIME)
        if WINDOW_TIME in p.bounds and WINDOW_TIME not in select:
            self._time_out = WINDOW_TIME
        self._check_window()
        reach_ns = 2 * (p.window.tumbling or p.window.sliding or p.window.session or 0) + p.window.offset
        self._limit_ns = 2**63 - 1 - reach_ns
        return (self._plan.schema, schema)

    def _key_field(self, schema: Schema, name: str) -> Field:
        if name not in schema:
            raise BindError(f"there is no field {name}", ("by",), f"the input has {', '.join(schema.names)}")
        if name in BOUNDS:
            raise BindError(f"{name} is what this box calls a bound of its own", ("by",), "rename it in a map before")
        return schema[name]

    def _having(
        self, schema: Schema, group: Schema, select: dict[str, AggregatedExpression]
    ) -> AggregatedExpression | None:
        text = self.parameters.having
        if text is None:
            return None
        fields = {name: Field(name, e.type, e.nullable) for name, e in select.items()} | {f.name: f for f in group}
        return self._split(text, schema, Schema(tuple(fields.values())), ("having",), Type.BOOLEAN)

    @staticmethod
    def _split(
        text: str, schema: Schema, group: Schema, key: tuple[str | int, ...], expect: Type | None = None
    ) -> AggregatedExpression:
        try:
            return split_aggregates(text, schema, group=group, expect=expect)
        except ExpressionError as error:
            raise BindError(error.message, key, error.hint) from error

    def _check_window(self) -> None:
        p = self.parameters
        if p.approximate and p.window.tumbling is None and p.window.sliding is None:
            raise BindError("only tumbling and sliding windows can tell which share they saw", ("approximate",))
        if p.approximate and SHARE_SEEN in (*p.by, *p.select):
            raise BindError(f"an approximate result has a field {SHARE_SEEN} of its own", ("approximate",))
        if p.emit == "update" and (p.window.session is not None or p.window.count is not None):
            raise BindError("update is for tumbling and sliding windows", ("emit",), "leave emit out")
        if p.window.sliding is not None and p.window.sliding // self._pane_ns() > MAX_WINDOW_PANES:
            raise BindError(
                "size and advance have so small a common divisor that a window is over a million panes", ("window",)
            )

    def _pane_ns(self) -> int:
        return int(np.gcd(self.parameters.window.sliding, self.parameters.window.advance))

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (self._time_out, times[0])

    def under_loss(self, port: int = 0) -> UnderLoss:
        """Whole windows of a grid can be left out; a session or a window by count cannot be told from its tuples."""
        window = self.parameters.window
        if self.parameters.approximate:
            return "approximate"
        if window.sliding is not None:
            # A tuple is in many windows, and those that begin near the edge of the span keep tuples of it: of a span
            # of four windows three quarters are saved. Longer ones would save more and be silent for longer.
            return SPAN_WINDOWS * int(window.sliding)
        return "wrong" if window.tumbling is None else int(window.tumbling)

    def windows_ns(self) -> tuple[int, int, int] | None:
        window = self.parameters.window
        if window.session is not None:
            return int(window.session), int(window.session), 0
        size_ns = window.tumbling or window.sliding
        return None if size_ns is None else (int(window.advance or size_ns), int(size_ns), int(window.offset))

    def attend(self, state: Windows, losses: BoxLosses) -> None:
        state.losses = losses

    def reach_ns(self) -> tuple[int, int]:
        window = self.parameters.window
        if window.session is not None:
            return 2**62, 0  # a session may have begun at any time before
        return int(window.tumbling or window.sliding or 0), 0

    # -- state -------------------------------------------------------------------------------------------------------

    def new_state(self) -> Windows:
        p = self.parameters
        window, quiet = p.window, p.timeout is not None
        if window.session is not None:
            return SessionWindows(self._plan, window.session, quiet=quiet)
        if window.count is not None:
            return CountWindows(self._plan, window.count, window.advance or window.count, quiet=quiet)
        size_ns = window.tumbling or window.sliding
        return PaneWindows(
            self._plan, size_ns, window.advance or size_ns, window.offset, update=p.emit == "update", quiet=quiet
        )

    def state_nbytes(self, state: Windows) -> int:
        return state.nbytes

    def snapshot(self, state: Windows) -> dict[str, Any]:
        return state.snapshot()

    def restore(self, data: Any) -> Windows:
        state = self.new_state()
        state.restore(data)
        return state

    # -- work --------------------------------------------------------------------------------------------------------

    def run(self, state: Windows, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        times_ns = train.arrival_ns if self._time is None else train.columns[self._time]
        low_ns, high_ns = int(times_ns.min()), int(times_ns.max())
        null = self._time is not None and train.null_mask(self._time) is not None
        if null or low_ns < max(state.late_below_ns, -self._limit_ns) or high_ns > self._limit_ns:
            train, times_ns = self._in_time(state, train, times_ns, emit, tally)
            if not train.count:
                return
            low_ns, high_ns = int(times_ns.min()), int(times_ns.max())
        scope = Scope(train)
        with np.errstate(all="ignore"):
            columns = self._plan.columns(scope)
            keys = state.keys.numbers([scope.column(f.name) for f in self._plan.by], train.count)
            state.add(Batch(keys, times_ns, low_ns, high_ns, train.arrival_ns, columns), _sender(emit))
        tally.absorbed += train.count
        tally.null_errors += scope.null_errors + self._errors(state)

    def _in_time(self, state: Windows, train: Train, times_ns: Times, emit: Emit, tally: Tally) -> tuple[Train, Times]:
        """What is neither dead (no event time, or one that no window reaches) nor late, and its event times."""
        sound = (times_ns <= self._limit_ns) & (times_ns >= -self._limit_ns)
        valid = None if self._time is None else train.null_mask(self._time)
        if valid is not None:
            sound &= valid
        tally.dead += train.count - int(np.count_nonzero(sound))
        late = sound & (times_ns < state.late_below_ns)
        tardy = train.where(late)
        if tardy.count:
            tally.late += tardy.count
            emit(LATE, tardy.with_watermark(NO_WATERMARK))
        kept = np.flatnonzero(sound & ~late)
        return train.take(kept), times_ns.take(kept)

    def advance(self, state: Windows, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        with np.errstate(all="ignore"):
            state.advance(watermark_ns, _sender(emit))
        tally.null_errors += self._errors(state)

    def tick(self, state: Windows, now_ns: int, emit: Emit, tally: Tally) -> None:
        if self.parameters.timeout is not None:
            with np.errstate(all="ignore"):
                state.tick(now_ns, self.parameters.timeout, _sender(emit))
            tally.null_errors += self._errors(state)

    @staticmethod
    def _errors(state: Windows) -> int:
        errors, state.null_errors = state.null_errors, 0
        return errors


def _sender(emit: Emit) -> Send:
    return lambda train: emit(RESULT, train)
