"""Queries that start in the past, row for row, and the history that a crash leaves. ``long_starts`` runs more cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errors import NetworkError
from engine.run.network_file import read_network
from tests.live.start_world import KINDS, StartCase


@pytest.mark.parametrize("kind", KINDS)
def test_a_query_that_starts_in_the_past_delivers_what_it_would_have(kind: str, tmp_path: Path) -> None:
    assert not StartCase(len(kind), tmp_path, kind).wrong()


FILE = """
engine: {{data_dir: {folder}}}
http: {{listen: off}}
streams:
  s: {{schema: {{n: bigint}}, overload: block{keep}}}
boxes:
  shared: {{filter: s, where: "n > 0"}}
  own: {{filter: shared, where: "n > 1"}}
outputs:
  one: {{from: shared}}
  two: {{from: own, start: -1h}}
"""


def test_a_start_needs_history_and_boxes_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="box 'shared' is shared with other outputs and keeps no history"):
        read_network(FILE.format(folder=tmp_path, keep=", keep: {for: 1h}"))
    lonely = FILE.replace("  one: {{from: shared}}\n", "")
    with pytest.raises(NetworkError, match="the stream 's' keeps no history"):
        read_network(lonely.format(folder=tmp_path, keep=""))
    assert read_network(lonely.format(folder=tmp_path, keep=", keep: {for: 1h}")).kept


def test_history_needs_a_data_dir() -> None:
    without = FILE.replace("engine: {{data_dir: {folder}}}\n", "").format(keep=", keep: {for: 1h}")
    with pytest.raises(NetworkError, match="keep needs a data_dir"):
        read_network(without)


def test_a_query_that_starts_in_the_past_shares_no_box(tmp_path: Path) -> None:
    """Equal boxes are one box elsewhere: here old tuples would come out of both outputs."""
    text = FILE.replace("filter: shared,", "filter: s,").replace('"n > 1"', '"n > 0"')
    text = text.replace("{{data_dir", "{{share: true, data_dir")
    network = read_network(text.format(folder=tmp_path, keep=", keep: {for: 1h}"))
    assert [box.name for box in network.boxes] == ["shared", "own"]
    assert len(read_network(text.format(folder=tmp_path, keep="").replace(", start: -1h", "")).boxes) == 1
