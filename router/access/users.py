"""Users, and what each of them may do.

A right is given by patterns, as a shell has them: ``publish: [trades, "tape-*"]``. ``admin`` includes every right. A
user is known by a token, by a password (its bcrypt hash), or by a name in a client certificate. Tokens are looked up by
their hash: the time of a look-up says nothing about a token that nearly fits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from catalog.config.access import UserModel
from router.access.pace import Pace

REQUESTS_BURST_SECONDS = 2


class User:
    """One user: its rights, and how much of its limits it uses now. Owner: the I/O thread, and threads of Spark."""

    def __init__(self, name: str, model: UserModel) -> None:
        self.name = name
        self.model = model
        self.connections = 0  # open now
        self.bytes_pace = None if model.rate_bytes is None else Pace(model.rate_bytes, model.rate_bytes)
        self.requests_pace = Pace(model.requests, model.requests * REQUESTS_BURST_SECONDS)

    def __repr__(self) -> str:
        return f"User({self.name!r})"

    @property
    def is_admin(self) -> bool:
        return self.model.admin

    @property
    def may_view(self) -> bool:
        """Whether the user may see the network and its figures. A user who may tap or change anything may."""
        return self.model.view or self.model.admin or bool(self.model.tap or self.model.change)

    def may(self, right: str, what: str) -> bool:
        """Tell whether the user may ``publish``, ``subscribe``, ``tap`` or ``change`` something of this name."""
        return self.model.admin or matches(getattr(self.model, right), what)


def matches(patterns: Iterable[str], name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


ANYONE = User("", UserModel(admin=True, connections=10**9, requests=10**9))
"""Everybody, where no user is configured: on loopback, or where the file says that this is meant (``insecure``)."""


class Users:
    """All users of the network file. Replaced as a whole when the file changes."""

    def __init__(self, models: Mapping[str, UserModel]) -> None:
        self._by_name = {name: User(name, model) for name, model in models.items()}
        self._by_token = {
            digest(model.token.get_secret_value()): self._by_name[name]
            for name, model in models.items()
            if model.token is not None
        }
        self._by_certificate = {
            model.certificate: self._by_name[name] for name, model in models.items() if model.certificate is not None
        }

    def __len__(self) -> int:
        return len(self._by_name)

    def with_token(self, token: str) -> User | None:
        return self._by_token.get(digest(token))

    def with_certificate(self, names: Sequence[str]) -> User | None:
        """Return the user whom a checked client certificate names."""
        return next((self._by_certificate[name] for name in names if name in self._by_certificate), None)

    def named(self, name: str) -> User | None:
        return self._by_name.get(name)

    def password_hash(self, name: str) -> bytes | None:
        user = self._by_name.get(name)
        if user is None or user.model.password is None:
            return None
        return user.model.password.get_secret_value().encode()

    def assigned(self, name: str) -> list[User]:
        """Return the users to whom the file gives the name of a reader or a source."""
        return [user for user in self._by_name.values() if matches(user.model.names, name)]


def digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
