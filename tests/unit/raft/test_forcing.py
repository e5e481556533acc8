"""A lost majority: what a forced start writes, that a crash within it is finished or undone, and who may."""

from __future__ import annotations

import errno
import logging
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from quorum.config.node import NodeConfig
from quorum.core.machine import FORCED_ZXID_JUMP, StateMachine
from quorum.errors import DataDamagedError, DataDirError
from quorum.node.member import QuorumMember
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.membership import AddMember
from quorum.raft.core.messages import Append, HardState
from quorum.raft.datadir.forcing import FORCED_TERM_JUMP
from quorum.raft.datadir.founding import founding_payload, parse_founding
from quorum.raft.datadir.identity import (
    NotFormattedError,
    Start,
    WrongIdentityError,
    journal_directory,
    load_identity,
    write_identity,
)
from quorum.raft.journal.format import SEGMENT_SUFFIX
from quorum.raft.journal.journal import Journal, JournalOptions
from quorum.raft.peers.peers import PeerNode
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import Cut, MemoryDisk, Stopped
from tests.support.nowhere import Nowhere
from tests.support.planted_snapshots import plant_snapshot
from tests.unit.raft.forced_disks import (
    DATA,
    MARKER,
    NOTE,
    OTHERS,
    config_of_three,
    latest,
    member_of_three,
    opened,
)


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return config_of_three(tmp_path)


