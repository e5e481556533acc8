"""Writes partition states and assignments, in pipelined multis, each behind the fence.

A write either took effect, or it did not, or nobody knows: the last two come back as partitions to read
again, so that nothing is decided on a guess. What the quorum does not take comes back with the reason, so
that it holds up nothing else. The multis are judged each on its own, because one of them can meet a partition
whose leader changed its ISR meanwhile while all others are written.
Source: ARCHITECTURE.md, "Life of a broker failure"; docs/concepts/guarantees.md, "Leaders and in-sync
replicas"; docs/internals/requirements.md, [2.4], [3.3].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from controller.core import fences
from controller.core.chunks import CHUNK_OPERATIONS_MAX, OPERATION_OVERHEAD_BYTES, chunk_by_size
from controller.core.effects import CreateNode, DeleteNode, Operation, SetData
from controller.core.elections import Decisions
from controller.core.inputs import Done, Rejected, Unknown, Why
from controller.core.io import Io, Steps, declined, rest
from controller.core.model import KnownState
from quorum.metadata import paths
from quorum.metadata.numbers import PartitionVersion, next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord

#: How often something is read and written again because the nodes changed meanwhile.
ROUNDS_MAX: Final = 5


class WrittenStates(NamedTuple):
    """What became of decisions."""

    #: {partition: state as it stands now}, acknowledged
    states: dict[PartitionKey, KnownState]
    #: Partitions to read and decide again: they had changed, or the outcome is unknown.
    unsettled: list[PartitionKey]
    #: {partition: why the quorum does not take its state}
    refused: dict[PartitionKey, str]


class _Multi(NamedTuple):
    """A write of states under way."""

    id: int
    #: {partition: its state as it will stand}
    states: Mapping[PartitionKey, KnownState]
    operations_per_key: int


class StateWriter:
    """Writes the states of one term."""

    def __init__(self, io: Io) -> None:
        """Write by effects."""
        self._io = io

    def write(self, decisions: Decisions, *, one_by_one: bool = False) -> Steps[WrittenStates]:
        """Write states, each only at its version: new ones, then first ones, whose topics must exist.

        Args:
            decisions: states and the versions that they were decided on.
            one_by_one: one multi per partition, so that none is held up by another.
        """
        written = WrittenStates({}, [], {})
        if decisions.updates:
            multis = yield from self._update(decisions.updates, one_by_one=one_by_one)
            yield from self._collect(written, multis)
        if decisions.creations:
            ready = yield from self._create_parents(written, decisions.creations)
            multis = yield from self._create(ready, one_by_one=one_by_one)
            yield from self._collect(written, multis)
        return written

    def _update(
        self,
        updates: Mapping[PartitionKey, tuple[PartitionStateRecord, PartitionVersion]],
        *,
        one_by_one: bool,
    ) -> Steps[list[_Multi]]:
        sized = (
            (
                (key, state, version, path, value),
                len(path) + len(value) + OPERATION_OVERHEAD_BYTES,
            )
            for key, (state, version) in updates.items()
            for path, value in ((paths.partition_state_path(key), state.encode()),)
        )
        multis: list[_Multi] = []
        for chunk in chunk_by_size(sized, 1 if one_by_one else CHUNK_OPERATIONS_MAX):
            operations = [
                SetData(path, value, fences.partition_version(version))
                for _, _, version, path, value in chunk
            ]
            states = {
                key: KnownState(state, PartitionVersion(next_version(version)), None)
                for key, state, version, _, _ in chunk
            }
            multis.append(_Multi(self._io.begin_write(operations), states, 1))
            yield from rest(chunk)
        return multis

    def _create_parents(
        self, written: WrittenStates, creations: Mapping[PartitionKey, PartitionStateRecord]
    ) -> Steps[dict[PartitionKey, PartitionStateRecord]]:
        """Create what is above first states; returns those for which it is there."""
        topics = paths.by_topic(creations)
        ids = [
            self._io.begin_write([CreateNode(paths.topic_partitions_path(topic), b"")]) for topic in topics
        ]
        outcomes = yield from self._io.outcomes(ids)
        ready: dict[PartitionKey, PartitionStateRecord] = {}
        for keys, outcome in zip(topics.values(), outcomes, strict=True):
            if isinstance(outcome, Done) or (
                isinstance(outcome, Rejected) and outcome.why is Why.NODE_EXISTS
            ):
                ready.update({key: creations[key] for key in keys})
            else:
                _take_failure(written, keys, 0, outcome)
        return ready

    def _create(
        self, creations: Mapping[PartitionKey, PartitionStateRecord], *, one_by_one: bool
    ) -> Steps[list[_Multi]]:
        sized = (
            (
                (key, state, path, value),
                2 * len(path) + len(value) + 2 * OPERATION_OVERHEAD_BYTES,
            )
            for key, state in creations.items()
            for path, value in ((paths.partition_path(key), state.encode()),)
        )
        multis: list[_Multi] = []
        for chunk in chunk_by_size(sized, 1 if one_by_one else CHUNK_OPERATIONS_MAX // 2):
            operations = [
                each
                for _, _, path, value in chunk
                for each in (CreateNode(path, b""), CreateNode(f"{path}/state", value))
            ]
            states = {key: KnownState(state, PartitionVersion(0), None) for key, state, _, _ in chunk}
            multis.append(_Multi(self._io.begin_write(operations), states, 2))
            yield from rest(chunk)
        return multis

    def _collect(self, written: WrittenStates, multis: Sequence[_Multi]) -> Steps[None]:
        outcomes = yield from self._io.outcomes([each.id for each in multis])
        for multi, outcome in zip(multis, outcomes, strict=True):
            if fences.is_acknowledged(outcome):
                written.states.update(multi.states)
                continue
            index = outcome.failed_index if isinstance(outcome, Rejected) else -1
            if index >= 0:
                index //= multi.operations_per_key
            _take_failure(written, list(multi.states), index, outcome)


def _take_failure(
    written: WrittenStates, keys: Sequence[PartitionKey], index: int, outcome: Done | Rejected | Unknown
) -> None:
    """Note what became of the partitions of a multi that failed at one of them; -1: as a whole."""
    refused: PartitionKey | None = None
    if isinstance(outcome, Rejected) and not outcome.is_lost_race:
        refused = keys[index] if index >= 0 else keys[0] if len(keys) == 1 else None
        if refused is not None:
            written.refused[refused] = outcome.problem
    written.unsettled.extend(key for key in keys if key != refused)


def set_topic(io: Io, topic: str, record: TopicRecord, topic_version: int) -> Steps[bool]:
    """Replace an assignment at its version; False if it has changed meanwhile."""
    rejected = yield from io.write(SetData(paths.topic_path(topic), record.encode(), topic_version))
    if rejected is not None and not rejected.is_lost_race:
        raise declined(rejected)
    return rejected is None


def replace_request(io: Io, path: str, value: bytes | None, version: int) -> Steps[None]:
    """Replace a request of an administrator by what is left of it; None: remove it.

    If it changed meanwhile it is due again.
    """
    operation: Operation = DeleteNode(path, version) if value is None else SetData(path, value, version)
    yield from io.write(operation)
