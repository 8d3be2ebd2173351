"""Certificates for tests, made by the openssl of this machine: an authority, a server, clients, an expired one."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Authority:
    """Makes certificates below a folder: NAME.crt and NAME.key."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.name = name
        _openssl("req", "-x509", *EC, "-keyout", self.key(name), "-out", self.crt(name), "-days", "30",
                 "-subj", f"/CN={name}")  # fmt: skip

    def crt(self, name: str) -> str:
        return str(self.folder / f"{name}.crt")

    def key(self, name: str) -> str:
        return str(self.folder / f"{name}.key")

    def issue(self, name: str, days: int = 30) -> None:
        """Sign a certificate for NAME, which is also good for a server on this machine. ``days`` below 0: expired."""
        request, more = str(self.folder / f"{name}.csr"), self.folder / f"{name}.ext"
        more.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("req", "-new", *EC, "-keyout", self.key(name), "-out", request, "-subj", f"/CN={name}")
        _openssl("x509", "-req", "-in", request, "-CA", self.crt(self.name), "-CAkey", self.key(self.name),
                 "-CAcreateserial", "-out", self.crt(name), "-days", str(days), "-extfile", str(more))  # fmt: skip

    def client(self, name: str = "") -> ssl.SSLContext:
        """Return the context of a client that trusts this authority, with the certificate of NAME if there is one."""
        context = ssl.create_default_context(cafile=self.crt(self.name))
        if name:
            context.load_cert_chain(self.crt(name), self.key(name))
        return context


def _openssl(*words: str) -> None:
    subprocess.run(("openssl", *words), check=True, capture_output=True)
