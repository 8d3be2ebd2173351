"""Who gets in at a real daemon: every listener, with every kind of credentials, over TLS.

``MATRIX`` is the whole of it: what each kind of peer gets at each listener. Nobody but the right user learns anything.
"""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from aurorad_client import AsyncReader, AsyncSender, ClientError, Reader, RefusedError, Sender, UntrustedError

from engine.lab.processes import command
from router.spark.wire.aurorad_wire import Connection, WireError
from tests.e2e.certificates import Authority
from tests.e2e.daemon import RunningDaemon, free_ports, running, wait_for

pytestmark = pytest.mark.xdist_group("access")  # one daemon for all

OPS, TILL, BILLING, NOBODY = "ops-token-" * 4, "till-token-" * 4, "billing-token-" * 3, "nobody-token-" * 3
PASSWORD = "correct horse battery"

NETWORK = """
engine: {{data_dir: {folder}/data}}
spark: {{listen: 127.0.0.1:{spark}}}
access:
  audit: {folder}/audit.ndjson
  tls:
    cert_file: {folder}/server.crt
    key_file: {folder}/server.key
    client_ca_file: {folder}/ca.crt
    client_auth: request
  users:
    ops: {{token: "${{file:{folder}/ops.token}}", admin: true}}
    till: {{token: {till}, publish: [trades], names: ["till-*"]}}
    billing: {{token: {billing}, certificate: billing, subscribe: [alerts], view: true, tap: [alerts]}}
    other: {{token: {billing}-2, subscribe: [alerts]}}
    nobody: {{token: {nobody}, certificate: expired}}
    grafana: {{password: "{hash}", view: true}}
streams:
  trades: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{source}}}}}
  secret: {{schema: {{n: bigint}}, overload: block, source: {{tcp: 127.0.0.1:{hidden}}}}}
outputs:
  alerts: {{from: trades, sink: {{tcp: 127.0.0.1:{sink}}}}}
  hush: {{from: secret, sink: {{tcp: 127.0.0.1:{quiet}}}}}
"""


