"""What a start needs of the disk: a member exists only once everything that the start writes is durable."""

from __future__ import annotations

import dataclasses
import errno
import random
from pathlib import Path

import pytest

from quorum.config.node import NodeConfig
from quorum.core.feature_levels import FEATURE_LEVEL
from quorum.errors import DataDirError
from quorum.node.member import QuorumMember
from quorum.raft.datadir.identity import IDENTITY_NAME, Start, load_identity
from quorum.raft.peers.hello import PeerIdentity
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk
from tests.support.nowhere import Nowhere
from tests.unit.raft.forced_disks import DATA, config_of_three

#: more calls of one kind than a start makes
CALLS_MAX = 50


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    return config_of_three(tmp_path)


def started(config: NodeConfig, disk: MemoryDisk, start: Start = Start.PLAIN) -> QuorumMember:
    failures: list[BaseException] = []
    member = QuorumMember(config, ManualRuntime(), disk, start=start, on_failure=failures.append)
    assert not failures
    return member


def attached(
    config: NodeConfig, disk: MemoryDisk, feature_level: int = FEATURE_LEVEL
) -> tuple[QuorumMember, ManualRuntime, list[BaseException]]:
    """A founder that runs, its runtime, and what stopped it."""
    failures: list[BaseException] = []
    runtime = ManualRuntime()
    member = QuorumMember(
        config, runtime, disk, start=Start.BOOTSTRAP, on_failure=failures.append, feature_level=feature_level
    )
    member.attach(Nowhere())  # type: ignore[arg-type]  # the contract, but for what nobody calls
    member.start()
    return member, runtime, failures


def run(runtime: ManualRuntime, ms: int) -> None:
    for _ in range(0, ms, 10):
        runtime.advance(10)
        runtime.settle()


def formatted(config: NodeConfig) -> MemoryDisk:
    disk = MemoryDisk(random.Random(0))
    started(config, disk, Start.BOOTSTRAP).close()
    return disk


@pytest.mark.parametrize("operation", ["pwrite", "fdatasync", "fsync_dir"])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_start_that_the_disk_refuses_ends_whichever_call_fails(
    config: NodeConfig, operation: str, number: int
) -> None:
    refusals = []
    for calls in range(CALLS_MAX):
        disk = formatted(config)
        disk.fail(operation, number, skip=calls)
        try:
            member = started(config, disk)
        except DataDirError as refusal:
            refusals.append(refusal)
            assert not disk.locked
            started(config, disk).close()
            continue
        member.close()
        if disk.plans:
            break
        # A note that a full disk did not take is an older one: weaker, never wrong.
        assert number == errno.ENOSPC
        assert member.writer.idle
        assert not member.writer.failed
    else:
        raise AssertionError(f"more than {CALLS_MAX} calls of {operation}")
    assert refusals
    assert all(refusal.remedy for refusal in refusals)


def test_what_a_full_disk_does_not_take_of_the_identity_is_written_when_there_is_room(
    config: NodeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    alone = dataclasses.replace(config, members={1: config.members[1]})
    disk = MemoryDisk(random.Random(0))
    member, runtime, failures = attached(alone, disk)
    disk.fail("create", errno.ENOSPC, path_part=IDENTITY_NAME, times=3)
    run(runtime, 1000)
    assert member.engine.leads
    # A member of its own cluster says hello meanwhile.
    member.peer_proved(PeerIdentity("local", member.replica.machine.cluster_id, 2, "2" * 32))
    assert "No space left on device; tried again until there is room" in caplog.text
    assert load_identity(disk, DATA).cluster_id == ""
    run(runtime, 1000)
    assert load_identity(disk, DATA).cluster_id == member.replica.machine.cluster_id
    assert not failures
    member.stop()
    member.close()


def test_a_founder_says_what_it_waits_for(config: NodeConfig, caplog: pytest.LogCaptureFixture) -> None:
    member, _, failures = attached(config, MemoryDisk(random.Random(0)))
    assert "has not heard from node 2, node 3 that it founds, too" in member.founding_problem()[0]
    member.peer_proved(PeerIdentity("local", "", 2, "2" * 32, founding_term=0))
    assert "has not heard from node 3 that" in member.founding_problem()[0]
    member.peer_proved(PeerIdentity("elsewhere", "ab" * 16, 3, "3" * 32))
    assert "has not heard from node 3 that" in member.founding_problem()[0]
    for node_id in (3, 3, 2):
        member.peer_proved(PeerIdentity("local", "ab" * 16, node_id, str(node_id) * 32))
    problem, remedy = member.founding_problem()
    assert f"node 3 belongs to the cluster {'ab' * 16} already" in problem
    assert "`quorate members replace 1`" in remedy
    assert "`quorate members add` if it is no member" in remedy
    assert caplog.text.count("belongs to the cluster") == 1
    assert not failures
    member.close()


def test_an_identity_that_the_disk_does_not_take_at_all_stops_the_node(config: NodeConfig) -> None:
    alone = dataclasses.replace(config, members={1: config.members[1]})
    disk = MemoryDisk(random.Random(0))
    member, runtime, failures = attached(alone, disk)
    disk.fail("create", errno.EIO, path_part=IDENTITY_NAME)
    run(runtime, 1000)
    assert [type(failure) for failure in failures] == [DataDirError]
    member.close()
