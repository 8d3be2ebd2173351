"""The daemon's answers to the console: the network file, words for its editor, what would be given up next, forecasts.

A forecast is ``aurorad simulate --contract`` in a process of its own, with the statistics of this moment. It does not
take the GIL from the engine, and says what the command says. ``begin.py`` has the answers to the view Begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from tempfile import NamedTemporaryFile
from typing import Any

import orjson

from catalog.legend import LEGEND
from catalog.network import Network
from engine.daemon.change import LiveChanges
from engine.daemon.web.begin import Begin
from engine.daemon.web.command import ConsoleError, aurorad_command, plain_word
from load_shedder.control_loop import OverloadControl
from qos_monitor.sampler import Sample
from router.console.handlers import ConsoleQueries

FORECAST_NICENESS = 10  # a simulation takes seconds of a core; the streams come first
STEPS_AT_MOST = 40


class Console:
    """Any thread."""

    def __init__(
        self,
        stats: Callable[[], Mapping[str, Any]],
        network: Callable[[], Network],
        changes: LiveChanges,
        overload: Callable[[], OverloadControl[Sample]],
        begin: Begin,
    ) -> None:
        self._stats, self._network, self._changes, self._overload = stats, network, changes, overload
        self._begin = begin

    def queries(self) -> ConsoleQueries:
        return ConsoleQueries(
            stats=self._stats,
            file=lambda: self._changes.text,
            words=lambda: self._words,
            give_up=self._give_up,
            superboxes=self._superboxes,
            what_if=self._what_if,
            draft=self._begin.draft,
            merge=self._begin.merge,
            trial=self._begin.trial,
            feed=self._begin.feed,
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
            options += ["--policy", plain_word(policy, "policy")]
        if asked.get("workers") is not None:
            options += ["--workers", str(int(_number(asked, "workers", 1, 1, 256)))]
        with NamedTemporaryFile("wb", suffix=".json", prefix="aurorad-stats-") as costs:
            costs.write(orjson.dumps(stats, option=orjson.OPT_SERIALIZE_NUMPY, default=str))
            costs.flush()
            answer = aurorad_command(
                ["simulate", "-", "--json", "--contract", "--from-stats", costs.name, *options], text, FORECAST_NICENESS
            )
        found: dict[str, Any] = orjson.loads(answer)
        return {"rates": named, "workers": found["workers"], **found["contracts"][0]}


def _number(asked: Mapping[str, Any], key: str, default: float, least: float, most: float) -> float:
    value = asked.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ConsoleError(f"{key} must be a number from {least:g} to {most:g}")
    return float(value)
