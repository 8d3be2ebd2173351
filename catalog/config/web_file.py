"""Prometheus's web configuration file: TLS, users and headers of HTTP, in the form that its exporters share.

A file that serves Prometheus or an exporter serves here too: https://prometheus.io/docs/prometheus/latest/configuration/https
Keys that have no meaning here (cipher suites, curves) are refused by name and not passed over. Relative paths are
relative to the file, as there.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from catalog.config.access import PasswordHash, TlsVersion
from catalog.config.document import MAX_BYTES, read_document
from catalog.config.problems import to_problems
from catalog.config.section import Section
from catalog.config.words import RefusedValueError
from catalog.errors import NetworkError

ClientAuth = Literal["NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"]
HeaderName = Literal[
    "Content-Security-Policy", "X-Frame-Options", "X-Content-Type-Options", "X-XSS-Protection",
    "Strict-Transport-Security",
]  # fmt: skip


class WebTls(Section):
    cert_file: str = Field(min_length=1)
    key_file: str = Field(min_length=1)
    client_auth_type: ClientAuth = "NoClientCert"
    client_ca_file: str | None = Field(default=None, min_length=1)
    client_allowed_sans: list[str] = Field(default=[])
    min_version: TlsVersion = "TLS12"
    max_version: TlsVersion = "TLS13"

    @model_validator(mode="after")
    def _has_an_authority(self) -> WebTls:
        if (self.client_auth_type != "NoClientCert") != (self.client_ca_file is not None):
            raise RefusedValueError("client_auth_type and client_ca_file need each other", at=("client_auth_type",))
        return self


class WebHttp(Section):
    http2: bool = False
    headers: dict[HeaderName, str] = Field(default_factory=dict)


class WebFile(Section):
    tls_server_config: WebTls | None = None
    http_server_config: WebHttp = WebHttp()
    basic_auth_users: dict[str, PasswordHash] = Field(default_factory=dict, max_length=10_000)


def read_web_file(path: str) -> WebFile:
    """Read the file. Raises NetworkError with all of its problems, and OSError."""
    file = FilePath(path)
    with file.open("rb") as opened:
        text = opened.read(MAX_BYTES + 1).decode("utf-8", "replace")
    document = read_document(text, path, {})
    if document.problems:
        raise NetworkError(document.problems, path, text)
    data = document.data or {}
    try:
        web = WebFile.model_validate(data)
    except ValidationError as error:
        raise NetworkError(to_problems(error, document, (), data, WebFile), path, text) from None
    return web if web.tls_server_config is None else web.model_copy(update={"tls_server_config": _beside(web, file)})


def _beside(web: WebFile, file: FilePath) -> WebTls:
    tls = web.tls_server_config
    assert tls is not None
    paths = {
        key: str(file.parent / value)
        for key in ("cert_file", "key_file", "client_ca_file")
        if (value := getattr(tls, key)) is not None
    }
    return tls.model_copy(update=paths)