class Guarded:
    """A daemon with TLS and users, and every way to its listeners. A ``Knock`` returns "in", "denied" or "closed"."""

    def __init__(self, daemon: RunningDaemon, authority: Authority, ports: dict[str, int]) -> None:
        self.daemon = daemon
        self.authority = authority
        self.ports = ports

    def connect(self, listener: str, certificate: str = "", plain: bool = False) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=20)
        if plain:
            return sock
        return self.authority.client(certificate).wrap_socket(sock, server_hostname="localhost")

    def http(self, path: str, token: str = "", **how: Any) -> tuple[int, bytes]:
        headers = {"Authorization": token if " " in token else f"Bearer {token}"} if token else {}
        if how.get("plain"):
            connection = HTTPConnection("127.0.0.1", self.ports["http"], timeout=20)
        else:
            context = self.authority.client(how.get("certificate", ""))
            connection = HTTPSConnection("localhost", self.ports["http"], timeout=20, context=context)
        try:
            connection.request(how.get("method", "GET"), path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("access")
    authority = Authority(folder)
    for name in ("server", "billing"):
        authority.issue(name)
    authority.issue("expired", days=-1)
    (folder / "ops.token").write_text(f"{OPS}\n")
    names = ("http", "source", "hidden", "sink", "quiet", "spark")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    text = NETWORK.format(folder=folder, till=TILL, billing=BILLING, nobody=NOBODY, hash=hashed, **ports)
    with running(folder, text, ports["http"], tls=authority.client()) as daemon:
        yield Guarded(daemon, authority, ports)


# -- the matrix -------------------------------------------------------------------------------------------------------


def knock_network(g: Guarded, token: str, **how: Any) -> str:
    status, body = g.http("/api/v1/network", token, **how)
    assert status == 200 or (b"trades" not in body and b"alerts" not in body), "no hint of what exists"
    return {200: "in", 401: "denied", 403: "denied"}.get(status, f"{status} {body!r}")


def knock_source(g: Guarded, token: str, **how: Any) -> str:
    before = _admitted(g)
    with g.connect("source", **how) as sock:
        sock.sendall((f"AUTH Bearer {token}\n" if token else "").encode() + b'{"n": 1}\n')
        sock.settimeout(0.2)
        for _ in range(100):
            try:
                answer = sock.recv(4096)
            except TimeoutError:
                if _admitted(g) > before:
                    return "in"
            else:
                return "denied" if answer == b"error: access denied\n" else f"closed: {answer!r}"
    return "no answer"


def knock_sink(g: Guarded, token: str, **how: Any) -> str:
    with g.connect("sink", **how) as sock, g.connect("source") as sender:
        sock.sendall((f"AUTH Bearer {token}\n" if token else "hello\n").encode())
        sender.sendall(f"AUTH Bearer {TILL}\n".encode())
        sock.settimeout(0.2)
        for _ in range(100):
            sender.sendall(b'{"n": 7}\n')
            try:
                answer = sock.recv(4096)
            except TimeoutError:
                continue
            is_row = answer.startswith(b'{"n":')
            return "in" if is_row else "denied" if answer == b"error: access denied\n" else f"closed: {answer!r}"
    return "no answer"


def knock_sender(g: Guarded, token: str, **how: Any) -> str:
    return _client_knock(
        lambda: Sender(
            "localhost", g.ports["source"], "till-1", auth=token or None, timeout_s=3, **_tls(g, how)
        ).close()
    )


def knock_reader(g: Guarded, token: str, **how: Any) -> str:
    return _client_knock(
        lambda: Reader("localhost", g.ports["sink"], "mine", auth=token or None, timeout_s=3, **_tls(g, how)).close()
    )


def _tls(g: Guarded, how: dict[str, Any]) -> dict[str, Any]:
    return {} if how.get("plain") else {"tls": g.authority.client(how.get("certificate", ""))}


def _client_knock(connect: Callable[[], None]) -> str:
    try:
        connect()
    except RefusedError as error:
        return "denied" if str(error) == "access denied" else str(error)
    except ClientError as error:
        return f"closed: {type(error).__name__}"
    return "in"


def knock_spark(g: Guarded, token: str, **how: Any) -> str:
    address = f"localhost:{g.ports['spark']}"
    what = {"stream": "trades"} if token == TILL else {"output": "alerts"}
    try:
        if how.get("plain") or how.get("certificate"):
            with g.connect("spark", **how) as sock:
                sock.sendall(json.dumps({"aurorad": 1, "do": "describe", "token": token, **what}).encode() + b"\n")
                answer = sock.recv(4096)
                return "in" if b'"ok"' in answer else "denied" if b"denied" in answer else f"closed: {answer!r}"
        with Connection(f"tls://{address}", token, g.authority.crt("ca")) as connection:
            connection.ask("describe", **what)
    except WireError as error:
        return "denied" if str(error) == "aurorad: access denied" else str(error)
    return "in"


def _admitted(g: Guarded) -> int:
    stats = json.loads(g.http("/api/v1/stats", OPS)[1])
    return next(s["admitted"] for s in stats["streams"] if s["name"] == "trades")


LISTENERS = {
    # listener: how to knock, the right token, one without the right
    "http": (knock_network, OPS, TILL),
    "tcp source": (knock_source, TILL, BILLING),
    "tcp sink": (knock_sink, BILLING, TILL),
    "client protocol, sender": (knock_sender, TILL, BILLING),
    "client protocol, reader": (knock_reader, BILLING, TILL),
    "spark": (knock_spark, TILL, NOBODY),
}


@pytest.mark.parametrize("listener", LISTENERS)
def test_the_matrix(guarded: Guarded, listener: str) -> None:
    knock, right, without = LISTENERS[listener]
    assert knock(guarded, right) == "in"
    assert knock(guarded, "") == "denied", "no credentials"
    assert knock(guarded, "wrong-token-0123456789") == "denied", "wrong credentials"
    assert knock(guarded, without) == "denied", "right credentials without the right"
    for how in ({"certificate": "expired"}, {"plain": True}):
        try:
            outcome = knock(guarded, right, **how)
        except (OSError, HTTPException) as error:
            outcome = f"closed: {type(error).__name__}"
        assert outcome.startswith("closed"), (how, outcome)
    assert knock(guarded, right) == "in", "the right user is not locked out by those before"


def test_a_probe_without_a_login_learns_whether_and_not_why(guarded: Guarded) -> None:
    assert guarded.http("/health") == (200, b'{"status":"ok"}\n')
    assert guarded.http("/ready") == (200, b'{"status":"ready"}\n')
    assert b"checks" in guarded.http("/ready", OPS)[1]
    for path in ("/", "/metrics", "/api/v1/stats", "/api/v1/nothing", "/nothing", "/api/v1/tap?name=alerts"):
        assert guarded.http(path)[0] == 401, path


def test_what_a_user_may_not_tap_looks_the_same_whether_it_exists(guarded: Guarded) -> None:
    answers = {guarded.http(f"/api/v1/tap?name={name}&limit=1", BILLING) for name in ("secret", "hush", "nothing")}
    assert answers == {(403, b'{"error":"access denied","hint":""}\n')}
    answers = {guarded.http(f"/api/v1/explain?output={name}", BILLING) for name in ("hush", "nothing")}
    assert answers == {(403, b'{"error":"access denied","hint":""}\n')}
    assert guarded.http("/api/v1/explain?output=alerts", BILLING)[0] == 200


def test_a_password_and_a_certificate_are_logins(guarded: Guarded) -> None:
    basic = base64.b64encode(f"grafana:{PASSWORD}".encode()).decode()
    assert guarded.http("/metrics", f"Basic {basic}")[0] == 200
    wrong = base64.b64encode(b"grafana:wrong").decode()
    assert guarded.http("/metrics", f"Basic {wrong}")[0] == 401
    assert guarded.http("/metrics", certificate="billing")[0] == 200
    with Reader("localhost", guarded.ports["sink"], "by-certificate", tls=guarded.authority.client("billing")):
        pass
    with guarded.connect("sink", certificate="billing") as silent, guarded.connect("source") as sender:
        sender.sendall(f"AUTH Bearer {TILL}\n".encode())
        silent.settimeout(0.2)
        found = b""
        for _ in range(100):
            sender.sendall(b'{"n": 3}\n')
            try:
                found = silent.recv(100)
                break
            except TimeoutError:
                continue
        assert found.startswith(b'{"n":'), "a reader with a certificate need not say a word"


def test_a_name_belongs_to_whoever_used_it_first_or_to_whom_the_file_says(guarded: Guarded) -> None:
    port, tls = guarded.ports["sink"], guarded.authority.client()
    Reader("localhost", port, "ours", auth=BILLING, tls=tls).close()
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"^access denied$"):
            Reader("localhost", port, "ours", auth=f"{BILLING}-2", tls=tls, timeout_s=5)
        Reader("localhost", port, "ours", auth=BILLING, tls=tls).close()
    with pytest.raises(RefusedError, match=r"^access denied$"):
        Sender("localhost", guarded.ports["source"], "not-a-till", auth=TILL, tls=tls, timeout_s=5)
    with guarded.connect("sink") as sock:  # the name in a second message, after a login as somebody else
        sock.sendall(f"AUTH Bearer {BILLING}-2\n".encode())
        sock.sendall(b'{"_hello": {"name": "ours"}}\n')
        found = b""
        while b"_error" not in found and (more := sock.recv(4096)):
            found += more
        assert b'{"_error":"access denied"}' in found
    owners = (guarded.daemon.log_path.parent / "data" / "owners.ndjson").read_text()
    assert '["reader","alerts","ours","billing"]' in owners


