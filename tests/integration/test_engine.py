"""The engine and SyncObj around it: what they refuse, and that a node stops rather than go on."""

from __future__ import annotations

import asyncio
import errno
import importlib.metadata
import json
from pathlib import Path

import msgpack
import pytest
from pysyncobj import FAIL_REASON, SyncObj, replicated

from quorum.cli.offline.journal import dump
from quorum.client import Client, ConnectionLossError
from quorum.core.machine import StateMachine
from quorum.errors import ChangeBusyError, DataDirError, NodeStoppedError, ProposalRefusedError, QuorateError
from quorum.node.node import QuorumNode
from quorum.platform.os_runtime import OsDisk
from quorum.raft.core.entry import EntryKind
from quorum.raft.datadir.identity import load_identity, write_identity
from quorum.raft.engine import syncobj
from quorum.raft.engine.syncobj import QuorateSyncObj
from quorum.raft.peers.peers import PeerNode
from quorum.raft.requests.payloads import IMPORT_FORMAT
from tests.support.node_configs import loopback_configs

DEADLINE_S = 20.0


async def ready(node: QuorumNode) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not node.view.readiness()[0]:  # noqa: ASYNC110 - a node's own view changes without an event
            await asyncio.sleep(0)


async def test_an_entry_that_cannot_be_applied_stops_the_node_with_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Defect D6 of pysyncobj: there such a command is run again on every tick, and nobody is told."""
    config = loopback_configs(tmp_path)[0]
    node = QuorumNode(config, bootstrap=True)
    await node.start()
    try:
        await ready(node)
        client = Client(str(config.listen.client))
        await client.start()
        await client.create("/before", b"")
        applied = node.view.status()["applied_index"]

        def broken(*_arguments: object) -> None:
            raise ZeroDivisionError("a bug in apply")

        monkeypatch.setattr(StateMachine, "apply_batch", broken)
        with pytest.raises(ConnectionLossError):
            await client.create("/after", b"")
        await node.run_until_stopped()
        assert isinstance(node.failure, NodeStoppedError)
        assert f"entry {int(str(applied)) + 1} " in str(node.failure)
        assert "a bug in apply" in str(node.failure)
        await client.close()
    finally:
        await node.stop()


async def test_an_entry_of_a_newer_version_stops_the_node_at_every_start_until_it_is_updated(
    tmp_path: Path,
) -> None:
    config = loopback_configs(tmp_path)[0]
    node = QuorumNode(config, bootstrap=True)
    await node.start()
    try:
        await ready(node)
        newer = msgpack.packb([IMPORT_FORMAT + 1, config.node.id, 1, 1, [], "what is new"])
        index = node.view.engine.propose(EntryKind.BATCH, newer)
        await node.run_until_stopped()
    finally:
        await node.stop()
    again = QuorumNode(config)
    try:
        await again.start()
        await again.run_until_stopped()
    finally:
        await again.stop()
    for stopped in (node, again):
        assert isinstance(stopped.failure, NodeStoppedError)
        assert f"applying entry {index} " in stopped.failure.message
        assert (
            "format 6 of a batch entry is newer than this version knows (up to 5)" in stopped.failure.message
        )
        assert stopped.failure.remedy.startswith("update this node")
    lines: list[str] = []
    dump(OsDisk(), str(config.node.data_dir), lines.append)
    kept = [row for row in map(json.loads, lines) if row.get("index") == index]
    assert [row["bytes"] for row in kept] == [len(newer)]


async def test_a_node_that_stops_itself_while_it_starts_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash came before the identity named the cluster that the snapshot names; now the disk refuses it."""
    config = loopback_configs(tmp_path)[0]
    data_dir = str(config.node.data_dir)
    node = QuorumNode(config, bootstrap=True)
    await node.start()
    await ready(node)
    await node.take_snapshot()
    await node.stop()
    write_identity(OsDisk(), data_dir, load_identity(OsDisk(), data_dir)._replace(cluster_id=""))

    def refuses(*_arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("quorum.node.storage.store_cluster_id", refuses)
    again = QuorumNode(config)
    with pytest.raises(DataDirError, match="Input/output error") as refused:
        await again.start()
    assert refused.value is again.failure


async def test_a_proposal_through_syncobjs_own_entry_tells_its_fate_once(tmp_path: Path) -> None:
    node = QuorumNode(loopback_configs(tmp_path)[0], bootstrap=True)
    await node.start()
    try:
        await ready(node)
        host = node.view.syncobj
        fates: list[tuple[int | None, int]] = []
        told = asyncio.Event()

        def callback(index: int | None, reason: int) -> None:
            fates.append((index, reason))
            told.set()

        host._applyCommand(b"\x92\x01\x90", callback, EntryKind.CONTROL)
        assert fates == [], "nothing is known before it is applied"
        await asyncio.wait_for(told.wait(), DEADLINE_S)
        assert fates == [(host.raftLastApplied, FAIL_REASON.SUCCESS)]
        with pytest.raises(
            ProposalRefusedError, match=r"entry_bytes_max.*same raft.batch_bytes_max"
        ) as refused:
            node.view.engine.propose(EntryKind.CONTROL, bytes(64 << 20))
        assert refused.value.definite
        host._applyCommand(bytes(64 << 20), callback, EntryKind.CONTROL)
        assert fates.pop() == (None, FAIL_REASON.REQUEST_DENIED)
        assert isinstance(host, SyncObj)
        assert host.getStatus()["raft_term"] == host.raftCurrentTerm
        assert host.isReady()
    finally:
        await node.stop()
    host._applyCommand(b"\x92\x01\x90", callback, EntryKind.CONTROL)
    assert len(fates) == 1, "a stopped engine answers nothing that it does not know"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("addNodeToCluster", ("h:1",)),
        ("addNodeToCluster", (PeerNode(2),)),
        ("removeNodeFromCluster", ("h:1",)),
        ("setCodeVersion", (1,)),
    ],
)
async def test_what_syncobj_would_pickle_is_refused(
    tmp_path: Path, name: str, arguments: tuple[object, ...]
) -> None:
    node = QuorumNode(loopback_configs(tmp_path)[0], bootstrap=True)
    await node.start()
    try:
        await ready(node)
        with pytest.raises(QuorateError, match=r"pysyncobj|code version"):
            getattr(node.view.syncobj, name)(*arguments)
    finally:
        await node.stop()


