"""Build a network from a network file: resolve names, refuse loops, bind every box to the schemas of its inputs.

The rules:

- Streams, boxes and outputs share one namespace. So ``trades->big`` names exactly one arc, and a name in a log line is
  unambiguous. Refused: a separate namespace for outputs, where an output named like a box makes two arcs of one name.
- Boxes are numbered in topological order, ties by their order in the file; arcs by the box they feed, then outputs.
- All errors are reported at once, without consequential errors: a box whose input could not be bound is left out
  silently.
- Warnings do not stop a network: a port, a box or a stream whose tuples lead nowhere.

The kinds of boxes, and the checks of expressions and policies, are handed in: the catalog imports no other package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path as FilePath
from typing import Any

from catalog.assemble import BoundBox, BoundOutput, InputSource, assemble, find_dead_ends
from catalog.config.boxes import BoxDraft, draft_box
from catalog.config.checks import (
    check_access,
    check_listeners,
    check_names,
    check_policy,
    check_python_path,
    check_required,
    check_stop,
    check_stream,
    usable_time,
    worthless_graphs,
)
from catalog.config.document import Path
from catalog.config.file_checks import check_files
from catalog.config.history_checks import check_keep, check_kept_ports
from catalog.config.order import find_cycles, topological
from catalog.config.overrides import Overrides
from catalog.config.read import Config, read_config
from catalog.config.spark import check_spark_sink, check_spark_source
from catalog.config.words import did_you_mean
from catalog.errors import BindError, ExpressionError, NetworkError, Problem
from catalog.network import Kinds, Network
from catalog.pause import resting
from catalog.qos import QoS
from catalog.reuse import BindArguments, BoundBoxes
from catalog.schema import Schema
from catalog.share import Sharing
from catalog.start import NoHistoryError, start_arcs

CheckPredicate = Callable[[str, Schema], Any]
"""Check that the text is a boolean expression over the schema. Raises ExpressionError."""


PolicyFits = Callable[[str, Network], Sequence[tuple[str, str]]]
"""Return what a policy needs and this network lacks: (message, hint) for each."""


Warn = Callable[[Network], Sequence[tuple[Path, str, str]]]
"""Return warnings about the whole network: (path in the file, message, hint) for each."""


MakeModules = Callable[[Sequence[FilePath]], Any]
"""Return the user's Python modules in these folders, for boxes that call functions."""


def build_network(
    source: FilePath | str,
    kinds: Kinds,
    env: Mapping[str, str] | None = None,
    *,
    policies: Collection[str] | None = None,
    formats: Collection[str] | None = None,
    check_predicate: CheckPredicate | None = None,
    policy_fits: PolicyFits | None = None,
    refuse: Warn | None = None,
    warn: Warn | None = None,
    make_modules: MakeModules | None = None,
    version: int = 1,
    overrides: Overrides | None = None,
    before: Network | None = None,
    named: str = "",
    groups: Sequence[Sequence[str]] | None = None,
) -> Network:
    """Read a network file, check it whole and build it. Raises NetworkError with every problem.

    ``source`` is the name of a file, or the text itself (a str with a line break in it). ``env`` resolves ``${VAR}``;
    None: the environment of the process. ``policies`` are the allowed names of ``scheduler.policy``, ``formats`` those
    of the ``format`` of a socket; None: any. ``policy_fits`` checks the policy against the network, ``refuse`` finds
    other problems of the whole network, ``warn`` adds warnings about it. ``make_modules`` finds the user's Python
    modules. ``before`` lends its bound boxes. ``named``: the file that the text stands for, whose folder has the
    modules. ``groups``: the boxes that were one box when this file ran last (``catalog/share``).
    """
    config = read_config(source, os.environ if env is None else env, overrides, formats, named)
    context = None if make_modules is None else {"modules": make_modules(config.module_folders)}
    sharing = Sharing(config.file.engine.shares, before, config.file.boxes, groups)
    return _Builder(config, kinds, check_predicate, context, BoundBoxes(before), sharing).build(
        policies, policy_fits, refuse, warn, version
    )


