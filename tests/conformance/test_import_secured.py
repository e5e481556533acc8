"""`quorate import` from a ZooKeeper that wants TLS and a user: a profile names what is shown and proved."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from quorum.cli.main import main
from quorum.client import AccessEntry, Client
from quorum.config.profiles import FILE_VARIABLE
from quorum.local import ensemble_in_thread
from tests.support.certificates import Authority
from tests.support.importing import Lines, guide_steps, last_line
from tests.support.node_configs import free_ports
from tests.support.zookeeper import ZooKeeper

_SASL = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"


def secured_source(folder: Path, authority: Authority, port: int) -> ZooKeeper:
    """A ZooKeeper that serves by TLS as well, and whose super user is `importer` by SASL."""
    (folder / "jaas").write_text(f'Server {{ {_LOGIN} required user_importer="moving"; }};')
    store = str(authority.both("server"))
    properties = {
        "java.security.auth.login.config": str(folder / "jaas"),
        "zookeeper.superUser": "importer",
        "zookeeper.serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "zookeeper.ssl.keyStore.location": store,
        "zookeeper.ssl.keyStore.type": "PEM",
        "zookeeper.ssl.trustStore.location": str(authority.file),
        "zookeeper.ssl.trustStore.type": "PEM",
        "zookeeper.authProvider.1": _SASL,
    }
    return ZooKeeper(
        tick_ms=500,
        fsync=False,
        config={"secureClientPort": port, "secureClientPortAddress": "127.0.0.1"},
        properties=properties,
    )


async def plant(hosts: str) -> None:
    """Create a znode that only a super user may read."""
    async with Client(hosts) as client:
        await client.create("/closed", b"secret", acl=[AccessEntry(1, "digest", "nobody:sealed")])


def test_a_source_that_wants_tls_and_sasl_is_named_by_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Lines
) -> None:
    authority = Authority(tmp_path / "pki")
    certificate, key = authority.issue("importer")
    [port] = free_ports(1)
    (tmp_path / "zk.password").write_text("moving\n")
    (tmp_path / "zk.password").chmod(0o600)
    profiles = tmp_path / "profiles.toml"
    profiles.write_text(
        f'[zk]\nhosts = "127.0.0.1:{port}"\nca = "{authority.file}"\ncert = "{certificate}"\nkey = "{key}"\n'
        'sasl = "importer"\npassword_file = "zk.password"\n'
    )
    profiles.chmod(0o600)
    monkeypatch.setenv(FILE_VARIABLE, str(profiles))
    with secured_source(tmp_path, authority, port) as server, ensemble_in_thread(1) as quorum:
        asyncio.run(plant(server.hosts))
        _, cutover = guide_steps("--from-profile")
        assert main([*cutover, "--admin", quorum.admin_urls[0], "--json", "--quiet", "0.1"]) == 0
    report = last_line(capsys)
    assert (report["phase"], report["nodes"]) == ("done", 1)
