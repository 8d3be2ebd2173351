"""A box: one file in this folder, one class, a model of its parameters, ``bind`` once, ``run`` per train.

The definition is constant after ``bind`` and shared; what a box remembers between trains lives in the object that
``new_state`` makes, which belongs to the worker that runs the box, and only while it runs it. Boxes are discovered by
being in this folder (``engine/boxes/__init__.py``): nothing else is edited for a new one.

A box says what it did with each tuple, so that the conservation laws can be checked and not merely assumed:
what it keeps back on purpose it adds to ``tally.filtered`` (row by row), ``tally.absorbed`` and ``tally.late``
(windows), and what it cannot process to ``tally.dead``. What it emits, its caller counts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from catalog.errors import BindError, ExpressionError
from catalog.schema import Schema, Type
from catalog.shed import UnderLoss
from engine.expressions import Expression, compile_expression
from storage.train import Train

if TYPE_CHECKING:
    from engine.shed.book import BoxLosses

LOST_TIME = ""
"""In place of the name of an event-time field that a map above did not keep."""

Emit = Callable[[int, Train], None]
"""Send a train out by an output port."""


class BoxParameters(BaseModel):
    """Base of every box's parameters: what stands in the network file beside the kind and its inputs."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Tally:
    """What became of the tuples that a box took and did not emit. Written by the worker that runs the box."""

    __slots__ = ("absorbed", "dead", "filtered", "late", "null_errors")

    def __init__(self) -> None:
        self.filtered = 0  # kept back by a predicate
        self.absorbed = 0  # taken into a window, a join or an order
        self.late = 0  # too late for its window
        self.dead = 0  # could not be processed
        self.null_errors = 0  # overflow or division by zero that became NULL; not a tuple of its own


class Box(ABC):
    """The definition of a box. ``parameters`` is an instance of its ``parameters_model``."""

    kind: ClassVar[str]  # its first word in the network file
    summary: ClassVar[str]  # one line for --help and the documentation
    parameters_model: ClassVar[type[BoxParameters]]
    min_inputs: ClassVar[int] = 1
    max_inputs: ClassVar[int] = 1
    row_wise: ClassVar[bool] = True  # in = out + filtered + dead; a windowed box: in = absorbed + late + dead
    is_prompt: ClassVar[bool] = False  # a few tuples are done in microseconds, always: any thread may run it
    merges_inputs: ClassVar[bool] = False  # by which input a tuple came makes no difference: one call may take all
    needs_time: ClassVar[bool] = False  # reads watermarks: ``advance`` is called as they move
    keeps_rows: ClassVar[bool] = False  # as many tuples leave as come, each with its event time
    needs_clock: ClassVar[bool] = False  # ``tick`` is called some ten times a second, also when nothing arrives

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters

    @classmethod
    def ports(cls, parameters: Any) -> tuple[str, ...]:
        """The names of the output ports in order; the default port is named ``""``."""
        return ("",)

    @abstractmethod
    def bind(self, inputs: tuple[Schema, ...], times: tuple[str | None, ...]) -> tuple[Schema, ...]:
        """Compile against the input schemas and keep what ``run`` needs; the schema of each output port.

        ``times`` names the event-time field of each input: None where tuples go by their arrival, ``LOST_TIME`` where
        a box above dropped the field. Called once, when the network is loaded. Raises BindError with the key of the
        parameter at fault.
        """

    def time_out(self, times: tuple[str | None, ...]) -> tuple[str | None, ...]:
        """The event-time field of each output port. By default the first input's, which row-wise boxes keep."""
        return (times[0],) * len(self.ports(self.parameters))

    # -- when tuples are missing ---------------------------------------------------------------------------------------

    def under_loss(self, port: int = 0) -> UnderLoss:
        """What comes out when a part of what should come in by this port was dropped. After ``bind``.

        A box that does not say so gives something wrong: nothing is dropped before it.
        """
        return "wrong"

    def keeps(self, field: str) -> bool:
        """Whether every tuple that comes out has this field as it came in: its value can be judged before the box."""
        return False

    def reach_ns(self) -> tuple[int, int]:
        """A result of event time t is made of tuples from so far before t to so far after it."""
        return 0, 0

    def windows_ns(self) -> tuple[int, int, int] | None:
        """How far apart its windows of event time begin, how long they last, and the offset of the first; None for a
        box without. A box that has them asks ``losses`` (``attend``) before it lets one out."""
        return None

    def attend(self, state: Any, losses: BoxLosses) -> None:
        """Where the box learns what is missing in its windows."""

    def new_state(self) -> Any:
        """What the box remembers between trains; None for a box that remembers nothing."""
        return None

    @abstractmethod
    def run(self, state: Any, port: int, train: Train, emit: Emit, tally: Tally) -> None:
        """Process one train from an input port. Must not keep or write into the train's columns."""

    def advance(self, state: Any, watermark_ns: int, emit: Emit, tally: Tally) -> None:
        """No tuple below this event time will come any more, on any input: close what waited for that."""

    def out_watermark_ns(self, state: Any, watermark_ns: int) -> int:
        """The watermark of the outputs, given that of the inputs: below it for a box that emits older times later."""
        return watermark_ns

    def tick(self, state: Any, now_ns: int, emit: Emit, tally: Tally) -> None:
        """The time of day, for time-outs of boxes with ``needs_clock``."""

    def state_nbytes(self, state: Any) -> int:
        """About how many bytes the state holds."""
        return 0

    def snapshot(self, state: Any) -> Any:
        """The state as plain data (numbers, strings, lists, dicts, numpy arrays): what a checkpoint writes."""
        return None

    def restore(self, data: Any) -> Any:
        """A state from what ``snapshot`` gave."""
        return self.new_state()


def compile_parameter(text: str, schema: Schema, key: tuple[str | int, ...], expect: Type | None = None) -> Expression:
    """An expression among the parameters; what is wrong with it is said at its key."""
    try:
        return compile_expression(text, schema, expect=expect)
    except ExpressionError as error:
        raise BindError(error.message, key, error.hint) from error
