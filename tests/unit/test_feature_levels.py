"""The feature level: raised once every member supports it, kept for good, and refused by older builds."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any, cast

import msgpack
import pytest

from quorum.core.feature_levels import BASE_LEVEL, FEATURE_LEVEL
from quorum.core.snapshot_walk import EXTENDED_FORMAT, FORMAT, SnapshotWalk
from quorum.errors import DataDirError, NotLeaderError
from quorum.node.levels import FeatureLevelError, Levels
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.entry import EntryKind
from quorum.raft.datadir.identity import IDENTITY_NAME, Start, load_identity, write_identity
from quorum.raft.engine.member_links import MemberLinks
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.hello import PeerIdentity, RefusalReason
from quorum.raft.peers.peers import PeerNode
from tests.support.memory_disk import MemoryDisk
from tests.unit.core.driver import Driver, chunks_of, load
from tests.unit.raft.forced_disks import DATA, config_of_three, opened
from tests.unit.test_member_start import attached, run, started
from tests.unit.test_payload_formats import Anything, replica_of

THREE = Configuration(
    "c" * 32, {1: Member("h:1", ""), 2: Member("h:2", "")}, {3: Member("h:3", "")}, retired=()
)


class Host:
    """A leader's engine, whose links the test makes."""

    node_id = 1

    def __init__(self, configuration: Configuration | None = THREE) -> None:
        self.configuration = configuration
        self.links = MemberLinks(cast("Any", Anything()), (2, 3))
        self.proposed: list[object] = []
        self.leads = True

    def connect(self, node_id: int, feature_level: int) -> None:
        self.links.connected[node_id] = PeerNode(node_id, "", "", feature_level)

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        if not self.leads:
            raise NotLeaderError(2)
        assert kind is EntryKind.CONTROL
        self.proposed.append(msgpack.unpackb(payload)[1])
        return 1000 + len(self.proposed)


def test_a_level_rises_and_never_falls() -> None:
    driver = Driver()
    zxid = driver.zxid
    assert [driver.machine.feature_level, driver.control(["level", 3])[0].err] == [BASE_LEVEL, 0]
    before = driver.machine.apply_digest
    for void in (["level", 3], ["level", 2], ["level"], ["level", 4, 4], ["level", True], ["level", 2**31]):
        assert driver.control(void)[0].err == -8
        assert driver.machine.feature_level == 3
    assert driver.machine.apply_digest != before
    assert driver.zxid == zxid


def test_states_of_two_levels_have_two_digests() -> None:
    digests = set()
    for level in (2, 3):
        driver = Driver()
        driver.control(["level", level])
        digests.add(driver.machine.apply_digest)
    assert len(digests) == 2


def test_a_snapshot_keeps_the_level_and_has_the_format_before_below_it() -> None:
    driver = Driver()
    chunks = chunks_of(SnapshotWalk(driver.machine))
    assert (chunks[0][1], load(chunks).feature_level) == (FORMAT, BASE_LEVEL)
    driver.control(["level", 7])
    chunks = chunks_of(SnapshotWalk(driver.machine))
    assert (chunks[0][1], load(chunks).feature_level) == (EXTENDED_FORMAT, 7)


def test_a_level_is_proposed_once_every_voter_and_learner_supports_it() -> None:
    host, driver = Host(), Driver()
    levels = Levels(host, supported_level=3)
    levels.maybe_raise(driver.machine)
    host.connect(2, 3)
    levels.maybe_raise(driver.machine)
    assert [levels.of_member(each) for each in (1, 2, 3)] == [3, 3, None]
    assert host.proposed == []
    host.connect(3, 2)
    levels.maybe_raise(driver.machine)
    assert host.proposed == [[["level", 2]]]
    # Not again while that one is on its way.
    host.connect(3, 5)
    levels.maybe_raise(driver.machine)
    assert len(host.proposed) == 1


def test_no_level_is_proposed_before_the_founding_nor_above_the_own() -> None:
    host, driver = Host(None), Driver()
    Levels(host, supported_level=3).maybe_raise(driver.machine)
    host.configuration = THREE
    for node_id in (2, 3):
        host.connect(node_id, 9)
    Levels(host, supported_level=1).maybe_raise(driver.machine)
    assert host.proposed == []


def test_a_node_that_leads_no_more_leaves_the_level_to_the_next_leader() -> None:
    host, driver = Host(), Driver()
    for node_id in (2, 3):
        host.connect(node_id, 2)
    levels = Levels(host, supported_level=2)
    host.leads = False
    levels.maybe_raise(driver.machine)
    host.leads = True
    levels.maybe_raise(driver.machine)
    assert host.proposed == [[["level", 2]]]


def test_a_node_that_comes_to_a_level_which_it_does_not_support_stops() -> None:
    driver = Driver()
    replica = replica_of(driver.machine)
    driver.control(["level", FEATURE_LEVEL])
    replica.levels.check(driver.machine)
    driver.control(["level", FEATURE_LEVEL + 1])
    sentence = f"level is {FEATURE_LEVEL + 1} .* up to {FEATURE_LEVEL}"
    with pytest.raises(FeatureLevelError, match=sentence) as told:
        replica.levels.check(driver.machine)
    assert "never falls" in told.value.remedy


def test_an_older_build_is_let_in_until_the_level_has_risen() -> None:
    old = PeerIdentity("local", "c" * 32, 2, "2" * 32, feature_level=1)
    assert Admission(feature_level=1).refusal(old) is None
    refusal = Admission(feature_level=2).refusal(old)
    assert refusal is not None
    assert refusal.reason is RefusalReason.FEATURE_LEVEL
    assert (refusal.wanted, refusal.found) == ("at least 2", "up to 1")
    assert "update node 2" in refusal.remedy
    assert Admission(feature_level=2).refusal(old._replace(feature_level=3)) is None


def test_a_directory_of_a_higher_level_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    config, disk = config_of_three(tmp_path), MemoryDisk(random.Random(0))
    identity = opened(config, disk, Start.BOOTSTRAP).identity
    before = disk.content(f"{DATA}/{IDENTITY_NAME}")
    assert b"feature_level" not in before
    write_identity(disk, DATA, identity._replace(feature_level=FEATURE_LEVEL + 1))
    with pytest.raises(
        DataDirError, match=f"feature level {FEATURE_LEVEL + 1}, .* up to {FEATURE_LEVEL}"
    ) as told:
        opened(config, disk)
    assert "or a newer one" in told.value.remedy
    assert load_identity(disk, DATA).feature_level == FEATURE_LEVEL + 1
    write_identity(disk, DATA, identity)
    assert opened(config, disk).identity == identity


def test_a_risen_level_is_on_the_disk_and_older_builds_stop_at_it(tmp_path: Path) -> None:
    three = config_of_three(tmp_path)
    config, disk = dataclasses.replace(three, members={1: three.members[1]}), MemoryDisk(random.Random(0))
    member, runtime, failures = attached(config, disk, FEATURE_LEVEL + 1)
    run(runtime, 1000)
    assert member.replica.machine.feature_level == FEATURE_LEVEL + 1
    member.stop()
    member.close()
    with pytest.raises(DataDirError, match="supports up to"):
        started(config, disk)
    # The identity may be behind; the entry says the same.
    write_identity(disk, DATA, load_identity(disk, DATA)._replace(feature_level=1))
    member, runtime, stopped = attached(config, disk)
    run(runtime, 1000)
    assert not failures
    assert f"level is {FEATURE_LEVEL + 1} as of" in str(stopped[0])
    member.stop()
    member.close()
