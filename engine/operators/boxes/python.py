"""python: call a Python function on whole columns (trusted code).

    scored: {python: trades, call: "models:score", schema: {symbol: string, score: "double?"}}

    def score(columns: dict[str, np.ndarray]) -> dict[str, np.ndarray]: ...

The function gets the columns of a train by name, read-only. It returns the columns of the result, which `schema`
declares. It is trusted: it runs inside the daemon, with the rights of the daemon. Only the network file names it, never
a tuple or an expression.

`models.py` lies beside the network file, or in a folder of `engine.python_path`, or Python can import it. The folders
come first, and the modules in them may have any name, also `engine` or `storage`, and import each other. A module is
loaded when the network file is read.

- A nullable field is always a `numpy.ma` array, masked where it is NULL; other fields are plain arrays. Strings are
  object arrays of str, timestamps are int64 nanoseconds. In a result, masked values and None are NULL.
- The result has one row for each row given. A function that drops or repeats rows also returns `_index`: for each row
  of the result, the position of the row that it came from.
- The function must not depend on how the stream is split into trains.
- If the function raises (`sys.exit()` too), or its result does not fit `schema`, the box halves the train until the
  rows at fault are alone. Those rows are dead: the daemon counts and logs them, and `/api/v1/dead_letters` shows the
  last 100 with their errors. All other rows pass.
- The calls for one train have `timeout` together. At its end the call under way is interrupted, and the rows that have
  no result yet are dead. The interruption reaches every loop in Python, but not a wait in C code (a socket, a lock). A
  call that does not end half a second later is given up: another thread takes the worker's place, every row that comes
  to the box from then on is dead until a restart, and `/ready` says so.

Cost: that of the function, and about 20 us a call; strings become Python objects. A function that always fails costs
two calls a tuple. State: none. A checkpoint does not hold what the function remembers.

Refused: a function that cannot be imported (the error has the line of the module at fault), an unknown type in
`schema`, and a `time` that is not a timestamp of `schema` or is nullable.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field as Parameter
from pydantic import PrivateAttr, ValidationInfo, model_validator

from catalog.config.units import PositiveDuration
from catalog.config.words import did_you_mean
from catalog.errors import BindError
from catalog.loss import UnderLoss
from catalog.schema import Field, Schema, Type
from engine.operators.boxes.base import LOST_TIME, Box, BoxParameters, DeadRow, Emit, Tally
from engine.operators.call_limits import CallAbandonedError, CallTimedOutError
from engine.operators.user_modules import UserModules
from storage.strings import StringInterner, StringPool
from storage.train import Array, Mask, Train, tidy_valid

if TYPE_CHECKING:
    from engine.operators.call_limits import CallLimits

Function = Callable[[dict[str, Array]], Mapping[str, Any]]
INDEX = "_index"
DEAD_KEPT = 100
TIMEOUT_NS = 5 * 10**9


class PythonParameters(BoxParameters):
    added: ClassVar[frozenset[str]] = frozenset({"timeout", "pure"})

    call: str = Parameter(
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$",
        description="the function, as module:name; the module lies beside the network file, or Python can import it",
    )
    fields: dict[str, str] = Parameter(
        alias="schema", min_length=1, description="fields of the result, each with its type; ? where NULL may be"
    )
    time: str | None = Parameter(
        default=None,
        description="field of the result with the event time, for boxes downstream; the function must not lower it",
    )
    timeout: PositiveDuration = Parameter(
        default=TIMEOUT_NS, description="time for all calls of one train; after it, rows without a result are dead"
    )

    pure: bool = Parameter(
        default=False,
        description="the same rows always give the same result, and nothing else happens: equal boxes may be one",
    )

    _modules: UserModules = PrivateAttr(default_factory=lambda: UserModules(()))

    @model_validator(mode="after")
    def _take_modules(self, info: ValidationInfo) -> PythonParameters:
        """Take the modules of the network file in which these parameters stand."""
        if info.context is not None:
            self._modules = info.context["modules"]
        return self

    @property
    def modules(self) -> UserModules:
        return self._modules


class PythonState:
    """Owned by the worker that runs the box."""

    __slots__ = ("dead", "is_given_up", "limits", "strings")

    def __init__(self, schema: Schema) -> None:
        self.strings = {f.name: StringInterner() for f in schema if f.type is Type.STRING}
        self.dead: deque[DeadRow] = deque(maxlen=DEAD_KEPT)
        self.limits: CallLimits | None = None
        self.is_given_up = False  # a call has not returned: the function is not called any more


class Python(Box):
    kind = "python"
    summary = "call a Python function on whole columns (trusted code)"
    parameters_model = PythonParameters
    typical_cost_ns = (20_000.0, 100.0)
    calls_users = True

    @classmethod
    def may_share(cls, parameters: Any) -> bool:
        pure: bool = parameters.pure
        return pure

    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        p: PythonParameters = self.parameters
        self._inputs = inputs[0]
        self._function = _imported(p.call, p.modules)
        self.code_digest = p.modules.digest()
        fields = []
        for name, text in p.fields.items():
            try:
                fields.append(Field.parse(name, text))
            except ValueError as error:
                hint = f"types are {', '.join(Type)}, with ? where NULL may be"
                raise BindError(f"unknown type {text!r}", ("schema", name), hint) from error
        self._schema = Schema(tuple(fields))
        self._check_time(p.time)
        return (self._schema,)

    def _check_time(self, time: str | None) -> None:
        if time is None:
            return
        if time not in self._schema:
            raise BindError(f"schema has no field {time}", ("time",))
        if self._schema[time].type is not Type.TIMESTAMP or self._schema[time].nullable:
            raise BindError(
                f"the event time must be a timestamp that is never NULL, not {self._schema[time]}", ("time",)
            )

    def under_loss(self, port: int = 0) -> UnderLoss:
        return "subset"

    def reach_ns(self) -> tuple[int, int]:
        """A function that sets the event time may set any: a tuple dropped before it may be missing at any time."""
        return (0, 0) if self.parameters.time is None else (2**62, 2**62)

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        """The engine cannot know what a function does to event times: the parameter `time` names the field."""
        return (self.parameters.time or (None if times[0] is None else LOST_TIME),)

    def new_state(self) -> PythonState:
        return PythonState(self._schema)

    def limit_calls(self, state: PythonState, limits: CallLimits) -> None:
        state.limits = limits

    def give_up(self, state: PythonState) -> None:
        state.is_given_up = True

    def failure(self, state: PythonState) -> str:
        return f"a call of {self.parameters.call} does not return" if state.is_given_up else ""

    def run(self, state: PythonState, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        if state.is_given_up:
            tally.dead += train.count
            return
        good: list[Train] = []
        failed = 0
        waiting = [train]
        limits = state.limits
        deadline = 0.0 if limits is None else limits.deadline(self.parameters.timeout)
        while waiting:
            part = waiting.pop()
            try:
                good.append(self._call(state, part, deadline))
            except CallAbandonedError:
                raise  # the train is dead and counted already, and this thread owns nothing any more
            except BaseException as error:  # noqa: BLE001  (any error of the function counts against its rows)
                is_late = limits is not None and (isinstance(error, CallTimedOutError) or limits.is_past(deadline))
                if part.count == 1 or is_late:
                    lost = [part, *waiting] if is_late else [part]
                    failed += sum(p.count for p in lost)
                    _keep_dead(state, lost, self._why(error))
                    waiting = [] if is_late else waiting
                else:
                    middle = part.count // 2
                    waiting += (part.slice(middle, part.count), part.slice(0, middle))
        out = sum(t.count for t in good)
        tally.dead += failed
        tally.filtered += train.count - failed - out  # below 0 where the function makes more rows
        if out:
            emit(0, Train.concat([t for t in good if t.count]).with_watermark(train.watermark_ns))

    def _why(self, error: BaseException) -> str:
        modules: UserModules = self.parameters.modules
        at = f" at {place}" if (place := modules.place(error)) else ""
        return modules.plain(f"{self.parameters.call} raised {type(error).__name__}{at}: {error}")

    def dead_rows(self, state: PythonState) -> Sequence[DeadRow]:
        return list(state.dead.copy())  # copy() is atomic under the GIL; iterating is not

    def _call(self, state: PythonState, train: Train, deadline: float) -> Train:
        columns = {f.name: _given(train, i) for i, f in enumerate(self._inputs)}
        if state.limits is None:
            result = dict(self._function(columns))
        else:
            result = state.limits.call(deadline, lambda: dict(self._function(columns)))
        index = result.pop(INDEX, None)
        arrival_ns = train.arrival_ns
        if index is not None:
            places = np.asarray(index)
            if places.dtype.kind not in "iu" or places.ndim != 1:
                raise TypeError(f"{INDEX} must be one column of whole numbers")
            if places.size and not (int(places.min()) >= 0 and int(places.max()) < train.count):
                raise IndexError(f"{INDEX} must be positions from 0 to {train.count - 1}")
            arrival_ns = arrival_ns[places]
        missing, extra = (
            [n for n in self._schema.names if n not in result],
            [n for n in result if n not in self._schema],
        )
        if missing or extra:
            raise ValueError(f"the result lacks the fields {missing} and has fields {extra} that the schema lacks")
        taken = [_taken(f, result[f.name], arrival_ns.shape[0], state.strings.get(f.name)) for f in self._schema]
        return Train(
            self._schema,
            tuple(values for values, _, _ in taken),
            arrival_ns,
            valid=tidy_valid([valid for _, valid, _ in taken]),
            pools=tuple(pool for _, _, pool in taken),
        )


def _keep_dead(state: PythonState, parts: list[Train], why: str) -> None:
    """Keep the last rows at fault, with their error."""
    for part in parts:
        last = part.slice(max(0, part.count - DEAD_KEPT), part.count)
        for arrival_ns, row in zip(last.arrival_ns.tolist(), last.to_rows(), strict=True):
            state.dead.append(DeadRow(arrival_ns, dict(zip(last.schema.names, row, strict=True)), why))


def _imported(call: str, modules: UserModules) -> Function:
    """Return the function that ``module:name`` names. Raises BindError with the line of the user's code at fault."""
    module_name, _, path = call.partition(":")
    found: Any = _loaded(module_name, modules)
    for part in path.split("."):
        if not hasattr(found, part):
            where = modules.relative(getattr(found, "__file__", None) or "") or f"the module {module_name}"
            known = getattr(found, "__dict__", {}).items()
            functions = [name for name, value in known if callable(value) and not name.startswith("_")]
            hint = did_you_mean(part, functions) if functions else ""
            raise BindError(f"{where} has no function {part}", ("call",), hint)
        found = getattr(found, part)
    if not callable(found):
        raise BindError(f"{call} is not a function", ("call",))
    function: Function = found
    return function


