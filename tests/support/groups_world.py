"""A machine of groups over a quorum in memory: the test decides when a multi or a reading happens."""

from __future__ import annotations

import copy
import itertools
import uuid
from collections.abc import Mapping
from typing import Any

from broker.core.groups import inputs
from broker.core.groups.machine import GroupsMachine
from broker.core.groups.model import (
    Catalog,
    GroupLimits,
    GroupOptions,
    HeartbeatRequest,
    JoinRequest,
    SyncRequest,
)
from broker.core.groups.timers import TICK_MS
from broker.core.groups.writing import StoredGroup
from controller.core.effects import Answer, CreateNode, DeleteNode, Operation, Resign, SetData, Write
from controller.core.inputs import Done, MultiDone, Rejected, Unknown, Why
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.group_records import OffsetRecord, chunk_names, decode_group
from quorum.metadata.numbers import GenerationId, GroupVersion
from quorum.metadata.paths import PartitionKey

LIMITS = GroupLimits(initial_rebalance_delay_ms=0, assignment_interval_ms=0)
OPTIONS = GroupOptions(LIMITS, rebalance_retries_max=2)
WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
NOBODY: tuple[str, None, GenerationId] = ("", None, GenerationId(-1))


class TreeOfGroups:
    """Znodes by their paths, with versions; a multi takes effect as a whole or not at all."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {
            paths.GROUPS: (b"", 0),
            paths.COORDINATOR_EPOCH: (b"1", 1),
        }
        self.multis: list[tuple[Operation, ...]] = []
        #: {topic: (topic id, partitions)}
        self.topics: dict[str, tuple[uuid.UUID, int]] = {"t": (uuid.uuid4(), 4)}

    def multi(self, operations: tuple[Operation, ...]) -> Done | Rejected:
        """Carry out a multi."""
        self.multis.append(operations)
        before = dict(self.nodes)
        for index, each in enumerate(operations):
            why = self._refusal(each)
            if why is not None:
                self.nodes = before
                return Rejected(index, why, why.value, ErrorCode.UNKNOWN_SERVER_ERROR)
            match each:
                case CreateNode():
                    self.nodes[each.path] = each.value, 0
                case SetData():
                    self.nodes[each.path] = each.value, self.nodes[each.path][1] + 1
                case DeleteNode():
                    del self.nodes[each.path]
        return Done()

    def _refusal(self, each: Operation) -> Why | None:
        if isinstance(each, CreateNode):
            if each.path in self.nodes:
                return Why.NODE_EXISTS
            return None if each.path.rpartition("/")[0] in self.nodes else Why.NO_NODE
        if each.path not in self.nodes:
            return Why.NO_NODE
        if each.version not in (-1, self.nodes[each.path][1]):
            return Why.BAD_VERSION
        return Why.NOT_EMPTY if isinstance(each, DeleteNode) and self.children(each.path) else None

    def children(self, path: str) -> list[str]:
        """Names below a node."""
        return sorted(each.rpartition("/")[2] for each in self.nodes if each.rpartition("/")[0] == path)

    def group(self, group_id: str) -> tuple[StoredGroup, bytes] | None:
        """Read a group."""
        path = paths.group_path(group_id)
        if path not in self.nodes:
            return None
        value, version = self.nodes[path]
        children = self.children(path)
        chunks = chunk_names(group_id, value)
        strays = tuple(each for each in children if each.startswith(paths.GROUP_CHUNK) and each not in chunks)
        data = b"".join(self.nodes[f"{path}/{each}"][0] for each in chunks) if chunks else value
        stored = StoredGroup(group_id, decode_group(group_id, data), GroupVersion(version))
        stored.chunks, stored.strays = chunks, strays
        for topic in self.children(f"{path}/offsets"):
            names = self.children(f"{path}/offsets/{topic}")
            stored.nodes[topic] = {int(each) for each in names}
            for each in names:
                key = PartitionKey(topic, int(each))
                stored.offsets[key] = OffsetRecord.decode(
                    group_id, key, self.nodes[f"{path}/offsets/{topic}/{each}"][0]
                )
        return stored, value

    def load(self) -> inputs.GroupsLoaded:
        """Read all groups."""
        names = (paths.group_id_of(each) for each in self.children(paths.GROUPS))
        found = (self.group(each) for each in names if each is not None)
        return inputs.GroupsLoaded([each[0] for each in found if each is not None], {})


class GroupsWorld:
    """One term over such a tree; multis and readings wait until the test lets them happen."""

    def __init__(
        self, tree: TreeOfGroups | None = None, options: GroupOptions = OPTIONS, now_ms: int = 0
    ) -> None:
        self.tree = tree or TreeOfGroups()
        self.now_ms = now_ms
        epoch_version = self.tree.nodes[paths.COORDINATOR_EPOCH][1]
        self.machine = GroupsMachine(epoch_version, uuid.uuid4().hex, options, now_ms)
        self.effects: list[inputs.GroupEffect] = []
        #: {request: its outcome}
        self.answers: dict[int, Any] = {}
        self.resigned: Resign | None = None
        self._ids = itertools.count(1)
        self.tick(0)
        self.step(self.tree.load())
        self.read_topics()

    # -- what happens ----------------------------------------------------------------------------------------

    def step(self, happened: inputs.GroupInput) -> None:
        """Let something happen; answers are kept, multis and readings wait."""
        for effect in self.machine.step(happened, self.now_ms):
            if isinstance(effect, Answer):
                assert effect.id not in self.answers, "a request is answered once"
                self.answers[effect.id] = effect.outcome
            elif isinstance(effect, Resign):
                self.resigned = effect
            else:
                self.effects.append(effect)
        for slot in self.machine.slots():
            slot.machine.check_invariants()

    def ask(self, request: inputs.GroupRequest) -> int:
        """Ask; returns the number of the request."""
        number = next(self._ids)
        self.step(inputs.GroupAsked(number, request))
        return number

    def tick(self, pass_ms: int = TICK_MS) -> None:
        """Let time pass, tick by tick."""
        until_ms = self.now_ms + pass_ms
        while True:
            self.step(inputs.ClockTick(WALL_MS, is_believed=True))
            if self.now_ms >= until_ms:
                return
            self.now_ms = min(self.now_ms + TICK_MS, until_ms)

    def read_topics(self) -> None:
        """Let the coordinator learn which topics exist."""
        self.step(inputs.TopicsChanged())
        wanted = self.take(inputs.ReadTopics)
        self.answer_topics(wanted)

    def answer_topics(self, wanted: inputs.ReadTopics) -> None:
        """Answer a reading of topics."""
        topics = self.tree.topics
        known = {name: topics[name] for name in wanted.names if name in topics}
        self.step(inputs.TopicsRead(Catalog(known), frozenset(topics)))

    def look_up(self, **more: int) -> None:
        """Let the coordinator know all topics, after more were made: their partitions."""
        self.tree.topics.update({name: (uuid.uuid4(), count) for name, count in more.items()})
        self.step(inputs.TopicsLookedUp(Catalog(dict(self.tree.topics))))

    # -- what is under way -----------------------------------------------------------------------------------

    def take(self, kind: type[Any]) -> Any:
        """Return the one effect of a kind, which is carried out now."""
        (found,) = [each for each in self.effects if isinstance(each, kind)]
        self.effects.remove(found)
        return found

    def count(self, kind: type[Any]) -> int:
        """How many effects of a kind wait."""
        return sum(isinstance(each, kind) for each in self.effects)

    def finish(self) -> None:
        """Let multis and readings happen until there are none."""
        while self.count(Write) or self.count(inputs.ReadGroup):
            for effect in [each for each in self.effects if isinstance(each, Write | inputs.ReadGroup)]:
                self.effects.remove(effect)
                if isinstance(effect, Write):
                    self.step(MultiDone(effect.id, self.tree.multi(effect.operations)))
                else:
                    self.read(effect)

    def lose(self, *, took_effect: bool) -> None:
        """Let the multi under way lose its reply."""
        effect = self.take(Write)
        if took_effect:
            assert isinstance(self.tree.multi(effect.operations), Done)
        self.step(MultiDone(effect.id, Unknown("the connection was lost")))

    def read(self, effect: inputs.ReadGroup) -> None:
        """Answer a reading."""
        found, value = copy.deepcopy(self.tree.group(effect.group_id)) or (None, None)
        self.step(inputs.GroupRead(effect.id, found, value))

    # -- requests --------------------------------------------------------------------------------------------

    def done(self, request: inputs.GroupRequest) -> Any:
        """Ask, let everything happen, and return the outcome."""
        number = self.ask(request)
        self.finish()
        return self.answers[number]

    def joining(
        self, group_id: str, member_id: str = "", new_id: str = "m", metadata: bytes = b"x"
    ) -> inputs.JoinGroup:
        """A classic member's wish; without an id it is new."""
        protocols = (("range", metadata),)
        request = JoinRequest(
            member_id, None, "c", "/h", SESSION_MS, SESSION_MS, "consumer", protocols, False
        )
        return inputs.JoinGroup(group_id, request, new_id)

    def settle(self, group_id: str, member_id: str = "m") -> GenerationId:
        """Let one member join an empty classic group and assign; returns the generation."""
        joined = self.done(self.joining(group_id, new_id=member_id))
        request = SyncRequest(member_id, None, joined.generation_id, None, None, {member_id: b"a"})
        assert self.done(inputs.SyncGroup(group_id, request)).assignment == b"a"
        generation_id: GenerationId = joined.generation_id
        return generation_id

    def beat(self, group_id: str, generation_id: GenerationId, member_id: str = "m") -> Any:
        """Send a heartbeat of a classic member."""
        return self.done(inputs.ClassicHeartbeat(group_id, member_id, None, generation_id))

    def consumer(
        self, group_id: str, member_id: str, epoch: int = 0, **named: Any
    ) -> inputs.ConsumerHeartbeat:
        """What a member of KIP-848 says; with epoch 0 it joins."""
        if epoch == 0:
            named = {"topics": ("t",), "owned": {}, "rebalance_timeout_ms": SESSION_MS, **named}
        return inputs.ConsumerHeartbeat(group_id, HeartbeatRequest(member_id, epoch, **named))

    def committing(
        self, group_id: str, numbers: Mapping[int, int], whose: tuple[str, None, GenerationId] = NOBODY
    ) -> inputs.CommitOffsets:
        """Commit {partition of topic t: offset}."""
        offsets = {
            PartitionKey("t", each): OffsetRecord(number, -1, "", WALL_MS) for each, number in numbers.items()
        }
        return inputs.CommitOffsets(group_id, *whose, offsets)

    def offsets(self, group_id: str) -> dict[int, int]:
        """Return {partition: offset} as the quorum has them."""
        found = self.tree.group(group_id)
        return {} if found is None else {key.partition: each.offset for key, each in found[0].offsets.items()}

    def elect_another(self) -> None:
        """Let the epoch rise."""
        value, version = self.tree.nodes[paths.COORDINATOR_EPOCH]
        self.tree.nodes[paths.COORDINATOR_EPOCH] = value, version + 1
