"""A box: one file in this folder, with one class and a model of its parameters. ``filter.py`` is the shortest.

**A new box** is one file here and one folder of golden cases (``tests/golden/KIND``). Nothing else is edited: the
engine finds the box by its file name, the golden cases run it under every configuration, restarts included, and `make
docs` writes its section of ``docs/boxes.md`` from its docstring, the descriptions of its parameters and a golden case.

**Definition and state.** The definition is constant after ``bind``, and any thread may read it. What the box remembers
between trains is in the object that ``new_state`` makes. It belongs to the worker that runs the box, while it runs it.
``engine/operators/state`` has the parts from which to build it.

**Accounting.** A box counts every tuple that it takes and does not emit, so that the conservation laws are checked and
not assumed. A row-wise box adds to ``tally.filtered`` the tuples that it drops on purpose. A box that is not row-wise
adds to ``tally.absorbed`` the tuples that it takes into its state, and to ``tally.late`` those that come too late. Both
add to ``tally.dead`` the tuples that they cannot process. The caller counts the tuples that the box emits.

**Documentation.** The module's docstring begins with ``kind: what it does.`` and examples, indented by four spaces. It
then says what comes out, what it costs, what it remembers and what it refuses. `aurorad boxes KIND` prints it as it is,
so it uses single backticks. A test runs the examples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict

from catalog.errors import BindError, BindErrors, ExpressionError
from catalog.loss import UnderLoss
from catalog.schema import Schema, Type
from engine.operators.expressions import Expression, compile_expression
from storage.train import Train

if TYPE_CHECKING:
    from engine.operators.call_limits import CallLimits
    from load_shedder.record.book import BoxLosses

LOST_TIME = ""
"""Stands for the name of an event-time field that a map above did not keep."""

Emit = Callable[[int, Train], None]
"""Send a train out by an output port."""


class BoxParameters(BaseModel):
    """Base of the parameters of a box: its keys in the network file beside the kind and the inputs."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    # Parameters that came after 0.2.0. While such a parameter has its default, the state in a checkpoint of an earlier
    # version still fits the box.
    added: ClassVar[frozenset[str]] = frozenset()


