"""aggregate: make one tuple of the tuples in each window and key.

    vwap: {aggregate: trades, window: {tumbling: 1s}, by: [symbol],
           select: {vwap: "sum(price * size) / sum(size)", n: "count(*)"}, having: "n >= 10"}
    moving: {aggregate: trades, window: {sliding: 10s, advance: 1s, offset: 500ms}, by: [symbol, venue],
             select: {high: "max(price)", spread: "stddev(price)", p99: "percentile(price, 0.99)"}}
    visits: {aggregate: clicks, window: {session: 30s}, by: [user],
             select: {pages: "count(distinct page)", path: "string_agg(page, ' ')", left_at: "last(page)"}}
    last_100: {aggregate: trades, window: {count: 100, advance: 10}, by: [symbol], timeout: 5s,
               select: {mean: "avg(price)"}}
    now: {aggregate: trades, window: {tumbling: 1h}, emit: update, bounds: [window_start],
          select: {traded: "sum(price * size)"}}

A window is one of four kinds:

- `tumbling: 1s`: windows of event time, one after another, on a grid that begins at 1970 plus `offset`.
- `sliding: 10s` with `advance: 1s`: windows that overlap, on the same grid; one begins every `advance`.
- `session: 30s`: the tuples of a key with less than 30 s between neighbours.
- `count: 100`: 100 tuples of a key in the order of their arrival; one window begins every `advance` tuples, or every
  100 without it.

A window of event time closes when the watermark reaches its end. A tuple is late when all its windows are closed: it
leaves unchanged by the port `late` and is counted, whether a box reads that port or not. With `timeout`, a window also
closes when it got no tuple for that long in real time. In windows by count, a key that got no tuple for that long comes
out with its unfinished window.

Result: the fields of `by`, the bounds of the window, then `select` in its order. NULL is a key of its own, and so is
NaN. The results of one train have no order among themselves. The bounds are `window_start`, `window_end` (the first
moment after the window) and `window_time`, the event time of the result: one nanosecond before the end, so that the
result falls into the window of a box downstream that ends at the same moment. (Spark's `window_time` is the same with
microseconds. Refused: the start, because an as-of join would then see the future.) `bounds` names the bounds that are
wanted; without `window_time` no box downstream can go by event time. A window by count has no edges: its bounds are the
lowest and the highest event time in it. The arrival of a result is that of its newest tuple, so that latency counts
from the tuple that could last change it.

Functions: count, sum, avg, min, max, stddev, variance (and _pop), first, last, bool_and, bool_or, median, percentile,
count(distinct), approx_count_distinct (HyperLogLog; a relative standard error of 5 % unless a second argument gives
another), string_agg; each with `filter (where ...)`, and any expression over them. As in Spark, NULL is skipped (by
first and last only on request), NaN is the highest value, and a sum of integers that overflows is NULL and counted.
first, last and string_agg go by event time and, where times are equal, by arrival; in windows by count they go by
arrival. There are no arrays: string_agg gives a string.

`emit: update` sends the result of a window after each train that changed it, instead of once at its end.

When tuples are dropped before the box (`overload: shed`), a result is never wrong without saying so: whole windows are
dropped, and a window that lacks a tuple does not come out. With `approximate: true` windows come out of the tuples that
were kept, each with a field `share_seen`: the share of its tuples, over all keys, that the window saw; 1 when nothing
is missing. The share is exact when tuples were dropped right before the box, or with only map, union and bsort in
between. Behind a filter it is the share that was kept where tuples were dropped.

`approximate: {confidence: 95%}` adds two fields for each field of `select` that is a count, a sum or an avg: `n_low`
and `n_high` for `n`. The value that the window would have without drops lies between them in 95 % of all results. `n`
itself counts what was seen. The tuples must have been dropped at random and about evenly over the window. Sums and
means of fewer than 5 values have no interval (NULL). Values with a long tail need some hundred tuples; a value that
only a few tuples have may not be in the sample at all, so count rare ones (`count(*) filter (where ...)`) instead of
adding them up.

Cost: about 30 ns a tuple for three functions, and it does not grow with the number of keys or open windows. State:
about 100 bytes for each key in each open pane, and 512 more for approx_count_distinct. A tumbling window is one pane; a
sliding window of 10 s that advances by 1 s has ten. Median, percentile, count(distinct) and string_agg keep every value
until the window closes, count(distinct) each value once a train.

Refused: a field in `select` that is neither inside a function nor in `by`; `emit: update` and `approximate` for session
and count windows; a sliding window of over a million panes; an input that has lost its event time.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field as Parameter
from pydantic import model_validator

from catalog.config.units import Duration, PositiveDuration, Share
from catalog.errors import BindError, BindErrors, ExpressionError
from catalog.loss import UnderLoss
from catalog.schema import Field, Schema, Type
from engine.operators.boxes.base import LOST_TIME, BoxParameters, Emit, Tally, check_time
from engine.operators.boxes.keyed import KeyedBox, KeyedParameters
from engine.operators.expressions import Scope, Vector, ignore_float_flags
from engine.operators.expressions.aggregates.split import AggregatedExpression, split_aggregates
from engine.operators.state.columns import vector_at
from engine.operators.state.keys import KeyTable
from engine.operators.windows.counted import CountWindows
from engine.operators.windows.layout import BOUND_FIELDS, BOUNDS, SHARE_SEEN, WINDOW_TIME, WindowLayout
from engine.operators.windows.panes import PaneWindows
from engine.operators.windows.session import SessionWindows
from engine.operators.windows.windows import LiveRows, Send, Windows
from storage.train import NO_WATERMARK, Mask, Train

if TYPE_CHECKING:
    from load_shedder.record.book import BoxLosses

Times = npt.NDArray[np.int64]
RESULT, LATE = 0, 1
MAX_WINDOW_PANES = 1_000_000
SPAN_WINDOWS = 4


class WindowParameters(BoxParameters):
    """Exactly one of tumbling, sliding, session and count."""

    tumbling: PositiveDuration | None = Parameter(default=None, description="length of windows that do not overlap")
    sliding: PositiveDuration | None = Parameter(default=None, description="length of windows that overlap")
    session: PositiveDuration | None = Parameter(default=None, description="silence of a key that ends its session")
    count: int | None = Parameter(default=None, ge=1, description="tuples of a key in a window")
    advance: PositiveDuration | int | None = Parameter(
        default=None, description="from one window to the next: a duration with sliding, tuples with count"
    )
    offset: Duration = Parameter(default=0, description="where the grid of tumbling and sliding windows begins")

    @model_validator(mode="after")
    def _one_kind(self) -> WindowParameters:
        given = [k for k in ("tumbling", "sliding", "session", "count") if getattr(self, k) is not None]
        if len(given) != 1:
            raise ValueError("a window must have one of tumbling, sliding, session (each a duration) and count")
        kind = given[0]
        if self.advance is not None and kind in ("tumbling", "session"):
            raise ValueError(f"a {kind} window takes no advance")
        if kind == "sliding" and self.advance is None:
            raise ValueError("a sliding window needs advance: how far one window is from the next")
        if self.offset and kind in ("session", "count"):
            raise ValueError(f"a {kind} window takes no offset")
        size = self.sliding if kind == "sliding" else self.count
        if size is not None and self.advance is not None and not 0 < self.advance <= size:
            raise ValueError(f"advance must be above 0 and at most {kind}: no tuple may fall between windows")
        return self


class ApproximateParameters(BoxParameters):
    confidence: Share = Parameter(description="how often the interval of a field must hold the true value")

    @model_validator(mode="after")
    def _below_one(self) -> ApproximateParameters:
        if not 0.5 <= self.confidence < 1.0:
            raise ValueError("confidence must be at least 50% and below 100%")
        return self


class AggregateParameters(KeyedParameters):
    window: WindowParameters = Parameter(description="one of tumbling, sliding, session and count")
    by: tuple[str, ...] = Parameter(default=(), description="fields of the key; without it one key for all tuples")
    select: dict[str, str] = Parameter(
        min_length=1, description="fields of the result, each with its SQL expression over functions of the window"
    )
    having: str | None = Parameter(
        default=None, description="boolean SQL expression over functions and fields of the result: only true ones pass"
    )
    bounds: tuple[Literal["window_start", "window_end", "window_time"], ...] = Parameter(
        default=("window_start", "window_end", "window_time"),
        description="which bounds of the window the result has",
    )
    emit: Literal["close", "update"] = Parameter(
        default="close", description="results once at the end of a window, or after each train that changed it"
    )
    timeout: PositiveDuration | None = Parameter(
        default=None, description="real time without a tuple after which a window closes"
    )
    approximate: bool | ApproximateParameters = Parameter(
        default=False,
        description="results also of windows that lack dropped tuples, with the field share_seen; `{confidence: 95%}` "
        "adds the interval of each count, sum and avg",
    )


class Aggregate(KeyedBox):
    kind = "aggregate"
    dead_because = "their event time is NULL, or beyond every window"
    summary = "make one tuple of the tuples in each window and key"
    parameters_model = AggregateParameters
    typical_cost_ns = (80_000.0, 30.0)
    is_selective = True
    row_wise = False
    needs_time = True

    def __init__(self, parameters: AggregateParameters) -> None:
        super().__init__(parameters)
        # Only a box with a timeout needs the clock.
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
        errors = BindErrors()
        select: dict[str, AggregatedExpression] = {}
        for name, text in p.select.items():
            with errors.part():
                select[name] = self._split(text, schema, group, ("select", name))
        errors.check()
        self._layout = WindowLayout(
            by,
            p.bounds,
            select,
            self._having(schema, group, select),
            with_share=bool(p.approximate),
            confidence=p.approximate.confidence if isinstance(p.approximate, ApproximateParameters) else None,
        )
        passed_on = self._split(WINDOW_TIME, schema, group, ()).outer.key
        self._time_out = next((name for name, e in select.items() if e.outer.key == passed_on), LOST_TIME)
        if WINDOW_TIME in p.bounds and WINDOW_TIME not in select:
            self._time_out = WINDOW_TIME
        self._check_window()
        # A time-out goes by the time of day, and the share that a window saw is that of all its keys.
        self.is_divisible = bool(by) and p.timeout is None and not p.approximate
        self.goes_by_train = p.emit == "update"
        self.emits_at_once = p.window.count is not None or p.emit == "update"
        reach_ns = 2 * (p.window.tumbling or p.window.sliding or p.window.session or 0) + p.window.offset
        self._limit_ns = 2**63 - 1 - reach_ns
        return (self._layout.schema, schema)

    def _key_field(self, schema: Schema, name: str) -> Field:
        if name not in schema:
            raise BindError(f"no field {name}", ("by",), f"there are {', '.join(schema.names)}")
        if name in BOUNDS:
            raise BindError(f"{name} is the name of a bound of the window", ("by",), "rename the field in a map above")
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
            raise BindError(
                "approximate is for tumbling and sliding windows: others cannot know which share they saw",
                ("approximate",),
            )
        taken = {SHARE_SEEN, *(f.name for bar in self._layout.bars for f in bar.fields)} if p.approximate else set()
        for name in (*p.by, *p.select):
            if name in taken:
                raise BindError(f"an approximate result has its own field {name}: rename yours", ("approximate",))
        if isinstance(p.approximate, ApproximateParameters) and not self._layout.bars:
            raise BindError("no field of select is a count, sum or avg: none has an interval", ("approximate",))
        if p.emit == "update" and (p.window.session is not None or p.window.count is not None):
            raise BindError("emit: update is for tumbling and sliding windows", ("emit",), "leave emit out")
        if p.window.sliding is not None and p.window.sliding // self._pane_ns() > MAX_WINDOW_PANES:
            raise BindError(
                "sliding over the greatest common divisor of sliding and advance is above a million panes", ("window",)
            )

    def _pane_ns(self) -> int:
        return int(np.gcd(self.parameters.window.sliding, self.parameters.window.advance))

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        return (self._time_out, times[0])

    def under_loss(self, port: int = 0) -> UnderLoss:
        """Whole windows of a grid can be dropped; without its tuples a session or a window by count is unknown."""
        window = self.parameters.window
        if self.parameters.approximate:
            return "approximate"
        if window.sliding is not None:
            # A tuple is in many windows, and windows that begin near the edge of the span need some of its tuples: a
            # span of four windows saves three quarters of them. A longer span would save more and be silent longer.
            return SPAN_WINDOWS * int(window.sliding)
        return "wrong" if window.tumbling is None else int(window.tumbling)

    def unbounded(self) -> str:
        p = self.parameters
        if not isinstance(p.approximate, ApproximateParameters):
            return "it has no confidence: write approximate: {confidence: 95%}"
        if p.emit == "update":
            return "emit: update sends windows that are not complete"
        bounded = {bar.name for bar in self._layout.bars}
        without = [name for name in p.select if name not in bounded]
        return f"the error of {', '.join(without)} has no bound: only count, sum and avg have one" if without else ""

    def windows_ns(self) -> tuple[int, int, int] | None:
        window = self.parameters.window
        if window.session is not None:
            return int(window.session), int(window.session), 0
        size_ns = window.tumbling or window.sliding
        return None if size_ns is None else (int(window.advance or size_ns), int(size_ns), int(window.offset))

    def window_ends_ns(self) -> tuple[int, int] | None:
        p = self.parameters
        if p.window.session is not None or not self.waits_for_time():
            return None
        windows = self.windows_ns()
        return None if windows is None else (windows[0], (windows[1] + windows[2]) % windows[0])

    def watch_losses(self, state: Windows, losses: BoxLosses) -> None:
        state.losses = losses

    def reach_ns(self) -> tuple[int, int]:
        window = self.parameters.window
        if window.session is not None:
            return 2**62, 0  # a session may have begun at any earlier time
        return int(window.tumbling or window.sliding or 0), 0

    @property
    def ordered_functions(self) -> list[str]:
        """The functions of the window that go by arrival where event times are equal, by their names in ``select``."""
        names = {"first": "first", "last": "last", "collect_list": "string_agg"}
        return [names[function] for function in self._layout.functions if function in names]

    # -- state -------------------------------------------------------------------------------------------------------

    def new_state(self) -> Windows:
        p = self.parameters
        window, has_timeout = p.window, p.timeout is not None
        if window.session is not None:
            return SessionWindows(self._layout, window.session, has_timeout=has_timeout)
        if window.count is not None:
            return CountWindows(self._layout, window.count, window.advance or window.count, has_timeout=has_timeout)
        size_ns = window.tumbling or window.sliding
        return PaneWindows(
            self._layout,
            size_ns,
            window.advance or size_ns,
            window.offset,
            update=p.emit == "update",
            has_timeout=has_timeout,
        )

    def waits_for_time(self) -> bool:
        p = self.parameters
        return p.window.count is None and p.timeout is None and p.emit != "update"

    def held_tuples(self, state: Windows) -> int:
        return 0 if self.parameters.emit == "update" else state.held_tuples  # an update is out already

    # -- the state by key --------------------------------------------------------------------------------------------

    def key_of(self, port: int, train: Train) -> list[Vector]:
        return [vector_at(train, train.schema.index(field.name)) for field in self._layout.by]

    def key_names(self, port: int) -> tuple[str | None, ...]:
        changed = self.parameters.select if port == RESULT else {}
        return tuple(None if name in changed else name for name in self.key_fields(0))

    def times_of(self, port: int, train: Train) -> Times:
        return train.arrival_ns if self._time is None else train.columns[self._time]

    def keys_in(self, state: Windows) -> KeyTable:
        return state.keys

    def last_ns(self, state: Windows) -> Times:
        return state.last_ns()

    def is_empty(self, state: Windows) -> bool:
        return state.is_empty

    def due_ns(self, state: Windows) -> int:
        return state.due_ns()

    def first_due_ns(self, low_ns: int) -> int:
        return self._any_state.first_due_ns(low_ns)

    @cached_property
    def _any_state(self) -> Windows:
        return self.new_state()

    # -- the state ---------------------------------------------------------------------------------------------------

    def state_nbytes(self, state: Windows) -> int:
        return state.nbytes

    def trim(self, state: Windows) -> None:
        state.forget()

    def state_keys(self, state: Windows) -> int:
        return state.keys.count

    def snapshot_of(self, state: Windows, chosen: Mask | None) -> dict[str, Any]:
        return state.snapshot(chosen)

    def restore(self, data: Any) -> Windows:
        state = self.new_state()
        state.restore(data)
        return state

    # -- work --------------------------------------------------------------------------------------------------------

    def run(self, state: Windows, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        times_ns = self.times_of(port, train)
        low_ns, high_ns = int(times_ns.min()), int(times_ns.max())
        null = self._time is not None and train.null_mask(self._time) is not None
        if null or low_ns < max(state.late_below_ns, -self._limit_ns) or high_ns > self._limit_ns:
            train, times_ns = self._in_time(state, train, times_ns, emit, tally)
            if not train.count:
                return
            low_ns, high_ns = int(times_ns.min()), int(times_ns.max())
        scope = Scope(train)
        ignore_float_flags()
        columns = self._layout.columns(scope)
        keys = state.keys.numbers([scope.column(f.name) for f in self._layout.by], train.count)
        state.add(LiveRows(keys, times_ns, low_ns, high_ns, train.arrival_ns, columns), _sender(emit))
        tally.absorbed += train.count
        tally.null_errors += scope.null_errors + self._errors(state)

    def _in_time(self, state: Windows, train: Train, times_ns: Times, emit: Emit, tally: Tally) -> tuple[Train, Times]:
        """Return the tuples that are neither dead nor late, and their event times.

        A tuple is dead if it has no event time, or one at the end of time that no window reaches.
        """
        sound = (times_ns <= self._limit_ns) & (times_ns >= -self._limit_ns)
        valid = None if self._time is None else train.null_mask(self._time)
        if valid is not None:
            sound &= valid
        tally.dead += train.count - int(np.count_nonzero(sound))
        late = sound & (times_ns < state.late_below_ns)
        late_tuples = train.where(late)
        if late_tuples.count:
            tally.add_late(late_tuples.count, max(state.late_below_ns, state.closed_ns) - int(times_ns[late].min()))
            emit(LATE, late_tuples.with_watermark(NO_WATERMARK))
        kept = np.flatnonzero(sound & ~late)
        return train.take(kept), times_ns.take(kept)

    def advance(self, state: Windows, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        ignore_float_flags()
        state.advance(watermark_ns, _sender(emit))
        tally.null_errors += self._errors(state)

    def tick(self, state: Windows, now_ns: int, emit: Emit, tally: Tally) -> None:
        if self.parameters.timeout is not None:
            ignore_float_flags()
            state.tick(now_ns, self.parameters.timeout, _sender(emit))
            tally.null_errors += self._errors(state)

    @staticmethod
    def _errors(state: Windows) -> int:
        errors, state.null_errors = state.null_errors, 0
        return errors


def _sender(emit: Emit) -> Send:
    return lambda train: emit(RESULT, train)
