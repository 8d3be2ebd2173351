"""A consistent cut: the engine at one moment, and how an engine gets it back.

A cut is taken between two steps of the scheduler. The cut holds the scheduler's turn and waits until the plans under
way have ended: a few milliseconds, in which trains still arrive and wait. In that moment it takes only references:
the trains on each arc (a train never changes), counters, watermarks. It copies the states of the boxes after that, box
by box, while the other boxes run again. A worker that is about to run a box that is not copied yet copies it first
(``copy_before_plan``). So every state is that of the moment of the cut, and no box waits longer than its own copy.

The parts are named ``box:<name>``, ``queues`` and ``rest``. A box that has not run since the last checkpoint keeps its
part (``storage/checkpoint.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from secrets import token_hex
from threading import Lock
from typing import Any

from catalog.network import Arc, BoxNode
from engine.operators.boxes.base import BoxParameters
from engine.run.core import Engine
from engine.run.runtime import BoxRuntime
from storage.block_ref import BlockRef
from storage.checkpoint import CheckpointPart
from storage.evolution import adapted, obstacles
from storage.files import Bytes
from storage.manager import ArcContent, SavedBlock
from storage.spill_blocks import Block
from storage.train import Train
from storage.tree import encode_tree

QUIET_SECONDS = 30.0


class CutError(Exception):
    """The cut failed: a state could not be copied."""


class Cut:
    """Taken inside ``quiet`` and with the committer's gate. ``parts`` may be asked for afterwards."""

    def __init__(self, engine: Engine, position: int, rest: Mapping[str, Any], life: str) -> None:
        self.position = position
        self._engine = engine
        self._life = life  # names this process: counters of two of them may agree and mean different things
        self._rest = encode_tree(dict(rest))
        self._queues = _Queues(engine)
        self._leases = engine.storage.hold()
        self._locks = [Lock() for _ in engine.runtimes]
        self._stamps = [self._stamp(r) for r in engine.runtimes]
        self.failure: Exception | None = None
        self._states: list[list[Bytes] | None] = [None] * len(engine.runtimes)
        self._segments: dict[int, list[int]] = {}  # of the states on disk, by box that was copied
        engine.pool.before_plan = self.copy_before_plan

    def _stamp(self, runtime: BoxRuntime) -> str:
        """Return a text that stays equal while the state cannot change. A box with time-outs, or with state on
        disk, may change by itself."""
        changes_unseen = runtime.box.needs_clock or (runtime.bounded is not None and runtime.state.divided is not None)
        moved: object = token_hex(6) if changes_unseen else runtime.port_watermarks_ns
        return f"{self._life}:{runtime.identity}:{runtime.calls}:{runtime.tuples_in}:{runtime.resets}:{moved}"

    @property
    def spilled(self) -> list[BlockRef]:
        return self._queues.refs

    def state_segments(self, before: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Return the segments of the states on disk, by the folder of the state. ``before``: those of the last
        checkpoint, for boxes that have not run since. After ``parts``."""
        found: dict[str, list[int]] = {}
        for box, runtime in enumerate(self._engine.runtimes):
            home = runtime.home
            segments = self._segments[box] if box in self._segments else before.get(home, [])
            if segments:
                found[home] = segments
        return found

    def release(self) -> None:
        """Stop copying states before plans."""
        self._engine.pool.before_plan = None

    def let_go(self) -> None:
        """Give the memory of the waiting trains back. Nothing may be asked for afterwards."""
        self._queues.clear()
        self._engine.storage.let_go(self._leases)
        self._leases = []

    def copy_before_plan(self, boxes: Sequence[int]) -> None:
        """Copy the states of boxes that a worker is about to run."""
        for box in boxes:
            if self._states[box] is None:
                self._copy(box)

    def _copy(self, box: int) -> None:
        with self._locks[box]:
            if self._states[box] is None:
                try:
                    data = runtime_data(self._engine.runtimes[box])
                    self._segments[box] = sorted({ref.segment for ref in state_refs(data["state"])})
                    self._states[box] = encode_tree(data)
                except Exception as error:  # noqa: BLE001
                    # The caller may be a worker, which is not at fault: the checkpoint fails, not the box.
                    self._states[box] = []
                    self.failure = error

    def parts(self, last_stamps: Mapping[str, str]) -> dict[str, CheckpointPart]:
        """Return every part. A box whose stamp has not changed is not copied at all."""
        parts: dict[str, CheckpointPart] = {}
        for box, runtime in enumerate(self._engine.runtimes):
            name = f"box:{runtime.node.name}"
            if last_stamps.get(name) == self._stamps[box]:
                self._states[box] = []  # no copy is needed
            else:
                self._copy(box)
            parts[name] = CheckpointPart(self._stamps[box], _given(self._states, box))
        self.release()
        if self.failure is not None:
            raise CutError(f"the state of a box could not be copied: {self.failure}") from self.failure
        # Queues and rest always count as changed: trains move also while nothing is added to the log.
        now = f"{self._life}:{token_hex(6)}"
        parts["queues"] = CheckpointPart(now, self._queues.encode)
        parts["rest"] = CheckpointPart(now, lambda: self._rest)
        return parts


def _given(states: list[list[Bytes] | None], box: int) -> Callable[[], Sequence[Bytes]]:
    return lambda: states[box] or []


def fingerprint(node: BoxNode) -> str:
    """Return a text that is equal for boxes that can take over each other's state."""
    parameters = node.box.parameters
    text = _parameters_text(parameters) if isinstance(parameters, BoxParameters) else repr(parameters)
    schemas = "|".join(map(str, (*node.in_schemas, *node.out_schemas)))
    return blake2b(f"{node.kind}|{text}|{schemas}".encode(), digest_size=12).hexdigest()


def _parameters_text(parameters: BoxParameters) -> str:
    fields = type(parameters).model_fields
    unused = {name for name in parameters.added if getattr(parameters, name) == fields[name].default}
    unused.add("state")  # its limits say nothing about the state itself
    return parameters.model_dump_json(exclude=unused)


def runtime_data(runtime: BoxRuntime) -> dict[str, Any]:
    tally, skipped = runtime.tally, runtime.skipped
    return {
        "fingerprint": fingerprint(runtime.node),
        "home": runtime.home,
        "state": runtime.box.snapshot(runtime.state),
        "tally": [tally.filtered + skipped, tally.absorbed, tally.late, tally.dead, tally.null_errors],
        "dropped": tally.dropped,
        "waiting": tally.waiting,
        "evicted": tally.evicted,
        "counts": [runtime.calls, runtime.tuples_in + skipped, runtime.cost_ns],
        "tuples_out": list(runtime.tuples_out),
        "train_counts": list(runtime.train_counts),
        "port_watermarks_ns": list(runtime.port_watermarks_ns),
        "watermark_ns": runtime.watermark_ns,
    }


def state_refs(state: Any) -> list[BlockRef]:
    """Return the blocks on disk that the state of a box refers to."""
    if not isinstance(state, dict) or "divided" not in state:
        return []
    parts = state["divided"]["parts"]
    blocks = [BlockRef(*ref) for part in parts for ref, _ in part["blocks"]]
    return blocks + [BlockRef(*part["ref"]) for part in parts if part["ref"] is not None]


def restore_runtime(runtime: BoxRuntime, data: Mapping[str, Any]) -> bool:
    """Put a state back, before the engine starts. False when the box is another one now and starts empty."""
    if data["fingerprint"] != fingerprint(runtime.node):
        return False
    tally = runtime.tally
    if runtime.files is not None:
        runtime.files.restore(data.get("home", runtime.node.name))  # in format 2 always the name of the box
    runtime.state = runtime.box.restore(data["state"])
    runtime.watch_losses(runtime.losses)
    runtime.limit_calls(runtime.call_limits)
    tally.filtered, tally.absorbed, tally.late, tally.dead, tally.null_errors = data["tally"]
    tally.dropped = data.get("dropped", 0)  # not in checkpoints of version 0.2
    tally.waiting, tally.evicted = data.get("waiting", 0), data.get("evicted", 0)  # nor these
    runtime.calls, runtime.tuples_in, runtime.cost_ns = data["counts"]
    runtime.tuples_out = list(data["tuples_out"])
    runtime.train_counts = list(data["train_counts"])
    runtime.port_watermarks_ns = list(data["port_watermarks_ns"])
    runtime.watermark_ns = int(data["watermark_ns"])
    runtime.measure()
    return True


class _Queues:
    """The queues: references now, bytes when they are asked for. A train on many arcs is written once."""

    def __init__(self, engine: Engine) -> None:
        self.refs: list[BlockRef] = []
        self._trains: list[Train] = []
        self._numbers: dict[int, int] = {}
        self._blocks: list[Any] = []
        self._block_numbers: dict[int, int] = {}
        self._arcs: dict[str, Any] = {}
        for arc, content in zip(engine.network.arcs, engine.storage.contents(), strict=True):
            self._arcs[arc.name] = self._arc(arc, content)

    def _arc(self, arc: Arc, content: ArcContent) -> dict[str, Any]:
        return {
            "schema": str(arc.schema),
            "trains": [self._train(t) for t in content.trains],
            "blocks": [self._block(b) for b in content.blocks],
            "counts": list(content.counts),
        }

    def _train(self, train: Train) -> int:
        number = self._numbers.setdefault(id(train), len(self._trains))
        if number == len(self._trains):
            self._trains.append(train)  # and kept alive, so that no other train gets its id
        return number

    def _block(self, block: Block) -> int:
        number = self._block_numbers.setdefault(id(block), len(self._blocks))
        if number == len(self._blocks):
            if block.ref is not None:
                self.refs.append(block.ref)
            held = [self._train(t) for t in block.trains or ()]
            self._blocks.append([None if block.ref is None else list(block.ref), held, block.nbytes, block.tuples])
        return number

    def clear(self) -> None:
        self._trains, self._blocks = [], []

    def encode(self) -> list[Bytes]:
        return encode_tree({"trains": self._trains, "blocks": self._blocks, "arcs": self._arcs})


def queue_obstacle(engine: Engine, data: Mapping[str, Any]) -> str:
    """Say why the tuples that wait in queues cannot be put back with the present fields; empty when they can."""
    arcs = {arc.name: arc for arc in engine.network.arcs}
    for name, saved in data["arcs"].items():
        arc = arcs.get(name)
        if arc is None or arc.box is None or str(arc.schema) == saved["schema"]:
            continue
        if saved["blocks"]:
            return f"tuples on disk wait on arc {name}, which has other fields now"
        for number in saved["trains"]:
            if why := obstacles(data["trains"][number].schema, arc.schema):
                return f"tuples wait on arc {name}, which has other fields now ({', '.join(why)})"
    if spilled_refs(data) and not engine.storage.can_spill:
        return "tuples on disk wait on an arc, and no stream has overload: spill any more"
    return ""


def restore_queues(engine: Engine, data: Mapping[str, Any]) -> list[str]:
    """Put the queues back, before the engine starts. Returns warnings about what could not be put back."""
    lost: list[str] = []
    arcs = {arc.name: arc for arc in engine.network.arcs}
    placed: dict[int, list[tuple[list[Train], list[int], list[int]]]] = {}
    for name, saved in data["arcs"].items():
        arc = arcs.get(name)
        if arc is None or arc.box is None:
            if saved["trains"] or saved["blocks"]:
                lost.append(f"arc {name} is gone: the tuples that waited there are dropped")
            continue
        trains = [data["trains"][n] for n in saved["trains"]]
        if str(arc.schema) != saved["schema"]:
            trains = [adapted(train, arc.schema) for train in trains]
        placed.setdefault(arc.number, []).append((trains, saved["blocks"], saved["counts"]))
    blocks = [SavedBlock(None if r is None else BlockRef(*r), [data["trains"][n] for n in held], size, tuples)
              for r, held, size, tuples in data["blocks"]]  # fmt: skip
    engine.storage.restore({a: found[0] for a, found in placed.items()}, blocks, engine.routes.enqueue)
    return lost


def spilled_refs(data: Mapping[str, Any]) -> list[BlockRef]:
    """Return the blocks on disk that a checkpoint refers to."""
    return [BlockRef(*lies) for lies, *_ in data["blocks"] if lies is not None]
