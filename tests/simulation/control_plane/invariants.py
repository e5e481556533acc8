"""What must hold after every event: I16 to I22.

Two sources: what the quorum commits, in order, and what the replicas' machines come to. The history that is
kept here is the judge; nothing in the product looks at it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from broker.core.partition import IdleState, LeaderState
from controller.core.reassignment import move_of
from controller.election.plans import CONTROLLER_OFFICE
from controller.messages.entities import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from quorum.core.codes import (
    EVENT_DELETED,
    OP_CREATE,
    OP_CREATE2,
    OP_ERROR,
    OP_MULTI,
    OP_SET_DATA,
)
from quorum.core.results import Result
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    NO_LEADER,
    RECOVERING,
    BrokerRecord,
    PartitionStateRecord,
    TopicRecord,
)
from tests.simulation.control_plane.log import Record

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.replica import SimReplica
    from tests.simulation.control_plane.world import World

#: a partition of a topic that no other one of its name is
Identity = tuple[object, int]


class InvariantBrokenError(AssertionError):
    """A promise does not hold."""


class Committed:
    """What was shown as committed of one partition."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        #: leader epoch of the last election that may have lost records; older replicas show what was
        self.since_epoch = 0
        #: whether the first leader since then has yet to show what is left
        self.is_unsettled = False

    def counts(self, replica: SimReplica) -> bool:
        """Whether what a replica shows must be this: not what an unclean election took, or may take yet."""
        role = replica.machine.role
        if self.is_unsettled or isinstance(role, IdleState) or role.leader_epoch < self.since_epoch:
            return False
        return isinstance(role, LeaderState) or replica.log.latest_epoch >= self.since_epoch


