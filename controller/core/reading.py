"""Makes records of what was read: registrations, topics, states, incarnations, settings.

A malformed value is no error here but an `Unreadable` in its place, so that one of them does not hide the
others.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from controller.core import fences
from controller.core.inputs import Unreadable, Znode
from controller.core.io import DeclinedError, Io, Steps, parts_of, rest
from controller.core.model import KnownState, KnownTopic, LiveBroker, problem_of
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import BrokerGeneration, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    BrokerRecord,
    IncarnationRecord,
    PartitionStateRecord,
    TopicConfigRecord,
    TopicRecord,
)

N = TypeVar("N")
K = TypeVar("K")

#: Raises MetadataDecodeError if nobody who knows the peer secret wrote (path, value, owning session).
CheckSigned = Callable[[str, bytes | None, int], None]


class Registrations(NamedTuple):
    """The live brokers, and what else is under /brokers/ids: strangers, and what is malformed."""

    brokers: dict[int, LiveBroker]
    #: {broker id: why its registration does not count}
    strangers: dict[int, str]


class JudgedIncarnation(NamedTuple):
    """The value of /brokers/incarnations/N."""

    #: With "" where the value is malformed: then no incarnation counts as the judged one.
    record: IncarnationRecord
    version: int


def read_registrations(io: Io, check_signed: CheckSigned) -> Steps[Registrations]:
    """Read all registrations with their generations; one without the proof of the secret is a stranger."""
    names = yield from io.read_children(paths.BROKER_IDS, must_exist=True)
    ids = sorted(int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= 10)
    found = Registrations({}, {})
    nodes = yield from io.read([paths.broker_id_path(each) for each in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        if isinstance(node, Unreadable):
            found.strangers[broker_id] = node.problem
            continue
        try:
            check_signed(paths.broker_id_path(broker_id), node.data, node.ephemeral_owner)
            record = BrokerRecord.decode(broker_id, node.data)
        except MetadataDecodeError as error:
            found.strangers[broker_id] = error.message
            continue
        found.brokers[broker_id] = LiveBroker(BrokerGeneration(node.czxid), record)
    return found


def read_incarnations(io: Io, broker_ids: Iterable[int]) -> Steps[dict[int, JudgedIncarnation]]:
    """Read by which incarnations the ISR memberships of brokers were judged; missing ones have no entry."""
    ids = sorted(broker_ids)
    found: dict[int, JudgedIncarnation] = {}
    nodes = yield from io.read([paths.broker_incarnation_path(each) for each in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        if isinstance(node, Unreadable):
            raise DeclinedError(
                node.problem, ErrorCode.UNKNOWN_SERVER_ERROR, "let the brokers read and write it"
            )
        try:
            record = IncarnationRecord.decode(broker_id, node.data)
        except MetadataDecodeError:
            record = IncarnationRecord("")
        found[broker_id] = JudgedIncarnation(record, node.version)
    return found


def read_topics(io: Io, names: Sequence[str]) -> Steps[dict[str, KnownTopic | Unreadable | None]]:
    """Read assignments; None for a topic that does not exist."""
    return (yield from _read(io, names, paths.topic_path, _topic))


def read_states(
    io: Io, keys: Sequence[PartitionKey]
) -> Steps[dict[PartitionKey, KnownState | Unreadable | None]]:
    """Read partition states, None for a partition without one; the term is over if a successor wrote one."""
    found = yield from _read(io, keys, paths.partition_state_path, _state)
    is_late = False
    for part in parts_of(list(found.values())):
        states = [each.state for each in part if isinstance(each, KnownState)]
        epochs = {state.controller_epoch for state in states}
        is_late = is_late or any(fences.is_of_successor(epoch, io.controller_epoch) for epoch in epochs)
        yield from rest(part)
    if is_late:
        # The write is refused: the office is another's.
        yield from io.write_all([()])
    return found


def _read(
    io: Io, names: Sequence[N], path_of: Callable[[N], str], record_of: Callable[[N, Znode], K | Unreadable]
) -> Steps[dict[N, K | Unreadable | None]]:
    nodes = yield from io.read([path_of(name) for name in names])
    found: dict[N, K | Unreadable | None] = {}
    for part in parts_of(list(zip(names, nodes, strict=True))):
        for name, node in part:
            try:
                found[name] = record_of(name, node) if isinstance(node, Znode) else node
            except (MetadataDecodeError, ValueError) as error:
                found[name] = Unreadable(str(error))
        yield from rest(part)
    return found


def _topic(name: str, node: Znode) -> KnownTopic | Unreadable:
    record = TopicRecord.decode(name, node.data)
    paths.check_partitions(name, record.partitions)
    problem = problem_of(record)
    return Unreadable(problem) if problem else KnownTopic(record, node.version)


def _state(key: PartitionKey, node: Znode) -> KnownState | Unreadable:
    state = PartitionStateRecord.decode(key, node.data)
    return KnownState(state, PartitionVersion(node.version), node.mzxid)


def read_settings(io: Io, topics: Collection[str]) -> Steps[dict[str, dict[str, str]]]:
    """Read what is set for topics themselves; a malformed value counts as nothing set."""
    names = list(topics)
    found: dict[str, dict[str, str]] = {}
    nodes = yield from io.read([paths.config_topic_path(name) for name in names])
    for name, node in zip(names, nodes, strict=True):
        found[name] = {}
        if isinstance(node, Znode):
            with contextlib.suppress(MetadataDecodeError):
                found[name].update(TopicConfigRecord.decode(name, node.data).settings)
    return found
