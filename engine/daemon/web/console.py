"""The daemon's answers to the console: the network file, words for its editor, what would be given up next, forecasts,
drafts and trials.

A forecast is ``aurorad simulate --contract`` in a process of its own, with the statistics of this moment. A draft is
``aurorad new``. Neither takes the GIL from the engine, and both say what the commands say. A trial plays rows through a
network on an engine of its own, under a clock that only the rows move, as ``aurorad test`` does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from tempfile import NamedTemporaryFile
from typing import Any

import orjson

from catalog.errors import AuroraError
from catalog.legend import LEGEND
from catalog.network import Network
from engine.daemon.change import LiveChanges
from load_shedder.control_loop import OverloadControl
from qos_monitor.sampler import Sample
from router.console.handlers import ConsoleQueries

COMMAND_SECONDS = 120.0
TRIAL_ROWS = 2_000
FORECAST_NICENESS = 10  # a simulation takes seconds of a core; the streams come first
STEPS_AT_MOST = 40


class ConsoleError(AuroraError):
    """The console asked for something that cannot be done."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Console:
    """Any thread."""

    def __init__(
        self,
        stats: Callable[[], Mapping[str, Any]],
        network: Callable[[], Network],
        changes: LiveChanges,
        overload: Callable[[], OverloadControl[Sample]],
    ) -> None:
        self._stats, self._network, self._changes, self._overload = stats, network, changes, overload

    def queries(self) -> ConsoleQueries:
        return ConsoleQueries(
            stats=self._stats,
            file=lambda: self._changes.text,
            words=lambda: self._words,
            give_up=self._give_up,
            superboxes=self._superboxes,
            what_if=self._what_if,
            draft=self._draft,
            trial=self._trial,
        )

    @cached_property
    def _words(self) -> Mapping[str, Any]:
        from catalog.config.models import NetworkFile, OutputModel, StreamModel
        from engine.operators.boxes import box_kinds
        from engine.operators.expressions.function_docs import catalogue
        from engine.operators.parameter_docs import parameters
        from scheduler.policies import policies

        def keys(model: Any) -> list[str]:
            return [field.alias or name.rstrip("_") for name, field in model.model_fields.items()]

        return {
            "keys": {"": keys(NetworkFile), "streams": keys(StreamModel), "outputs": keys(OutputModel)},
            "boxes": [
                {
                    "name": kind,
                    "summary": box.summary,
                    "keys": [r[0].strip("`") for r in parameters(box.parameters_model)],
                }
                for kind, box in box_kinds().items()
            ],
            "functions": [
                {"name": doc.name, "signature": doc.signature, "description": doc.description} for doc in catalogue()
            ],
            "policies": [*policies(), "auto"],
            "legend": [term._asdict() for term in LEGEND],
        }

    def _superboxes(self) -> Mapping[str, Any]:
        """Say which boxes are scheduled together, in the order of the units."""
        boxes = self._network().boxes
        return {"superboxes": [[boxes[b].name for b in unit] for unit in self._overload().shedder.units]}

    def _give_up(self) -> Mapping[str, Any]:
        """Say what the load shedder would give up, in its order, from nothing to everything."""
        overload, network = self._overload(), self._network()
        road_map = overload.shedder.current_map()
        steps = [] if road_map is None else road_map.steps()
        return {
            "level": overload.plan.level,
            "load_ratio": overload.verdict.load_ratio,
            "steps": [
                {
                    "arc": network.arcs[step.place.arc].name,
                    "manner": step.place.manner,
                    "outputs": [network.outputs[o].name for o in step.place.outputs],
                    "saves": step.saves,
                    "costs": step.costs,
                }
                for step in steps[:STEPS_AT_MOST]
            ],
        }

    def _what_if(self, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        """Forecast each output at ``factor`` times the present rates, or at ``rates``, with a policy and workers."""
        stats = self._stats()
        text = str(asked.get("file") or self._changes.text)
        if not text:
            raise ConsoleError("this network was not read from a file", "send one as `file`")
        rates = asked.get("rates") or {s["name"]: s["rate_per_s"] for s in stats["streams"]}
        factor = _number(asked, "factor", 1.0, 0.0, 1_000.0)
        named = {str(name): factor * _number(rates, name, 0.0, 0.0, 1e9) for name in rates}
        if not any(rate >= 1 for rate in named.values()):
            raise ConsoleError("no rows arrive, so there is nothing to multiply", "send some rows first, or name rates")
        options = ["--rates", ",".join(f"{name}={rate:.0f}" for name, rate in named.items()), "--for", "6s"]
        if (policy := asked.get("policy")) is not None:
            options += ["--policy", _word(policy, "policy")]
        if asked.get("workers") is not None:
            options += ["--workers", str(int(_number(asked, "workers", 1, 1, 256)))]
        with NamedTemporaryFile("wb", suffix=".json", prefix="aurorad-stats-") as costs:
            costs.write(orjson.dumps(stats, option=orjson.OPT_SERIALIZE_NUMPY, default=str))
            costs.flush()
            answer = _command(
                ["simulate", "-", "--json", "--contract", "--from-stats", costs.name, *options], text, FORECAST_NICENESS
            )
        found: dict[str, Any] = orjson.loads(answer)
        return {"rates": named, "workers": found["workers"], **found["contracts"][0]}

    def _draft(self, rows: str) -> Mapping[str, Any]:
        if not rows.strip():
            raise ConsoleError("there are no rows", "paste some rows of JSON or CSV")
        return {"file": _command(["new", "-"], rows)}

    def _trial(self, file: str, rows: Mapping[str, str]) -> Mapping[str, Any]:
        """Play rows through a network file, and return what comes out of each output."""
        from engine.run.cases.case_file import NetworkCase
        from engine.run.cases.play import play

        network = self._changes.read(file if file.endswith("\n") else file + "\n")
        known = [stream.name for stream in network.streams]
        if unknown := [name for name in rows if name not in known]:
            raise ConsoleError(f"there is no stream '{unknown[0][:100]}'", f"the streams are {', '.join(known[:20])}")
        parsed = {name: _parse_rows(name, text) for name, text in rows.items()}
        if sum(map(len, parsed.values())) > TRIAL_ROWS:
            raise ConsoleError(f"a trial takes at most {TRIAL_ROWS:,} rows")
        played = play(network, NetworkCase(name="trial", input=[{name: each} for name, each in parsed.items()]))
        return {
            "outputs": [
                {"name": o.name, "fields": list(o.schema.names), "rows": played.rows[o.name][:TRIAL_ROWS]}
                for o in network.outputs
            ],
            "refused": {
                name: [{"reason": r.reason, "message": r.message} for r in rejects[:20]]
                for name, rejects in played.refused.items()
            },
            "late": {box: count for box, count in played.late.items() if count},
            "dead": {box: count for box, count in played.dead.items() if count},
        }


def _parse_rows(stream: str, text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise ConsoleError(f"{stream}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ConsoleError(f"{stream}, line {number}: a row is a JSON object")
        found.append(row)
    return found


def _number(asked: Mapping[str, Any], key: str, default: float, least: float, most: float) -> float:
    value = asked.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConsoleError(f"{key} must be a number from {least:g} to {most:g}")
    return float(value)


def _word(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value.replace("_", "").isalnum():
        raise ConsoleError(f"{key} must be a name")
    return value


def _command(arguments: list[str], text: str, niceness: int = 0) -> str:
    """Run an aurorad command with this text as its input. Return what it prints."""
    try:
        done = subprocess.run(  # noqa: S603  (our own command; its words are checked above)
            [sys.executable, "-m", "aurorad", *arguments],
            input=text.encode(), capture_output=True, timeout=COMMAND_SECONDS, check=False,
            preexec_fn=lambda: os.nice(niceness),
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConsoleError(f"it took longer than {COMMAND_SECONDS:g} s", "the network may be too large") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise ConsoleError(said[-2_000:] or f"`aurorad {arguments[0]}` ended with {done.returncode}")
    return done.stdout.decode()