def test_rows_over_tls_come_through_sync_and_async(guarded: Guarded) -> None:
    tls = guarded.authority.client()
    ports = guarded.ports

    async def both() -> list[Any]:
        got: list[Any] = []
        async with (
            AsyncReader("localhost", ports["sink"], "async", auth=OPS, tls=tls) as reader,
            AsyncSender("localhost", ports["source"], "till-async", auth=TILL, tls=tls) as sender,
        ):
            await sender.send([{"n": 1_000_000 + n} for n in range(20_000)])
            await sender.flush()
            async for batch in reader:
                got += [row["n"] for row in batch.rows if row["n"] >= 1_000_000]
                await batch.ack()
                if len(got) >= 20_000:
                    return got
        return got

    assert asyncio.run(both()) == [1_000_000 + n for n in range(20_000)]
    with (
        Reader("localhost", ports["sink"], "sync", auth=OPS, tls=tls) as reader,
        Sender("localhost", ports["source"], "till-sync", auth=TILL, tls=tls) as sender,
    ):
        for part in range(5):
            sender.send([{"n": 2_000_000 + part * 1_000 + n} for n in range(1_000)])
        assert sender.flush().rejected == 0
        got: list[int] = []
        for batch in reader:
            got += [row["n"] for row in batch.rows if row["n"] >= 2_000_000]
            if len(got) >= 5_000:
                break
        assert got == list(range(2_000_000, 2_005_000))


def test_a_tls_sender_that_closes_at_once_loses_nothing(guarded: Guarded) -> None:
    """The event loop's own TLS dropped what it had received while the connection did not read: 2 % of the rows."""
    before = _admitted(guarded)
    block = b"".join(b'{"n": %d}\n' % n for n in range(20_000))
    with guarded.connect("source") as sock:
        sock.sendall(f"AUTH Bearer {TILL}\n".encode())
        for _ in range(20):
            sock.sendall(block)
    wait_for(lambda: _admitted(guarded) - before == 400_000, "every row is in")


def test_a_client_does_not_trust_an_unknown_authority(guarded: Guarded, tmp_path: Path) -> None:
    stranger = Authority(tmp_path).client()
    with pytest.raises(UntrustedError):
        Sender("localhost", guarded.ports["source"], "till-1", auth=TILL, tls=stranger, timeout_s=5)


def _secrets_in(text: str) -> list[str]:
    return [secret for secret in (OPS, TILL, BILLING, NOBODY, PASSWORD) if secret in text]


