"""`quorate import` from real ZooKeeper servers: what is kept, what is refused, what goes on afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NotReadOnlyCallError
from kazoo.security import make_digest_acl

from quorum.cli.main import main
from quorum.client import AccessEntry
from quorum.client import Client as NodeClient
from quorum.importing.source import LiveSource
from quorum.local import ensemble_in_thread
from tests.site.commands import walk
from tests.support.importing import (
    DEADLINE_S,
    PASSWORD,
    Lines,
    Target,
    client_of,
    last_line,
    new_source,
    secured_source,
    until_it_follows,
)
from tests.support.node_configs import free_ports
from tests.support.nodes import eventually
from tests.support.zookeeper import ZooKeeper


@pytest.fixture(scope="module")
def source_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the source keeps its files."""
    return tmp_path_factory.mktemp("source")


@pytest.fixture(scope="module")
def source(source_folder: Path) -> Iterator[ZooKeeper]:
    """A ZooKeeper with znodes of every kind; every test leaves them."""
    with new_source(source_folder) as server, client_of(server.hosts) as client:
        plant(client)
        yield server


def plant(client: KazooClient) -> None:
    """Create znodes of every kind, with versions, counters and access lists."""
    client.create("/app", b"one")
    for data in (b"two", b"three", b""):
        client.set("/app", data)
    for _ in range(5):
        client.create("/app/n-", b"x", sequence=True)
    client.delete("/app/n-0000000001")
    client.delete("/app/n-0000000004")
    client.create("/app/emptied/child", b"", makepath=True)
    client.delete("/app/emptied/child")
    client.create("/closed", b"s", acl=[make_digest_acl("bob", "pw", read=True)])
    client.set_acls("/closed", [make_digest_acl("eve", "pw", all=True)])
    client.create("/app/long", bytes(range(256)) * 1000)
    client.create("/ümläut", "grüße".encode())
    client.create("/app/gone", b"", ephemeral=True)


@pytest.fixture
def auth(tmp_path: Path) -> str:
    """The file that names a super user of the source."""
    path = tmp_path / "auth"
    path.write_text(f"digest:super:{PASSWORD}\n")
    return str(path)


@pytest.fixture
def target(auth: str) -> Iterator[Target]:
    """An empty cluster of one node."""
    with ensemble_in_thread(1) as quorum:
        # One of several admin ports may be down.
        down = f"http://127.0.0.1:{free_ports(1)[0]}"
        yield Target(quorum.hosts, [down, *quorum.admin_urls], auth)


def everything(client: KazooClient, path: str = "/") -> dict[str, Any]:
    """Data, Stat and access list of every znode but /zookeeper and ephemerals, without pzxid."""
    if path.startswith("/zookeeper"):
        return {}
    data, stat = client.get(path)
    if stat.ephemeralOwner:
        return {}
    names, _ = client.get_children(path, include_data=True)
    found = {path: (data, stat._replace(pzxid=0), sorted(client.get_acls(path)[0]))}
    for name in names:
        found |= everything(client, f"{path.rstrip('/')}/{name}")
    return found


def as_without_ephemerals(found: dict[str, Any], parent: str, count: int) -> dict[str, Any]:
    """What a source shows, as if so many ephemerals of a parent had been deleted."""
    data, stat, acl = found[parent]
    stat = stat._replace(cversion=stat.cversion + count, numChildren=stat.numChildren - count)
    return {**found, parent: (data, stat, acl)}


def test_all_that_clients_can_see_is_kept(source: ZooKeeper, target: Target, capsys: Lines) -> None:
    assert main(target.words(source, "--cutover", "--quiet", "0.3")) == 0
    report = last_line(capsys)
    assert report["phase"] == "done"
    assert report["digest_source"] == report["digest_target"]
    assert report["ephemerals_left_out"] == 1
    assert (report["containers"], report["ttl_nodes"]) == (None, None)
    assert report["next_zxid"] > report["source_zxid"]
    with client_of(source.hosts) as theirs, client_of(target.hosts) as ours:
        ours.add_auth("digest", "eve:pw")
        there = as_without_ephemerals(everything(theirs), "/app", 1)
        assert report["nodes"] == len(there) - 1
        closed = there.pop("/closed")
        here = {path: each for path, each in everything(ours).items() if path != "/closed"}
        assert here == there
        assert ours.get("/closed")[0] == closed[0]
        assert ours.create("/app/n-", b"", sequence=True) == "/app/n-0000000008"
        assert ours.exists("/app/n-0000000008").czxid > report["source_zxid"]


def test_the_change_log_has_the_import_and_a_gap_where_zxids_jumped(
    source: ZooKeeper, target: Target, capsys: Lines
) -> None:
    assert main(target.words(source, "--cutover", "--quiet", "0.3")) == 0
    report = last_line(capsys)
    url = f"{target.admin_url}/v1/changelog?from_zxid"
    with urlopen(f"{url}={report['next_zxid'] - 1}&wait_ms=20000", timeout=DEADLINE_S):
        pass
    with urlopen(f"{url}=0", timeout=DEADLINE_S) as answer:
        rows = [json.loads(line) for line in answer.read().splitlines()]
    zxids = [row["zxid"] for row in rows]
    assert zxids == sorted(set(zxids))
    jumps = [later for earlier, later in itertools.pairwise(zxids) if later != earlier + 1]
    assert len(jumps) == 1
    assert zxids[-1] == report["next_zxid"] - 1 > report["source_zxid"]
    changes = [change for row in rows if row["zxid"] >= jumps[0] for change in row["changes"]]
    assert {"/app", "/closed"} <= {change["path"] for change in changes}


