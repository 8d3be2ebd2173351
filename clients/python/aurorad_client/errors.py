"""Errors that a retry does not cure."""

from __future__ import annotations


class ClientError(Exception):
    """The server cannot be reached in time, or does not speak the protocol."""


class RefusedError(ClientError):
    """The server refuses this client; the message has its reason."""
