"""The lines that the READMEs show, run as they stand against a real daemon."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.daemon import Daemon
from engine.load import load_network

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize(("readme", "rows"), [("clients/python/README.md", len(SALES)), ("README.md", 1)])
def test_the_lines_of_the_readme_work(tmp_path: Path, readme: str, rows: int) -> None:
    text = (ROOT / readme).read_text()
    [example] = re.findall(r"```python\n(from aurorad_client import .*?)```", text, re.DOTALL)
    assert len(example.strip().splitlines()) <= 10
    daemon = Daemon(load_network(NETWORK.format(data=tmp_path / "data"), {}))
    daemon.start()
    got: list[dict[str, Any]] = []

    def book(*said: Any) -> None:
        got.extend(said[-1])
        if len(got) == rows:
            raise EnoughError

    example = example.replace("9401", str(daemon.server.address("stream t")[1]))
    example = example.replace("9402", str(daemon.server.address("output o")[1]))
    try:
        with pytest.raises(EnoughError):
            exec(compile(example, readme, "exec"), {"sales": SALES, "book": book, "print": book})
    finally:
        daemon.stop(5.0)
    assert [row["price"] for row in got] == ([99.5] if rows == 1 else [sale["price"] for sale in SALES])
