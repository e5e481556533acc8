"""Whoever asks for a snapshot is answered once: by one of all that was applied, or by why there is none."""

from __future__ import annotations

import dataclasses
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from quorum.cli.commands.snapshot import TAKE_TIMEOUT_S
from quorum.core.machine import StateMachine
from quorum.core.snapshot_walk import SnapshotIncompleteError, SnapshotWalk
from quorum.errors import (
    OutcomeUnknownError,
    QuorateError,
    SnapshotBusyError,
    SnapshotNotTakenError,
    SnapshotUnderWayError,
)
from quorum.node.member import QuorumMember
from quorum.node.snapshot_requests import REQUEST_DEADLINE_MS, REQUESTS_MAX, Told
from quorum.node.snapshotting import GIVE_UP_PAUSE_MS
from quorum.raft.snapshots.snapshots import SnapshotFile
from quorum.raft.snapshots.writer import SNAPSHOT_LANE
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk
from tests.unit.raft.forced_disks import config_of_three
from tests.unit.test_member_start import attached, run
from tests.unit.test_snapshotting import NODES, REST_MS, Bench

#: more turns than a snapshot of the bench takes
TURNS_MAX = 10_000

Answers = list[SnapshotFile | QuorateError]


class Asked:
    """Requests to the snapshotter of a bench, and what each was told."""

    def __init__(self, overlay_bytes_max: int = 2**20) -> None:
        self.bench = Bench(overlay_bytes_max)
        self.snapshotter = self.bench.snapshotter

    def ask(self) -> Answers:
        """Ask; returns the list that gets the answers."""
        told: Answers = []
        self.snapshotter.request(told.append)
        return told

    def walk(self) -> None:
        """Let everything be walked; all that is written waits in the lane."""
        self.bench.runtime.turn()
        while self.bench.chunks(1):
            pass

    @property
    def applied_index(self) -> int:
        return self.bench.machine.applied_index


def taken(told: Answers) -> SnapshotFile:
    """The one answer: a snapshot."""
    (answer,) = told
    assert isinstance(answer, SnapshotFile), answer
    return answer


def refused(told: Answers) -> QuorateError:
    """The one answer: an error that says what to do."""
    (answer,) = told
    assert isinstance(answer, QuorateError), answer
    assert answer.message
    assert answer.remedy
    return answer


def test_it_is_answered_by_a_snapshot_of_what_was_applied_once_that_is_durable() -> None:
    asked = Asked()
    told = asked.ask()
    runtime = asked.bench.runtime
    for _ in range(TURNS_MAX):
        runtime.turn()
        if asked.snapshotter.taken_count:
            break
        assert not told, "it is answered in the turn in which it is durable"
        runtime.work(SNAPSHOT_LANE)
    snapshot = taken(told)
    assert snapshot.log_index == asked.applied_index
    assert snapshot.term == asked.bench.machine.applied_term
    assert snapshot == asked.bench.store.newest
    asked.bench.disk.power_cut()
    assert asked.bench.disk.open(snapshot.path).size() == snapshot.size_bytes
    asked.bench.finish()
    assert len(told) == 1


def test_nothing_is_written_where_nothing_was_applied_since_the_newest() -> None:
    asked = Asked()
    first = asked.ask()
    asked.bench.finish()
    second = asked.ask()
    assert taken(second) == taken(first)
    asked.bench.finish()
    assert asked.snapshotter.taken_count == 1
    asked.bench.write(0)
    third = asked.ask()
    assert not third
    asked.bench.finish()
    assert taken(third).log_index == asked.applied_index > taken(first).log_index


def test_where_nothing_was_applied_at_all_it_is_refused_for_good() -> None:
    asked = Asked()
    asked.bench.machine = StateMachine(2**20)
    error = refused(asked.ask())
    assert isinstance(error, SnapshotNotTakenError)
    assert (error.definite, error.retriable) == (True, False)
    assert not asked.snapshotter.active


