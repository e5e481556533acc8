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

from tests.support.zookeeper import ZooKeeper

PASSWORD = "secret"
DIGEST = "super:" + base64.b64encode(hashlib.sha1(f"super:{PASSWORD}".encode()).digest()).decode()
SUPER = [("digest", f"super:{PASSWORD}")]
DEADLINE_S = 60.0
Lines = pytest.CaptureFixture[str]


def new_source(folder: Path | None = None) -> ZooKeeper:
    properties = {"zookeeper.DigestAuthenticationProvider.superDigest": DIGEST}
    return ZooKeeper(1, tick_ms=500, fsync=False, properties=properties, data_dir=folder)


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
        command = [sys.executable, "-P", "-m", "quorum", *self.words(source)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if json.loads(line)["phase"] == "following":
                    break
            yield process
            process.terminate()
            process.communicate(timeout=DEADLINE_S)
            assert process.returncode in (0, -signal.SIGKILL)
        finally:
            process.kill()
            process.wait()


def last_line(capsys: Lines) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found
