"""HTTP by schemathesis: requests from the OpenAPI document of the running daemon, good ones and bad ones.

Every answer must be one that the document has: its status, its media type, its schema. No answer may be a 500, and what
the document does not allow must be refused. Left out are answers without an end, and those that start a process.
"""

from __future__ import annotations

import importlib.util
import threading
import time
import traceback
from contextlib import suppress
from typing import Any

from tests.e2e.daemon import RunningDaemon, connect

NAME = "http contract"
EXAMPLES = 10
LEFT_OUT = ("tap", "live", "what_if", "trial")


def is_installed() -> bool:
    return importlib.util.find_spec("schemathesis") is not None


def run(daemon: RunningDaemon, source: int, seconds: float, seed: int) -> tuple[int, list[str]]:
    """Ask for a time. Return how many requests were made, and what was wrong with their answers."""
    import schemathesis

    document = schemathesis.openapi.from_url(f"http://127.0.0.1:{daemon.http_port}/api/v1/openapi.json")
    operations = [found.ok() for found in document.get_all_operations()]
    fed = threading.Event()
    feeder = threading.Thread(target=_feed, args=(source, fed))
    feeder.start()
    requests, turn, end = 0, 0, time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for operation in operations:
                if operation.definition.raw["operationId"] in LEFT_OUT or time.monotonic() > end:
                    continue
                made, finding = _ask(operation, seed + turn)
                requests += made
                if finding:
                    return requests, [f"seed {seed + turn}: {finding}"]
            turn += 1
    finally:
        fed.set()
        feeder.join()
    return requests, []


def _ask(operation: Any, seed: int) -> tuple[int, str]:
    import hypothesis
    import schemathesis
    from schemathesis import checks

    wanted = [checks.not_a_server_error, *(
        check for check in checks.CHECKS.get_all()
        if check.__name__ in ("status_code_conformance", "content_type_conformance", "response_schema_conformance",
                              "negative_data_rejection", "unsupported_method")
    )]  # fmt: skip
    made = 0
    modes = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
    for mode in modes:
        try:
            strategy = operation.as_strategy(generation_mode=mode)

            @hypothesis.seed(seed)
            @hypothesis.settings(
                max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck)
            )
            @hypothesis.given(case=strategy)
            def ask(case: Any) -> None:
                nonlocal made
                made += 1
                case.validate_response(case.call(timeout=70), checks=wanted)

            ask()
        except hypothesis.errors.Unsatisfiable:
            continue  # nothing can be wrong with an operation without parameters
        except Exception:  # noqa: BLE001 - whatever it is, it is what this program looks for
            return made, f"{operation.label}: {traceback.format_exc(limit=-2)[-3_000:]}"
    return made, ""


def _feed(port: int, ended: threading.Event) -> None:
    """Send tuples all the time: a request that waits for one shall not wait long."""
    number = 0
    while not ended.wait(0.05):
        with suppress(OSError), connect(port) as sock:
            number += 1
            sock.sendall(b'{"n": %d}\n' % number)