def _loaded(name: str, modules: UserModules) -> ModuleType:
    try:
        return modules.load(name)
    except (Exception, SystemExit) as error:
        place = modules.place(error)
        if not place and isinstance(error, ModuleNotFoundError) and name.startswith(modules.plain(error.name or "")):
            looked = ", ".join(map(str, modules.folders))
            hint = f"put {name.partition('.')[0]}.py beside the network file: {looked}" if looked else ""
            raise BindError(f"there is no module {name}", ("call",), hint) from error
        why = f"SystemExit({error.code})" if isinstance(error, SystemExit) else f"{type(error).__name__}: {error}"
        at = f" at {place}" if place else ""
        raise BindError(modules.plain(f"the module {name} cannot be imported{at}: {why}"), ("call",)) from error


def _given(train: Train, column: int) -> Array:
    """Return a column for the function: a view that it cannot write to, because trains share columns."""
    pool = train.pools[column]
    values = train.columns[column] if pool is None else _texts(train.columns[column], pool)
    if not train.schema.fields[column].nullable:
        out = values.view()
        out.flags.writeable = False
        return out
    valid = train.null_mask(column)
    mask = np.zeros(values.shape[0], np.bool_) if valid is None else ~valid
    masked: Array = np.ma.MaskedArray(values.copy(), mask)
    return masked


