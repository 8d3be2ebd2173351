"""Tests that share something dear (a JVM, the parsed source) stay together on one worker of xdist."""

from __future__ import annotations

import os

import pytest


def test_the_tests_of_a_group_stay_together(request: pytest.FixtureRequest) -> None:
    """xdist goes by what it has added to their names. Where it cannot, nothing fails: every worker makes its own."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@tidy")
