"""Reads what the controller decides from: registrations, topics, states, incarnations, settings.

Bulk reads only. A malformed value is no error here but an `Unreadable` in its
place, so that one of them does not hide the others. Soft state: none.
Source: control-plane design, "Controller" (a malformed record is logged once, that topic is left alone).
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from controller.core.model import KnownState, KnownTopic, LiveBroker, problem_of
from quorum.client import Client, NoNodeError, ReadOutcome, ServerError
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError, MetadataError
from quorum.metadata.numbers import BrokerGeneration, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import NodeView
from quorum.metadata.records import (
    BrokerRecord,
    IncarnationRecord,
    PartitionStateRecord,
    TopicConfigRecord,
    TopicRecord,
)
from quorum.metadata.trust import Trust


class Unreadable(NamedTuple):
    """A node that cannot be read, or whose value is no record, and why."""

    problem: str


class Registrations(NamedTuple):
    """The live brokers, and what stands under /brokers/ids beside them: strangers, and what is malformed."""

    brokers: dict[int, LiveBroker]
    #: {broker id: why its registration does not count}
    strangers: dict[int, str]


class JudgedIncarnation(NamedTuple):
    """The value of /brokers/incarnations/N."""

    #: With "" where the value is malformed: then no incarnation counts as the judged one.
    record: IncarnationRecord
    version: int


async def read_nodes(client: Client, wanted: Sequence[str]) -> list[NodeView | Unreadable | None]:
    """Read many nodes; None for one that does not exist.

    Raises:
        ConnectionLossError: read again.
    """
    return [_view(outcome) for outcome in await client.read_all(wanted)]


def _view(outcome: ReadOutcome) -> NodeView | Unreadable | None:
    if isinstance(outcome, NoNodeError):
        return None
    return Unreadable(outcome.message) if isinstance(outcome, ServerError) else NodeView(*outcome)


async def read_children(client: Client, path: str) -> list[str]:
    """Return the names below a node, sorted; none if it does not exist."""
    try:
        return sorted(await client.get_children(path))
    except NoNodeError:
        return []


async def read_registrations(client: Client, trust: Trust) -> Registrations:
    """Read all registrations with their generations; who does not know the peer secret is a stranger."""
    names = await read_children(client, paths.BROKER_IDS)
    ids = sorted(int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= 10)
    found = Registrations({}, {})
    nodes = await read_nodes(client, [paths.broker_id_path(each) for each in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        if isinstance(node, Unreadable):
            found.strangers[broker_id] = node.problem
            continue
        try:
            trust.check_signed(paths.broker_id_path(broker_id), node.data, node.stat.ephemeral_owner)
            record = BrokerRecord.decode(broker_id, node.data)
        except MetadataDecodeError as error:
            found.strangers[broker_id] = error.message
            continue
        found.brokers[broker_id] = LiveBroker(BrokerGeneration(node.stat.czxid), record)
    return found


async def read_incarnations(client: Client, broker_ids: Iterable[int]) -> dict[int, JudgedIncarnation]:
    """Read by which incarnations the ISR memberships of brokers were judged; missing ones have no entry.

    Raises:
        MetadataError: one cannot be read.
    """
    ids = sorted(broker_ids)
    found: dict[int, JudgedIncarnation] = {}
    nodes = await read_nodes(client, [paths.broker_incarnation_path(each) for each in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        if isinstance(node, Unreadable):
            raise MetadataError(node.problem, "let the brokers read and write it")
        try:
            record = IncarnationRecord.decode(broker_id, node.data)
        except MetadataDecodeError:
            record = IncarnationRecord("")
        found[broker_id] = JudgedIncarnation(record, node.stat.version)
    return found


async def read_topics(client: Client, names: Sequence[str]) -> dict[str, KnownTopic | Unreadable | None]:
    """Read assignments; None for a topic that does not exist."""
    nodes = await read_nodes(client, [paths.topic_path(name) for name in names])
    return {name: _topic(name, node) for name, node in zip(names, nodes, strict=True)}


def _topic(name: str, node: NodeView | Unreadable | None) -> KnownTopic | Unreadable | None:
    if node is None or isinstance(node, Unreadable):
        return node
    try:
        record = TopicRecord.decode(name, node.data)
        paths.check_partitions(name, record.partitions)
    except (MetadataDecodeError, ValueError) as error:
        return Unreadable(str(error))
    problem = problem_of(record)
    return Unreadable(problem) if problem else KnownTopic(record, node.stat.version)


async def read_states(
    client: Client, keys: Sequence[PartitionKey]
) -> dict[PartitionKey, KnownState | Unreadable | None]:
    """Read partition states; None for a partition without one."""
    nodes = await read_nodes(client, [paths.partition_state_path(key) for key in keys])
    return {key: _state(key, node) for key, node in zip(keys, nodes, strict=True)}


def _state(key: PartitionKey, node: NodeView | Unreadable | None) -> KnownState | Unreadable | None:
    if node is None or isinstance(node, Unreadable):
        return node
    try:
        state = PartitionStateRecord.decode(key, node.data)
    except MetadataDecodeError as error:
        return Unreadable(error.message)
    return KnownState(state, PartitionVersion(node.stat.version), node.stat.mzxid)


async def read_settings(client: Client, topics: Collection[str]) -> dict[str, dict[str, str]]:
    """Read what is set for topics themselves; a malformed value counts as nothing set."""
    names = list(topics)
    found: dict[str, dict[str, str]] = {}
    nodes = await read_nodes(client, [paths.config_topic_path(name) for name in names])
    for name, node in zip(names, nodes, strict=True):
        found[name] = {}
        if isinstance(node, NodeView):
            with contextlib.suppress(MetadataDecodeError):
                found[name].update(TopicConfigRecord.decode(name, node.data).settings)
    return found


async def highest_controller_epoch(client: Client) -> int:
    """Return the highest controller epoch that any partition state carries, 0 if there is none."""
    names = await read_children(client, paths.BROKER_TOPICS)
    highest = 0
    for name, topic in (await read_topics(client, names)).items():
        if not isinstance(topic, KnownTopic):
            continue
        states = await read_states(client, [PartitionKey(name, each) for each in topic.record.partitions])
        for state in states.values():
            if isinstance(state, KnownState):
                highest = max(highest, state.state.controller_epoch)
    return highest
