"""Imports in tests: a ZooKeeper with a super user as the source, and an empty cluster with its words."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.certificates import Authority
from tests.support.node_configs import free_ports
from tests.support.zookeeper import ZooKeeper

PASSWORD = "secret"
DIGEST = "super:" + base64.b64encode(hashlib.sha1(f"super:{PASSWORD}".encode()).digest()).decode()
SUPER = [("digest", f"super:{PASSWORD}")]
DEADLINE_S = 60.0
_SASL = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
_LOGIN = "org.apache.zookeeper.server.auth.DigestLoginModule"
Lines = pytest.CaptureFixture[str]


def new_source(folder: Path | None = None, servers: int = 1) -> ZooKeeper:
    properties = {"zookeeper.DigestAuthenticationProvider.superDigest": DIGEST}
    return ZooKeeper(servers, tick_ms=500, fsync=False, properties=properties, data_dir=folder)


@contextlib.contextmanager
def secured_source(folder: Path) -> Iterator[tuple[str, str]]:
    """A ZooKeeper that serves by TLS as well, and whose super user is `importer` by SASL.

    Yields:
        Its profile, called zk, and its plain address.
    """
    authority = Authority(folder / "pki")
    certificate, key = authority.issue("importer")
    [port] = free_ports(1)
    (folder / "zk.password").write_text("moving\n")
    (folder / "zk.password").chmod(0o600)
    (folder / "jaas").write_text(f'Server {{ {_LOGIN} required user_importer="moving"; }};')
    properties = {
        "java.security.auth.login.config": str(folder / "jaas"),
        "zookeeper.superUser": "importer",
        "zookeeper.serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "zookeeper.ssl.keyStore.location": str(authority.both("server")),
        "zookeeper.ssl.keyStore.type": "PEM",
        "zookeeper.ssl.trustStore.location": str(authority.file),
        "zookeeper.ssl.trustStore.type": "PEM",
        "zookeeper.authProvider.1": _SASL,
    }
    config: dict[str, str | int] = {"secureClientPort": port, "secureClientPortAddress": "127.0.0.1"}
    with ZooKeeper(tick_ms=500, fsync=False, config=config, properties=properties) as server:
        profile = f'[zk]\nhosts = "127.0.0.1:{port}"\nca = "{authority.file}"\ncert = "{certificate}"\n'
        profile += f'key = "{key}"\nsasl = "importer"\npassword_file = "{folder}/zk.password"\n'
        yield profile, server.hosts


@contextlib.contextmanager
def client_of(hosts: str) -> Iterator[KazooClient]:
    client = KazooClient(hosts, auth_data=SUPER)
    client.start(DEADLINE_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


class Target:
    """An empty cluster, and the words that import into it."""

    def __init__(self, hosts: str, admin_urls: list[str], auth: str) -> None:
        self.hosts = hosts
        self.admin_url = admin_urls[-1]
        self._words = ["--admin", ",".join(admin_urls), "--json"]
        self._auth = auth

    def words(self, source: ZooKeeper, *more: str) -> list[str]:
        return ["import", "--from", source.hosts, "--from-auth", self._auth, *self._words, *more]

    def from_files(self, folder: Path, *more: str) -> list[str]:
        return ["import", "--from-files", str(folder), *self._words, "--cutover", *more]

    @contextlib.contextmanager
    def following(self, source: ZooKeeper) -> Iterator[subprocess.Popen[str]]:
        """An import that follows; it is ended by SIGTERM, and must end well."""
        with self.importing(source) as process:
            until_it_follows(process)
            yield process

    @contextlib.contextmanager
    def importing(self, source: ZooKeeper) -> Iterator[subprocess.Popen[str]]:
        """An import that begins; it is ended by SIGTERM, and must end well."""
        command = [sys.executable, "-P", "-m", "quorum", *self.words(source)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            yield process
            process.terminate()
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode in (0, -signal.SIGKILL)
        finally:
            process.kill()
            process.wait()


def until_it_follows(process: subprocess.Popen[str]) -> None:
    """Read the lines of an import until it follows."""
    assert process.stdout is not None
    assert any(json.loads(line)["phase"] == "following" for line in process.stdout)


def last_line(capsys: Lines) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found