class Invariants:
    """The judge of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.epoch = 0
        #: {controller epoch: session that won it}
        self.winners: dict[int, int] = {}
        #: {broker id: (generation, session, record)}
        self.registered: dict[int, tuple[int, int, BrokerRecord]] = {}
        self._sessions: dict[int, int] = {}
        self._last_generation: dict[int, int] = {}
        self.topics: dict[str, TopicRecord] = {}
        self.states: dict[PartitionKey, tuple[PartitionStateRecord, int]] = {}
        #: {identity: {version: state}}
        self.history: dict[Identity, dict[int, PartitionStateRecord]] = {}
        self.committed: dict[Identity, Committed] = {}
        #: partitions for which an unclean election was asked for
        self.forced: dict[PartitionKey, None] = {}
        #: {value: identity of the log that it was appended to}
        self.homes: dict[int, Identity] = {}
        self.unclean = 0

    def fail(self, story: str) -> None:
        """Say what does not hold."""
        raise InvariantBrokenError(story)

    def identity(self, key: PartitionKey) -> Identity:
        """Return which partition a key names in the quorum now."""
        topic = self.topics.get(key.topic)
        return (None if topic is None else topic.topic_id, key.partition)

    # -- what the quorum commits -----------------------------------------------------------------------------

    def committed_command(self, result: Result, command: Sequence[Any], session: int) -> None:
        """Look at a write."""
        operations = operations_of(result, command)
        if any(each[0] == OP_SET_DATA and each[1] == paths.CONTROLLER_EPOCH for each in operations):
            self._elected(operations, session)
        for operation in operations:
            self._operation(operation, session, result.zxid)
        for event in result.events or ():
            if event[0] == EVENT_DELETED:
                self._deleted(str(event[1]))

    def _elected(self, operations: Sequence[Sequence[Any]], session: int) -> None:
        for operation in operations:
            if operation[0] == OP_SET_DATA and operation[1] == paths.CONTROLLER_EPOCH:
                epoch = int(operation[2])
                if epoch != self.epoch + 1:
                    self.fail(f"I16: controller epoch {epoch} follows {self.epoch}")
                self.epoch = epoch
                self.winners[epoch] = session
        created = [each for each in operations if each[0] == OP_CREATE and each[1] == paths.CONTROLLER]
        if not created:
            self.fail("I16: the epoch rose without an election")
        winner = CONTROLLER_OFFICE.read_broker_id(created[0][2])
        self._world.note(winner, f"is elected controller, epoch {self.epoch}")

    def _operation(self, operation: Sequence[Any], session: int, zxid: int) -> None:
        op, path = operation[0], str(operation[1]) if len(operation) > 1 else ""
        parts = path.split("/")
        if op not in (OP_SET_DATA, OP_CREATE, OP_CREATE2):
            return
        data = operation[2]
        if path.startswith(paths.BROKER_TOPICS + "/"):
            if len(parts) == 4:
                self._topic_written(parts[3], TopicRecord.decode(parts[3], data))
            elif len(parts) == 7 and parts[6] == "state":
                key = PartitionKey(parts[3], int(parts[5]))
                version = 0 if op != OP_SET_DATA else self.states[key][1] + 1
                self._state_written(key, PartitionStateRecord.decode(key, data), version, session)
        elif path.startswith(paths.BROKER_IDS + "/") and op in (OP_CREATE, OP_CREATE2):
            broker_id = int(parts[3])
            if zxid <= self._last_generation.get(broker_id, -1):
                self.fail(f"I17: generation {zxid} of broker {broker_id} does not rise")
            self._last_generation[broker_id] = zxid
            self.registered[broker_id] = (zxid, session, BrokerRecord.decode(broker_id, data))
            self._sessions[session] = broker_id
            broker = self._world.brokers.get(broker_id)
            if broker is not None and broker.client is not None and broker.client.session_id == session:
                broker.registrations.append(zxid)

    def _deleted(self, path: str) -> None:
        parts = path.split("/")
        if path.startswith(paths.BROKER_IDS + "/"):
            # A registration that replaces another one is made by the same multi.
            node = self._world.quorum.machine.tree.get(path)
            if node is None:
                self.registered.pop(int(parts[3]), None)
        elif path.startswith(paths.BROKER_TOPICS + "/"):
            if len(parts) == 4:
                self.topics.pop(parts[3], None)
            elif len(parts) == 7 and parts[6] == "state":
                self.states.pop(PartitionKey(parts[3], int(parts[5])), None)

    def _topic_written(self, name: str, record: TopicRecord) -> None:
        before = self.topics.get(name)
        self.topics[name] = record
        if before is None or before.topic_id != record.topic_id:
            return
        for partition, replicas in before.partitions.items():
            now = record.partitions.get(partition)
            old, new = move_of(before, partition), move_of(record, partition)
            if now is None:
                raise InvariantBrokenError(f"I21: {name}-{partition} is gone from its assignment")
            if old is not None and new is None:
                if now != old.target:
                    self.fail(f"I21: {name}-{partition} ends with {now}, not with {old.target}")
                state = self.states.get(PartitionKey(name, partition))
                if state is not None and not set(state[0].isr) <= set(old.target):
                    self.fail(f"I21: {name}-{partition} ends with the ISR {state[0].isr}, not in {now}")
            if old is None and new is None and set(now) != set(replicas):
                self.fail(f"I21: {name}-{partition} goes from {replicas} to {now} at once")

    def _state_written(
        self, key: PartitionKey, state: PartitionStateRecord, version: int, session: int
    ) -> None:
        before = self.states.get(key)
        self.states[key] = (state, version)
        identity = self.identity(key)
        self.history.setdefault(identity, {})[version] = state
        place = f"{key.topic}-{key.partition} {_brief(state)}"
        replicas = (
            self.topics[key.topic].partitions.get(key.partition, ()) if key.topic in self.topics else ()
        )
        if state.leader != NO_LEADER and state.leader not in state.isr:
            self.fail(f"I18: {place}: the leader is not in the ISR")
        if not set(state.isr) <= set(replicas):
            self.fail(f"I18: {place}: the ISR is not within {replicas}")
        if before is not None and state.leader_epoch == before[0].leader_epoch:
            self._leader_wrote(key, before[0], state, session)
        else:
            self._controller_wrote(key, None if before is None else before[0], state, session)

    def _leader_wrote(
        self, key: PartitionKey, before: PartitionStateRecord, state: PartitionStateRecord, session: int
    ) -> None:
        place = f"{key.topic}-{key.partition} {_brief(before)} -> {_brief(state)}"
        self._world.note(state.leader, f"as the leader writes {place}")
        if self._sessions.get(session) != before.leader or state.leader != before.leader:
            self.fail(f"I18: {place}: written by session {session:x} without a new leader epoch")
        for joining in (each for each in state.isr if each not in before.isr):
            self._check_has_committed(key, joining, place)

    def _check_has_committed(self, key: PartitionKey, broker_id: int, place: str) -> None:
        """A member of the ISR has what is committed, unless it has lost it since and will say so."""
        broker = self._world.brokers.get(broker_id)
        registration = self.registered.get(broker_id)
        if broker is None or registration is None or registration[0] not in broker.registrations:
            return
        log = broker.disk.logs.get(key)
        if key in broker.disk.shortened or registration[2].incarnation != broker.disk.incarnation:
            return
        kept = self.committed.get(self.identity(key))
        is_deleted = self._world.quorum.machine.tree.get(paths.delete_topic_path(key.topic)) is not None
        if kept is None or kept.is_unsettled or is_deleted:
            return
        found = [] if log is None else log.records
        if found[: len(kept.records)] != kept.records:
            self.fail(f"I19: {place}: broker {broker_id} joins the ISR without all that is committed")

    def _controller_wrote(
        self,
        key: PartitionKey,
        before: PartitionStateRecord | None,
        state: PartitionStateRecord,
        session: int,
    ) -> None:
        place = f"{key.topic}-{key.partition} {_brief(before)} -> {_brief(state)}"
        self._world.note(self._sessions.get(session, 0), f"as the controller writes {place}")
        if session != self.winners.get(self.epoch) or state.controller_epoch != self.epoch:
            self.fail(f"I16: {place}: written by a controller that is none, in epoch {self.epoch}")
        expected = 0 if before is None else before.leader_epoch + 1
        if state.leader_epoch != expected:
            self.fail(f"I18: {place}: the leader epoch is not {expected}")
        if before is None or state.leader == NO_LEADER or state.leader in before.isr:
            return
        kept = self.committed.setdefault(self.identity(key), Committed())
        kept.since_epoch, kept.is_unsettled = state.leader_epoch, True
        self.unclean += 1
        if state.leader_recovery_state != RECOVERING:
            self.fail(f"I20: {place}: an unclean election without a mark")
        is_shortened = state.leader in before.shortened
        registration = self.registered.get(state.leader)
        named = registration is not None and bool(registration[2].shortened)
        if not (self._world.is_unclean(key.topic) or key in self.forced or is_shortened or named):
            self.fail(f"I20: {place}: an unclean election that nobody allowed")

    # -- what brokers do -------------------------------------------------------------------------------------

    def request_applied(
        self, broker: SimBroker, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
    ) -> None:
        """A broker has let a control request pass its fences."""
        kind = type(request).__name__
        if request.broker_epoch not in broker.registrations:
            self.fail(f"I17: broker {broker.broker_id} obeys a {kind} for generation {request.broker_epoch}")
        if request.controller_epoch > self.epoch:
            self.fail(
                f"I16: broker {broker.broker_id} obeys a controller of epoch {request.controller_epoch}"
            )
        if request.controller_epoch < broker.epoch_obeyed:
            self.fail(
                f"I16: broker {broker.broker_id} obeys a {kind} of epoch {request.controller_epoch} "
                f"after one of {broker.epoch_obeyed}"
            )
        broker.epoch_obeyed = request.controller_epoch
        if isinstance(request, StopReplicaRequest):
            return
        for topic in request.topic_states:
            for state in topic.partition_states:
                if state.leader == -2:
                    continue
                is_role = isinstance(request, LeaderAndIsrRequest)
                version = state.partition_epoch if is_role else state.zk_version  # type: ignore[union-attr]
                known = self.history.get((topic.topic_id, state.partition_index), {}).get(version)
                said = (state.leader, state.leader_epoch, tuple(state.isr))
                if known is None or (known.leader, known.leader_epoch, known.isr) != said:
                    self.fail(
                        f"I18: broker {broker.broker_id} hears of {topic.topic_name}-{state.partition_index} "
                        f"{said} at version {version}, where the quorum has {_brief(known)}"
                    )

    def decided(self, replica: SimReplica, topic_id: object) -> None:
        """A replica has taken a decision about a topic's partition."""
        if replica.log.topic_id != topic_id:
            self.fail(f"I22: broker {replica.broker.broker_id} serves the log of another {replica.key.topic}")
        decided = (replica.broker.generation, replica.machine.leader_epoch)
        if decided < replica.decided:
            self.fail(
                f"I18: {replica.key.topic}-{replica.key.partition} at broker {replica.broker.broker_id} "
                f"goes back from leader epoch {replica.decided[1]} to {decided[1]}"
            )
        replica.decided = decided

    def check_replica(self, replica: SimReplica) -> None:
        """Compare what a replica has come to with what was shown before."""
        role, broker = replica.machine.role, replica.broker
        end, mark = replica.log.log_end_offset, role.high_watermark
        name = f"{replica.key.topic}-{replica.key.partition} at broker {broker.broker_id}"
        if not 0 <= mark <= end:
            self.fail(f"I19: {name}: the high watermark is {mark}, the log ends at {end}")
        identity = (replica.log.topic_id, replica.key.partition)
        kept = self.committed.setdefault(identity, Committed())
        if isinstance(role, LeaderState):
            if role.decided_in != broker.generation or role.decided_in not in broker.registrations:
                self.fail(f"I17: {name} leads by a decision for generation {role.decided_in}")
            self._check_leader(replica, role, kept, name)
        if not kept.counts(replica):
            return
        shown, records = kept.records, replica.log.records
        for offset in range(min(replica.checked, mark), mark):
            if offset < len(shown):
                if shown[offset] != records[offset]:
                    self.fail(
                        f"I19: {name} shows {records[offset]} at {offset}, committed is {shown[offset]}"
                    )
            elif isinstance(role, LeaderState):
                self._check_home(identity, records[offset], name)
                shown.append(records[offset])
            else:
                self.fail(f"I19: {name} shows offset {offset}, which no leader has committed")
        replica.checked = mark

    def _check_home(self, identity: Identity, record: Record, name: str) -> None:
        if self.homes.get(record.value, identity) != identity:
            self.fail(f"I22: {name} shows {record}, which is another topic's")

    def _check_leader(self, replica: SimReplica, role: LeaderState, kept: Committed, name: str) -> None:
        """A leader by the quorum's present state has all that is committed."""
        known = self.states.get(replica.key)
        is_present = (
            known is not None
            and self.identity(replica.key) == (replica.log.topic_id, replica.key.partition)
            and (known[0].leader, known[0].leader_epoch) == (role.broker_id, role.leader_epoch)
        )
        if role is replica.role_checked or not is_present:
            return
        replica.role_checked = role
        records = replica.log.records
        if kept.is_unsettled and role.leader_epoch >= kept.since_epoch:
            same = 0
            while same < min(len(records), len(kept.records)) and records[same] == kept.records[same]:
                same += 1
            del kept.records[same:]
            kept.is_unsettled = False
            replica.checked = min(replica.checked, same)
        elif not kept.is_unsettled and records[: len(kept.records)] != kept.records:
            lost = next(
                (offset for offset, each in enumerate(kept.records) if records[offset : offset + 1] != [each])
            )
            self.fail(
                f"I19: {name} leads in epoch {role.leader_epoch} without {kept.records[lost]} at {lost}, "
                f"which was committed; its log ends at {len(records)}"
            )

    def acknowledged(self, replica: SimReplica, offset: int, value: int) -> None:
        """A producer was told that its record is committed."""
        self.check_replica(replica)
        kept = self.committed[replica.log.topic_id, replica.key.partition]
        if not kept.counts(replica):
            return
        if offset >= len(kept.records) or kept.records[offset].value != value:
            self.fail(f"I19: value {value} was acknowledged at offset {offset} and is not committed")


def operations_of(result: Result, command: Sequence[Any]) -> list[Sequence[Any]]:
    """Return the operations of a write that have taken effect."""
    if result.err:
        return []
    if command[0] == OP_MULTI and isinstance(result.value, list):
        failed = bool(result.value) and result.value[0][0] == OP_ERROR
        return [] if failed else list(command[1])
    return [command]


def _brief(state: PartitionStateRecord | None) -> str:
    if state is None:
        return "none"
    mark = "!" if state.leader_recovery_state == RECOVERING else ""
    shortened = f" shortened {sorted(state.shortened)}" if state.shortened else ""
    return f"({state.leader}{mark} epoch {state.leader_epoch} isr {list(state.isr)}{shortened})"