def test_it_goes_on_after_a_kill_and_follows_changes_of_every_kind(
    source: ZooKeeper, target: Target, capsys: Lines
) -> None:
    with client_of(source.hosts) as theirs, client_of(target.hosts) as ours:
        with target.following(source) as process:
            process.send_signal(signal.SIGKILL)
        theirs.create("/moving/deep/er", b"1", makepath=True)
        with target.following(source):
            theirs.set("/moving", b"new")
            theirs.delete("/moving/deep", recursive=True)
            theirs.create("/moving/last", b"2")
            eventually(lambda: ours.exists("/moving/last"), DEADLINE_S, "the last change is there")
            eventually(lambda: not ours.exists("/moving/deep"), DEADLINE_S, "the deletion is there")
            assert ours.get("/moving")[0] == b"new"
            with pytest.raises(NotReadOnlyCallError):
                ours.create("/mine", b"")
        # No watch tells of an access list.
        theirs.set_acls("/moving", [make_digest_acl("eve", "pw", all=True)])
        assert main(target.words(source, "--cutover", "--quiet", "0.3")) == 0
        assert last_line(capsys)["phase"] == "done"
        assert ours.get_acls("/moving/last")[0] == theirs.get_acls("/moving/last")[0]
        ours.create("/mine", b"")
        theirs.delete("/moving", recursive=True)


async def test_an_access_list_that_was_set_shows_in_the_zxid_of_the_source(source: ZooKeeper) -> None:
    live = LiveSource(source.hosts, [("digest", f"super:{PASSWORD}".encode())])
    try:
        await live.start()
        async with NodeClient(source.hosts) as theirs:
            await theirs.create("/listed", b"")
            await live.catch_up()
            zxid = live.zxid
            await theirs.set_acl("/listed", [AccessEntry(31, "world", "anyone")])
            await live.catch_up()
            assert live.zxid > zxid
            await theirs.delete("/listed")
    finally:
        await live.close()


def test_what_is_there_and_another_source_are_refused(
    source: ZooKeeper, target: Target, capsys: Lines
) -> None:
    with client_of(target.hosts) as ours:
        ours.create("/mine", b"kept")
        assert main(target.words(source)) == 1
        assert "/mine" in capsys.readouterr().err
        ours.set("/mine", b"still writable")
        ours.delete("/mine")
    with target.following(source):
        pass
    words = target.words(source, "--cutover")
    words[2] = f"localhost:{source.client_ports[0]}"
    assert main(words) == 1
    assert f"an import of {source.hosts} is under way" in capsys.readouterr().err


def test_a_znode_that_may_not_be_read_is_named(source: ZooKeeper, target: Target, capsys: Lines) -> None:
    words = target.words(source)
    del words[3:5]
    assert main(words) == 1
    assert "error: /closed " in capsys.readouterr().err


def test_a_source_that_still_changes_is_told_and_can_be_cut_over_later(
    source: ZooKeeper, target: Target, capsys: Lines
) -> None:
    stop = threading.Event()
    with client_of(source.hosts) as theirs:
        theirs.create("/busy", b"")

        def work() -> None:
            while not stop.wait(0.02):
                theirs.set("/busy", os.urandom(4))

        writer = threading.Thread(target=work)
        writer.start()
        try:
            assert main(target.words(source, "--cutover", "--quiet", "0.5", "--timeout", "1")) == 1
            error = capsys.readouterr().err
            assert "still changes" in error
            assert "/busy" in error
        finally:
            stop.set()
            writer.join()
        assert main(target.words(source, "--cutover", "--quiet", "0.3")) == 0
        theirs.delete("/busy")
    assert last_line(capsys)["phase"] == "done"


