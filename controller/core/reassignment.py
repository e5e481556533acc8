"""Partitions that move from one set of replicas to another.

A topic's record says it all: the replicas of a partition, those being added, those being removed. What it had
before (origin) is what is not being added; where it goes (target) is what is not being removed. A replica
that is in both was to be added and is not wanted any more. So every step can be taken up by another
controller. First all replicas hold the partition; once the target is in the ISR, only the target does; when
the others have deleted theirs, the record says the target alone.
Source: KIP-455; docs/internals/requirements.md, [0.F]; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from quorum.metadata.records import TopicRecord

Replicas = tuple[int, ...]


class Move(NamedTuple):
    """A reassignment that is not over."""

    #: All that take part: the target first.
    replicas: Replicas
    origin: Replicas
    target: Replicas

    @property
    def adding(self) -> Replicas:
        """Replicas that are to come."""
        return tuple(each for each in self.target if each not in self.origin)

    @property
    def removing(self) -> Replicas:
        """Replicas that are to go."""
        return tuple(each for each in self.replicas if each not in self.target)

    @property
    def is_cancelled(self) -> bool:
        """Whether it only undoes an earlier one."""
        return set(self.target) == set(self.origin)


def move_of(record: TopicRecord, partition: int) -> Move | None:
    """Return the reassignment of a partition, or None where there is none."""
    adding = record.adding_replicas.get(partition, ())
    removing = record.removing_replicas.get(partition, ())
    if not adding and not removing:
        return None
    replicas = record.partitions[partition]
    return Move(
        replicas,
        tuple(each for each in replicas if each not in adding),
        tuple(each for each in replicas if each not in removing),
    )


def with_targets(record: TopicRecord, targets: Mapping[int, Replicas]) -> TopicRecord:
    """Return a topic's record with partitions on their way to these replicas; origins stay as they are."""
    partitions = dict(record.partitions)
    adding, removing = dict(record.adding_replicas), dict(record.removing_replicas)
    for partition, target in targets.items():
        move = move_of(record, partition)
        present = record.partitions[partition]
        origin = present if move is None else move.origin
        full = tuple(dict.fromkeys((*target, *origin, *present)))
        partitions[partition] = full
        _put(adding, partition, tuple(each for each in full if each not in origin))
        _put(removing, partition, tuple(each for each in full if each not in target))
    return replace(record, partitions=partitions, adding_replicas=adding, removing_replicas=removing)


def without_moves(record: TopicRecord, partitions: Iterable[int]) -> TopicRecord:
    """Return a topic's record in which the reassignments of these partitions are over."""
    assigned = dict(record.partitions)
    adding, removing = dict(record.adding_replicas), dict(record.removing_replicas)
    for partition in partitions:
        move = move_of(record, partition)
        if move is not None:
            assigned[partition] = move.target
            _put(adding, partition, ())
            _put(removing, partition, ())
    return replace(record, partitions=assigned, adding_replicas=adding, removing_replicas=removing)


def wanted_replicas(move: Move, in_sync: Collection[int], announced: Replicas | None) -> Replicas:
    """Return which replicas shall hold a partition now: all of its reassignment, or the target alone.

    Args:
        move: the reassignment.
        in_sync: live members of the ISR.
        announced: what its brokers were asked to hold last; None: nothing that this controller knows of.
    """
    if announced == move.target:
        return move.target
    if move.is_cancelled:
        # Nothing has to be copied first, and what is dead was so before.
        ready = any(each in in_sync for each in move.target)
    else:
        ready = all(each in in_sync for each in move.target)
    return move.target if ready else move.replicas


def _put(replicas: dict[int, Replicas], partition: int, some: Replicas) -> None:
    if some:
        replicas[partition] = some
    else:
        replicas.pop(partition, None)
