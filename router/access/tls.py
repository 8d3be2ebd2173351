"""TLS of a listener: certificates that are read again when their files change, and who a client certificate names.

Every connection asks for the current context. The files are looked at once a second at most; new ones that cannot be
used are logged, and the old ones stay. A session is never resumed: a resumed one would skip the check of the client's
certificate, which may have expired or lost its authority since.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping
from threading import Lock
from time import monotonic
from typing import Any, NamedTuple

from catalog.errors import ListenError
from router.access.audit import Audit

log = logging.getLogger("aurorad.access")

LOOK_SECONDS = 1.0
VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


class TlsFiles(NamedTuple):
    """``client_auth``: none, request (check a certificate if there is one) or require."""

    cert_file: str
    key_file: str
    client_ca_file: str | None = None
    client_auth: str = "none"
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    allowed_sans: tuple[str, ...] = ()  # if there are any, a client certificate must have one of them

    @property
    def paths(self) -> list[str]:
        return [path for path in (self.cert_file, self.key_file, self.client_ca_file) if path is not None]


class ServerTls:
    """``place`` is the key of the network file, for errors. Any thread."""

    def __init__(self, files: TlsFiles, place: str, audit: Audit | None = None) -> None:
        self.files = files
        self._audit = audit
        self._place = place
        self._lock = Lock()
        self._stamp = _stamp(files)
        self._looked_at = monotonic()
        try:
            self._context = make_context(files)
        except (OSError, ssl.SSLError) as error:
            raise ListenError(f"{place}: {_why(error)}") from error
        self.reloads = 0

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        with self._lock:
            now = monotonic()
            if now - self._looked_at >= LOOK_SECONDS:
                self._looked_at = now
                self._look()
            return self._context

    def _look(self) -> None:
        stamp = _stamp(self.files)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._context = make_context(self.files)
        except (OSError, ssl.SSLError) as error:
            log.error("%s: the changed certificate cannot be used, the old one stays: %s", self._place, _why(error))
            return
        self.reloads += 1
        log.info("%s: the certificate has changed and was read again", self._place)

    def handshake_failed(self, peer: str, error: BaseException) -> None:
        """Note a handshake that failed because of what the peer sent, such as an expired certificate. Count the rest: a
        load balancer that connects and closes is no news."""
        if self._audit is None:
            return
        if isinstance(error, ssl.SSLError) and error.reason:
            self._audit.note("handshake refused", listener=self._place, peer=peer, why=error.reason)
        else:
            self._audit.count("handshake ended", self._place)

    def trusted_by(self) -> str:
        """Return the certificates of this listener as PEM, for clients of this very process."""
        with open(self.files.cert_file, encoding="ascii", errors="replace") as file:
            return file.read()


def make_context(files: TlsFiles) -> ssl.SSLContext:
    """Read the files. Raises OSError and ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[files.min_version]
    context.maximum_version = VERSIONS[files.max_version]
    context.load_cert_chain(files.cert_file, files.key_file)
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    if files.client_auth != "none":
        assert files.client_ca_file is not None
        context.verify_mode = ssl.CERT_REQUIRED if files.client_auth == "require" else ssl.CERT_OPTIONAL
        context.load_verify_locations(files.client_ca_file)
    return context


def certificate_names(certificate: Mapping[str, Any] | None) -> list[str]:
    """Return the names that a checked certificate gives to its owner: the common name, and the alternative names."""
    if not certificate:
        return []
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names + [value for _, value in certificate.get("subjectAltName", ())]


def peer_names(ssl_object: Any, files: TlsFiles | None) -> list[str]:
    """Return the names of the certificate of a connection's peer; [] without TLS or without a certificate."""
    if ssl_object is None or files is None or ssl_object.session_reused:
        return []
    names = certificate_names(ssl_object.getpeercert())
    if files.allowed_sans and not set(names) & set(files.allowed_sans):
        return []
    return names


def _stamp(files: TlsFiles) -> list[tuple[int, int, int]]:
    found = []
    for path in files.paths:
        try:
            facts = os.stat(path)
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((facts.st_mtime_ns, facts.st_size, facts.st_ino))
    return found


def _why(error: OSError) -> str:
    where = f"{error.filename}: " if getattr(error, "filename", None) else ""
    return f"{where}{getattr(error, 'reason', None) or error.strerror or error}"
