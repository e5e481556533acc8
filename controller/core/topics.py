"""Whether a topic may be created, extended or deleted, and with which replicas.

Returns either the assignment to write or a refusal with Kafka's error code. Names, counts, factors and
assignments are checked here in Kafka's order; a refusal begins with Kafka's words where it has some, because
scripts look for them.
Source: Kafka's CreateTopics and CreatePartitions (3.9); docs/internals/requirements.md, [0.C]; KIP-4,
KIP-195.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from controller.core.model import ClusterModel, KnownTopic
from controller.core.placement import place, ring_of
from controller.core.requests import NewPartitions, NewTopic
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey, check_topic, missing_topic

#: Partitions of one topic: its assignment is one znode, which must fit one request.
TOPIC_PARTITIONS_MAX: Final = 10_000
NO_SUCH_PARTITION: Final = "The partition does not exist."
_BOTH_GIVEN: Final = (
    "Both numPartitions or replicationFactor and replicasAssignments were set. "
    "Both cannot be used at the same time."
)


class Refused(NamedTuple):
    """A request that changes nothing."""

    error_code: ErrorCode
    message: str


class Spread(NamedTuple):
    """Where a placement begins; the shell draws it."""

    start_index: int
    shift: int


class Defaults(NamedTuple):
    """What counts where a request says -1."""

    num_partitions: int
    replication_factor: int


Assignment = Mapping[int, tuple[int, ...]]


def collisions(model: ClusterModel, names: Iterable[str]) -> dict[str, str]:
    """Return the names of new topics that differ from another one in `.` and `_` alone.

    Kafka's metrics have one for both; other tools make the same of the two, too.

    Args:
        model: the cluster.
        names: of the topics of one request; each collides with those before it, too.

    Returns:
        {name: that of the other topic}
    """
    wanted = [name for name in names if "." in name or "_" in name]
    if not wanted:
        return {}
    present = {name.replace(".", "_"): name for name in (*model.left_alone, *model.topics)}
    found: dict[str, str] = {}
    for name in wanted:
        other = present.setdefault(name.replace(".", "_"), name)
        if other != name:
            found[name] = other
    return found


def exists(topic: str) -> Refused:
    """Refuse a name that another topic has."""
    return Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic}' already exists.")


def plan_topic(
    model: ClusterModel,
    wanted: NewTopic,
    defaults: Defaults,
    spread: Spread,
    collides_with: str | None = None,
) -> Assignment | Refused:
    """Return the replicas of a topic to create, or why it may not be created.

    Args:
        model: the cluster.
        wanted: the topic.
        defaults: what counts where it says -1.
        spread: where the placement begins.
        collides_with: what collisions() says of its name.
    """
    try:
        check_topic(wanted.name)
    except ValueError as error:
        return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error))
    if wanted.name in model.topics or wanted.name in model.left_alone:
        return exists(wanted.name)
    if collides_with is not None:
        # Kafka's words.
        problem = f"Topic '{wanted.name}' collides with existing topic: {collides_with}"
        return Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if wanted.assignments is not None:
        if wanted.num_partitions != -1 or wanted.replication_factor != -1:
            return Refused(ErrorCode.INVALID_REQUEST, _BOTH_GIVEN)
        return _given(model, wanted.assignments, first=0)
    count = defaults.num_partitions if wanted.num_partitions == -1 else wanted.num_partitions
    factor = defaults.replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    if count < 1:
        return Refused(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must be larger than 0. {count} were asked for",
        )
    if count > TOPIC_PARTITIONS_MAX:
        return Refused(ErrorCode.INVALID_PARTITIONS, f"{count} partitions: give 1 to {TOPIC_PARTITIONS_MAX}")
    return _placed(model, range(count), factor, spread)


def plan_partitions(model: ClusterModel, wanted: NewPartitions, spread: Spread) -> Assignment | Refused:
    """Return the replicas of the partitions to add to a topic, or why they may not be added."""
    known = model.topics.get(wanted.name)
    if known is None or not model.may_decide(wanted.name):
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, missing_topic(wanted.name))
    if known.record.adding_replicas or known.record.removing_replicas:
        return Refused(
            ErrorCode.REASSIGNMENT_IN_PROGRESS,
            f"topic {wanted.name!r} is being reassigned: wait until that is over",
        )
    present = len(known.record.partitions)
    if wanted.count == present:
        return Refused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    if wanted.count < present:
        problem = (
            f"Topic currently has {present} partitions, which is higher than the requested {wanted.count}."
        )
        return Refused(ErrorCode.INVALID_PARTITIONS, problem)
    if wanted.count > TOPIC_PARTITIONS_MAX:
        return Refused(
            ErrorCode.INVALID_PARTITIONS, f"{wanted.count} partitions: at most {TOPIC_PARTITIONS_MAX}"
        )
    if wanted.assignments is not None:
        if len(wanted.assignments) != wanted.count - present:
            return Refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Increasing the number of partitions by {wanted.count - present} but "
                f"{len(wanted.assignments)} assignments provided.",
            )
        return _given(
            model, dict(enumerate(wanted.assignments, present)), first=present, factor=_factor_of(known)
        )
    return _placed(model, range(present, wanted.count), _factor_of(known), _continued(model, known, spread))


def check_room(present: int, added: int, partitions_max: int) -> Refused | None:
    """Refuse partitions that would be too many beside those of all topics; None: there is room."""
    if present + added <= partitions_max:
        return None
    problem = f"{added} partitions beside the {present} of all topics, at most {partitions_max} are allowed"
    return Refused(
        ErrorCode.POLICY_VIOLATION, f"{problem}: delete topics, or raise limits.partitions_max of the brokers"
    )


def check_move(
    model: ClusterModel, key: PartitionKey, target: tuple[int, ...] | None
) -> tuple[int, ...] | Refused:
    """Return the replicas that a partition shall go to, or why it may not.

    Args:
        model: the cluster.
        key: the partition.
        target: its replicas, the first one preferred; None: those that it had before it was reassigned.
    """
    present, move = model.replicas(key), model.move(key)
    if not present or not model.may_decide(key.topic):
        return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION)
    if target is None:
        return (
            Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
            if move is None
            else move.origin
        )
    if not target:
        return Refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Empty replica list specified in partition reassignment."
        )
    listed = ", ".join(map(str, target))
    if len(dict.fromkeys(target)) != len(target):
        problem = f"Duplicate replica ids in partition reassignment replica list: {listed}"
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if min(target) < 0:
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Invalid broker id in replica list: {listed}")
    away = [each for each in target if each not in model.brokers and each not in present]
    if not away:
        return target
    problem = f"Replica assignment has brokers that are not alive. There is no live broker {away[0]}"
    return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _continued(model: ClusterModel, known: KnownTopic, spread: Spread) -> Spread:
    """Go on where the placement of partition 0 began, so that leaders stay spread."""
    first = known.record.partitions[min(known.record.partitions)][0]
    order = ring_of(_racks_of(model))
    return Spread(order.index(first), spread.shift) if first in order else spread


def _racks_of(model: ClusterModel) -> dict[int, str | None]:
    return {each: broker.record.rack for each, broker in model.brokers.items()}


def _factor_of(known: KnownTopic) -> int:
    return len(known.record.partitions[min(known.record.partitions)])


def _placed(model: ClusterModel, partitions: range, factor: int, spread: Spread) -> Assignment | Refused:
    if factor < 1:
        return Refused(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if factor > len(model.brokers):
        return Refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {factor} larger than available brokers: {len(model.brokers)}.",
        )
    return place(_racks_of(model), partitions, factor, start_index=spread.start_index, shift=spread.shift)


def _given(
    model: ClusterModel, assignments: Assignment, first: int, factor: int | None = None
) -> Assignment | Refused:
    """Check replicas that somebody chose: partitions without a gap, all alike in number, live brokers.

    Args:
        model: the cluster.
        assignments: of the new partitions.
        first: the number of the first of them.
        factor: how many replicas the partitions before them have; None: there are none.
    """
    if not 1 <= len(assignments) <= TOPIC_PARTITIONS_MAX:
        return Refused(
            ErrorCode.INVALID_PARTITIONS, f"{len(assignments)} assignments: give 1 to {TOPIC_PARTITIONS_MAX}"
        )
    if sorted(assignments) != list(range(first, first + len(assignments))):
        problem = "partitions should be a consecutive 0-based integer sequence"
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    for partition, replicas in sorted(assignments.items()):
        problem = _replicas_problem(partition, replicas)
        if problem:
            return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    factors = {len(replicas) for replicas in assignments.values()}
    if factor is not None and factors != {factor}:
        problem = f"Inconsistent replication factor between partitions, partition 0 has {factor}"
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    if len(factors) != 1:
        problem = "All partitions should have the same number of replicas"
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    named = dict.fromkeys(each for _, replicas in sorted(assignments.items()) for each in replicas)
    unknown = [str(each) for each in named if each not in model.brokers]
    if unknown:
        problem = f"Unknown broker(s) in replica assignment: {', '.join(unknown)}."
        return Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
    return assignments


def _replicas_problem(partition: int, replicas: Sequence[int]) -> str:
    if not replicas:
        return f"Cannot have replication factor of 0 for partition id {partition}."
    if len(dict.fromkeys(replicas)) != len(replicas):
        listed = ", ".join(map(str, replicas))
        return f"Duplicate brokers not allowed in replica assignment: {listed} for partition id {partition}."
    return ""
