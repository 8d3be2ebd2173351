"""The descriptors of a process, divided among its listeners."""

from __future__ import annotations

import pytest

from engine.daemon.process.descriptors import share


@pytest.mark.parametrize("wanted", [1, 2, 4, 1000])
def test_the_data_ports_never_get_more_than_the_file_allows(wanted: int) -> None:
    assert share(65_536, 64, wanted).data == wanted


def test_a_low_limit_leaves_the_daemon_reachable() -> None:
    assert share(256, 64, 1000).data >= 4 and share(256, 64, 2).data == 2
