"""What can go wrong that trying again does not mend."""

from __future__ import annotations


class ClientError(Exception):
    """The server cannot be reached in time, or does not speak the protocol."""


class RefusedError(ClientError):
    """The server will not serve this client: it says why."""
