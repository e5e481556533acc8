"""What clients prove to the client port: SASL DIGEST-MD5 token by token, and what all must prove."""

from __future__ import annotations

import hashlib
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from quorum.config.sasl_users import SaslUsers, user_line
from quorum.server.auth import own_credentials
from quorum.server.sasl import challenge, check
from quorum.wire.digest_md5 import TOKEN_BYTES_MAX, SaslError
from quorum.wire.jute import JuteReader, buffer_bytes
from quorum.wire.protocol import OpCode
from quorum.wire.requests import encode_auth, frame
from tests.support.certificates import Authority
from tests.unit.server.frames import GET_DATA, create, read
from tests.unit.server.memory import MemoryClient, MemoryNode, Reply

NONCE = "0123456789abcdef"
HASH = user_line("alice", "secret").rpartition(":")[2]
FAILED, REQUIRED, UNIMPLEMENTED = -115, -124, -6
PING = frame(-2, OpCode.PING, b"")


def md5(text: bytes) -> bytes:
    return hashlib.md5(text, usedforsecurity=False).digest()


def response(nonce: str = NONCE, name: str = "alice", password: str = "secret", **changes: str) -> bytes:
    """Return what a client answers, by RFC 2831; a change of "" leaves a directive out."""
    secret = md5(f"{name}:zk-sasl-md5:{password}".encode())
    behalf = ":" + changes["authzid"].strip('"') if "authzid" in changes else ""
    key = md5(secret + f":{nonce}:cn{behalf}".encode()).hex()
    uri = md5(b"AUTHENTICATE:zookeeper/zk-sasl-md5").hex()
    proof = md5(f"{key}:{nonce}:00000001:cn:auth:{uri}".encode()).hex()
    given = {
        "username": f'"{name}"',
        "realm": '"zk-sasl-md5"',
        "nonce": f'"{nonce}"',
        "cnonce": '"cn"',
        "nc": "00000001",
        "qop": "auth",
        "digest-uri": '"zookeeper/zk-sasl-md5"',
        "response": proof,
        **{key.replace("_", "-"): value for key, value in changes.items()},
    }
    return ", ".join(f"{key}={value}" for key, value in given.items() if value).encode()


def known(name: str) -> str | None:
    return HASH if name == "alice" else None


def test_a_response_by_the_rfc_is_believed_and_answered() -> None:
    proven = check(response(charset="utf-8"), NONCE, known)
    key = md5(bytes.fromhex(HASH) + f":{NONCE}:cn".encode()).hex()
    uri = md5(b":zookeeper/zk-sasl-md5").hex()
    expected = md5(f"{key}:{NONCE}:00000001:cn:auth:{uri}".encode()).hex()
    assert proven == ("alice", f"rspauth={expected}".encode())
    # Quality "auth" is what is meant where none is named.
    assert check(response(qop=""), NONCE, known).name == "alice"
    # Java's client says in whose name it acts.
    assert check(response(authzid='"alice"'), NONCE, known).name == "alice"
    assert f'nonce="{NONCE}"'.encode() in challenge(NONCE)


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (response(password="wrong"), "name 'alice' and password belong to no user"),
        (response(name="mallory"), "name 'mallory' and password belong to no user"),
        (response("another"), "its nonce is 'another'"),
        (response(realm='"other"'), "its realm is 'other'"),
        (response(qop="auth-conf"), "its qop is 'auth-conf'"),
        (response(nc="00000002"), "its nc is '00000002'"),
        (response(digest_uri='"imap/zk-sasl-md5"'), "its digest-uri is 'imap/zk-sasl-md5'"),
        (response(authzid='"root"'), "its authzid is 'root'"),
        (response(response="0" * 31), "belong to no user"),
        (response(response='"\u00e9"'), "belong to no user"),
        (response(username=""), "no username"),
        (response(cnonce='""'), "no cnonce"),
        (response() + b',username="root"', "username twice"),
        (b"alice secret", "no list of directives"),
        (b'username="alice', "no list of directives"),
        (b"\xff", "no UTF-8"),
        (b"a" * (TOKEN_BYTES_MAX + 1), "4097 bytes"),
    ],
)
def test_any_other_response_is_refused_and_named(token: bytes, told: str) -> None:
    with pytest.raises(SaslError, match=re.escape(told)):
        check(token, NONCE, known)


