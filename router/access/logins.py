"""Logins: credentials in, a user out. Failed ones are slowed down, and each is in the audit log.

Credentials come in the words of HTTP everywhere: ``Bearer TOKEN`` or ``Basic BASE64``. A token is a look-up. A password
takes a tenth of a second of one core (bcrypt), so callers on the event loop check it on a thread; a password that was
right is remembered, by a keyed hash, for some minutes.

After ``FREE_FAILURES`` failed logins from an address, each further one has to wait, twice as long as the one before, up
to ``LONGEST_SECONDS``. Attempts during that time are refused without a look at the credentials, right or wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections import OrderedDict
from threading import Lock
from time import monotonic
from typing import NamedTuple

from catalog.errors import AuroraError
from router.access.audit import Audit
from router.access.users import User, Users

FREE_FAILURES = 5
FIRST_SECONDS = 0.25
LONGEST_SECONDS = 30.0
FORGIVEN_SECONDS = 600.0
ADDRESSES = 10_000
REMEMBER_SECONDS = 300.0
REMEMBERED = 1_000
CREDENTIAL_CHARACTERS = 4_096
DENIED = "access denied"
"""The whole answer to a peer that is refused. It gives no reason, because a reason would be a hint."""


class LoginError(AuroraError):
    """The peer is not let in. ``retry_s``: how long it has to wait, because of the failures before."""

    def __init__(self, message: str = DENIED, retry_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Credentials(NamedTuple):
    """A token, or a name and a password."""

    token: str = ""
    name: str = ""
    password: str = ""

    @property
    def is_slow(self) -> bool:
        """Whether a check takes long, unless it is remembered."""
        return not self.token


def parse_credentials(text: str) -> Credentials | None:
    """Read ``Bearer TOKEN`` or ``Basic BASE64``; None for anything else."""
    kind, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if len(text) > CREDENTIAL_CHARACTERS or not rest:
        return None
    if kind.lower() == "bearer":
        return Credentials(token=rest)
    if kind.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(rest, validate=True).decode().partition(":")
    except ValueError:  # no base64, not ASCII, or no UTF-8 inside
        return None
    return Credentials(name=name, password=password) if colon and name else None


class Logins:
    """Any thread."""

    def __init__(self, users: Users, audit: Audit) -> None:
        self.users = users
        self._audit = audit
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # by address: how many, when the last was
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()  # right passwords, until when
        self._lock = Lock()
        self.accepted = 0
        self.refused = 0

    def by_certificate(self, names: list[str]) -> User | None:
        """Return the user of a checked client certificate."""
        return self.users.with_certificate(names) if names else None

    def is_quick(self, credentials: Credentials) -> bool:
        """Tell whether ``check`` answers at once."""
        return not credentials.is_slow or self._is_remembered(credentials)

    def check(self, credentials: Credentials | None, address: str, listener: str) -> User:
        """Return the user, or raise LoginError. Takes long for a password that is not remembered."""
        wait_s = self._must_wait_s(address)
        if wait_s > 0:
            self.refused += 1
            self._audit.count("login postponed", listener)
            raise LoginError("too many failed logins; try again later", wait_s)
        user = None if credentials is None else self._find(credentials)
        if user is None:
            self._note_failure(address, listener, credentials)
            raise LoginError
        with self._lock:
            self.accepted += 1
            self._failures.pop(address, None)
        self._audit.count("login accepted", listener)
        return user

    def _find(self, credentials: Credentials) -> User | None:
        if credentials.token:
            return self.users.with_token(credentials.token)
        if self._is_remembered(credentials) or self._is_password(credentials):
            return self.users.named(credentials.name)
        return None

    def _is_password(self, credentials: Credentials) -> bool:
        import bcrypt  # here: only servers with passwords pay for it

        known = self.users.password_hash(credentials.name)
        # An unknown name costs as much time as a wrong password: the time must not say which names exist.
        against = known or b"$2b$10$" + b"C6UzMDM.H6dfI/f/IKcEeO7Zj0aW8Jm1H0bYcOQhPp8d3uVnIOJ0."[:53]
        try:
            is_right = bcrypt.checkpw(credentials.password.encode()[:72], against)
        except ValueError:
            is_right = False
        if not (is_right and known):
            return False
        with self._lock:
            self._remembered[self._mark(credentials)] = monotonic() + REMEMBER_SECONDS
            while len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        return True

    def _is_remembered(self, credentials: Credentials) -> bool:
        if not credentials.name:
            return False
        with self._lock:
            return self._remembered.get(self._mark(credentials), 0.0) > monotonic()

    def _mark(self, credentials: Credentials) -> bytes:
        """Return a keyed hash of a name, its password and the hash in the file: a changed one is not remembered."""
        known = self.users.password_hash(credentials.name) or b""
        text = b"\0".join((credentials.name.encode(), known, credentials.password.encode()))
        return hmac.digest(self._key, text, hashlib.sha256)

    def _must_wait_s(self, address: str) -> float:
        with self._lock:
            failures, last = self._failures.get(address, (0, 0.0))
            since = monotonic() - last
            if since > FORGIVEN_SECONDS:
                self._failures.pop(address, None)
                return 0.0
            extra = failures - FREE_FAILURES
            return max(0.0, min(LONGEST_SECONDS, FIRST_SECONDS * 2.0**extra) - since) if extra >= 0 else 0.0

    def _note_failure(self, address: str, listener: str, credentials: Credentials | None) -> None:
        with self._lock:
            self.refused += 1
            if credentials is not None:  # a peer that does not know of logins guesses nothing
                failures, _ = self._failures.pop(address, (0, 0.0))
                self._failures[address] = (min(failures + 1, 64), monotonic())
                while len(self._failures) > ADDRESSES:
                    self._failures.popitem(last=False)
        how = "none" if credentials is None else "token" if credentials.token else "password"
        name = "" if credentials is None else credentials.name[:64]
        self._audit.note("login refused", user=name, peer=address, listener=listener, credentials=how)
