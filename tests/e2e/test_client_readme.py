"""The example of clients/python/README.md, run as it stands against a real daemon."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from tests.docs.fences import fences

README = "clients/python/README.md"
SALES = [{"ts": n, "symbol": "ABC", "price": float(n)} for n in range(5)]
NETWORK = """
engine: {{data_dir: {data}}}
http: {{listen: off}}
streams:
  t: {{schema: {{ts: timestamp, symbol: string, price: double}}, source: {{tcp: 127.0.0.1:0}}}}
outputs:
  o: {{from: t, sink: {{tcp: 127.0.0.1:0}}}}
"""


class EnoughError(Exception):
    """The example reads for ever; the test does not."""


def test_the_lines_of_the_readme_work(tmp_path: Path) -> None:
    [fence] = [f for f in fences(README) if f.language == "python"]
    example = fence.text
    assert len(example.strip().splitlines()) <= 10
    daemon = Daemon(read_network(NETWORK.format(data=tmp_path / "data"), {}))
    daemon.start()
    got: list[dict[str, Any]] = []

    def book(*said: Any) -> None:
        got.extend(said[-1])
        if len(got) == len(SALES):
            raise EnoughError

    example = example.replace("9401", str(daemon.server.address("stream t")[1]))
    example = example.replace("9402", str(daemon.server.address("output o")[1]))
    try:
        with pytest.raises(EnoughError):
            exec(compile(example, README, "exec"), {"sales": SALES, "book": book})
    finally:
        daemon.stop(5.0)
    assert [row["price"] for row in got] == [sale["price"] for sale in SALES]
