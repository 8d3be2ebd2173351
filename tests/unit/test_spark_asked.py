"""Who may ask the daemon to read with its own rights, and what it refuses."""

from __future__ import annotations

import pytest

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from router.spark.daemon.asked_jobs import DaemonJob
from router.spark.wire.errors import SparkRefusedError

USERS = """
access:
  users:
    ops: {token: ops-token-ops-token-ops, admin: true}
    feed: {token: feed-token-feed-token, publish: [s]}
"""
NETWORK = """
http: {listen: "off"}
spark: {listen: 127.0.0.1:0}
streams: {s: {schema: {x: double}}}
outputs: {out: {from: s}}
"""


def job(daemon: Daemon, token: str = "", **source: object) -> DaemonJob:
    what = {"spark": "parquet", "path": ["/nowhere"], **source}
    return DaemonJob(daemon.spark.port.address, token, "", "job", stream="s", pace="as_fast", source=what)


def test_only_an_admin_may_ask_the_daemon_to_read() -> None:
    daemon = Daemon(read_network(USERS + NETWORK, {}))
    daemon.start()
    try:
        assert not job(daemon, "ops-token-ops-token-ops").begin(start=False), "it has no JVM, and starts none"
        for token in ("feed-token-feed-token", "another-token-another"):
            with pytest.raises(SparkRefusedError, match="denied"):
                job(daemon, token).begin(start=False)
    finally:
        daemon.stop()


def test_what_makes_no_sense_is_refused_before_a_jvm_starts() -> None:
    daemon = Daemon(read_network(NETWORK, {}))
    daemon.start()
    try:
        for source, why in (
            ({"path": 7}, "path"),
            ({"spark": 1}, "spark"),
            ({"watch": "1s", "nonsense": 1}, "nonsense"),
        ):
            with pytest.raises(SparkRefusedError, match=why):
                job(daemon, **source).begin(start=True)
        with pytest.raises(SparkRefusedError, match="there is no job job"):
            job(daemon).progress()
        assert daemon.readings().spark.starts == 0
    finally:
        daemon.stop()
