"""Disks of a node that has lost its majority, and what a start makes of them."""

from __future__ import annotations

import logging
import random
from pathlib import Path

from quorum.config.node import NodeConfig, node_config
from quorum.node.member import QuorumMember
from quorum.node.storage import Storage, open_storage
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.datadir.forcing import MARKER_NAME, latest_configuration
from quorum.raft.datadir.founding import founding_payload
from quorum.raft.datadir.identity import Start, journal_directory, write_identity
from quorum.raft.journal.journal import Journal, JournalOptions
from quorum.raft.journal.note import NOTE_NAME
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk
from tests.support.nowhere import Nowhere

DATA = "/srv/node-1"
MARKER = f"{DATA}/{MARKER_NAME}"
NOTE = f"{journal_directory(DATA)}/{NOTE_NAME}"
OTHERS = {2: "2" * 32, 3: "3" * 32}


def config_of_three(tmp_path: Path) -> NodeConfig:
    """The settings of node 1, one of three founders; its secret is a file in this folder."""
    secret = tmp_path / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 32)
    return node_config(
        {
            "node": {"id": 1, "cluster": "local", "data_dir": DATA},
            "members": {"1": "h:1", "2": "h:2", "3": "h:3"},
            "security": {"peer_secret_file": str(secret)},
        },
        tmp_path,
    )


def opened(config: NodeConfig, disk: MemoryDisk, start: Start = Start.PLAIN) -> Storage:
    storage = open_storage(config.node, config.raft, disk, start, random.Random(disk.life))
    storage.close()
    return storage


def latest(storage: Storage) -> Configuration:
    found = latest_configuration(storage.recovered, storage.mark)
    assert found is not None
    return found


def member_of_three(config: NodeConfig, *, named: str = "", learner: bool = False) -> MemoryDisk:
    """A disk of node 1 after some life in a cluster of three, whose last entry nobody else may have."""
    disk = MemoryDisk(random.Random(0))
    identity = opened(config, disk, Start.BOOTSTRAP).identity
    voters = {node_id: Member(f"h:{node_id}", incarnation) for node_id, incarnation in OTHERS.items()}
    learners = {1: Member("h:1", "")} if learner else {}
    if not learner:
        voters = {1: Member("h:1", named or identity.incarnation), **voters}
    payload = founding_payload(Configuration("", voters, learners, ("9" * 32,)), random.Random(1))
    journal, _ = Journal.open(disk, journal_directory(DATA), JournalOptions(), logging.warning)
    founding = Entry(1, 1, EntryKind.FOUND, 1000, payload)
    journal.append([HardState(4, 2), founding, Entry(2, 4, EntryKind.NOOP, 2000, b"")])
    journal.close()
    storage = opened(config, disk)
    write_identity(disk, DATA, identity._replace(cluster_id=latest(storage).cluster_id))
    disk.synced()
    return disk


def run_alone(config: NodeConfig, disk: MemoryDisk, start: Start) -> QuorumMember:
    """Let a member run until it leads."""
    runtime = ManualRuntime()
    failures: list[BaseException] = []
    member = QuorumMember(config, runtime, disk, start=start, on_failure=failures.append)
    member.attach(Nowhere())  # type: ignore[arg-type]  # the contract, but for what nobody calls
    member.start()
    for _ in range(200):
        runtime.advance(10)
        runtime.settle()
    assert not failures
    assert member.engine.leads
    return member
