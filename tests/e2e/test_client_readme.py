"""The examples of clients/python/README.md, run as they stand against a real daemon with the network of the README."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.daemon.daemon import Daemon
from engine.run.network_file import read_network
from tests.docs.fences import fences

README = "clients/python/README.md"
EXAMPLES = [fence.text for fence in fences(README) if fence.language == "python"]
[NETWORK] = [fence.text for fence in fences(README) if fence.language == "yaml"]
DATA_DIR = "engine: {data_dir: ./shop-data}"


@contextlib.contextmanager
def shop(folder: Path | None) -> Iterator[tuple[str, str]]:
    """Run the README's network on free ports. Yields the ports that stand for 9401 and 9402."""
    assert DATA_DIR in NETWORK
    text = NETWORK.replace(DATA_DIR, "" if folder is None else f"engine: {{data_dir: {folder / 'data'}}}")
    text = text.replace(":9401", ":0").replace(":9402", ":0")
    daemon = Daemon(read_network(f"http: {{listen: off}}\n{text}", {}))
    daemon.start()
    try:
        yield str(daemon.server.address("stream sales")[1]), str(daemon.server.address("output large_sales")[1])
    finally:
        daemon.stop(5.0)


def run(example: str, ports: tuple[str, str]) -> str:
    """Execute an example and return what it prints."""
    printed = io.StringIO()
    text = example.replace("9401", ports[0]).replace("9402", ports[1])
    with contextlib.redirect_stdout(printed):
        exec(compile(text, README, "exec"), {"__name__": "example"})
    return printed.getvalue()


def test_the_examples_with_a_data_dir(tmp_path: Path) -> None:
    sync, asynchronous, refused = EXAMPLES[:3]
    with shop(tmp_path) as ports:
        said = run(sync, ports)
        assert "'item': 'lamp', 'price': 120.0" in said and "'item': 'desk', 'price': 480.5" in said
        assert "'item': 'sofa', 'price': 900.0" in run(asynchronous, ports)
        first, *strict = run(refused, ports).splitlines()
        assert first.startswith("1 1 batch 1, row 1: "), first
        assert strict[0] == "the server refused 1 row" and "batch 1, row 0: " in strict[1]


def test_the_example_without_a_data_dir() -> None:
    with shop(None) as ports:
        assert "'item': 'lamp', 'price': 120.0" in run(EXAMPLES[-1], ports)


@pytest.mark.parametrize("example", EXAMPLES[:2])
def test_the_other_examples_say_what_they_lack_without_a_data_dir(example: str) -> None:
    with shop(None) as ports, pytest.raises(Exception, match=r"needs engine\.data_dir"):
        run(example, ports)
