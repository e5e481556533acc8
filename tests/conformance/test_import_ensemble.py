"""`quorate import` from three ZooKeeper servers, of which the one that it is attached to dies."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss, NodeExistsError, OperationTimeoutError, SessionExpiredError

from quorum.cli.main import main
from quorum.local import ensemble_in_thread
from tests.support.importing import (
    DEADLINE_S,
    PASSWORD,
    Lines,
    Target,
    client_of,
    last_line,
    new_source,
    until_it_follows,
)
from tests.support.nodes import eventually
from tests.support.zookeeper import ZooKeeper

#: enough that a server can die while they are copied
NODES = 3000
_CREATES_PER_MULTI = 1000


def attached(servers: ZooKeeper) -> int | None:
    """The server that serves the import: the one that has a watch of the root."""
    for number, pid in enumerate(servers.pids):
        if pid is not None and servers.mode(number) and "/\n" in servers.ask(number, "wchp"):
            return number
    return None


def kill_attached(servers: ZooKeeper) -> int:
    """Kill the server that serves the import; returns its number."""
    eventually(lambda: attached(servers) is not None, DEADLINE_S, "a server serves the import")
    number = attached(servers)
    assert number is not None
    servers.kill_server(number)
    return number


class Writer:
    """Creates znodes and changes one, whichever server serves it."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._stop = threading.Event()
        self.acknowledged: list[str] = []

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Write in a thread."""
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(DEADLINE_S)

    def _work(self) -> None:
        path = "/written/0"
        while not self._stop.wait(0.005):
            try:
                self._client.create(path, b"x")
                self._client.set("/written", path.encode())
            except (ConnectionLoss, SessionExpiredError, OperationTimeoutError):
                continue
            except NodeExistsError:
                pass
            self.acknowledged.append(path)
            path = f"/written/{len(self.acknowledged)}"


@pytest.fixture(scope="module")
def servers() -> Iterator[ZooKeeper]:
    """Three servers with NODES znodes."""
    with new_source(servers=3) as started, client_of(started.hosts) as client:
        client.create("/written", b"")
        for first in range(0, NODES, _CREATES_PER_MULTI):
            multi = client.transaction()
            for number in range(first, first + _CREATES_PER_MULTI):
                multi.create(f"/n{number}", b"data")
            multi.commit()
        yield started


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Target]:
    """An empty cluster of one node."""
    (tmp_path / "auth").write_text(f"digest:super:{PASSWORD}\n")
    with ensemble_in_thread(1) as quorum:
        yield Target(quorum.hosts, list(quorum.admin_urls), str(tmp_path / "auth"))


def test_the_server_that_is_read_dies_while_it_is_copied_and_followed(
    servers: ZooKeeper, target: Target, capsys: Lines
) -> None:
    with client_of(servers.hosts) as theirs, client_of(target.hosts) as ours:
        writer = Writer(theirs)
        with writer.at_work(), target.importing(servers) as process:
            first = kill_attached(servers)
            until_it_follows(process)
            servers.start_server(first)
            kill_attached(servers)
            written = len(writer.acknowledged)
            eventually(lambda: len(writer.acknowledged) > written + 10, DEADLINE_S, "writing goes on")
            last = writer.acknowledged[-1]
            eventually(lambda: ours.exists(last), DEADLINE_S, "what is written then is copied")
        assert main(target.words(servers, "--cutover", "--quiet", "0.3")) == 0
        report = last_line(capsys)
        assert report["digest_source"] == report["digest_target"]
        assert report["next_zxid"] > report["source_zxid"]
        assert set(ours.get_children("/")) == set(theirs.get_children("/"))
        assert set(writer.acknowledged) <= {f"/written/{name}" for name in ours.get_children("/written")}