def test_one_under_way_serves_as_long_as_nothing_was_applied_since_it_began() -> None:
    asked = Asked()
    asked.bench.begin()
    asked.bench.chunks(1)
    told = asked.ask()
    asked.bench.finish()
    assert taken(told).log_index == asked.applied_index
    assert asked.snapshotter.taken_count == 1


def test_one_that_began_before_the_last_write_does_not_serve_and_another_follows() -> None:
    asked = Asked()
    early = asked.ask()
    asked.bench.runtime.turn()
    asked.bench.chunks(1)
    asked.bench.write(0)
    late = asked.ask()
    wanted = asked.applied_index
    for _ in range(TURNS_MAX):
        asked.bench.chunks(1, after_ms=REST_MS)
        asked.bench.runtime.work(SNAPSHOT_LANE)
        if early:
            break
    assert taken(early).log_index == wanted - 1
    assert not late, "what it asked for is not in that one"
    asked.bench.write(1)
    asked.bench.finish()
    assert taken(late).log_index >= wanted
    assert asked.snapshotter.taken_count == 2


def test_several_share_one_and_what_waits_is_bounded() -> None:
    asked = Asked()
    waiting = [asked.ask() for _ in range(REQUESTS_MAX)]
    error = refused(asked.ask())
    assert isinstance(error, SnapshotBusyError)
    assert (error.definite, error.retriable) == (True, True)
    assert str(REQUESTS_MAX) in error.message
    asked.bench.finish()
    assert len({taken(told) for told in waiting}) == 1
    assert asked.snapshotter.taken_count == 1
    asked.bench.write(0)
    again = asked.ask()
    asked.bench.finish()
    assert taken(again).log_index == asked.applied_index, "those that were answered count no more"


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "rename", "fsync_dir"])
@pytest.mark.parametrize(("number", "retriable"), [(errno.ENOSPC, True), (errno.EIO, False)])
def test_a_disk_that_refuses_it_is_told_to_all_and_the_next_request_tries_again(
    operation: str, number: int, *, retriable: bool
) -> None:
    asked = Asked()
    asked.bench.disk.fail(operation, number)
    both = [asked.ask(), asked.ask()]
    asked.bench.finish()
    for told in both:
        error = refused(told)
        assert isinstance(error, SnapshotNotTakenError)
        assert (error.definite, error.retriable) == (True, retriable)
        assert error.message.startswith("no snapshot was taken: ")
        assert ("No space left" if retriable else "Input/output error") in error.message
    assert asked.snapshotter.taken_count == 0
    told = asked.ask()
    asked.bench.finish()
    assert taken(told).log_index == asked.applied_index


def test_one_that_is_read_back_damaged_is_refused_and_names_its_file() -> None:
    asked = Asked()
    told = asked.ask()
    asked.walk()
    # All but the end is written; the file has no name yet.
    while len(asked.bench.runtime.lanes[SNAPSHOT_LANE]) > 1:
        asked.bench.runtime.work(SNAPSHOT_LANE)
    (name,) = asked.bench.disk.listdir("/data/snapshots")
    asked.bench.disk.open(f"/data/snapshots/{name}", writable=True).pwrite([b"\xff"], 60)
    asked.bench.finish()
    error = refused(told)
    assert isinstance(error, SnapshotNotTakenError)
    assert name in error.message
    assert (error.definite, error.retriable) == (True, False)


def test_a_walk_that_lost_nodes_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_chunk(_self: SnapshotWalk, _records: int) -> None:
        raise SnapshotIncompleteError("3 names were left")

    asked = Asked()
    monkeypatch.setattr(SnapshotWalk, "next_chunk", next_chunk)
    told = asked.ask()
    asked.bench.finish()
    error = refused(told)
    assert "3 names were left" in error.message
    assert not error.retriable


def test_one_that_is_given_up_and_begun_again_is_waited_for() -> None:
    asked = Asked(overlay_bytes_max=20_000)
    told = asked.ask()
    asked.bench.runtime.turn()
    for number in range(NODES):
        asked.bench.write(number)
    asked.bench.chunks(1)
    assert asked.snapshotter.failed_count == 1
    later = asked.ask()
    assert not told
    asked.bench.runtime.advance(GIVE_UP_PAUSE_MS)
    asked.bench.finish()
    assert taken(told) == taken(later)
    assert taken(told).log_index == asked.applied_index, "of the state when it began again"


