"""The models of ``access``: TLS, users and their rights. ``router/access`` acts on them.

A secret is a ``SecretStr``: neither its repr nor a dump of the model shows it.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from catalog.config.section import Section
from catalog.config.units import PositiveSize
from catalog.config.words import RefusedValueError

LEAST_TOKEN = 16
_BCRYPT = re.compile(r"\$2[aby]\$\d\d\$[./A-Za-z0-9]{53}")


def _check_token(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < LEAST_TOKEN:
        raise RefusedValueError(f"a token has at least {LEAST_TOKEN} characters: openssl rand -hex 32 writes one")
    return value


def check_bcrypt(value: SecretStr) -> SecretStr:
    if not _BCRYPT.fullmatch(value.get_secret_value()):
        raise RefusedValueError("not a bcrypt hash: `htpasswd -nBC 10 ''` writes one, such as $2y$10$...")
    return value


Token = Annotated[SecretStr, AfterValidator(_check_token)]
PasswordHash = Annotated[SecretStr, AfterValidator(check_bcrypt)]
TlsVersion = Literal["TLS12", "TLS13"]


class TlsSection(Section):
    cert_file: str = Field(min_length=1)
    key_file: str = Field(min_length=1)
    client_ca_file: str | None = Field(default=None, min_length=1)
    client_auth: Literal["require", "request"] = "require"
    min_version: TlsVersion = "TLS12"


class UserModel(Section):
    token: Token | None = None
    password: PasswordHash | None = None
    certificate: str | None = Field(default=None, min_length=1)
    publish: list[str] = Field(default=[])
    subscribe: list[str] = Field(default=[])
    names: list[str] = Field(default=[])
    view: bool = False
    tap: list[str] = Field(default=[])
    change: list[str] = Field(default=[])
    admin: bool = False
    connections: int = Field(default=100, ge=1)
    names_at_most: int = Field(default=1_000, ge=0)
    rate_bytes: PositiveSize | None = Field(default=None, alias="rate")
    requests: int = Field(default=100, ge=1)


class AccessSection(Section):
    tls: TlsSection | None = None
    users: dict[str, UserModel] = Field(default_factory=dict, max_length=10_000)
    insecure: bool = False
    audit: str | None = Field(default=None, min_length=1)

    @model_validator(mode="after")
    def _users_are_distinct(self) -> AccessSection:
        seen: dict[str, str] = {}
        for name, user in self.users.items():
            for what in (user.token and user.token.get_secret_value(), user.certificate and f"={user.certificate}"):
                if what and (other := seen.setdefault(what, name)) != name:
                    raise RefusedValueError(f"users {other} and {name} have the same credentials", at=("users", name))
        return self
