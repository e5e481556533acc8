"""The settings of how clients prove themselves: the sentence for each wrong or half-finished one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from quorum.cli.main import main
from quorum.config.node import NodeConfig, node_config
from quorum.config.sasl_users import read_sasl_users, required_schemes, user_line, what_is_open
from quorum.errors import ConfigError
from tests.support.certificates import Authority

#: hashed by another program: printf alice:zk-sasl-md5:secret | md5sum
ALICE = "alice:zk-sasl-md5:27f2c59f218fbdb6ca4931bd09c81504"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proofs")
    for name, content in (("peer.secret", "s" * 32), ("users", ALICE)):
        (folder / name).touch(mode=0o600)
        (folder / name).write_text(content)
    Authority(folder / "ours").settings("n")
    return folder


def node(folder: Path, security: dict[str, Any], **sections: dict[str, Any]) -> NodeConfig:
    base: dict[str, dict[str, Any]] = {
        "node": {"id": 1, "cluster": "c", "data_dir": "d"},
        "members": {"1": "127.0.0.1:2281"},
        "security": {"peer_secret_file": "peer.secret", **security},
        **sections,
    }
    return node_config(base, folder)


def secure(client_auth: str) -> dict[str, dict[str, Any]]:
    files = {"certificate_file": "ours/n.pem", "key_file": "ours/n.key", "authorities_file": "ours/ca.pem"}
    return {"listen": {"secure_client": "127.0.0.1:2182"}, "tls": {**files, "client_auth": client_auth}}


@pytest.mark.parametrize(
    ("security", "field", "words"),
    [
        ({"super_user": "root"}, "security.super_user", "needs SASL"),
        ({"super_user": "a:b"}, "security.super_user", "is not a name of SASL"),
        (
            {"session_require_client_sasl_auth": True},
            "security.session_require_client_sasl_auth",
            "needs SASL",
        ),
        ({"enforce_auth_schemes": ["sasl"]}, "security.enforce_auth_schemes", "set security.sasl_users_file"),
        ({"enforce_auth_schemes": ["x509"]}, "security.enforce_auth_schemes", "no port asks for them"),
        ({"enforce_auth_schemes": ["kerberos"]}, "security.enforce_auth_schemes", "unknown word 'kerberos'"),
        ({"x509_super_user": "CN=root"}, "security.x509_super_user", "set listen.secure_client"),
        ({"x509_super_user": "root"}, "security.x509_super_user", "is not a subject as RFC 2253 writes it"),
        ({"x509_super_user": "CN=root, O=x"}, "security.x509_super_user", "is not a subject"),
        (
            {
                "sasl_users_file": "users",
                "session_require_client_sasl_auth": True,
                "enforce_auth_schemes": ["sasl", "digest"],
            },
            "security.session_require_client_sasl_auth",
            "set one of the two",
        ),
        ({"sasl_users_file": "none"}, "security.sasl_users_file", "cannot be read: No such file"),
        ({"sasl_users_file": "."}, "security.sasl_users_file", "is no regular file"),
    ],
)
def test_a_wrong_or_half_finished_proof_is_refused(
    folder: Path, security: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        node(folder, security)
    assert caught.value.field == field
    assert words in f"{caught.value}; {caught.value.remedy}"


def test_a_port_that_asks_for_no_certificate_proves_none(folder: Path) -> None:
    security = {"x509_super_user": "CN=root,O=x", "enforce_auth_schemes": ["x509"]}
    with pytest.raises(ConfigError, match="no port asks for them"):
        node(folder, security, **secure("none"))
    assert required_schemes(node(folder, security, **secure("want")).security) == ("x509",)


@pytest.mark.parametrize(("key", "value"), [("client_auth", "maybe"), ("minimum_version", "1.1")])
def test_a_wrong_tls_setting_is_the_only_complaint(folder: Path, key: str, value: str) -> None:
    security = {"x509_super_user": "CN=root,O=x", "enforce_auth_schemes": ["x509"]}
    sections = secure("need")
    sections["tls"] = {**sections["tls"], key: value}
    with pytest.raises(ConfigError) as caught:
        node(folder, security, **sections)
    assert [each.field for each in caught.value.problems] == [f"tls.{key}"]


def test_schemes_have_no_word_for_all_of_them(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        node(folder, {"enforce_auth_schemes": ["*"]})
    assert caught.value.remedy == "give a list of words out of sasl, x509, digest, ip"


def test_what_must_be_proven_follows_from_the_settings(folder: Path) -> None:
    found = node(folder, {"sasl_users_file": "users", "session_require_client_sasl_auth": True})
    assert required_schemes(found.security) == ("sasl",)
    assert required_schemes(node(folder, {"enforce_auth_schemes": ["digest", "ip"]}).security) == (
        "digest",
        "ip",
    )
    assert required_schemes(node(folder, {}).security) == ()


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [
        ("alice:secret", 0o600, "line 1 is not NAME:zk-sasl-md5:HASH"),
        ("\n" + ALICE.replace("zk-sasl-md5", "realm"), 0o600, "line 2 is not NAME:zk-sasl-md5:HASH"),
        (f"{ALICE}\n{ALICE}", 0o600, "line 2 names 'alice' again"),
        ("# nobody", 0o600, "names no user"),
        (ALICE, 0o640, "is open to other users of the machine"),
        ("#" * 1_048_577, 0o600, "has more than 1048576 bytes"),
    ],
)
def test_a_bad_file_of_users_is_named(tmp_path: Path, content: str, mode: int, words: str) -> None:
    file = tmp_path / "users"
    file.touch()
    file.write_text(content)
    file.chmod(mode)
    with pytest.raises(ConfigError, match=words):
        read_sasl_users(file)


def digest(name: str, given: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    return main(["users", "digest", name])


def test_the_command_prints_a_line_that_nodes_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert digest("alice", "secret\n", monkeypatch) == 0
    printed = capsys.readouterr().out
    assert printed == f"{ALICE}\n" == user_line("alice", "secret") + "\n"
    file = tmp_path / "users"
    file.touch(mode=0o600)
    file.write_text(printed)
    assert read_sasl_users(file) == {"alice": ALICE.rpartition(":")[2]}


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("a:b", "secret\n", "'a:b' is no name of a user"),
        ("", "secret\n", "'' is no name of a user"),
        ("alice", "", "the password is empty"),
        ("alice", "gehe\u00efm\n", "not of ASCII"),
    ],
)
def test_the_command_refuses_what_clients_hash_differently(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, given: str, words: str
) -> None:
    assert digest(name, given, monkeypatch) == 2
    told = capsys.readouterr()
    assert words in told.err
    assert not told.out
    assert "secret" not in told.err


@pytest.mark.parametrize(
    ("address", "schemes", "is_open"),
    [
        ("127.0.0.1:2181", [], False),
        ("0.0.0.0:2181", [], True),
        ("10.0.0.1:2181", ["sasl", "ip"], True),
        ("10.0.0.1:2181", ["digest"], True),
        ("10.0.0.1:2181", ["sasl"], False),
        ("", [], False),
    ],
)
def test_a_port_that_serves_whoever_reaches_it_is_named(
    folder: Path, address: str, schemes: list[str], is_open: bool
) -> None:
    users = {"sasl_users_file": "users"} if "sasl" in schemes else {}
    listen = {"client": address, **({} if address else {"secure_client": "127.0.0.1:2182"})}
    sections = {**secure("need"), "listen": listen} if not address else {"listen": listen}
    config = node(folder, {"enforce_auth_schemes": schemes, **users}, **sections)
    told = what_is_open(config.listen.client, config.security)
    assert (f"listen.client {address} is not on loopback" in told) is is_open
    assert ("set security.enforce_auth_schemes" in told) is is_open
