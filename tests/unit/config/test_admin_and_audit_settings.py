"""[audit] and the roles of the admin port: what a file may say, and the sentence for what it may not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.config.broker import BrokerConfig, broker_config
from quorum.config.admin_port import AdminHolders, AdminRole, read_tokens_file
from quorum.config.audit import audit_log
from quorum.config.node import NodeConfig, node_config
from quorum.errors import ConfigError
from tests.support.certificates import Authority

TOKEN = "token-0123456789abcdef"
OTHER = "other-0123456789abcdef"


def written(folder: Path, name: str, text: str, mode: int = 0o600) -> Path:
    path = folder / name
    path.touch(mode=0o600)
    path.write_text(text)
    path.chmod(mode)
    return path


def config(kind: str, folder: Path, **sections: dict[str, Any]) -> NodeConfig | BrokerConfig:
    secret = written(folder, "peer.secret", "s" * 32)
    base: dict[str, dict[str, Any]] = {"security": {"peer_secret_file": str(secret)}}
    if kind == "node":
        base["node"] = {"id": 1, "cluster": "c", "data_dir": "data"}
        base["members"] = {"1": "127.0.0.1:2281"}
    else:
        base["broker"] = {"id": 1, "data_dir": "data"}
    for name, values in sections.items():
        base[name] = {**base.get(name, {}), **values}
    return node_config(base, folder) if kind == "node" else broker_config(base, folder)


def problem_of(kind: str, folder: Path, **sections: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(ConfigError) as caught:
        config(kind, folder, **sections)
    (problem,) = caught.value.problems
    return problem.field, problem.problem


either = pytest.mark.parametrize("kind", ["node", "broker"])


@either
def test_the_audit_log_is_off_and_lies_in_the_data_directory(kind: str, tmp_path: Path) -> None:
    found = config(kind, tmp_path).audit
    assert (found.enable, str(found.file), found.file_bytes_max, found.files_max) == (
        *(False, "audit.log", 104_857_600),
        10,
    )
    assert audit_log(found, tmp_path) is None
    on = config(kind, tmp_path, audit={"enable": True}).audit
    log = audit_log(on, tmp_path)
    assert log is not None
    log.start()
    log.stop()
    assert (tmp_path / "audit.log").exists()


@either
@pytest.mark.parametrize(
    ("audit", "field", "said"),
    [
        ({"enable": 1}, "audit.enable", "is not true or false"),
        ({"file": ""}, "audit.file", "is not a path"),
        ({"file": "identity"}, "audit.file", "is neither absolute nor a name that ends in .log"),
        ({"file": "../a.log"}, "audit.file", "is neither absolute nor a name that ends in .log"),
        ({"file_bytes_max": 100}, "audit.file_bytes_max", "is out of range (65536 to 1099511627776)"),
        ({"files_max": 0}, "audit.files_max", "is out of range (1 to 1000)"),
    ],
)
def test_a_wrong_setting_of_the_audit_log_is_named(
    kind: str, tmp_path: Path, audit: dict[str, Any], field: str, said: str
) -> None:
    assert problem_of(kind, tmp_path, audit=audit) == (field, said)


@either
def test_a_folder_for_the_audit_log_must_be_there(kind: str, tmp_path: Path) -> None:
    found = problem_of(kind, tmp_path, audit={"enable": True, "file": str(tmp_path / "none" / "a.log")})
    assert found == ("audit.file", f"cannot be made: there is no folder {tmp_path}/none")


def test_a_tokens_file_names_who_may_ask_what(tmp_path: Path) -> None:
    lines = ["# people", "", f"ann reader {TOKEN}", f" bob  operator  {OTHER}", "eve admin dn:CN=Eve Doe,O=x"]
    ann, bob, eve = read_tokens_file(written(tmp_path, "tokens", "\n".join(lines)))
    assert (ann.name, ann.role, ann.token) == ("ann", AdminRole.READER, TOKEN.encode())
    assert (bob.name, bob.role, bob.token) == ("bob", AdminRole.OPERATOR, OTHER.encode())
    assert (eve.name, eve.role, eve.token, eve.subject) == ("eve", AdminRole.ADMIN, b"", "CN=Eve Doe,O=x")


@either
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names nobody"),
        ("# nobody\n", "names nobody"),
        ("ann reader", "line 1 has 2 words; three are needed"),
        (f"ann owner {TOKEN}", "line 1 gives ann a role that is none of reader, operator, admin"),
        (f"ann Reader {TOKEN}", "line 1 gives ann a role that is none of reader, operator, admin"),
        (f"a:b reader {TOKEN}", "line 1 begins with no name of 1 to 64 letters, digits, dots, dashes, @"),
        ("ann reader short", "line 1 gives ann no token of 16 or more ASCII characters"),
        (f"ann reader {TOKEN} {TOKEN}", "line 1 gives ann no token of 16 or more ASCII characters"),
        ("ann reader dn:", "line 1 gives ann no subject as RFC 2253 writes it"),
        ("ann reader dn:CN=a, O=x", "line 1 gives ann no subject as RFC 2253 writes it"),
        (f"ann reader {TOKEN}\nann admin {OTHER}", "line 2 names ann again"),
        (f"ann reader {TOKEN}\nbob admin {TOKEN}", "line 2 gives bob what ann proves"),
    ],
)
def test_a_wrong_line_is_named_and_shows_no_token(kind: str, tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path, "tokens", text)
    with pytest.raises(ConfigError) as caught:
        config(kind, tmp_path, security={"admin_tokens_file": str(path)})
    (problem,) = caught.value.problems
    assert (problem.field, problem.problem) == ("security.admin_tokens_file", said)
    assert TOKEN not in f"{caught.value.message} {caught.value.remedy}"


@either
def test_a_tokens_file_is_there_and_private(kind: str, tmp_path: Path) -> None:
    field, said = problem_of(kind, tmp_path, security={"admin_tokens_file": str(tmp_path / "none")})
    assert (field, said) == ("security.admin_tokens_file", "cannot be read: No such file or directory")
    path = written(tmp_path, "tokens", f"ann reader {TOKEN}", 0o644)
    _, said = problem_of(kind, tmp_path, security={"admin_tokens_file": str(path)})
    assert said == "is open to other users of the machine"


@either
def test_a_certificate_counts_only_where_one_is_asked_for(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, "tokens", "eve admin dn:CN=eve")
    security: dict[str, Any] = {"admin_tokens_file": str(path)}
    said = ("security.admin_tokens_file", "names a certificate (eve), and the admin port asks for none")
    assert problem_of(kind, tmp_path, security=security) == said
    tls = Authority(tmp_path / "pki").settings("all")
    security["admin_ssl"] = True
    config(kind, tmp_path, security=security, tls=tls)
    admin = {"tls.admin": {"client_auth": "none"}}
    assert problem_of(kind, tmp_path, security=security, tls=tls, **admin) == said


def test_a_certificate_without_a_subject_is_nobodys(tmp_path: Path) -> None:
    path = written(tmp_path, "tokens", f"ann admin {TOKEN}\neve reader dn:CN=eve")
    tls = Authority(tmp_path / "pki").settings("all")
    security = {"admin_tokens_file": str(path), "admin_ssl": True}
    holders = AdminHolders(config("node", tmp_path, security=security, tls=tls).security)
    eve = holders.by_subject("CN=eve")
    assert eve is not None
    assert eve.name == "eve"
    assert holders.by_subject("") is None


@either
def test_off_loopback_roles_do_as_two_tokens_do(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, "tokens", f"ann reader {TOKEN}")
    listen = {"admin": "0.0.0.0:8181"}
    config(
        kind, tmp_path, listen=listen, security={"admin_tokens_file": str(path), "admin_behind_proxy": True}
    )
    found = problem_of(kind, tmp_path, listen=listen, security={"admin_tokens_file": str(path)})
    assert found == (
        "listen.admin",
        "is not on loopback, and security.admin_ssl (or admin_behind_proxy) is not set",
    )
    found = problem_of(kind, tmp_path, listen=listen, security={"admin_behind_proxy": True})
    assert found == ("listen.admin", "is not on loopback, and security.admin_tokens_file is not set")


def test_a_bad_file_keeps_the_tokens_that_were(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, "tokens", f"ann reader {TOKEN}")
    found = config("node", tmp_path, security={"admin_tokens_file": str(path)})
    holders = AdminHolders(found.security)
    ann = holders.by_token(TOKEN.encode())
    assert ann is not None
    path.write_text("ann owner x")
    with caplog.at_level(logging.INFO, "quorate.security"):
        holders.reload()
        holders.reload()
    assert caplog.text.count("what was read before stays in use") == 1
    assert holders.has(ann)
    path.write_text(f"ann operator {TOKEN}")
    holders.reload()
    assert not holders.has(ann)
    assert holders.by_token(TOKEN.encode()) == ann._replace(role=AdminRole.OPERATOR)
    assert holders.by_token(b"") is None