def test_quoted_names_are_read_as_they_were_meant() -> None:
    name = r'a"b\c'
    quoted = response(name=name, username=r'"a\"b\\c"')
    found = check(quoted, NONCE, {name: user_line(name, "secret").rpartition(":")[2]}.get)
    assert found.name == name


@pytest.fixture
def users(tmp_path: Path) -> SaslUsers:
    file = tmp_path / "users.digest"
    file.touch(mode=0o600)
    file.write_text(f"# who\n\n{user_line('alice', 'secret')}\n{user_line('root', 'toor')}\n")
    return SaslUsers(file)


def sasl(xid: int, token: bytes) -> bytes:
    return frame(xid, OpCode.SASL, buffer_bytes(token))


def ask(client: MemoryClient, *frames: bytes) -> list[Reply]:
    client.send(*frames)
    return client.replies()


def errors(replies: list[Reply]) -> list[int]:
    return [reply.err for reply in replies]


def begin(client: MemoryClient) -> str:
    """Ask for a challenge; returns its nonce."""
    [reply] = ask(client, sasl(1, b""))
    token = JuteReader(reply.body, 0, len(reply.body), "sasl").buffer("token") or b""
    assert (reply.xid, reply.zxid, reply.err) == (1, 0, 0)
    found = re.search(r'nonce="(\w{40,})"', token.decode())
    assert found is not None
    return found[1]


def prove(client: MemoryClient, **who: str) -> list[Reply]:
    return ask(client, sasl(2, response(begin(client), **who)))


@pytest.mark.parametrize(
    ("name", "password", "identities"),
    [
        ("alice", "secret", [["sasl", "alice"]]),
        ("root", "toor", [["super", ""], ["sasl", "root"]]),
    ],
)
def test_a_password_proves_a_name(
    users: SaslUsers, name: str, password: str, identities: list[list[str]]
) -> None:
    client = MemoryNode(sasl_users=users, super_user="root").greeted()
    assert errors(prove(client, name=name, password=password)) == [0]
    assert client.connection.identities == [["ip", "10.0.0.1"], *identities]


def test_every_challenge_is_another(users: SaslUsers) -> None:
    node = MemoryNode(sasl_users=users)
    assert begin(node.greeted()) != begin(node.greeted())


@pytest.mark.parametrize(("schemes", "err"), [((), FAILED), (("x509",), FAILED), (("sasl",), REQUIRED)])
def test_a_wrong_password_ends_the_connection(users: SaslUsers, schemes: Any, err: int) -> None:
    client = MemoryNode(sasl_users=users, required_schemes=schemes).greeted()
    [reply] = prove(client, password="wrong")
    # Java's client reads a token, null or not, also of a refusal.
    assert (reply.zxid, reply.err, reply.body) == (0, err, b"\xff\xff\xff\xff")
    assert client.has_ended()


@pytest.mark.parametrize("proven", [True, False])
def test_one_connection_has_one_exchange(users: SaslUsers, proven: bool) -> None:
    client = MemoryNode(sasl_users=users).greeted()
    if proven:
        prove(client)
    else:
        begin(client)
    assert errors(ask(client, sasl(3, b""), PING)) == [FAILED]
    assert client.has_ended()


def test_a_response_without_a_challenge_is_refused(users: SaslUsers) -> None:
    client = MemoryNode(sasl_users=users).greeted()
    assert errors(ask(client, sasl(1, response("")))) == [FAILED]


def test_without_users_sasl_is_not_served() -> None:
    client = MemoryNode().greeted()
    assert errors(ask(client, sasl(1, b""))) == [UNIMPLEMENTED]
    assert client.has_ended()