async def test_members_change_through_syncobjs_own_methods(tmp_path: Path) -> None:
    """SyncObj pickles such a change; here it is an entry of the core's."""
    node = QuorumNode(loopback_configs(tmp_path)[0], bootstrap=True)
    await node.start()
    try:
        await ready(node)
        host = node.view.syncobj
        fates: asyncio.Queue[tuple[int | None, int]] = asyncio.Queue()

        def callback(index: int | None, reason: int) -> None:
            fates.put_nowait((index, reason))

        async with asyncio.timeout(DEADLINE_S):
            host.addNodeToCluster(PeerNode(2, "127.0.0.1:1"), callback)
            assert fates.empty(), "it counts from its append and is told once it is applied"
            assert await fates.get() == (host.raftLastApplied, FAIL_REASON.SUCCESS)
            assert host.otherNodes == {PeerNode(2)}
            assert host.hasQuorum, "a learner is not counted"
            assert host.isReady()
            added = host.raftLastApplied
            host.addNodeToCluster(PeerNode(2, "127.0.0.1:1"), callback)
            assert await fates.get() == (added + 1, FAIL_REASON.SUCCESS), "a no-op shows it is so"
            host.removeNodeFromCluster(PeerNode(1), callback)
            assert await fates.get() == (None, FAIL_REASON.REQUEST_DENIED), "the only voter"
            host.removeNodeFromCluster(PeerNode(2), callback)
            assert (await fates.get())[1] == FAIL_REASON.SUCCESS
            assert host.otherNodes == set()
    finally:
        await node.stop()


async def test_what_was_added_in_the_same_turn_is_not_called_absent(tmp_path: Path) -> None:
    node = QuorumNode(loopback_configs(tmp_path)[0], bootstrap=True)
    await node.start()
    try:
        await ready(node)
        added, removed = await asyncio.gather(
            node.view.ask("ADD", 2, "127.0.0.1:1", "", False),
            node.view.ask("REMOVE", 2, "", "", False),
            return_exceptions=True,
        )
        assert isinstance(added, int)
        assert node.view.syncobj.otherNodes == {PeerNode(2)}
        assert type(removed) is ChangeBusyError
        assert "is not committed yet" in removed.message
    finally:
        await node.stop()


def test_a_replicated_method_is_refused_by_name() -> None:
    class Mixed(QuorateSyncObj):
        @replicated  # type: ignore[untyped-decorator]
        def increment(self) -> None:
            """Would be pickled."""

    with pytest.raises(QuorateError, match=r"Mixed\.increment.* is a @replicated method"):
        syncobj.refuse_foreign_library(Mixed)


def test_another_release_of_pysyncobj_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncobj, "version", lambda _name: "0.3.18")
    with pytest.raises(QuorateError, match=r"0\.3\.18 is installed \(install pysyncobj==0\.3\.17\)"):
        syncobj.refuse_foreign_library(QuorateSyncObj)
    assert importlib.metadata.version("pysyncobj") == syncobj.PYSYNCOBJ_VERSION
