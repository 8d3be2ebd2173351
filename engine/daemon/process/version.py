"""The version of the installed distribution: in the log, in ``/api/v1/stats`` and in ``aurorad version``."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def own_version() -> str:
    """Return the version of the installed distribution, or ``0+unknown`` for a checkout that is not installed."""
    try:
        return version("aurorad")
    except PackageNotFoundError:
        return "0+unknown"
