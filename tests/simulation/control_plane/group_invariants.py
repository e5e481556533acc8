"""What must hold of groups after every event: one coordinator writes, acknowledged commits stay.

Looks at what the quorum commits, in order, and at the answers that leave a coordinator. The history that is
kept here is the judge; nothing in the product looks at it.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from broker.core.groups import inputs
from broker.core.groups.model import HeartbeatAnswer, Joined, SyncAnswer
from controller.wire.codes import ErrorCode
from quorum.core.codes import EVENT_DELETED, OP_CREATE, OP_CREATE2, OP_SET_DATA
from quorum.core.results import Result
from quorum.metadata import paths
from quorum.metadata.group_records import (
    Assignment,
    ClassicGroupRecord,
    GroupRecord,
    OffsetRecord,
    decode_group,
)
from quorum.metadata.paths import PartitionKey
from tests.simulation.control_plane.invariants import InvariantBrokenError, operations_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tests.simulation.control_plane.world import World

#: Begins the names of the groups whose offsets are part of transactions; these have a judge of their own.
OF_TRANSACTIONS = "once-"


class Mark(NamedTuple):
    """Who committed an offset; the metadata of each commit says it, so no two are the same."""

    generation_id: int
    member: str
    number: int
    #: Whom it was sent to; None: nobody was known.
    broker_id: int | None
    #: The topic that it means, by its id, if its member knows that.
    topic_id: str

    def encode(self) -> str:
        """Return it as an offset's metadata."""
        return json.dumps(self)

    @classmethod
    def decode(cls, metadata: str) -> Mark:
        """Read an offset's metadata."""
        return cls(*json.loads(metadata))