def test_an_import_ends_when_nobody_reads_its_lines_any_more(target: Target, source: ZooKeeper) -> None:
    command = [sys.executable, "-P", "-m", "quorum", *target.words(source)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        until_it_follows(process)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(DEADLINE_S) == 128 + signal.SIGPIPE


def test_containers_and_ttl_nodes_come_from_a_servers_files(auth: str, tmp_path: Path, capsys: Lines) -> None:
    with new_source(tmp_path / "zk") as server, client_of(server.hosts) as theirs:
        plant(theirs)
        asyncio.run(make_lifetimes(server.hosts))
        with ensemble_in_thread(1) as quorum:
            target = Target(quorum.hosts, list(quorum.admin_urls), auth)
            files = str(tmp_path / "zk" / "server-1" / "data")
            words = target.words(server, "--from-files", files, "--cutover", "--quiet", "0.3")
            assert main(words) == 0
            report = last_line(capsys)
            assert (report["containers"], report["ttl_nodes"]) == (1, 1)


async def make_lifetimes(hosts: str) -> None:
    """Create a container with a child, and a znode that lives for an hour."""
    async with NodeClient(hosts) as client:
        await client.create_container("/container")
        await client.create("/container/child")
        await client.create_ttl("/hour", b"", 3_600_000)


def test_the_files_of_a_killed_server_hold_the_same(auth: str, tmp_path: Path, capsys: Lines) -> None:
    files = tmp_path / "zk" / "server-1" / "data"
    with new_source(tmp_path / "zk") as server, client_of(server.hosts) as theirs:
        plant(theirs)
        with ensemble_in_thread(1) as quorum:
            live = Target(quorum.hosts, list(quorum.admin_urls), auth)
            assert main(live.words(server, "--cutover", "--quiet", "0.3")) == 0
            of_live = last_line(capsys)
        server.kill_server(0)
    with ensemble_in_thread(1) as quorum:
        target = Target(quorum.hosts, list(quorum.admin_urls), auth)
        assert main(target.from_files(files)) == 0
    report = last_line(capsys)
    assert report["digest_target"] == of_live["digest_target"]
    assert (report["containers"], report["ttl_nodes"], report["ephemerals_left_out"]) == (0, 0, 1)


def test_an_application_moves_with_its_writers(target: Target, source: ZooKeeper, capsys: Lines) -> None:
    """A lock, a queue and a counter: no number comes twice, nothing that was put is lost."""
    with client_of(source.hosts) as theirs:
        with target.following(source):
            before = Application(theirs)
            with before.at_work():
                eventually(lambda: before.turns >= 20, DEADLINE_S, "it works while it is copied")
        assert main(target.words(source, "--cutover", "--quiet", "0.3")) == 0
        assert last_line(capsys)["phase"] == "done"
        with client_of(target.hosts) as ours:
            after = Application(ours)
            with after.at_work():
                eventually(lambda: after.turns >= 20, DEADLINE_S, "it goes on")
            assert ours.Counter("/counter").value == before.turns + after.turns
            queue = ours.Queue("/queue")
            taken = [queue.get() for _ in range(len(queue))]
            assert sorted(taken) == sorted(before.put + after.put)
        for path in ("/counter", "/queue", "/lock"):
            theirs.delete(path, recursive=True)


class Application:
    """One process of a kazoo application."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client
        self._stop = threading.Event()
        self._failures: list[BaseException] = []
        self.turns = 0
        self.put: list[bytes] = []

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Work in a thread, and stop at the end of a turn."""
        thread = threading.Thread(target=self._work)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(DEADLINE_S)
        assert not self._failures

    def _work(self) -> None:
        counter, queue = self._client.Counter("/counter"), self._client.Queue("/queue")
        try:
            while not self._stop.is_set():
                with self._client.Lock("/lock", "me"):
                    item = f"{id(self)}-{self.turns}".encode()
                    queue.put(item)
                    self.put.append(item)
                    counter += 1
                    self.turns += 1
        except NodeExistsError as error:
            self._failures.append(error)


def test_the_guide(source: ZooKeeper, source_folder: Path, auth: str, tmp_path: Path) -> None:
    """Its steps, with a cluster that its own command starts; then its other ways, each into an empty one."""
    rewrites = {
        "zk1:2181,zk2:2181,zk3:2181": source.hosts,
        "super.txt": auth,
        "--nodes 3": "--nodes 1",
        "/var/lib/zookeeper": str(source_folder / "server-1/data"),
        "/var/lib/zookeeper-logs": str(source_folder / "server-1/data"),
    }
    folder = tmp_path / "page"
    folder.mkdir()
    with walk("docs/operate/migrate.md", folder, rewrites=rewrites) as page:
        page.run("Found the new cluster")
        try:
            page.run("Copy and follow")
            page.end("quorate import")
            assert "phase: done\n" in page.run("Cut over")
        finally:
            assert main(["down", "--data-dir", str(folder / "data")]) == 0
        of_files = ("From the files of a stopped server", "Logs in a folder of their own")
        for heading in ("Containers and TTL nodes", *of_files):
            with ensemble_in_thread(1) as quorum:
                profiles = tmp_path / "profiles.toml"
                profiles.write_text(f'[page]\nadmin = "{quorum.admin_urls[0]}"\n')
                page.environment["QUORATE_PROFILE_FILE"] = str(profiles)
                assert "phase: done\n" in page.run(heading)
        with secured_source(tmp_path) as (profile, hosts), ensemble_in_thread(1) as quorum:
            asyncio.run(make_closed(hosts))
            profiles.write_text(f'{profile}\n[page]\nadmin = "{quorum.admin_urls[0]}"\n')
            profiles.chmod(0o600)
            done = page.run("A source with TLS or SASL")
            assert "phase: done\n" in done
            assert "nodes: 1\n" in done


async def make_closed(hosts: str) -> None:
    """Create a znode that only a super user may read."""
    async with NodeClient(hosts) as client:
        await client.create("/closed", b"secret", acl=[AccessEntry(1, "digest", "nobody:sealed")])