class _Builder:
    """Collect the parts and the problems. ``schemas`` and ``times`` are by (name, port); a part that is missing in
    ``schemas`` could not be built."""

    def __init__(
        self,
        config: Config,
        kinds: Kinds,
        check_predicate: CheckPredicate | None,
        context: Mapping[str, Any] | None,
        bound: BoundBoxes,
        sharing: Sharing,
    ) -> None:
        self.bound = bound
        self.sharing = sharing
        self.config = config
        self.file = config.file
        self.document = config.document
        self.kinds = kinds
        self.check_predicate = check_predicate
        self.context = context  # for the validators of boxes' parameters
        self.problems: list[Problem] = list(config.problems)
        self.schemas: dict[tuple[str, int], Schema] = {}
        self.times: dict[tuple[str, int], str | None] = {}
        self.behind: dict[str, bool] = {}  # by box: whether its results may come out behind later ones
        self.drafts: dict[str, BoxDraft] = {}
        self.drawn: dict[str, tuple[Any, BoxDraft | None]] = {}  # as they are written, and drafts, for the next network

    def build(
        self,
        policies: Collection[str] | None,
        policy_fits: PolicyFits | None,
        refuse: Warn | None,
        warn: Warn | None,
        version: int,
    ) -> Network:
        for check in (
            check_required,
            check_names,
            check_listeners,
            check_access,
            check_stop,
            check_files,
            check_python_path,
            check_keep,
        ):
            self.problems += check(self.config)
        self.problems += check_policy(self.config, policies)
        for name, stream in self.file.streams.items():
            schema, problems = check_stream(name, stream, self.config)
            self.problems += problems
            self.problems += check_spark_source(name, stream.source, stream.time, schema, self.config)
            self.schemas[name, 0], self.times[name, 0] = schema, usable_time(stream, schema)
        self.draft_all()
        origins = {name: [self.resolve(*i) for i in draft.inputs] for name, draft in self.drafts.items()}
        self.sharing.keep_apart(self.starting_boxes(origins))
        order = self.sort(origins)
        self.sharing.keep_apart(self.resting_boxes(order, origins))
        bound = [b for name in order if (b := self.bind(self.drafts[name], origins[name])) is not None]
        outputs = [o for name in self.file.outputs if (o := self.output(name)) is not None]
        warnings = [p for p in self.problems if p.warning]
        if len(warnings) < len(self.problems):
            found = sorted(dict.fromkeys(self.problems), key=lambda p: (p.line, p.column, p.place))
            raise NetworkError(found, self.document.source, self.document.text)
        declared = {name: tuple(o.name for o in origins[name] if o is not None) for name in order}
        network = assemble(
            self.file, self.schemas, self.times, bound, outputs, version, self.sharing.other_names, declared,
            self.drawn,
        )  # fmt: skip
        self.check_fit(network, policy_fits, refuse)
        self.check_starts(network)
        warnings += find_dead_ends(network, self.document)
        for path, message, hint in warn(network) if warn is not None else ():
            warnings.append(self.document.problem(path, message, hint, warning=True))
        return replace(network, warnings=tuple(sorted(warnings, key=lambda p: (p.line, p.column))))

    def check_fit(self, network: Network, policy_fits: PolicyFits | None, refuse: Warn | None) -> None:
        """Refuse a policy that needs a QoS graph which no output has: it could not decide anything. Refuse what only
        the whole network shows."""
        lacking = policy_fits(self.file.scheduler.policy, network) if policy_fits is not None else ()
        problems: list[tuple[Path, str, str]] = [(("scheduler", "policy"), *remark) for remark in lacking]
        problems += refuse(network) if refuse is not None else ()
        if problems:
            found = [self.document.problem(path, message, hint) for path, message, hint in problems]
            raise NetworkError(found, self.document.source, self.document.text)

    def starting_boxes(self, origins: Mapping[str, list[InputSource | None]]) -> set[str]:
        """Return the boxes through which a query that starts in the past reads history."""
        ahead = [o.from_.partition(".")[0] for o in self.file.outputs.values() if o.start and o.start.rule != "now"]
        found: set[str] = set()
        while ahead:
            name = ahead.pop()
            if name in origins and name not in found and self.drafts[name].entry.keep is None:
                found.add(name)
                ahead += [origin.name for origin in origins[name] if origin is not None]
        return found

    def resting_boxes(self, order: Sequence[str], origins: Mapping[str, list[InputSource | None]]) -> set[str]:
        """Return the boxes that feed only paused outputs."""
        if not any(output.paused for output in self.file.outputs.values()):
            return set()
        feeds = {name: [o.name for o in origins[name] if o is not None] for name in order}
        outputs = {n: (o.from_.strip().partition(".")[0], o.paused) for n, o in self.file.outputs.items()}
        return resting(feeds, outputs)

    def check_starts(self, network: Network) -> None:
        """Refuse an output that starts in the past where no history is kept."""
        found: list[Problem] = []
        for output in network.outputs:
            if output.start is not None and output.start.rule != "now":
                try:
                    start_arcs(network, output)
                except NoHistoryError as error:
                    path = ("outputs", output.name, "start")
                    found.append(self.document.problem(path, f"no history to start from: {error}", error.hint))
        if found:
            raise NetworkError(found, self.document.source, self.document.text)

    def draft_all(self) -> None:
        data = self.document.data.get("boxes")
        for name, entry in self.file.boxes.items():
            known = self.bound.drafts.get(name)
            draft: BoxDraft | None
            if known is not None and known[0] == data[name]:
                draft = known[1]
            else:
                draft, problems = draft_box(name, data[name], entry, self.kinds, self.document, self.context)
                self.problems += problems
                known = (data[name], draft)
            if draft is not None and draft.parameters is not None and not hasattr(draft.parameters, "modules"):
                self.drawn[name] = known
            if draft is not None:
                self.problems += check_kept_ports(draft, self.document)
            if draft is None:
                self.config.broken.add(name)
            elif name not in self.file.streams:
                self.drafts[name] = draft

    # -- names ------------------------------------------------------------------------------------------------------

    def resolve(self, text: str, path: Path) -> InputSource | None:
        """Resolve ``trades`` or ``split.nyse``. Return None when it is wrong (then reported) or cannot be judged."""
        name, dot, port = text.partition(".")
        if name in self.file.streams:
            if not dot:
                return InputSource(name, 0, is_stream=True)
            return self.unresolved(path, f"'{name}' is a stream and has no port '{port}'", f"write '{name}'")
        draft = self.drafts.get(name)
        if draft is not None:
            return self.resolve_port(draft, port, path)
        if name in self.config.broken or self.config.lacks_section:
            return None
        if name in self.file.outputs:
            feeder = self.file.outputs[name].from_
            return self.unresolved(path, f"'{name}' is an output", f"read its input instead: '{feeder}'")
        return self.unresolved(path, f"there is no stream or box '{name}'", did_you_mean(name, self.names()))

    def resolve_port(self, draft: BoxDraft, port: str, path: Path) -> InputSource | None:
        if draft.parameters is None:
            return None  # its parameters are wrong (reported), so its ports are unknown
        if port in draft.ports:
            return InputSource(draft.name, draft.ports.index(port), is_stream=False)
        named = [p for p in draft.ports if p]
        if not port:
            return self.unresolved(path, f"'{draft.name}' has several ports", f"name one: {self.ports_of(draft)}")
        if not named:
            return self.unresolved(path, f"'{draft.name}' has no port '{port}'", f"write '{draft.name}'")
        return self.unresolved(path, f"'{draft.name}' has no port '{port}'", did_you_mean(port, named))

    def names(self) -> list[str]:
        return [*self.file.streams, *self.drafts]

    def ports_of(self, draft: BoxDraft) -> str:
        return ", ".join(f"{draft.name}.{p}" for p in draft.ports if p)

    def refuse(self, path: Path, message: str, hint: str = "") -> None:
        self.problems.append(self.document.problem(path, message, hint))

    def unresolved(self, path: Path, message: str, hint: str) -> InputSource | None:
        self.refuse(path, message, hint)
        return None

    # -- boxes ------------------------------------------------------------------------------------------------------

    def sort(self, origins: Mapping[str, list[InputSource | None]]) -> list[str]:
        feeders = {n: [o.name for o in os_ if o is not None and not o.is_stream] for n, os_ in origins.items()}
        for cycle in find_cycles(feeders):
            draft = self.drafts[cycle[0]]
            at = next((p for text, p in draft.inputs if text.partition(".")[0] == cycle[-1]), draft.path)
            message = f"a loop: {' -> '.join([*cycle, cycle[0]])}"
            self.refuse(at, message, "a network must not contain loops")
        return topological(feeders)

    def bind(self, draft: BoxDraft, origins: list[InputSource | None]) -> BoundBox | None:
        """Bind a box to its schemas. Return None when the box or one of its inputs is wrong, or when it has become one
        with an equal box."""
        origins = [None if o is None else self.sharing.one(o) for o in origins]
        keys = [(o.name, o.port) for o in origins if o is not None]
        fits = draft.cls.min_inputs <= len(keys) <= draft.cls.max_inputs
        if draft.parameters is None or not fits or len(keys) < len(origins) or any(k not in self.schemas for k in keys):
            return None
        sources = [o for o in origins if o is not None]
        if (shared := self.sharing.find(draft, sources)) is not None:
            self.note_ports(draft, shared.bound.box, shared.bound.out_schemas, keys)
            return None
        inputs = tuple(self.schemas[k] for k in keys)
        times = tuple(self.times[k] for k in keys)
        behind = tuple(self.behind.get(k[0], False) for k in keys)
        known = self.bound.find(draft.name, draft.cls, draft.parameters, BindArguments(inputs, times, behind))
        box = draft.cls(draft.parameters) if known is None else known.box
        try:
            outs = box.bind(inputs, times) if known is None else known.out_schemas
        except (BindError, ExpressionError) as error:
            more = error.more if isinstance(error, BindError) else ()
            self.problems += [self.explain(draft, each) for each in (error, *more)]
            return None
        assert len(outs) == len(draft.ports), f"{draft.kind}: {len(outs)} schemas for the ports {draft.ports}"
        self.behind[draft.name] = box.runs_behind(behind)
        self.note_ports(draft, box, outs, keys)
        made = BoundBox(draft, box, sources, inputs, outs)
        self.sharing.add(made)
        return made

    def note_ports(self, draft: BoxDraft, box: Any, outs: tuple[Schema, ...], keys: list[tuple[str, int]]) -> None:
        """Take note of the fields and the event time that leave by each port of a box."""
        times = box.time_out(tuple(self.times[k] for k in keys))
        for port, (schema, time) in enumerate(zip(outs, times, strict=True)):
            self.schemas[draft.name, port], self.times[draft.name, port] = schema, time

    def explain(self, draft: BoxDraft, error: BindError | ExpressionError) -> Problem:
        """Make a problem at the parameter at fault; for an expression, at the offset inside its text."""
        inner = error if isinstance(error, ExpressionError) else error.__cause__
        text, offset = (inner.text, inner.offset) if isinstance(inner, ExpressionError) else ("", -1)
        path = (*draft.path, *error.key) if isinstance(error, BindError) else self.find_text(draft.path, text)
        if path == draft.path and (*path, draft.kind) in self.document.values:
            path = (*path, draft.kind)
        return self.document.problem(path, error.message, _by_prefix(draft, error), offset=offset)

    def find_text(self, path: Path, text: str) -> Path:
        """Return the path below ``path`` at which the document has this text."""
        for candidate in self.document.values:
            if candidate[: len(path)] == path and len(candidate) > len(path) and self.value_at(candidate) == text:
                return candidate
        return path

    def value_at(self, path: Path) -> Any:
        here: Any = self.document.data
        for part in path:
            try:
                here = here[part]
            except (KeyError, IndexError, TypeError):
                return None
        return here

    # -- outputs ----------------------------------------------------------------------------------------------------

    def output(self, name: str) -> BoundOutput | None:
        model = self.file.outputs[name]
        origin = self.resolve(model.from_.strip(), ("outputs", name, "from"))
        schema = self.schemas.get((origin.name, origin.port)) if origin is not None else None
        if origin is None or schema is None:
            return None
        origin = self.sharing.one(origin)
        qos = model.qos.make()
        self.check_qos(("outputs", name, "qos"), qos, schema)
        self.problems += check_spark_sink(name, model.sink, schema, self.config)
        return BoundOutput(name, model, origin, schema, qos)

    def check_qos(self, path: Path, qos: QoS, schema: Schema) -> None:
        self.problems += worthless_graphs(path, qos, self.document)
        if qos.value is not None:
            field = qos.value_field
            at = (*path, "value", "field")
            if at not in self.document.values:
                at = (*path, "value", field)
            if field not in schema:
                hint = did_you_mean(field, schema.names)
                self.problems.append(self.document.problem(at, f"the output has no field '{field}'", hint, at_key=True))
            elif not schema[field].type.is_numeric:
                self.refuse(at, f"'{field}' is a {schema[field].type}; a value graph needs a number")
        if qos.prefer and self.check_predicate is not None:
            try:
                self.check_predicate(qos.prefer, schema)
            except ExpressionError as error:
                at = (*path, "prefer")
                self.problems.append(self.document.problem(at, error.message, error.hint, offset=error.offset))


def _by_prefix(draft: BoxDraft, error: BindError | ExpressionError) -> str:
    """Return the hint of an error. For ``doors.room`` in a join of ``doors`` it names the one field, ``l.room``."""
    field = error.message.removeprefix("no field ")
    for (name, _), prefix in zip(draft.inputs, draft.cls.input_prefixes, strict=False):
        meant = prefix + field.removeprefix(f"{name}.")
        if field.startswith(f"{name}.") and meant in error.hint:
            return f"write {meant}"
    return error.hint