class Tally:
    """What happened to the tuples that a box took and did not emit. Written by the worker that runs the box."""

    __slots__ = (
        "absorbed", "dead", "dropped", "evicted", "filtered", "late", "late_by_ns", "null_errors", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.filtered = 0  # dropped on purpose
        self.absorbed = 0  # taken into a window, a join or an order
        self.late = 0  # too late for its window
        self.late_by_ns = 0  # the most that one of them was behind the watermark
        self.dead = 0  # could not be processed
        self.dropped = 0  # of the absorbed: were still in a window when the daemon stopped, which dropped them
        self.waiting = 0  # taken and not processed yet: they wait for state on disk
        self.evicted = 0  # keys that were forgotten because of a limit of the state; these are not tuples
        self.null_errors = 0  # overflows and divisions by zero that became NULL; these are not tuples

    def add_late(self, tuples: int, by_ns: int) -> None:
        """Count late tuples; ``by_ns`` is the most that one of them is behind the watermark."""
        self.late += tuples
        self.late_by_ns = max(self.late_by_ns, by_ns)


class DeadRow(NamedTuple):
    """A tuple that a box could not process."""

    arrival_ns: int
    row: dict[str, Any]
    why: str


class Box(ABC):
    """The definition of a box. ``parameters`` is an instance of its ``parameters_model``."""

    kind: ClassVar[str]  # its first word in the network file
    summary: ClassVar[str]  # one line for --help and the documentation
    parameters_model: ClassVar[type[BoxParameters]]
    input_prefixes: ClassVar[tuple[str, ...]] = ()
    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int] = 1
    # Those below without ClassVar may also depend on the parameters: the constructor then sets them.
    typical_cost_ns: ClassVar[tuple[float, float]] = (20_000.0, 20.0)  # of a call and a tuple: the first guess
    is_selective: ClassVar[bool] = False  # drops some of its tuples: only data or ``selectivity`` can tell how many
    row_wise: bool = True  # in = out + filtered + dead; if False: in = absorbed + late + dead
    # A call with at most 128 tuples (``scheduler/loop.SHORT_TUPLES``) always ends within about 30 us, whatever its
    # parameters and its state are: the I/O thread may run it, and reads no socket meanwhile. So it calls no code of
    # users, does no I/O, and has no state from which one tuple may free many.
    is_prompt: bool = False
    merges_inputs: ClassVar[bool] = False  # treats all inputs alike: one call may take the trains of all
    needs_time: bool = False  # needs watermarks: ``advance`` is called when they move
    # About rows (``keeps`` is about values): every tuple that comes in leaves again, once, with its event time. The
    # tuples that a window behind the box lacks are then known exactly, else estimated (``load_shedder/record/book``).
    keeps_rows: bool = False
    dead_because: ClassVar[str] = ""  # why the box cannot process a tuple, where it keeps no ``dead_rows``
    needs_clock: ClassVar[bool] = False  # ``tick`` is called about ten times a second, tuples or not
    # Calls code of users, which may never return: ``limit_calls`` gives the state the time limits by which to call it.
    calls_users: ClassVar[bool] = False
    code_digest: str = ""  # of the code of users that the box calls: after a change the box is another one

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    @classmethod
    def ports(cls, parameters: Any) -> tuple[str, ...]:
        """Return the names of the output ports in order; the default port is named ``""``."""
        return ("",)

    @classmethod
    def may_share(cls, parameters: Any) -> bool:
        """Tell whether two boxes with these parameters and the same inputs may be one box that feeds both queries."""
        return True

    @abstractmethod
    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        """Compile against the input schemas and keep what ``run`` needs; return the schema of each output port.

        ``times`` names the event-time field of each input: None where tuples go by their arrival, ``LOST_TIME`` where
        a box above dropped the field. Called once, when the network is read. Raises BindError with the key of the
        parameter at fault.
        """

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        """Return the event-time field of each output port: by default that of the first input."""
        return (times[0],) * len(self.ports(self.parameters))

    def runs_behind(self, inputs: tuple[bool, ...]) -> bool:
        """Tell whether a result may come out behind later ones, down to the watermark of the output.

        ``inputs`` tells the same about each input. Streams do not count: their slack is for the user to choose. Called
        after ``bind``. A box that sorts takes note of it.
        """
        return any(inputs)

    # -- when tuples were dropped --------------------------------------------------------------------------------------

    def under_loss(self, port: int = 0) -> UnderLoss:
        """Tell what comes out when some tuples of this input were dropped before the box. Called after ``bind``.

        ``wrong``, the default: the shedder drops nothing before this box. ``catalog/loss`` has the other answers.
        """
        return "wrong"

    def unbounded(self) -> str:
        """Tell why the error of approximate results has no bound; "" if it has one, so that ``max_error`` can be kept.

        Asked of boxes whose ``under_loss`` is ``approximate``, after ``bind``.
        """
        return "its results carry no interval"

    def keeps(self, field: str) -> bool:
        """Tell whether the tuples that leave have the value in this field with which they came.

        About values (``keeps_rows`` is about rows): a filter keeps every field, and not every row. Where it is True,
        the shedder may judge a tuple before the box by this field, if an output behind the box values tuples by it.
        """
        return False

    def reach_ns(self) -> tuple[int, int]:
        """Return (before, after): a result of event time t depends on tuples from t - before to t + after."""
        return 0, 0

    def windows_ns(self) -> tuple[int, int, int] | None:
        """Return (advance, size, offset) of the windows of event time; None for a box without windows.

        A box with windows asks the losses (``watch_losses``) whether a window is complete before it emits it.
        """
        return None

    def window_ends_ns(self) -> tuple[int, int] | None:
        """Return (advance, phase) if results come out only when the watermark reaches phase plus a multiple of advance,
        and nothing else happens before that; else None."""
        return None

    def met_ns(self) -> tuple[int, int] | None:
        """Return, for a join, for how long a left tuple finds right ones that came before it, and a right tuple left
        ones; None for any other box. The scheduler estimates the selectivity of each input by it."""
        return None

    def watch_losses(self, state: Any, losses: BoxLosses) -> None:
        """Give the state the record of dropped tuples, so that the box can tell which windows are incomplete."""

    def limit_calls(self, state: Any, limits: CallLimits) -> None:
        """Give the state the time limits for calls of users' code. For boxes with ``calls_users``."""

    def give_up(self, state: Any) -> None:
        """Call no code of users any more: a call has not returned and cannot be ended."""

    def failure(self, state: Any) -> str:
        """Return why the box processes nothing any more; empty while it does."""
        return ""

    def new_state(self) -> Any:
        """Return an empty state; None for a box that remembers nothing."""
        return None

    @abstractmethod
    def run(self, state: Any, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        """Process one train of an input. Must neither keep the columns of the train nor write into them."""

    def advance(self, state: Any, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        """Act on a new watermark: no tuple below this event time will come any more, on any input."""

    def out_watermark_ns(self, state: Any, watermark_ns: int) -> int:
        """Return the watermark of the outputs: below that of the inputs for a box that may still emit older times."""
        return watermark_ns

    def tick(self, state: Any, now_ns: int, emit: Emit, tally: Tally) -> None:
        """Act on the time of day, for the timeouts of boxes with ``needs_clock``."""

    def dead_rows(self, state: Any) -> Sequence[DeadRow]:
        """Return the last tuples that the box could not process, the newest last. Any thread."""
        return ()

    def waits_for_time(self) -> bool:
        """Tell whether results wait until a watermark passes, and nothing else frees them. Called after ``bind``."""
        return False

    def held_tuples(self, state: Any) -> int:
        """Return how many tuples are in the state and have not given all their results yet, as in an open window.

        The daemon says at its stop what they are, and closes, keeps or drops them. A state that only remembers, such as
        the keys of ``dedup``, holds none.
        """
        return 0

    def state_nbytes(self, state: Any) -> int:
        """Return about how many bytes the state holds. Cheap: it adds up the sizes of arrays. Any thread."""
        return 0

    def trim(self, state: Any) -> None:
        """Give back memory that is not in use any more, also where keeping it would be faster: memory is short."""

    def state_keys(self, state: Any) -> int:
        """Return how many keys the state remembers; 0 for a box without keys. Any thread."""
        return 0

    def snapshot(self, state: Any) -> Any:
        """Return the state as plain data for a checkpoint: numbers, strings, lists, dicts, numpy arrays."""
        return None

    def restore(self, data: Any) -> Any:
        """Return a state from the data that ``snapshot`` gave."""
        return self.new_state()


def check_time(kind: str, times: Iterable[str | None], inputs: Iterable[Schema]) -> None:
    """Refuse an input that has lost its event time. Raises BindError."""
    for number, (time, schema) in enumerate(zip(times, inputs, strict=True), 1):
        if time == LOST_TIME:
            which = f"input {number}" if number > 1 or kind in ("join", "resample") else "its input"
            raise BindError(
                f"{kind} goes by event time, and {which} has lost it",
                hint="a map above dropped the field of the event time: keep it in select, under any name",
            )
        assert time is None or (schema[time].type is Type.TIMESTAMP and not schema[time].nullable)


def field_of(schema: Schema, name: str, key: tuple[str | int, ...]) -> int:
    """Return the column of a field named in a parameter. Raises BindError."""
    if name not in schema:
        raise BindError(f"no field {name}", key, f"there are {', '.join(schema.names)}")
    return schema.index(name)


def fields_of(schema: Schema, names: Sequence[str], key: str) -> tuple[int, ...]:
    """Return the columns of fields named in a parameter. Raises BindError."""
    for i, name in enumerate(names):
        field_of(schema, name, (key, i))
        if name in names[:i]:
            raise BindError(f"{name} stands here twice", (key, i))
    return tuple(schema.index(name) for name in names)


def compile_parameter(text: str, schema: Schema, key: tuple[str | int, ...], expect: Type | None = None) -> Expression:
    """Compile an expression among the parameters. Raises BindError with its key."""
    try:
        return compile_expression(text, schema, expect=expect)
    except ExpressionError as error:
        raise BindError(error.message, key, error.hint) from error


def compile_parameters(
    texts: Mapping[str, str], schema: Schema, key: str, expect: Type | None = None
) -> dict[str, Expression]:
    """Compile the expressions of a parameter such as ``select``. Raises BindError with all errors."""
    errors = BindErrors()
    made: dict[str, Expression] = {}
    for name, text in texts.items():
        with errors.part():
            made[name] = compile_parameter(text, schema, (key, name), expect)
    errors.check()
    return made
