"""Our own clients at nodes that serve nobody who has not proved who it is by SASL."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorum.cli.main import main
from quorum.client import Client, ConnectionLossError
from quorum.config.logins import FileLogin
from quorum.config.sasl_users import user_line
from tests.support.broker_cluster import BrokerCluster
from tests.support.certificates import Authority
from tests.support.secure_nodes import SecureNodes

USERS = {"broker": "of brokers", "ops": 'a "good" \\ one'}
DEADLINE_S = 30.0


class Guarded:
    """A node that requires SASL, and a broker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users = folder / "users.digest"
        self.users.touch(mode=0o600)
        self.write_users(USERS)
        for name, password in USERS.items():
            self.write_password(name, password)
        security = {"sasl_users_file": str(self.users), "enforce_auth_schemes": ["sasl"]}
        self.nodes = SecureNodes(Authority(folder / "pki"), nodes=1, security=security)
        quorum = {"sasl_username": "broker", "sasl_password_file": str(self.password("broker"))}
        self.cluster = BrokerCluster(brokers=1, quorum=self.nodes, settings={"quorum": quorum})
        self.profiles = folder / "profiles.toml"

    def password(self, name: str) -> Path:
        return self.folder / f"{name}.password"

    def write_password(self, name: str, password: str) -> None:
        file = self.password(name)
        file.touch(mode=0o600)
        file.write_text(f"{password}\n")

    def write_users(self, users: dict[str, str]) -> None:
        self.users.write_text("".join(f"{user_line(name, password)}\n" for name, password in users.items()))

    def login(self, name: str) -> FileLogin:
        return FileLogin(name, self.password(name), "password_file")

    def proves(self, name: str = "ops") -> list[str]:
        return ["--hosts", self.nodes.hosts, "--sasl", name, "--password-file", str(self.password(name))]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    found = Guarded(tmp_path_factory.mktemp("guarded"))
    with found.cluster:
        yield found


def test_brokers_prove_themselves_and_serve(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    bootstrap = ["--bootstrap", guarded.cluster.bootstrap]
    assert main(["topics", "create", "orders", "--partitions", "2", *bootstrap]) == 0
    assert main(["topics", "list", "--json", *bootstrap]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])[0]["topic"] == "orders"


def test_shell_users_and_status_prove_themselves(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["shell", *guarded.proves(), "create", "/by-shell", "x"]) == 0
    assert main(["shell", *guarded.proves(), "get", "/by-shell"]) == 0
    assert "x" in capsys.readouterr().out
    assert main(["users", "list", *guarded.proves()]) == 0
    admin = guarded.nodes.admin_url(1)
    sasl = guarded.proves()[2:]
    assert main(["status", "--admin", admin, "--json", *sasl]) == 0
    assert len(json.loads(capsys.readouterr().out)["control_plane"]["brokers"]) == 1
    assert main(["shell", "--hosts", guarded.nodes.hosts, "ls", "/"]) == 1
    assert "remedy: prove a name (--sasl NAME --password-file FILE; " in capsys.readouterr().err
    guarded.profiles.write_text(
        f'[here]\nhosts = {json.dumps(guarded.nodes.hosts.split(","))}\nadmin = "{admin}"\n'
        'sasl = "ops"\npassword_file = "ops.password"\n'
    )
    guarded.profiles.chmod(0o600)
    monkeypatch.setenv("QUORATE_PROFILE_FILE", str(guarded.profiles))
    capsys.readouterr()
    assert main(["--profile", "here", "shell", "get", "/by-shell"]) == 0
    assert "x" in capsys.readouterr().out
    monkeypatch.setenv("QUORATE_PROFILE", "here")
    assert main(["status", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["control_plane"]["brokers"]) == 1


def test_secrets_are_rotated_by_who_proves_a_name(
    guarded: Guarded, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = ["--peer-secret", str(guarded.cluster.secret_path)]
    assert main(["secret", "rotate", *guarded.proves(), *secret]) == 0
    assert "nothing to rewrite" in capsys.readouterr().out
    assert main(["secret", "rotate", *guarded.proves()[:2], *secret]) == 1
    assert "remedy: prove a name (--sasl NAME --password-file FILE; " in capsys.readouterr().err
    guarded.profiles.write_text(
        f'[here]\nhosts = "{guarded.nodes.hosts}"\nsasl = "ops"\npassword_file = "ops.password"\n'
        f"peer_secret = {json.dumps(secret[1])}\n"
    )
    guarded.profiles.chmod(0o600)
    monkeypatch.setenv("QUORATE_PROFILE_FILE", str(guarded.profiles))
    for given in (secret, []):
        assert main(["--profile", "here", "secret", "rotate", *given]) == 0
        assert "nothing to rewrite" in capsys.readouterr().out


def test_the_admin_port_asks_its_own_node_for_its_callers(guarded: Guarded) -> None:
    code, body = guarded.nodes.get(1, "/v1/znodes?path=/&linearizable=true")
    assert (code, json.loads(body)["path"]) == (200, "/")


def test_wrong_passwords_are_told_with_a_remedy(guarded: Guarded, capsys: pytest.CaptureFixture[str]) -> None:
    guarded.write_password("nobody", "wrong")
    assert main(["shell", *guarded.proves("nobody"), "ls", "/"]) == 1
    told = capsys.readouterr().err
    assert "the server does not believe SASL of 'nobody'" in told
    assert "security.sasl_users_file" in told


async def test_a_session_moves_with_the_password_of_then(guarded: Guarded) -> None:
    nodes = guarded.nodes
    async with Client(
        f"127.0.0.1:{nodes.nodes[1].client_port}", session_timeout_ms=30_000, sasl=guarded.login("ops")
    ) as client:
        session_id = client.session_id
        assert ("sasl", "ops") in await client.who_am_i()
        guarded.write_users({**USERS, "ops": "another"})
        guarded.write_password("ops", "another")
        await asyncio.to_thread(nodes.restart, 1)
        async with asyncio.timeout(DEADLINE_S):
            while ("sasl", "ops") not in await who(client):
                pass
        assert client.session_id == session_id


async def who(client: Client) -> list[tuple[str, str]]:
    """Return what the client is taken for, once it is connected again."""
    while True:
        with contextlib.suppress(ConnectionLossError):
            return await client.who_am_i()