def test_the_survivor_becomes_the_only_voter_of_another_cluster(
    config: NodeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    disk = member_of_three(config)
    before = opened(config, disk)
    storage = opened(config, disk, Start.FORCE_NEW_CLUSTER)
    forced = latest(storage)
    assert forced.voters == {1: Member("h:1", before.identity.incarnation)}
    assert not forced.learners
    assert set(forced.retired) == {"9" * 32, *OTHERS.values()}, "the old disks never count again"
    assert forced.cluster_id == storage.identity.cluster_id != before.identity.cluster_id
    assert storage.recovered.hard_state == HardState(4 + FORCED_TERM_JUMP, 1)
    assert storage.recovered.last_index == before.recovered.last_index + 1
    assert storage.recovered.tail[:2] == before.recovered.tail, "nothing of the log is lost"
    assert load_identity(disk, DATA) == storage.identity
    for words in ("FORCED NEW CLUSTER", "LOST", "never start the old data of the other nodes (2, 3)"):
        assert words in caplog.text


@pytest.mark.parametrize("kind", ["voter", "learner", "founder that has not applied that it belongs to it"])
def test_it_leads_alone_and_goes_on_from_what_it_has(config: NodeConfig, kind: str) -> None:
    disk = member_of_three(config, learner=kind == "learner")
    identity = load_identity(disk, DATA)
    if kind.startswith("founder"):
        write_identity(disk, DATA, identity._replace(cluster_id=""))
    runtime = ManualRuntime()
    failures: list[BaseException] = []
    member = QuorumMember(config, runtime, disk, start=Start.FORCE_NEW_CLUSTER, on_failure=failures.append)
    transport = Nowhere()
    member.attach(transport)  # type: ignore[arg-type]  # the contract, but for what nobody calls
    member.start()
    for _ in range(200):
        runtime.advance(10)
        runtime.settle()
    assert not failures
    assert member.engine.leads
    assert member.engine.accepts_proposals
    machine = member.replica.machine
    assert machine.applied_index >= 4
    assert machine.cluster_id == member.storage.identity.cluster_id
    assert machine.zxid == FORCED_ZXID_JUMP + 1
    assert transport.added == [], "nobody else belongs to it"
    told_ms = runtime.wall_ms()
    runtime.advance(100)
    member.engine.change_members(AddMember(2, "h:2"))
    runtime.settle()
    assert machine.last_stamp_ms > told_ms, "a change of members is stamped with the clock of now"
    member.stop()
    member.close()


@pytest.mark.parametrize("cut", list(Cut))
def test_a_crash_anywhere_leaves_the_old_cluster_or_the_new_one(config: NodeConfig, cut: Cut) -> None:
    before = opened(config, member_of_three(config))
    for calls in range(80):
        disk = member_of_three(config)
        disk.stop_after(calls)
        try:
            opened(config, disk, Start.FORCE_NEW_CLUSTER)
            finished = True
        except Stopped:
            finished = False
        disk.power_cut(cut)
        storage = opened(config, disk)
        assert latest(storage).cluster_id == storage.identity.cluster_id, "log and identity are one"
        if latest(storage) == latest(before):
            assert not finished
            # The first record of the group may be left.
            assert storage.recovered.hard_state.term in (4, 4 + FORCED_TERM_JUMP)
        else:
            assert list(latest(storage).voters) == [1]
        assert storage.recovered.tail[:2] == before.recovered.tail
        again = opened(config, disk, Start.FORCE_NEW_CLUSTER)
        assert list(latest(again).voters) == [1]
        assert again.identity.cluster_id == latest(again).cluster_id
        assert disk.content(MARKER).decode().strip() == again.identity.cluster_id
        if finished:
            assert again.recovered == storage.recovered, "what is forced is not forced again"
            return
    pytest.fail("forcing takes more calls than were tried")


def test_repeating_it_changes_nothing_even_after_others_joined(
    config: NodeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    disk = member_of_three(config)
    forced = opened(config, disk, Start.FORCE_NEW_CLUSTER)
    joined = latest(forced).with_learner(2, "h:2").with_voter(2, "e" * 32)
    journal, _ = Journal.open(disk, journal_directory(DATA), JournalOptions(), logging.warning)
    last = forced.recovered.last_index
    journal.append([Entry(last + 1, 4 + FORCED_TERM_JUMP, EntryKind.MEMBERS, 3000, joined.to_payload())])
    journal.close()
    storage = opened(config, disk, Start.FORCE_NEW_CLUSTER)
    assert latest(storage) == joined
    assert f"remove {MARKER} first" in caplog.text
    disk.unlink(MARKER)
    disk.kill()
    again = opened(config, disk, Start.FORCE_NEW_CLUSTER)
    assert list(latest(again).voters) == [1]
    assert again.identity.cluster_id not in (joined.cluster_id, "")
    assert "e" * 32 in latest(again).retired


def test_a_founder_that_is_added_learns_the_id_of_the_forced_cluster(config: NodeConfig) -> None:
    """It was formatted for the cluster that is lost, and has an empty log: what it reads first is of that."""
    disk = MemoryDisk(random.Random(0))
    incarnation = opened(config, disk, Start.BOOTSTRAP).identity.incarnation
    voters = {1: Member("h:1", "1" * 32), 2: Member("h:2", "2" * 32), 3: Member("h:3", "3" * 32)}
    founding = founding_payload(Configuration("", voters, {}, ()), random.Random(1))
    forced = Configuration("f" * 32, {2: voters[2]}, {}, ("3" * 32,))
    added = forced.with_learner(1, "h:1")
    recorded = added.with_voter(1, incarnation)
    runtime = ManualRuntime()
    failures: list[BaseException] = []
    member = QuorumMember(config, runtime, disk, start=Start.PLAIN, on_failure=failures.append)
    transport = Nowhere()
    member.attach(transport)  # type: ignore[arg-type]  # the contract, but for what nobody calls
    member.start()
    kinds = (EntryKind.FOUND, EntryKind.MEMBERS, EntryKind.MEMBERS, EntryKind.MEMBERS)
    payloads = (founding, forced.to_payload(), added.to_payload(), recorded.to_payload())
    known: list[str] = []
    for index, (kind, payload) in enumerate(zip(kinds, payloads, strict=True), 1):
        entries = (Entry(index, index, kind, 0, payload),)
        assert transport.deliver is not None
        transport.deliver(
            PeerNode(2, "h:2", "2" * 32), Append(9, 2, 1, index - 1, index - 1, index, False, entries)
        )
        runtime.settle()
        known.append(member.storage.identity.cluster_id)
    assert not failures
    assert member.replica.machine.applied_index == 4
    assert known == ["", "", "", "f" * 32]
    member.stop()
    member.close()


def test_the_only_voter_needs_no_force(config: NodeConfig, caplog: pytest.LogCaptureFixture) -> None:
    disk = member_of_three(config)
    opened(config, disk, Start.FORCE_NEW_CLUSTER)
    disk.unlink(MARKER)
    before = opened(config, disk)
    assert opened(config, disk, Start.FORCE_NEW_CLUSTER).recovered == before.recovered
    assert "node 1 is the only voter" in caplog.text
    assert not disk.exists(MARKER)


def alone(config: NodeConfig) -> MemoryDisk:
    """A disk of a node that goes on alone after a forced start, with the marker of that and later entries."""
    disk = member_of_three(config)
    last = opened(config, disk, Start.FORCE_NEW_CLUSTER).recovered.last_index
    journal, _ = Journal.open(disk, journal_directory(DATA), JournalOptions(), logging.warning)
    for index in range(last + 1, last + 4):
        journal.append([Entry(index, 4 + FORCED_TERM_JUMP, EntryKind.NOOP, 4000, b"")])
    journal.close()
    disk.kill()
    # As after some time: a power cut in these tests shall not make the note an older one.
    disk.plant(NOTE, disk.content(NOTE))
    return disk


def journal_names(disk: MemoryDisk) -> list[str]:
    return disk.listdir(journal_directory(DATA))


def lose_note(disk: MemoryDisk) -> None:
    disk.unlink(NOTE)
    disk.fsync_dir(journal_directory(DATA))


def lose_end(disk: MemoryDisk) -> None:
    (name,) = [each for each in disk.listdir(journal_directory(DATA)) if each.endswith(SEGMENT_SUFFIX)]
    path = f"{journal_directory(DATA)}/{name}"
    disk.plant(path, disk.content(path).rstrip(b"\0")[:-200])


@pytest.mark.parametrize("lose", [lose_note, lose_end])
@pytest.mark.parametrize("start", [Start.PLAIN, Start.FORCE_NEW_CLUSTER])
def test_no_start_goes_on_without_the_end_of_the_journal(
    config: NodeConfig, lose: Callable[[MemoryDisk], None], start: Start
) -> None:
    disk = alone(config)
    before = {name: disk.content(f"{journal_directory(DATA)}/{name}") for name in journal_names(disk)}
    good = opened(config, disk).recovered
    lose(disk)
    for _ in range(2):
        with pytest.raises(DataDamagedError) as refused:
            opened(config, disk, start)
        assert "goes on from a backup of its data directory" in refused.value.remedy
        assert disk.locked == set()
    for name, content in before.items():
        disk.plant(f"{journal_directory(DATA)}/{name}", content)
    assert opened(config, disk).recovered == good, "what is gone can be put back"


def test_a_forced_start_does_not_go_on_without_a_snapshot_that_it_cannot_read(config: NodeConfig) -> None:
    """The next start may read it, and would put it in the place of what the new cluster acknowledged."""
    disk = member_of_three(config)
    founding_entry, noop = opened(config, disk).recovered.tail
    founding = parse_founding(founding_entry.payload)
    machine = StateMachine(1 << 20)
    cluster_id = founding.configuration.cluster_id
    machine.apply_found(1, 1, 1000, cluster_id, founding.session_key, founding_entry.payload)
    plant_snapshot(disk, DATA, machine)
    machine.apply_noop(2, noop.term, noop.stamp_ms)
    newest = plant_snapshot(disk, DATA, machine)
    before = opened(config, disk).recovered
    disk.fail("pread", errno.EIO, path_part=newest.path)
    with pytest.raises(DataDirError, match="--force-new-cluster without it may give up what it holds"):
        opened(config, disk, Start.FORCE_NEW_CLUSTER)
    assert opened(config, disk).recovered == before
    assert not disk.exists(MARKER)


def test_an_empty_directory_is_refused_and_stays_empty(config: NodeConfig) -> None:
    disk = MemoryDisk(random.Random(0))
    with pytest.raises(NotFormattedError, match=DATA):
        opened(config, disk, Start.FORCE_NEW_CLUSTER)
    assert not disk.exists(DATA)
    opened(config, disk, Start.BOOTSTRAP)
    with pytest.raises(DataDirError, match="holds no cluster"):
        opened(config, disk, Start.FORCE_NEW_CLUSTER)
    assert not disk.exists(MARKER)
    assert disk.locked == set()


def test_a_disk_that_was_removed_or_replaced_is_refused(config: NodeConfig) -> None:
    disk = member_of_three(config, named="f" * 32)
    with pytest.raises(DataDirError, match="is not a member"):
        opened(config, disk, Start.FORCE_NEW_CLUSTER)
    assert not disk.exists(MARKER)


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "rename", "fsync_dir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_is_named_and_the_next_attempt_finishes(
    config: NodeConfig, operation: str, number: int
) -> None:
    for skip in range(4):
        disk = member_of_three(config)
        plain = opened(config, disk)
        disk.fail(operation, number, skip=skip)
        refusals: list[DataDirError] = []
        try:
            opened(config, disk, Start.FORCE_NEW_CLUSTER)
        except DataDirError as error:
            refusals.append(error)
        assert all(DATA in str(refusal) and refusal.remedy for refusal in refusals)
        assert disk.locked == set()
        disk.forgive()
        disk.power_cut(Cut.NOTHING)
        storage = opened(config, disk, Start.FORCE_NEW_CLUSTER)
        assert list(latest(storage).voters) == [1]
        assert storage.identity.cluster_id == latest(storage).cluster_id
        assert storage.recovered.tail[:2] == plain.recovered.tail


def test_identity_and_log_of_two_clusters_are_refused(config: NodeConfig) -> None:
    disk = member_of_three(config)
    identity = load_identity(disk, DATA)
    write_identity(disk, DATA, identity._replace(cluster_id="ab" * 16))
    with pytest.raises(WrongIdentityError, match="ab" * 16):
        opened(config, disk)
    assert disk.locked == set()
