"""Reads what the controller decides from: registrations, topics, states, incarnations, settings.

Bulk reads only, a thousand nodes a request. A malformed value is no error here but an `Unreadable` in its
place, so that one of them does not hide the others. Soft state: none.
Source: control-plane design, "Controller" (a malformed record is logged once, that topic is left alone).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from controller.core.model import KnownState, KnownTopic, LiveBroker, problem_of
from quorum.client import Client, NoNodeError, ServerError
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import BrokerGeneration, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.plans import NodeView
from quorum.metadata.records import (
    BrokerRecord,
    IncarnationRecord,
    PartitionStateRecord,
    TopicConfigRecord,
    TopicRecord,
)

#: Nodes that one request reads: the answer must stay far below the 32 MiB that a server sends at most.
READ_CHUNK: Final = 1_000
#: Requests of one bulk read under way at a time.
READS_MAX: Final = 8


class Unreadable(NamedTuple):
    """A value that is no record, and why."""

    problem: str


class Registrations(NamedTuple):
    """The live brokers, and what stands under /brokers/ids but is no registration."""

    brokers: dict[int, LiveBroker]
    unreadable: dict[str, str]


class JudgedIncarnation(NamedTuple):
    """The value of /brokers/incarnations/N."""

    #: With "" where the value is malformed: then no incarnation counts as the judged one.
    record: IncarnationRecord
    version: int


async def read_nodes(client: Client, wanted: Sequence[str]) -> list[NodeView | None]:
    """Read many nodes; None for one that does not exist.

    Raises:
        ServerError: a node cannot be read for another reason.
        ConnectionLossError: read again.
    """
    places = asyncio.Semaphore(READS_MAX)

    async def read(chunk: Sequence[str]) -> list[NodeView | None]:
        async with places:
            return [_view(outcome) for outcome in await client.read_all(chunk)]

    chunks = [wanted[start : start + READ_CHUNK] for start in range(0, len(wanted), READ_CHUNK)]
    return [node for nodes in await asyncio.gather(*map(read, chunks)) for node in nodes]


def _view(outcome: object) -> NodeView | None:
    if isinstance(outcome, NoNodeError):
        return None
    if isinstance(outcome, ServerError):
        raise outcome
    assert isinstance(outcome, tuple)
    return NodeView(*outcome)


async def read_children(client: Client, path: str) -> list[str]:
    """Return the names below a node, sorted; none if it does not exist."""
    try:
        return sorted(await client.get_children(path))
    except NoNodeError:
        return []


async def read_registrations(client: Client) -> Registrations:
    """Read all registrations with their generations."""
    names = await read_children(client, paths.BROKER_IDS)
    ids = sorted(int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= 10)
    found = Registrations({}, {})
    nodes = await read_nodes(client, [paths.broker_id_path(each) for each in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
        try:
            record = BrokerRecord.decode(broker_id, node.data)
        except MetadataDecodeError as error:
            found.unreadable[str(broker_id)] = error.message
            continue
        found.brokers[broker_id] = LiveBroker(BrokerGeneration(node.stat.czxid), record)
    return found


async def read_incarnations(client: Client, broker_ids: Iterable[int]) -> dict[int, JudgedIncarnation]:
    """Read by which incarnations the ISR memberships of brokers were judged; missing ones have no entry."""
    ids = sorted(broker_ids)
    found: dict[int, JudgedIncarnation] = {}
    nodes = await read_nodes(client, [paths.broker_incarnation_path(each) for each in ids])
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is None:
            continue
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


def _topic(name: str, node: NodeView | None) -> KnownTopic | Unreadable | None:
    if node is None:
        return None
    try:
        record = TopicRecord.decode(paths.check_topic(name), node.data)
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


def _state(key: PartitionKey, node: NodeView | None) -> KnownState | Unreadable | None:
    if node is None:
        return None
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
        try:
            found[name] = {} if node is None else dict(TopicConfigRecord.decode(name, node.data).settings)
        except MetadataDecodeError:
            found[name] = {}
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