class GroupInvariants:
    """The judge of the groups of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epoch = 0
        self._winner = 0
        #: when a topic was written last
        self.topics_changed_ms = 0
        #: {group: its record in the quorum}
        self.records: dict[str, GroupRecord] = {}
        #: whatever the quorum has held: (group, partition, commit), (group, generation, member), and with the
        #: latter what the member may own
        self._said: set[Hashable] = set()
        #: {(group, generation, member): the most that it was given in that generation}
        self._given: dict[Hashable, frozenset[Hashable]] = {}
        #: {(group, partition): commits that are in the quorum, or were}
        self._commits: dict[tuple[str, PartitionKey], list[Mark]] = {}
        #: {topic: zxid of its last deletion}
        self._deleted: dict[str, int] = {}
        #: {(group, partition): zxid of its last commit; -1: its topic was gone by then}
        self._committed: dict[tuple[str, PartitionKey], int] = {}
        #: {(group, generation, partition): the member that was told that it owns it}
        self._owners: dict[Hashable, str] = {}

    def _fail(self, story: str) -> None:
        raise InvariantBrokenError(story)

    # -- what the quorum commits -----------------------------------------------------------------------------

    def committed_command(self, result: Result, command: Sequence[Any], session: int) -> None:
        """Look at a write."""
        for operation in operations_of(result, command):
            op, path = operation[0], str(operation[1]) if len(operation) > 1 else ""
            if op == OP_SET_DATA and path == paths.COORDINATOR_EPOCH:
                if int(operation[2]) != self.epoch + 1:
                    self._fail(f"I16: coordinator epoch {int(operation[2])} follows {self.epoch}")
                self.epoch, self._winner = int(operation[2]), session
                self._world.note(0, f"a coordinator is elected, epoch {self.epoch}")
            elif path.startswith(paths.BROKER_TOPICS + "/") and path.count("/") == 3:
                self.topics_changed_ms = self._world.now_ms
            elif path.startswith((paths.GROUPS + "/", paths.TRANSACTIONS + "/")):
                if session not in (self._winner, self._world.quorum.founder):
                    self._fail(f"I16: {path} is written by a coordinator that is none, in epoch {self.epoch}")
                is_judged_here = path.startswith(paths.GROUPS) and not _is_of_transactions(path)
                if is_judged_here and op in (OP_SET_DATA, OP_CREATE, OP_CREATE2):
                    self._written(path.split("/"), operation[2], result.zxid)
        for event in result.events or ():
            if event[0] == EVENT_DELETED and not _is_of_transactions(str(event[1])):
                self._gone(str(event[1]).split("/"), result.zxid)

    def _written(self, parts: Sequence[str], data: bytes, zxid: int) -> None:
        group = parts[3]
        if len(parts) == 4:
            self._record_written(group, decode_group(group, data))
        elif len(parts) == 7:
            key = PartitionKey(parts[5], int(parts[6]))
            mark = Mark.decode(OffsetRecord.decode(group, key, data).metadata)
            before = self._commits.setdefault((group, key), [])
            # By its name a commit for a topic that is gone is one for the topic that came again.
            for other in [each for each in before if each.topic_id == mark.topic_id][-1:]:
                if mark.generation_id < other.generation_id:
                    self._fail(f"I5: {group}: the commit {mark} of {key} follows {other}")
                # One whose outcome was unknown is written again. One that was given up and sent to another
                # broker may come late: the protocol has no fence against that.
                is_one_stream = (mark.member, mark.broker_id) == (other.member, other.broker_id)
                if is_one_stream and mark.number < other.number:
                    self._fail(f"I5: {group}: the commit {mark} of {key} follows {other}")
            before.append(mark)
            self._said.add((group, key, mark))
            self._committed[group, key] = zxid if key.topic in self._world.invariants.topics else -1

    def _record_written(self, group: str, record: GroupRecord) -> None:
        before = self.records.get(group)
        if before is not None and generation_of(record) < generation_of(before):
            story = f"generation {generation_of(record)} follows {generation_of(before)}"
            self._fail(f"I24: {group}: {story}")
        self.records[group] = record
        owners: dict[Hashable, str] = {}
        for member in record.members:
            if isinstance(record, ClassicGroupRecord):
                said: tuple[Hashable, ...] = (group, record.generation_id, member.member_id)
                owned = _owned_of_bytes(member.assignment)  # type: ignore[union-attr]
                held = owned
            else:
                said = (group, member.member_epoch, member.member_id)  # type: ignore[union-attr]
                owned = owned_of(member.assigned)  # type: ignore[union-attr]
                held = owned | owned_of(member.revoking)  # type: ignore[union-attr]
            self._said |= {said, (*said, owned)}
            self._given[said] = self._given.get(said, frozenset()) | owned
            for partition in held:
                if owners.setdefault(partition, member.member_id) != member.member_id:
                    other = owners[partition]
                    self._fail(f"I24: {group}: {other} and {member.member_id} own {partition} in {record}")

    def _gone(self, parts: Sequence[str], zxid: int) -> None:
        if parts[1:3] == ["brokers", "topics"] and len(parts) == 4:
            self._deleted[parts[3]] = zxid
        elif parts[1:3] == ["consumers", "groups"] and len(parts) == 7:
            key = PartitionKey(parts[5], int(parts[6]))
            if not self._is_gone(parts[3], key):
                lost = self._commits[parts[3], key][-1]
                self._fail(f"I5: {parts[3]}: the commit {lost} of {key} is removed, and its topic was not")
            del self._commits[parts[3], key]

    def _is_gone(self, group: str, key: PartitionKey) -> bool:
        """Whether a topic was deleted before or since its last commit, and maybe created again."""
        is_deleted = self._deleted.get(key.topic, -1) > self._committed.get((group, key), -1)
        return is_deleted or key.topic not in self._world.invariants.topics

    # -- what leaves a coordinator ---------------------------------------------------------------------------

    def answered(self, request: inputs.GroupRequest, outcome: object) -> None:
        """An answer leaves: whatever it says is in the quorum, or was."""
        match request, outcome:
            case inputs.CommitOffsets(), ErrorCode.NONE:
                for key, offset in request.offsets.items():
                    self._check_committed(request.group_id, key, Mark.decode(offset.metadata))
            case inputs.JoinGroup(group), Joined(ErrorCode.NONE):
                self._check_said(group, outcome.generation_id, outcome.member_id)
            case inputs.SyncGroup(group, asked), SyncAnswer(ErrorCode.NONE):
                owned = _owned_of_bytes(outcome.assignment)
                self._check_said(group, asked.generation_id, asked.member_id, owned)
            case inputs.ConsumerHeartbeat(group), HeartbeatAnswer(ErrorCode.NONE) if outcome.member_epoch > 0:
                given = None if outcome.assignment is None else owned_of(outcome.assignment)
                self._check_said(group, outcome.member_epoch, outcome.member_id, given)

    def _check_committed(self, group: str, key: PartitionKey, mark: Mark) -> None:
        """A commit that is acknowledged is in the quorum, or a later one that took its place."""
        commits = self._commits.get((group, key), ())
        is_there = (group, key, mark) in self._said or any(
            each.generation_id > mark.generation_id
            or (each.member == mark.member and each.number >= mark.number)
            for each in commits
        )
        # A topic's deletion takes its commits.
        if not is_there and not self._is_gone(group, key):
            self._fail(f"I5: {group}: {mark} of {key} is acknowledged, not committed")

    def _check_said(
        self, group: str, generation: int, member: str, owned: frozenset[Hashable] | None = None
    ) -> None:
        for partition in owned or ():
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                self._fail(f"I24: {group}: {owner} and {member} own {partition} in generation {generation}")
        said = (group, generation, member)
        if (said if owned is None else (*said, owned)) in self._said:
            return
        # Several changes of a group may be one write: the quorum has what has followed, then.
        record = self.records.get(group)
        ahead = -1 if record is None else generation_of(record) - generation
        is_member = record is not None and any(each.member_id == member for each in record.members)
        has_more = (owned or frozenset()) <= self._given.get(said, frozenset()) and said in self._said
        if ahead < 0 or (ahead == 0 and is_member and not has_more):
            self._fail(f"I5: {group}: {member} hears of generation {generation}, {owned}: not committed")


def _is_of_transactions(path: str) -> bool:
    return path.startswith(f"{paths.GROUPS}/{OF_TRANSACTIONS}")


def generation_of(record: GroupRecord) -> int:
    """Return what rises with each rebalance."""
    return record.generation_id if isinstance(record, ClassicGroupRecord) else record.group_epoch


def owned_of(assignment: Assignment) -> frozenset[Hashable]:
    """Return (topic id, partition) of each partition."""
    return frozenset((topic_id, each) for topic_id, held in assignment.items() for each in held)


def bytes_of(owned: Iterable[PartitionKey]) -> bytes:
    """Return an assignment as the simulated leader of a classic group makes it."""
    return json.dumps(sorted(owned)).encode()


def _owned_of_bytes(assignment: bytes) -> frozenset[Hashable]:
    return frozenset(PartitionKey(*each) for each in json.loads(assignment or b"[]"))