@pytest.mark.parametrize(
    "request_", [create(1, "/a"), read(1, GET_DATA, "/"), PING, frame(1, OpCode.CLOSE_SESSION, b"")]
)
def test_who_must_prove_is_refused_everything_else(users: SaslUsers, request_: bytes) -> None:
    node = MemoryNode(sasl_users=users, required_schemes=("sasl",))
    client = node.greeted()
    [reply] = ask(client, request_, create(2, "/b"))
    assert (reply.zxid, reply.err) == (0, REQUIRED)
    assert client.has_ended()
    assert node.replica.machine.tree.get("/a") is node.replica.machine.tree.get("/b") is None


def test_what_was_proven_opens_the_rest(users: SaslUsers) -> None:
    client = MemoryNode(sasl_users=users, required_schemes=("sasl",)).greeted()
    prove(client)
    assert errors(ask(client, create(3, "/a"), PING)) == [0, 0]


def test_digest_alone_does_not_stand_for_sasl(users: SaslUsers) -> None:
    client = MemoryNode(sasl_users=users, required_schemes=("sasl", "x509")).greeted()
    assert errors(ask(client, encode_auth("digest", b"a:b"), PING)) == [0, REQUIRED]
    other = MemoryNode(required_schemes=("digest",)).greeted()
    assert errors(ask(other, encode_auth("digest", b"a:b"), PING)) == [0, 0]
    assert errors(ask(MemoryNode(required_schemes=("ip",)).greeted(), PING)) == [0]


def test_auth_with_x509_asks_for_a_certificate(tmp_path: Path) -> None:
    client = MemoryNode().greeted()
    assert errors(ask(client, encode_auth("x509", b""))) == [FAILED]
    file, _ = Authority(tmp_path / "ours").issue("root")
    certificate = ssl.PEM_cert_to_DER_cert(file.read_text())
    shown = MemoryNode(x509_super_user="CN=root").client(certificate=certificate)
    assert shown.greet().session_id
    assert errors(ask(shown, encode_auth("x509", b""))) == [0]
    assert shown.connection.identities == [["ip", "10.0.0.1"], ["super", ""], ["x509", "CN=root"]]


def test_the_nodes_own_client_adds_no_identity_by_its_certificate(tmp_path: Path) -> None:
    file, _ = Authority(tmp_path / "ours").issue("node-1")
    certificate = ssl.PEM_cert_to_DER_cert(file.read_text())
    node = MemoryNode(x509_super_user="CN=node-1", required_schemes=("sasl",))
    own = node.client(certificate=certificate)
    assert own.greet().session_id
    assert errors(ask(own, encode_auth("node", node.frontend.options.own_proof), PING)) == [0, 0]
    assert own.connection.identities == [["ip", "10.0.0.1"]]
    for identity, added in ((("sasl", "ann"), [["sasl", "ann"]]), (("super", ""), [])):
        proof = own_credentials(node.frontend.options.own_proof, identity)
        assert errors(ask(own, encode_auth("node", proof))) == [0]
        assert own.connection.identities == [["ip", "10.0.0.1"], *added]
    for guess in (b"guessed", b"", b"sasl:ann"):
        other = node.client(certificate=certificate)
        assert other.greet().session_id
        assert errors(ask(other, encode_auth("node", guess))) == [FAILED]


def test_users_are_read_again_and_a_bad_file_changes_nothing(
    users: SaslUsers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "users.digest"
    file.write_text("alice:secret\n")
    users.reload()
    users.reload()
    [told] = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert told.startswith("what was read before stays in use: security.sasl_users_file = ")
    assert "line 1 is not NAME:zk-sasl-md5:HASH; write lines as quorate users digest NAME prints" in told
    assert users.get("alice") == HASH
    file.write_text(user_line("bob", "x"))
    users.reload()
    assert users.get("alice") is None
    assert users.get("bob")