def test_no_secret_is_anywhere_but_in_its_file(guarded: Guarded) -> None:
    """The canary: after all of the above, no token and no hash is in a log, an answer, a checkpoint or an error."""
    folder = guarded.daemon.log_path.parent
    tls = guarded.authority.client()
    assert (knock_source(guarded, BILLING), knock_sink(guarded, TILL)) == ("denied", "denied")
    Reader("localhost", guarded.ports["sink"], "kept", auth=BILLING, tls=tls).close()
    with pytest.raises(RefusedError):
        Reader("localhost", guarded.ports["sink"], "kept", auth=f"{BILLING}-2", tls=tls, timeout_s=5)
    for path in ("/api/v1/network", "/api/v1/stats", "/metrics", "/api/v1/dead_letters", "/"):
        guarded.http(path, "a-wrong-token-that-nobody-has")
    texts = {path: guarded.http(path, OPS)[1] for path in ("/api/v1/network", "/api/v1/stats", "/metrics", "/")}
    texts |= {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    texts["validate"] = subprocess.run(command("validate", str(folder / "network.yaml")), capture_output=True).stdout
    revisions = list((folder / "data" / "revisions").iterdir())  # copies of the network file, which has two in clear
    assert (folder / "data").stat().st_mode & 0o077 == 0 < len(revisions)
    allowed = {str(folder / name) for name in ("network.yaml", "ops.token")} | {str(file) for file in revisions}
    for file in revisions:  # what the network file takes from another file is not in its copy either
        assert all(secret in (folder / "network.yaml").read_text() for secret in _secrets_in(file.read_text()))
    for where, text in texts.items():
        for secret in (OPS, TILL, BILLING, NOBODY, "a-wrong-token-that-nobody-has", PASSWORD):
            assert secret.encode() not in text or where in allowed, f"{secret} is in {where}"
    audit = [json.loads(line) for line in (folder / "audit.ndjson").read_text().splitlines()]
    assert {"login refused", "publish denied", "subscribe denied", "reader denied"} <= {
        entry["event"] for entry in audit
    }


def test_everything_refused_is_in_the_audit_log_and_in_the_metrics(guarded: Guarded) -> None:
    """By listener: wrong logins, rights that are missing, certificates that are no good, and every change."""
    wrong = "nobody-has-this-token"
    assert (knock_source(guarded, wrong), knock_sink(guarded, wrong), knock_spark(guarded, wrong)) == ("denied",) * 3
    assert (guarded.http("/metrics", wrong)[0], guarded.http("/metrics", TILL)[0]) in ((401, 403), (429, 403))
    assert knock_source(guarded, TILL) == "in"
    with suppress(OSError), guarded.connect("sink", certificate="expired") as sock:
        sock.recv(1)  # with TLS 1.3 the refusal comes after the handshake of the client
    assert guarded.http("/api/v1/savepoint?name=audited", OPS, method="POST")[0] == 200

    def lines() -> dict[tuple[str, str], float]:
        found = {}
        for line in guarded.http("/metrics", OPS)[1].decode().splitlines():
            if line.startswith("aurorad_access_total{"):
                labels, count = line.removeprefix("aurorad_access_total{").rsplit("} ", 1)
                event, listener = (part.split('"')[1] for part in labels.split('",'))
                found[event, listener] = float(count)
        return found

    wanted = {("login refused", listener) for listener in ("http", "spark", "stream trades", "output alerts")}
    wanted |= {("login accepted", "stream trades"), ("request denied", "http"), ("handshake refused", "access.tls")}
    wanted.add(("POST request", "http"))
    wait_for(lambda: wanted <= lines().keys(), f"all of {wanted} are counted")
    folder = guarded.daemon.log_path.parent
    audit = [json.loads(line) for line in (folder / "audit.ndjson").read_text().splitlines()]
    noted = {(entry["event"], entry["listener"]) for entry in audit}
    assert {e for e in wanted if e[0] != "login accepted"} <= noted
    assert {"peer", "at"} <= set.intersection(*(set(entry) for entry in audit))


def test_a_changed_certificate_is_read_again(guarded: Guarded) -> None:
    def serial() -> str:
        with guarded.connect("http") as sock:
            assert isinstance(sock, ssl.SSLSocket)
            found = sock.getpeercert()
            assert found is not None
            return str(found["serialNumber"])

    before = serial()
    guarded.authority.issue("server")
    wait_for(lambda: serial() != before, "the new certificate is used")
    (guarded.authority.folder / "server.crt").write_text("nonsense")
    wait_for(lambda: any("old one stays" in e["message"] for e in guarded.daemon.log if serial()), "it is logged")
    guarded.authority.issue("server")
    assert guarded.http("/health")[0] == 200
