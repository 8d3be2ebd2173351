"""Tests that share something expensive (a JVM, the parsed source) stay together on one worker of xdist."""

from __future__ import annotations

import os

import pytest


def test_the_tests_of_a_group_stay_together(request: pytest.FixtureRequest) -> None:
    """xdist groups tests by a suffix of their names. Without it no test would fail: every worker would make its own."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@tidy"), "run pytest with --dist loadgroup, as pyproject.toml does"
