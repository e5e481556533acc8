"""A group as the quorum holds it, and which multis bring it to where it shall be.

What is there (`StoredGroup`) and what shall be there (`GroupWrite`) say which multi comes next. After a
refusal or a lost reply the group is read, and the same question is asked again: so a write, a deletion and
what a dead coordinator left need no rules of their own for it. A record that one znode does not hold is cut
into chunks, children of the group's znode: first all chunks are made, to which nothing refers yet; then one
multi writes their names into the znode and deletes those of the record before. So the znode always names
chunks that are there; those that it does not name are strays, and the last multi of any write removes them.
Source: ARCHITECTURE.md, "Life of a consumer group"; docs/internals/requirements.md, [4.x].
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.core.groups import group_fences
from broker.core.groups.consumer import ConsumerGroup
from controller.core.effects import Check, CreateNode, DeleteNode, Operation, SetData
from controller.core.inputs import Done, Rejected, Unknown, Why
from quorum.metadata.group_records import (
    OFFSET_BYTES,
    ClassicGroupRecord,
    GroupRecord,
    OffsetRecord,
    encode_chunk_names,
)
from quorum.metadata.numbers import GenerationId, GroupVersion
from quorum.metadata.paths import (
    PartitionKey,
    group_chunk_path,
    group_offset_path,
    group_offsets_path,
    group_path,
    group_topic_path,
)

#: What one znode holds of a group's record; a larger record is cut.
CHUNK_BYTES: Final = 512 * 1024
#: What one multi holds besides its checks.
MULTI_BYTES_MAX: Final = 768 * 1024
OFFSETS_MAX: Final = 1_000
#: What an operation adds to its path and value.
_OPERATION_BYTES: Final = 160
NO_NODE: Final = GroupVersion(-1)
#: Stands for a group whose first record is on its way in chunks.
_NOT_BEGUN: Final = ClassicGroupRecord(GenerationId(0), None, None, None, False, 0)

#: An offset, or None: it is removed.
OffsetChange = tuple[PartitionKey, OffsetRecord | None]


@dataclass(slots=True)
class StoredGroup:
    """A group as the quorum holds it."""

    group_id: str
    #: None: there is no znode.
    record: GroupRecord | None = None
    version: GroupVersion = NO_NODE
    offsets: dict[PartitionKey, OffsetRecord] = field(default_factory=dict)
    #: {topic: partitions}: which nodes exist below offsets/.
    nodes: dict[str, set[int]] = field(default_factory=dict)
    #: Children of its znode that hold the record; none: the znode does.
    chunks: tuple[str, ...] = ()
    #: Chunks to which the znode does not refer.
    strays: tuple[str, ...] = ()


class GroupMulti(NamedTuple):
    """One multi of a write, and what it leaves."""

    #: Behind the check of the coordinator's epoch.
    operations: tuple[Operation, ...]
    #: Of the group's znode afterwards; NO_NODE: the group is gone.
    version: GroupVersion
    strays: tuple[str, ...]
    #: The znode's new value, the record in it, and the chunks that hold that; None: all as before.
    value: bytes | None = None
    record: GroupRecord | None = None
    chunks: tuple[str, ...] = ()
    offsets: tuple[OffsetChange, ...] = ()
    #: Whose nodes below offsets/ are removed.
    topics: tuple[str, ...] = ()

    def take_effect(self, stored: StoredGroup) -> None:
        """Let a group be as it is after the multi."""
        stored.version, stored.strays = self.version, self.strays
        if self.record is not None:
            stored.record, stored.chunks = self.record, self.chunks
        for key, offset in self.offsets:
            if offset is None:
                stored.offsets.pop(key, None)
                stored.nodes.get(key.topic, set()).discard(key.partition)
            else:
                stored.offsets[key] = offset
                stored.nodes.setdefault(key.topic, set()).add(key.partition)
        for topic in self.topics:
            del stored.nodes[topic]


@dataclass(slots=True)
class GroupWrite:
    """What shall be written of a group, and the answers that wait for it."""

    #: The group's record, or a group that says it when the write begins; None: it stays.
    record: GroupRecord | ConsumerGroup | None = None
    #: None: the offset is removed.
    offsets: dict[PartitionKey, OffsetRecord | None] = field(default_factory=dict)
    #: (request, its outcome)
    answers: list[tuple[int, object]] = field(default_factory=list)
    #: Those of the requests by which members join a group whose coordinator assigns.
    joins: set[int] = field(default_factory=set)
    is_deletion: bool = False
    #: Of the loan by which a transaction writes it, as one multi with its own; None: it is the group's.
    loan: int | None = None
    #: The multi under way.
    multi: GroupMulti | None = None
    #: How often it was tried.
    rounds: int = 0
    #: Why the quorum takes none of it, for good.
    problem: str = ""
    _encoded: bytes = b""
    _chunks: tuple[str, ...] = ()

    def begin(self, names: Iterator[str]) -> None:
        """Take the record that is written, and names for its chunks that no chunk ever had."""
        if isinstance(self.record, ConsumerGroup):
            self.record = self.record.record()
        if self.record is not None:
            self._encoded = self.record.encode()
            count = -(-len(self._encoded) // CHUNK_BYTES)
            self._chunks = tuple(next(names) for _ in range(count)) if count > 1 else ()

    def next_multi(self, stored: StoredGroup) -> GroupMulti | None:
        """Return what comes next; None: all is written."""
        if self.is_deletion:
            self.multi = _removal(stored)
        elif self.record is not None:
            assert not isinstance(self.record, ConsumerGroup), "the write has begun"
            missing = next(
                (index for index, name in enumerate(self._chunks) if name not in stored.strays), None
            )
            if missing is None:
                self.multi = self._record_multi(stored, self.record)
            elif stored.version == NO_NODE:
                # Chunks are children. Should this coordinator die now, the group has not begun.
                value = _NOT_BEGUN.encode()
                self.multi = GroupMulti(_creation(stored, value), GroupVersion(0), (), value, _NOT_BEGUN)
            else:
                self.multi = self._chunk_multi(stored, missing)
        elif self.offsets:
            offsets = self._fitting_offsets(stored, 0)
            operations = (_check(stored), *_offset_operations(stored, offsets))
            self.multi = GroupMulti(operations, stored.version, stored.strays, offsets=offsets)
        elif stored.strays:
            operations = (_check(stored), *_chunk_deletions(stored, stored.strays))
            self.multi = GroupMulti(operations, stored.version, ())
        else:
            self.multi = None
        return self.multi

    def _chunk_multi(self, stored: StoredGroup, index: int) -> GroupMulti:
        name = self._chunks[index]
        part = self._encoded[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]
        create = CreateNode(group_chunk_path(stored.group_id, name), part)
        return GroupMulti((_check(stored), create), stored.version, (*stored.strays, name))

    def _record_multi(self, stored: StoredGroup, record: GroupRecord) -> GroupMulti:
        value = encode_chunk_names(self._chunks) if self._chunks else self._encoded
        path = group_path(stored.group_id)
        others = (
            # An earlier attempt whose reply was lost may come late, after its chunks were removed.
            *(Check(group_chunk_path(stored.group_id, name), 0) for name in self._chunks),
            *_chunk_deletions(stored, stored.chunks),
        )
        used = len(value) + len(others) * (len(path) + 64 + _OPERATION_BYTES)
        offsets = self._fitting_offsets(stored, used)
        if stored.version == NO_NODE:
            version, first = GroupVersion(0), _creation(stored, value)
        else:
            version = GroupVersion(_next_version(stored.version))
            first = (SetData(path, value, group_fences.group_version(stored.version)),)
        strays = tuple(each for each in stored.strays if each not in self._chunks)
        operations = (*first, *others, *_offset_operations(stored, offsets))
        return GroupMulti(operations, version, strays, value, record, self._chunks, offsets)

    def _fitting_offsets(self, stored: StoredGroup, used: int) -> tuple[OffsetChange, ...]:
        """Return those offsets that one multi holds besides so many bytes."""
        group_bytes = len(group_path(stored.group_id))
        found: list[OffsetChange] = []
        for key, offset in self.offsets.items():
            # The first offset of a topic has a parent to be made.
            size = 2 * (group_bytes + len(key.topic)) + (
                OFFSET_BYTES if offset is None else offset.stored_bytes
            )
            if self.loan is None and used and (len(found) >= OFFSETS_MAX or used + size > MULTI_BYTES_MAX):
                break
            used += size
            found.append((key, offset))
        return tuple(found)

    def _reached(self) -> GroupMulti:
        """Return the multi under way, which has taken effect, and go on behind it."""
        multi = self.multi
        assert multi is not None, "no multi is under way"
        if multi.record is self.record:
            self.record = None
        for key, _ in multi.offsets:
            self.offsets.pop(key, None)
        self.multi, self.rounds = None, 0
        return multi

    def take_outcome(self, outcome: Done | Rejected | Unknown, stored: StoredGroup) -> bool:
        """Take in what became of the multi under way; False: the group is read before anything else."""
        if isinstance(outcome, Done):
            self._reached().take_effect(stored)
            return True
        if not isinstance(outcome, Unknown) and outcome.why in (Why.OTHER, Why.NOT_EMPTY):
            self.problem = outcome.problem
        self.rounds += 1
        return False

    def judge(
        self, before: StoredGroup, found: StoredGroup | None, value: bytes | None, rounds_max: int
    ) -> str:
        """Go on from what was read after an outcome other than done; returns why that cannot be, or "".

        Only this coordinator writes the znode, so its version and value tell what became of the multi.

        Args:
            before: the group as it was before the multi.
            found: as it was read; None: there is none.
            value: of its znode.
            rounds_max: how often a multi is tried.
        """
        multi = self.multi
        assert multi is not None, "no multi is under way"
        version = NO_NODE if found is None else found.version
        if version == multi.version and version != before.version and value == multi.value:
            self._reached()
            return ""
        if version != before.version:
            return f"group {before.group_id!r}: its znode has changed"
        gave_up = f"the write of group {before.group_id!r}: no outcome in any of {rounds_max} rounds"
        return self.problem or (gave_up if self.rounds >= rounds_max else "")


def _check(stored: StoredGroup) -> Check:
    return Check(group_path(stored.group_id), group_fences.group_version(stored.version))


def _creation(stored: StoredGroup, value: bytes) -> tuple[Operation, ...]:
    group_id = stored.group_id
    return CreateNode(group_path(group_id), value), CreateNode(group_offsets_path(group_id), b"")


def _chunk_deletions(stored: StoredGroup, names: Iterable[str]) -> tuple[Operation, ...]:
    return tuple(DeleteNode(group_chunk_path(stored.group_id, name)) for name in names)


def _offset_operations(stored: StoredGroup, offsets: Iterable[OffsetChange]) -> Iterator[Operation]:
    made: set[str] = set()
    for key, offset in offsets:
        is_there = key.partition in stored.nodes.get(key.topic, ())
        node = group_offset_path(stored.group_id, key)
        if offset is None:
            if is_there:
                yield DeleteNode(node)
            continue
        if key.topic not in stored.nodes and key.topic not in made:
            made.add(key.topic)
            yield CreateNode(group_topic_path(stored.group_id, key.topic), b"")
        yield SetData(node, offset.encode(), -1) if is_there else CreateNode(node, offset.encode())


def _removal(stored: StoredGroup) -> GroupMulti | None:
    """Return the next multi of a group's deletion: offsets, then the nodes of topics, then the group."""
    group_id = stored.group_id
    if stored.version == NO_NODE:
        return None
    keys = (PartitionKey(topic, each) for topic, held in stored.nodes.items() for each in sorted(held))
    doomed: list[tuple[str, tuple[OffsetChange, ...], tuple[str, ...]]]
    doomed = [(group_offset_path(group_id, key), ((key, None),), ()) for key in keys]
    doomed += [(group_topic_path(group_id, topic), (), (topic,)) for topic in stored.nodes]
    found = doomed[:OFFSETS_MAX]
    while sum(OFFSET_BYTES + 2 * len(path) for path, _, _ in found) > MULTI_BYTES_MAX:
        found = found[: len(found) // 2]
    deletions = tuple(DeleteNode(path) for path, _, _ in found)
    if len(found) < len(doomed):
        offsets = tuple(each for _, offset, _ in found for each in offset)
        topics = tuple(each for _, _, topic in found for each in topic)
        multi = GroupMulti((_check(stored), *deletions), stored.version, stored.strays)
        return multi._replace(offsets=offsets, topics=topics)
    rest = (
        DeleteNode(group_offsets_path(group_id)),
        *_chunk_deletions(stored, (*stored.chunks, *stored.strays)),
        DeleteNode(group_path(group_id), group_fences.group_version(stored.version)),
    )
    return GroupMulti((*deletions, *rest), NO_NODE, ())


def _next_version(version: int) -> int:
    """Return the version after one more setData: int32, and never -1 (ZOOKEEPER-4743)."""
    following = -(2**31) if version == 2**31 - 1 else version + 1
    return 0 if following == -1 else following
