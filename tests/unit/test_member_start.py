"""What a start needs of the disk: a member exists only once everything that the start writes is durable."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from quorum.config import NodeConfig, node_config
from quorum.errors import DataDirError, DiskFullError
from quorum.member import QuorumMember
from quorum.raft.identity import Start
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk

#: more calls of one kind than a start makes
CALLS_MAX = 50


@pytest.fixture
def config(tmp_path: Path) -> NodeConfig:
    secret = tmp_path / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text("s" * 32)
    return node_config(
        {
            "node": {"id": 1, "cluster": "local", "data_dir": "/srv/node-1"},
            "members": {"1": "h:1", "2": "h:2", "3": "h:3"},
            "security": {"peer_secret_file": str(secret)},
        },
        tmp_path,
    )


def started(config: NodeConfig, disk: MemoryDisk, start: Start = Start.PLAIN) -> QuorumMember:
    failures: list[BaseException] = []
    member = QuorumMember(config, ManualRuntime(), disk, start=start, on_failure=failures.append)
    assert not failures
    return member


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
    assert number == errno.ENOSPC or not any(isinstance(refusal, DiskFullError) for refusal in refusals)
