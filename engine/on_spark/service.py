"""``aurorad run FILE --on spark``: the driver as a process, with signals and exit codes as the daemon has them."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from catalog.config.jars import missing_jar
from catalog.config.models import SparkSink, SparkSource
from catalog.config.overrides import Overrides
from catalog.config.read import read_config
from catalog.errors import AuroraError, NetworkError, Problem
from catalog.network import Network
from engine.daemon.process.logs import set_up_logs
from engine.on_spark.plan import SparkPlan, make_plan
from engine.on_spark.refusals import Remark
from engine.on_spark.run import NEEDED, run_query
from engine.on_spark.shipping import client_folder
from engine.on_spark.store import SparkCheckpointError
from engine.run.network_file import read_network
from router.spark.wire.errors import SparkError, SparkFailedError

log = logging.getLogger("aurorad.on_spark")

EXIT_FAILED = 1
STOP_SECONDS = 15.0


def read_for_spark(
    file: Path | str, overrides: Overrides | None = None, master: str | None = None
) -> tuple[SparkPlan, list[Problem]]:
    """Read a network file and plan it for Spark. Return the plan and its warnings, with their places in the file.

    Raises NetworkError with everything that cannot run there.
    """
    network = read_network(file, overrides=overrides)
    plan = make_plan(network)
    config = read_config(file, os.environ, overrides)
    remarks = [*plan.remarks, *_missing_jars(network)]
    if (master or "").startswith("sc://"):
        message = "Spark Connect (sc://) is not supported: name the master itself, spark://host:7077, yarn or local[*]"
        remarks.append(Remark(("spark", "master"), message))
    problems = [
        config.document.problem(r.path, r.message, r.hint, warning=r.is_warning, at_key=r.is_key) for r in remarks
    ]
    wrong = [problem for problem in problems if not problem.warning]
    if wrong:
        raise NetworkError(wrong, config.document.source, config.document.text)
    return plan, problems


def _missing_jars(network: Network) -> Iterator[Remark]:
    """Refuse the formats that this Spark does not have: the query would fail after its start."""
    ends: list[tuple[tuple[str, ...], object]] = [
        *((("streams", s.name, "source", "spark"), s.source) for s in network.streams),
        *((("outputs", o.name, "sink", "spark"), o.sink) for o in network.outputs),
    ]
    for path, end in ends:
        if isinstance(end, SparkSource | SparkSink) and (found := missing_jar(end.spark, network.config.spark.config)):
            yield Remark(path, *found)
        if isinstance(end, SparkSource) and end.spark == "aurorad" and client_folder() is None:
            yield Remark(path, 'format("aurorad") is not installed here', "pip install aurorad-spark")


def serve_on_spark(
    file: Path,
    overrides: Overrides,
    *,
    master: str | None,
    checkpoint: str | None,
    shards: int | None,
    every_s: float,
    once: bool,
) -> int:
    """Run a network on Spark until its sources end or a signal comes. Return the exit code. Raises NetworkError."""
    plan, warnings = read_for_spark(file, overrides, master)
    network = plan.network
    set_up_logs(network.config.log.format, network.config.log.level)
    _quiet()
    for warning in warnings:
        hint = f" ({warning.hint})" if warning.hint else ""
        log.warning("%s:%d: %s: %s%s", file, warning.line, warning.place, warning.message, hint)
    place = checkpoint or _checkpoint_of(network)
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_signal)
    log.info("Spark starts on %s", master or network.config.spark.master)
    with (
        tempfile.TemporaryDirectory(prefix="aurorad-on-spark-") as scratch,
        ThreadPoolExecutor(1, "aurorad-on-spark") as pool,
    ):
        asked = pool.submit(_drive, plan, master, place, shards, every_s, once, stop, Path(scratch))
        while not asked.done():
            stop.wait(0.2) if not stop.is_set() else asked.exception(60.0)
        try:
            return asked.result()
        except AuroraError as error:
            log.error("%s", error)
            return EXIT_FAILED


def _checkpoint_of(network: Network) -> str:
    folder = network.config.engine.data_dir
    if folder is None:
        raise SparkFailedError("where is the state to be kept? name a folder with --checkpoint, or engine.data_dir")
    return str(Path(folder).absolute() / "on-spark")


def _drive(
    plan: SparkPlan,
    master: str | None,
    place: str,
    shards: int | None,
    every_s: float,
    once: bool,
    stop: threading.Event,
    scratch: Path,
) -> int:
    """Start Spark and run the query, beside the main thread, which keeps the handlers of signals."""
    from router.spark.driver.launch import launch

    section = plan.network.config.spark
    config = {key: _text(value) for key, value in section.config.items()} | NEEDED
    launched = launch(master or section.master, config, scratch)
    try:
        batches = run_query(launched.session, plan, place, shards=shards, once=once, every_s=every_s, stop=stop)
        log.info("the query has ended after %d batches", len(batches.reports))
        return 0
    except Exception as error:
        if isinstance(error, AuroraError):
            raise
        raise why(error) from error
    finally:
        sys.stderr.flush()
        end_spark(launched.session, launched.jvm)


def why(error: Exception) -> SparkError:
    """Convert an error of the query to one with a message for people. An executor's error is what its Python said."""
    found = re.findall(r"^(?:\w+\.)+(\w+Error): (.+)$", str(error), re.MULTILINE)
    if found and "Python worker" in str(error):
        kind, message = found[-1]
        return SparkFailedError(message if kind == SparkCheckpointError.__name__ else f"{kind}: {message}")
    from router.spark.driver.main import explain

    return explain(error)


def end_spark(session: Any, jvm: subprocess.Popen[bytes]) -> None:
    """Stop the session, so that a cluster notes the end and pyspark's threads end first, and then end the JVM.

    A JVM that does not answer is ended all the same.
    """

    def stop() -> None:
        with suppress(Exception):  # of any kind: the JVM is lost, and ends below
            session.stop()

    asked = threading.Thread(target=stop, name="aurorad-on-spark-stop", daemon=True)
    asked.start()
    asked.join(STOP_SECONDS)
    jvm.kill()
    jvm.wait()


def _quiet() -> None:
    """Keep py4j's remarks on its connections out of the log. It writes them to its own logger and to the root."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    logging.getLogger().addFilter(lambda record: record.name != "root" or record.levelno >= logging.WARNING)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "" if value is None else str(value)


__all__ = ["SparkError", "read_for_spark", "serve_on_spark"]
