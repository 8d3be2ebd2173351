"""The parts of access without a socket: first lines, credentials, slowed logins, rights, owners, paces, checks."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import bcrypt
import pytest
from pydantic import SecretStr

from catalog.build import build_network
from catalog.config.access import AccessSection, UserModel
from catalog.config.models import HttpSection
from catalog.config.units import Address
from catalog.config.web_file import read_web_file
from catalog.errors import ListenError, NetworkError
from engine.operators.boxes import box_kinds
from router.access import logins as logins_module
from router.access.access import Access
from router.access.audit import Audit
from router.access.logins import FREE_FAILURES, Credentials, LoginError, Logins, parse_credentials
from router.access.owners import NameOwners
from router.access.pace import Pace
from router.access.tcp_door import LINE_BYTES, LoginAttempt, LoginFramer
from router.access.users import Users
from tests.e2e.certificates import Authority

TOKEN = "0123456789abcdef0123"


def user(**rights: object) -> UserModel:
    return UserModel.model_validate(rights)


# -- the first line ---------------------------------------------------------------------------------------------------

LINES: list[tuple[bytes, LoginAttempt]] = [
    (b'AUTH Bearer abc\n{"n": 1}\n', LoginAttempt(Credentials(token="abc"), b'{"n": 1}\n')),
    (b"AUTH Basic YTpiOmM=\r\nrest", LoginAttempt(Credentials(name="a", password="b:c"), b"rest")),
    (b"AUTH nonsense\nx", LoginAttempt(None, b"x")),
    (b"AUTH \n", LoginAttempt(None, b"")),
    (b'{"_hello": {"name": "x", "auth": "Bearer abc"}}\nmore',
     LoginAttempt(Credentials(token="abc"), b'{"_hello": {"name": "x", "auth": "Bearer abc"}}\nmore', True)),
    (b'{"_hello": {"name": "x", "auth": 7}}\n', LoginAttempt(None, b'{"_hello": {"name": "x", "auth": 7}}\n', True)),
    (b'{"_hello": []}\n', LoginAttempt(None, b'{"_hello": []}\n', True)),
    (b'{"_hello" nonsense\n', LoginAttempt(None, b'{"_hello" nonsense\n', True)),
]  # fmt: skip


@pytest.mark.parametrize(("data", "wanted"), LINES)
def test_a_first_line_is_read_whole_and_byte_by_byte(data: bytes, wanted: LoginAttempt) -> None:
    assert LoginFramer().receive(data) == wanted
    framer = LoginFramer()
    for at in range(len(data)):
        if (found := framer.receive(data[at : at + 1])) is not None:
            assert found.credentials == wanted.credentials
            assert found.rest + data[at + 1 :] == wanted.rest
            break
    else:
        pytest.fail("no attempt")


def test_rows_without_a_login_and_lines_without_an_end_are_no_login() -> None:
    assert LoginFramer().receive(b'{"n": 1}\n') == LoginAttempt(None, b'{"n": 1}\n')
    framer = LoginFramer()
    assert framer.receive(b"AUTH " + b"x" * (LINE_BYTES - 10)) is None
    assert framer.receive(b"x" * 20) == LoginAttempt(None, b"")
    assert LoginFramer().receive(b"AUTH x", at_end=True) == LoginAttempt(None, b"")
    long = b'{"_hello":{"auth":"Bearer ' + b"x" * LINE_BYTES + b'"}}\n'
    assert LoginFramer().receive(long) == LoginAttempt(None, b""), "as if it came in pieces"


@pytest.mark.parametrize(
    "text", ["", "Bearer", "Bearer  ", "Basic !!", "Basic " + "YQ==", "Digest x", "x" * 5_000, "Basic é", "Basic /w=="]
)
def test_what_is_no_credentials(text: str) -> None:
    assert parse_credentials(text) is None


# -- logins -----------------------------------------------------------------------------------------------------------


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_failed_logins_are_slowed_down_and_the_right_one_is_let_in_later(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(logins_module, "monotonic", clock)
    logins = Logins(Users({"ops": user(token=TOKEN)}), Audit())
    for _ in range(FREE_FAILURES):
        with pytest.raises(LoginError, match=r"^access denied$"):
            logins.check(Credentials(token="wrong"), "10.0.0.1", "http")
    waits = []
    for _ in range(10):
        with pytest.raises(LoginError, match="too many failed logins") as refused:
            logins.check(Credentials(token=TOKEN), "10.0.0.1", "http")  # not even looked at
        waits.append(refused.value.retry_s)
        clock.now += refused.value.retry_s
        with pytest.raises(LoginError, match=r"^access denied$"):
            logins.check(Credentials(token="wrong"), "10.0.0.1", "http")
    assert waits == sorted(waits)
    assert waits[-1] == logins_module.LONGEST_SECONDS
    assert logins.check(Credentials(token=TOKEN), "10.0.0.2", "http").name == "ops", "others are not held up"
    clock.now += logins_module.LONGEST_SECONDS
    assert logins.check(Credentials(token=TOKEN), "10.0.0.1", "http").name == "ops"
    logins.check(Credentials(token=TOKEN), "10.0.0.1", "http")


def test_a_peer_without_credentials_guesses_nothing_and_is_not_slowed_down() -> None:
    logins = Logins(Users({"ops": user(token=TOKEN)}), Audit())
    for _ in range(50):
        with pytest.raises(LoginError, match=r"^access denied$"):
            logins.check(None, "10.0.0.1", "http")
    assert logins.check(Credentials(token=TOKEN), "10.0.0.1", "http").name == "ops"


def test_a_password_is_remembered_until_its_hash_changes() -> None:
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    logins = Logins(Users({"a": user(password=hashed)}), Audit())
    right = Credentials(name="a", password="secret")
    assert not logins.is_quick(right)
    assert logins.check(right, "1.1.1.1", "http").name == "a"
    assert logins.is_quick(right)
    other = bcrypt.hashpw(b"other", bcrypt.gensalt(4)).decode()
    logins.users = Users({"a": user(password=other)})
    assert not logins.is_quick(right)
    for wrong in (right, Credentials(name="unknown", password="secret"), Credentials(name="a")):
        with pytest.raises(LoginError):
            logins.check(wrong, "1.1.1.1", "http")


# -- rights and names -------------------------------------------------------------------------------------------------


def test_rights_go_by_patterns_and_admin_has_all() -> None:
    users = Users({"till": user(token=TOKEN, publish=["trades", "tape-*"]), "ops": user(certificate="ops", admin=True)})
    till = users.with_token(TOKEN)
    assert till is not None
    assert [till.may("publish", name) for name in ("trades", "tape-7", "trades2", "*")] == [True, True, False, False]
    assert not till.may("subscribe", "trades")
    assert not till.may_view
    ops = users.with_certificate(["x", "ops"])
    assert ops is not None
    assert ops.may("subscribe", "anything") and ops.may_view
    assert users.with_certificate(["till"]) is None
    assert users.with_token("") is None


def test_a_name_is_kept_for_its_owner_over_a_restart(tmp_path: Path) -> None:
    users = Users({name: user(token=TOKEN + name, names_at_most=2) for name in "ab"} | {"c": user(names=["c-*"])})
    a, b, c = (users.named(name) for name in "abc")
    assert a and b and c
    owners = NameOwners(str(tmp_path))
    owners.open()
    assert owners.may_use(users, a, "reader", "out", "billing")
    assert not owners.may_use(users, b, "reader", "out", "billing")
    assert owners.may_use(users, b, "reader", "other", "billing"), "of another output"
    assert owners.may_use(users, c, "source", "s", "c-1")
    assert not owners.may_use(users, c, "source", "s", "x"), "a user with a list has only what is in it"
    assert not owners.may_use(users, a, "source", "s", "c-1"), "the file gives it to c"
    assert owners.may_use(users, a, "source", "s", "2")
    assert not owners.may_use(users, a, "source", "s", "3"), "two names at most"
    owners.close()
    again = NameOwners(str(tmp_path))
    again.open()
    assert again.owner("reader", "out", "billing") == "a"
    again.drop("reader", "out", "billing")
    assert again.may_use(users, b, "reader", "out", "billing")
    again.close()
    third = NameOwners(str(tmp_path))
    third.open()
    assert third.owner("reader", "out", "billing") == "b"
    third.close()


def test_a_pace_gives_a_burst_and_then_so_much_a_second() -> None:
    pace = Pace(10, 20)
    start = pace._at
    assert [pace.take(10, start) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert pace.take(0, start + 1.5) == 0.0
    assert [pace.may_take(start + 1.5) for _ in range(6)] == [True] * 5 + [False]


def test_the_audit_log_has_a_limit_and_says_what_it_left_out(tmp_path: Path) -> None:
    audit = Audit(str(tmp_path / "audit"))
    for number in range(500):
        audit.note("login refused", peer=f"10.0.0.{number}")
    audit._pace = Pace(1, 1)
    audit.note("last")
    audit.close()
    found = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    assert len(found) < 300
    assert found[-1]["event"] == "last" and found[-1]["left_out"] >= 200
    assert (tmp_path / "audit").stat().st_mode & 0o777 == 0o600


# -- the file ---------------------------------------------------------------------------------------------------------

NETWORK = """
streams: {{s: {{schema: {{n: int}}, overload: block, source: {{tcp: "{address}"{more}}}}}}}
outputs: {{o: {{from: s}}}}
{access}
"""


def problems_of(address: str, access: str = "", more: str = "") -> list[str]:
    try:
        build_network(NETWORK.format(address=address, access=access, more=more), box_kinds(), {})
    except NetworkError as error:
        return [problem.message for problem in error.problems]
    return []


def test_a_listener_beyond_loopback_needs_tls_and_users_or_a_word() -> None:
    tls = "tls: {cert_file: a, key_file: b}"
    users = f"users: {{a: {{token: {TOKEN}}}}}"
    for loopback in ("127.0.0.1:9", "localhost:9", "[::1]:9", "127.1.2.3:9"):
        assert not problems_of(loopback)
    [message] = problems_of("0.0.0.0:9")
    assert message == "0.0.0.0:9 is reached by other machines and has no TLS and users"
    [message] = problems_of("0.0.0.0:9", f"access: {{{tls}}}")
    assert message.endswith("has no users")
    assert problems_of("[::]:9", f"access: {{{users}}}")
    assert not problems_of("10.0.0.1:9", f"access: {{{tls}, {users}}}")
    assert not problems_of("0.0.0.0:9", "access: {insecure: true}")
    assert not problems_of("0.0.0.0:9", more=", insecure: true")
    assert problems_of("127.0.0.1:9", "spark: {listen: '0.0.0.0:9403'}")
    assert problems_of("127.0.0.1:9", "http: {listen: '0.0.0.0:9400'}")


def test_weak_tokens_wrong_hashes_and_equal_credentials_are_refused() -> None:
    assert "at least 16 characters" in problems_of("127.0.0.1:9", "access: {users: {a: {token: short}}}")[0]
    assert "not a bcrypt hash" in problems_of("127.0.0.1:9", "access: {users: {a: {password: plain}}}")[0]
    both = f"access: {{users: {{a: {{token: {TOKEN}}}, b: {{token: {TOKEN}}}}}}}"
    assert problems_of("127.0.0.1:9", both) == ["users a and b have the same credentials"]


def test_a_secret_comes_from_a_file_and_no_message_shows_it(tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("0123456789012345678901\n")
    text = NETWORK.format(
        address="127.0.0.1:9", more="", access=f"access: {{users: {{a: {{token: ${{file:{secret}}}}}}}}}"
    )
    network = build_network(text, box_kinds(), {})
    token = network.config.access.users["a"].token
    assert token == SecretStr("0123456789012345678901"), "digits stay text"
    assert "0123456789" not in repr(network.config)
    [message] = problems_of(f"${{file:{secret}}}")
    assert "***" in message and "0123456789" not in message
    assert "cannot be read: No such file" in problems_of(f"${{file:{tmp_path}/none}}")[0]


def test_the_web_configuration_file_of_prometheus(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("server")
    hashed = bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode()
    web = tmp_path / "web.yml"
    web.write_text(
        "tls_server_config: {cert_file: server.crt, key_file: server.key}\n"
        "http_server_config: {http2: false, headers: {X-Frame-Options: deny}}\n"
        f"basic_auth_users: {{grafana: '{hashed}'}}\n"
    )
    found = read_web_file(str(web))
    assert found.tls_server_config is not None
    assert found.tls_server_config.cert_file == str(tmp_path / "server.crt"), "relative to the file"
    beyond = HttpSection(listen=Address("10.0.0.1", 9400), config_file=str(web))
    access = Access(AccessSection(), beyond)
    grafana = access.http_users.named("grafana")
    assert grafana is not None
    assert grafana.may_view and grafana.may("tap", "x") and not grafana.is_admin
    assert access.http_tls is not None and access.tls is None
    web.write_text(f"basic_auth_users: {{grafana: '{hashed}'}}\n")
    with pytest.raises(ListenError, match="has no TLS or no users"):
        Access(AccessSection(), beyond)
    web.write_text("tls_server_config: {cert_file: a, key_file: b, cipher_suites: [x]}\n")
    with pytest.raises(ListenError, match="unknown key 'cipher_suites'"):
        Access(AccessSection(), beyond)


def test_basic_credentials_are_those_of_http() -> None:
    text = base64.b64encode("jörg:gehe:im".encode()).decode()
    assert parse_credentials(f"basic {text}") == Credentials(name="jörg", password="gehe:im")


def test_the_example_of_the_manual_is_a_network(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    text = page.split("```yaml elsewhere: tests/unit/test_access.py\n")[1].split("```")[0]
    for name in ("till", "billing", "ops"):
        (tmp_path / name).write_text(f"{name}-{TOKEN}\n")
    (tmp_path / "grafana.bcrypt").write_text(bcrypt.hashpw(b"x", bcrypt.gensalt(4)).decode())
    network = build_network(text.replace("/run/secrets", str(tmp_path)), box_kinds(), {})
    assert sorted(network.config.access.users) == ["billing", "grafana", "ops", "till"]