def _texts(codes: Array, pool: StringPool) -> npt.NDArray[np.object_]:
    return pool.decode(codes) if len(pool) else np.full(codes.shape[0], "", object)


def _taken(
    field: Field, value: Any, count: int, strings: StringInterner | None
) -> tuple[Array, Mask | None, StringPool | None]:
    """Check a column of the result and convert it. Raises an error for a wrong length, type or value."""
    array = np.ma.asarray(value) if isinstance(value, np.ma.MaskedArray) else np.asarray(value)
    if array.shape != (count,):
        raise ValueError(f"{field.name} has the shape {array.shape} instead of ({count},)")
    valid: Mask | None = None
    if isinstance(array, np.ma.MaskedArray):
        valid = ~np.ma.getmaskarray(array)
        array = array.data
    if array.dtype == object:
        there = np.array([v is not None for v in array.tolist()], np.bool_)
        valid = there if valid is None else valid & there
    if valid is not None and valid.all():
        valid = None
    if valid is not None and not field.nullable:
        raise ValueError(f"NULL in {field.name}, which is not nullable")
    if strings is not None:
        pool = strings.fresh()
        texts = (
            array.tolist() if valid is None else [v if ok else "" for v, ok in zip(array.tolist(), valid, strict=True)]
        )
        if not all(type(t) is str for t in texts):
            raise TypeError(f"{field.name} is declared as string, and some values are not")
        return pool.encode(texts), valid, pool
    return _numbers(field, array, valid), valid, None


def _numbers(field: Field, array: Array, valid: Mask | None) -> Array:
    target = field.type.dtype
    if array.dtype == object:
        filled = array.copy()
        if valid is not None:
            filled[~valid] = 0
        array = np.array(filled.tolist()) if filled.shape[0] else np.empty(0, target)
    if array.dtype == target:
        return array.copy()  # a copy: the function may keep its array and write to it
    if not np.can_cast(array.dtype, target, "same_kind"):
        raise TypeError(f"{field} cannot take {array.dtype}")
    out = array.astype(target)
    if target.kind == "i":
        wrong = out != array
        if bool(wrong.any() if valid is None else (wrong & valid).any()):
            raise OverflowError(f"{field} cannot hold every value")
    return out
