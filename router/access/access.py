"""Access of one daemon: TLS, users, owners of names and the audit log, put together from its network file.

Where the file has no users, everybody is ``ANYONE`` and may do everything: then listeners are on loopback, or the file
says ``insecure``. The listeners ask ``is_open`` once, when they open, and a listener that is open to all runs the same
code as if this package did not exist.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from catalog.config.access import AccessSection, UserModel
from catalog.config.models import HttpSection
from catalog.config.web_file import WebFile, WebTls, read_web_file
from catalog.errors import ListenError, NetworkError
from router.access.audit import Audit
from router.access.logins import Logins
from router.access.owners import NameOwners
from router.access.tls import ServerTls, TlsFiles
from router.access.users import ANYONE, User, Users

log = logging.getLogger("aurorad.access")

LOGIN_THREADS = 1
WAITING_LOGINS = 32


class Access:
    """Owner: the daemon. Raises ListenError when a certificate or the web configuration file cannot be used."""

    def __init__(self, section: AccessSection, http: HttpSection, data_dir: str | None = None) -> None:
        self.section = section
        self.web = _read_web(http.config_file)
        self.audit = Audit(section.audit)
        self.tls = None if section.tls is None else ServerTls(_tls_files(section), "access.tls", self.audit)
        self.http_tls = self.tls
        if self.web.tls_server_config is not None:
            files = _web_tls_files(self.web.tls_server_config)
            self.http_tls = ServerTls(files, "http.config_file", self.audit)
        self.owners = NameOwners(data_dir)
        self.users = Users(section.users)
        self.logins = Logins(self.users, self.audit)
        self.http_users = Users(_http_users(section, self.web))
        self.http_logins = Logins(self.http_users, self.audit)
        _check_http(section, http, self)
        self._threads: ThreadPoolExecutor | None = None
        self.waiting = 0  # logins for the thread

    @property
    def is_open(self) -> bool:
        """Whether the data ports ask for no login."""
        return not len(self.users)

    @property
    def is_http_open(self) -> bool:
        return not len(self.http_users)

    @property
    def login_thread(self) -> ThreadPoolExecutor:
        """The thread for checks of passwords. Made on first use."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(LOGIN_THREADS, "aurorad-login")
        return self._threads

    def open(self) -> None:
        """Read who owns which name. Raises ListenError."""
        try:
            self.owners.open()
        except (OSError, ValueError) as error:
            raise ListenError(f"the owners of names cannot be read: {error}") from error

    def use(self, section: AccessSection) -> None:
        """Replace users and rights, after the file has changed. Open connections keep the rights that they have."""
        self.section = section
        self.users = self.logins.users = Users(section.users)
        self.http_users = self.http_logins.users = Users(_http_users(section, self.web))
        self.audit.note("users replaced", users=len(self.users))

    def may_use_name(self, user: User, kind: str, place: str, name: str) -> bool:
        """Tell whether a user may use the name of a reader or a source."""
        return user is ANYONE or self.owners.may_use(self.users, user, kind, place, name)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
        self.owners.close()
        self.audit.close()


def _check_http(section: AccessSection, http: HttpSection, access: Access) -> None:
    """Refuse HTTP beyond loopback without TLS and users. The file alone does not show it: see ``check_access``."""
    if http.listen is None or http.listen.is_loopback or http.insecure or section.insecure:
        return
    if access.http_tls is None or access.is_http_open:
        raise ListenError(f"http.listen: {http.listen} is reached by other machines and has no TLS or no users")


def _read_web(path: str | None) -> WebFile:
    if path is None:
        return WebFile()
    try:
        return read_web_file(path)
    except OSError as error:
        raise ListenError(f"http.config_file: {path}: {error.strerror}") from error
    except NetworkError as error:
        raise ListenError(f"http.config_file: {error}") from error


def _tls_files(section: AccessSection) -> TlsFiles:
    tls = section.tls
    assert tls is not None
    auth = "none" if tls.client_ca_file is None else tls.client_auth
    return TlsFiles(tls.cert_file, tls.key_file, tls.client_ca_file, auth, tls.min_version)


_AUTH = {"NoClientCert": "none", "VerifyClientCertIfGiven": "request", "RequireAndVerifyClientCert": "require"}


def _web_tls_files(tls: WebTls) -> TlsFiles:
    return TlsFiles(
        tls.cert_file,
        tls.key_file,
        tls.client_ca_file,
        _AUTH[tls.client_auth_type],
        tls.min_version,
        tls.max_version,
        tuple(tls.client_allowed_sans),
    )


def _http_users(section: AccessSection, web: WebFile) -> Mapping[str, UserModel]:
    """Return the users of HTTP: those of the network file, and those of the web configuration file. A user of the
    second alone may look at everything, and change nothing."""
    users: dict[str, Any] = dict(section.users)
    for name, password in web.basic_auth_users.items():
        known = users.get(name)
        looks: dict[str, Any] = {"view": True, "tap": ["*"]} if known is None else {}
        users[name] = (known or UserModel()).model_copy(update={"password": password, **looks})
    return users
