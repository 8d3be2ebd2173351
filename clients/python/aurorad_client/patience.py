"""How long the clients wait, and for what. Time comes in as an argument."""

from __future__ import annotations

import random
import ssl
from dataclasses import dataclass

from aurorad_client.errors import StalledError, UnreachableError

FIRST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 1.0
REFUSED_PAUSE_SECONDS = 0.1
HANDSHAKE_SECONDS = 10.0
"""For one attempt to connect and to get the welcome."""


@dataclass(frozen=True)
class Endpoint:
    """A server's port, and how long to try to reach it. ``tls``: the context of a server with TLS."""

    host: str
    port: int
    timeout_s: float
    tls: ssl.SSLContext | None = None

    @property
    def address(self) -> tuple[str, int]:
        return self.host, self.port

    @property
    def handshake_s(self) -> float:
        return min(HANDSHAKE_SECONDS, self.timeout_s)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Backoff:
    """The pauses between attempts to connect: each twice as long as the one before, up to a second.

    A random part keeps the clients of one server from coming back all at once.
    """

    def __init__(self, endpoint: Endpoint, now_s: float) -> None:
        self._endpoint = endpoint
        self._deadline_s = now_s + endpoint.timeout_s
        self._pause_s = FIRST_PAUSE_SECONDS

    def pause_s(self, now_s: float, error: OSError) -> float:
        """Return how long to wait before the next attempt. Raises UnreachableError when the time is over."""
        if now_s >= self._deadline_s:
            why = str(error) or type(error).__name__
            raise UnreachableError(
                f"{self._endpoint} not reached within {self._endpoint.timeout_s:g} s: {why}"
            ) from error
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_SECONDS)
        return min(pause_s, max(0.0, self._deadline_s - now_s))


class AckDeadline:
    """The time since the server last acknowledged something."""

    def __init__(self, timeout_s: float, acknowledged: int, now_s: float) -> None:
        self._timeout_s = timeout_s
        self._acknowledged = acknowledged
        self._deadline_s = now_s + timeout_s

    def check(self, acknowledged: int, refusal: str, now_s: float) -> None:
        """Raises StalledError when nothing was acknowledged for too long."""
        if acknowledged != self._acknowledged:
            self._acknowledged = acknowledged
            self._deadline_s = now_s + self._timeout_s
        elif now_s >= self._deadline_s:
            because = f": {refusal}" if refusal else ""
            raise StalledError(f"nothing was acknowledged for {self._timeout_s:g} s{because}")

    def left_s(self, now_s: float) -> float:
        return max(0.0, self._deadline_s - now_s)
