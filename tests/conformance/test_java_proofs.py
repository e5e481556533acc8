"""ZooKeeper's own client proves itself to nodes: a certificate over TLS, and a password by SASL DIGEST-MD5.

The client is the shell of ZooKeeper 3.9.5, set up by its administrator's guide; then Curator, by both.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorum.config.sasl_users import user_line
from tests.support.certificates import Authority
from tests.support.java import JavaProgram, java_command
from tests.support.secure_nodes import SecureNodes

CURATOR = Path(__file__).with_name("java") / "SecuredCurator.java"
SHELL = "org.apache.zookeeper.ZooKeeperMain"
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("proofs")


@pytest.fixture(scope="module")
def authority(folder: Path) -> Authority:
    return Authority(folder / "ours")


@pytest.fixture(scope="module")
def secured(folder: Path, authority: Authority) -> Iterator[SecureNodes]:
    users = folder / "users.digest"
    users.touch(mode=0o600)
    users.write_text(user_line("alice", "secret") + "\n")
    security = {"sasl_users_file": str(users), "enforce_auth_schemes": ["sasl", "x509"]}
    with SecureNodes(authority, tls={"client_auth": "want"}, security=security) as running:
        yield running


def shell(hosts: str, options: list[str], commands: str) -> str:
    """Run commands; returns what the shell printed, and its log."""
    java, *rest = java_command(SHELL, "-server", hosts, "-timeout", "10000")
    done = subprocess.run(
        [java, *[f"-D{option}" for option in options], *rest],
        input=commands,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.stdout


def by_password(folder: Path, password: str) -> list[str]:
    login = folder / f"{password}.conf"
    module = "org.apache.zookeeper.server.auth.DigestLoginModule"
    login.write_text(f'Client {{ {module} required username="alice" password="{password}"; }};\n')
    # Without the second, the client refuses MD5.
    return [f"java.security.auth.login.config={login}", "zookeeper.fips-mode=false"]


def by_certificate(authority: Authority, name: str) -> list[str]:
    both = authority.both(name)
    return [
        "zookeeper.client.secure=true",
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
        f"zookeeper.ssl.keyStore.location={both}",
        f"zookeeper.ssl.trustStore.location={authority.file}",
    ]


def test_the_java_client_proves_a_password(secured: SecureNodes, folder: Path) -> None:
    commands = "create /java-sasl v auth::cdrwa\ngetAcl /java-sasl\nwhoami\n"
    printed = shell(secured.hosts, by_password(folder, "secret"), commands)
    assert "'sasl,'alice\n: cdrwa" in printed, printed
    assert "sasl: alice" in printed


def test_the_java_client_proves_a_certificate(secured: SecureNodes, authority: Authority) -> None:
    commands = "create /java-x509 v auth::cdrwa\ngetAcl /java-x509\nwhoami\n"
    printed = shell(secured.secure_hosts, by_certificate(authority, "alice"), commands)
    assert "'x509,'CN=alice\n: cdrwa" in printed, printed
    assert "x509: CN=alice" in printed


def test_a_wrong_password_of_the_java_client_is_refused(secured: SecureNodes, folder: Path) -> None:
    printed = shell(secured.hosts, by_password(folder, "wrong"), "ls /\n")
    assert "state:AuthFailed" in printed, printed
    assert "[zookeeper]" not in printed


def test_a_java_client_that_proves_nothing_is_turned_away(secured: SecureNodes) -> None:
    printed = shell(secured.hosts, [], "ls /\n")
    assert "Session closed because client failed to authenticate" in printed, printed
    assert "[zookeeper]" not in printed


def test_curators_recipes_work_for_whom_the_lists_name(
    secured: SecureNodes, folder: Path, authority: Authority
) -> None:
    files = [str(authority.both(name)) for name in ("alice", "bob", "mallory")]
    java, *rest = java_command(CURATOR, secured.secure_hosts, secured.hosts, str(authority.file), *files)
    command = [java, *[f"-D{option}" for option in by_password(folder, "secret")], *rest]
    with JavaProgram(command, folder) as program:
        program.wait_for("end", DEADLINE_S)
    turns = sorted((line["from"], line["to"], line["who"]) for line in program.all("mutex"))
    assert [who for _, _, who in turns].count("alice") == [who for _, _, who in turns].count("bob") == 10
    assert all(one[1] < two[0] for one, two in itertools.pairwise(turns))
    assert [(line["leader"], line["both"]) for line in program.all("latch")] == [
        ("alice", False),
        ("bob", False),
    ]
    assert program.all("mallory") == [{"event": "mallory", "read": "NOAUTH", "mutex": "NOAUTH"}]
    assert program.all("user") == [{"event": "user", "read": "", "write": "NOAUTH"}]
