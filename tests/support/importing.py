"""Imports in tests: a ZooKeeper with a super user as the source, and an empty cluster with its words."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from tests.support.zookeeper import ZooKeeper
from tests.tidy.rules import REPOSITORY

PASSWORD = "secret"
DIGEST = "super:" + base64.b64encode(hashlib.sha1(f"super:{PASSWORD}".encode()).digest()).decode()
SUPER = [("digest", f"super:{PASSWORD}")]
DEADLINE_S = 60.0
Lines = pytest.CaptureFixture[str]


def new_source(folder: Path | None = None, servers: int = 1) -> ZooKeeper:
    properties = {"zookeeper.DigestAuthenticationProvider.superDigest": DIGEST}
    return ZooKeeper(servers, tick_ms=500, fsync=False, properties=properties, data_dir=folder)


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

    def as_here(self, words: list[str], source: ZooKeeper, files: str = "") -> list[str]:
        """The words of the guide, with the hosts and files of this test."""
        places = {"zk1:2181,zk2:2181,zk3:2181": source.hosts, "super.txt": self._auth}
        places["/var/lib/zookeeper"] = files
        return [*(places.get(word, word) for word in words), *self._words[:2]]

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


def guide_steps(*options: str, without: str = "") -> list[list[str]]:
    """The words of each `quorate import` of the guide that has all these options, in its order."""
    text = (REPOSITORY / "docs" / "operate" / "migrate.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    steps = [line.split()[1:] for block in blocks for line in map(str.strip, block.splitlines())]
    return [
        step for step in steps if step[:1] == ["import"] and set(options) <= set(step) and without not in step
    ]