def test_at_the_deadline_it_is_told_that_it_is_still_under_way_and_goes_on() -> None:
    asked = Asked()
    told = asked.ask()
    runtime = asked.bench.runtime
    asked.walk()
    runtime.advance(REQUEST_DEADLINE_MS / 2)
    later = asked.ask()
    assert not told, "the disk is slow, and there is time"
    runtime.advance(REQUEST_DEADLINE_MS / 2)
    error = refused(told)
    assert isinstance(error, SnapshotUnderWayError)
    assert isinstance(error, OutcomeUnknownError)
    assert (error.definite, error.retriable) == (False, True)
    assert asked.snapshotter.active
    assert not later
    asked.bench.finish()
    assert len(told) == 1
    assert taken(later).log_index == asked.applied_index
    assert TAKE_TIMEOUT_S * 1000 > REQUEST_DEADLINE_MS, "the command line hears of it"


def test_one_that_nobody_waits_for_any_more_is_not_followed_by_another() -> None:
    asked = Asked()
    asked.bench.begin()
    asked.bench.write(0)
    told = asked.ask()
    asked.bench.runtime.advance(REQUEST_DEADLINE_MS)
    assert isinstance(refused(told), SnapshotUnderWayError)
    asked.bench.finish()
    assert asked.snapshotter.taken_count == 1


def test_a_state_that_is_replaced_has_no_snapshot_and_the_next_request_gets_one_of_the_new() -> None:
    asked = Asked()
    told = asked.ask()
    asked.bench.runtime.turn()
    asked.bench.chunks(1)
    asked.snapshotter.abandon()
    error = refused(told)
    assert isinstance(error, SnapshotBusyError)
    assert (error.definite, error.retriable) == (True, True)
    assert "replaced" in error.message
    again = asked.ask()
    asked.bench.finish()
    asked.bench.runtime.advance(REQUEST_DEADLINE_MS)
    assert len(told) == 1, "an answer has no deadline"
    assert taken(again).log_index == asked.applied_index


def member_with_state(folder: Path) -> tuple[QuorumMember, ManualRuntime, list[BaseException]]:
    """A member that founded its cluster alone; nothing of it has a snapshot."""
    config = config_of_three(folder)
    alone = dataclasses.replace(config, members={1: config.members[1]})
    member, runtime, failures = attached(alone, MemoryDisk(random.Random(0)))
    run(runtime, 2000)
    assert member.replica.machine.applied_index
    return member, runtime, failures


def stop(member: QuorumMember) -> None:
    member.stop()


def stop_itself(member: QuorumMember) -> None:
    member.engine.fail(RuntimeError("the disk is gone"))


@pytest.mark.parametrize("end", [stop, stop_itself])
def test_a_node_that_stops_answers_everybody_then_and_afterwards(
    end: Callable[[QuorumMember], None], tmp_path: Path
) -> None:
    member, runtime, _ = member_with_state(tmp_path)
    told: Answers = []
    member.snapshotter.request(told.append)
    assert not told
    end(member)
    late: Answers = []
    member.snapshotter.request(late.append)
    for answers in (told, late):
        error = refused(answers)
        assert "the node stops" in error.message
        assert (error.definite, error.retriable) == (True, True)
    runtime.advance(REQUEST_DEADLINE_MS)
    assert (len(told), len(late)) == (1, 1)
    member.stop()
    member.close()


def test_a_member_that_runs_takes_it(tmp_path: Path) -> None:
    member, runtime, failures = member_with_state(tmp_path)
    told: Answers = []
    answer: Told = told.append
    member.snapshotter.request(answer)
    run(runtime, 100)
    assert taken(told).log_index == member.replica.machine.applied_index
    assert taken(told) == member.storage.snapshots.newest
    assert not failures
    member.stop()
    member.close()
