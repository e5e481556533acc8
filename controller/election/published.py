"""Everything that has been published about topics and partitions, read in bulk.

One record that is malformed costs its topic only: it comes back as a problem, in words, and the rest is read.
Soft state only; what changes meanwhile is a watch's business.
Source: ARCHITECTURE.md, "Life of a broker failure"; docs/internals/requirements.md, [0.D], [0.E].
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from quorum.client import Client, NoNodeError, ServerError, Stat
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.numbers import ControllerEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord

#: Nodes whose values are held at a time, before they are records.
READ_CHUNK: Final = 8_000

Name = TypeVar("Name")


class PublishedState(NamedTuple):
    """A partition's state as it was read."""

    state: PartitionStateRecord
    #: The token of its compare-and-set.
    partition_version: PartitionVersion
    #: zxid of its last change.
    mzxid: int


class Published(NamedTuple):
    """All topics, and the states of their partitions."""

    topics: Mapping[str, TopicRecord]
    states: Mapping[PartitionKey, PublishedState]
    #: {topic: what is wrong with it}; such a topic is in neither of the others.
    problems: Mapping[str, str]


async def read_published(client: Client) -> Published:
    """Read every topic and every partition state."""
    names = await client.get_children(paths.BROKER_TOPICS)
    return await read_topics(client, sorted(names))


async def read_topics(client: Client, names: Sequence[str]) -> Published:
    """Read some topics and the states of their partitions; a topic that does not exist is left out."""
    topics: dict[str, TopicRecord] = {}
    problems: dict[str, str] = {}
    async for name, outcome in _read(client, names, paths.topic_path):
        try:
            if not isinstance(outcome, ServerError):
                record = TopicRecord.decode(name, outcome[0])
                paths.check_partitions(name, record.partitions)
                topics[name] = record
            elif not isinstance(outcome, NoNodeError):
                problems[name] = outcome.message
        except MetadataDecodeError as error:
            problems[name] = error.message
        except ValueError as error:
            problems[name] = str(error)
    keys = [PartitionKey(name, partition) for name, topic in topics.items() for partition in topic.partitions]
    states, bad = await read_states(client, keys)
    problems.update(bad)
    for name in bad:
        del topics[name]
    return Published(topics, {key: each for key, each in states.items() if key.topic in topics}, problems)


async def read_states(
    client: Client, keys: Iterable[PartitionKey]
) -> tuple[dict[PartitionKey, PublishedState], dict[str, str]]:
    """Read the states of partitions; a partition without one is left out.

    Returns:
        The states, and {topic: what is wrong with the state of one of its partitions}.
    """
    states: dict[PartitionKey, PublishedState] = {}
    problems: dict[str, str] = {}
    async for key, outcome in _read(client, list(keys), paths.partition_state_path):
        try:
            if not isinstance(outcome, ServerError):
                data, stat = outcome
                state = PartitionStateRecord.decode(key, data)
                states[key] = PublishedState(state, PartitionVersion(stat.version), stat.mzxid)
            elif not isinstance(outcome, NoNodeError):
                problems[key.topic] = outcome.message
        except MetadataDecodeError as error:
            problems[key.topic] = error.message
    return states, problems


async def highest_controller_epoch(client: Client) -> ControllerEpoch:
    """Return the highest controller epoch that any partition state carries, 0 if there is none."""
    try:
        names = sorted(await client.get_children(paths.BROKER_TOPICS))
    except NoNodeError:
        names = []
    keys: list[PartitionKey] = []
    async for name, outcome in _read(client, names, paths.topic_path):
        with contextlib.suppress(MetadataDecodeError):
            if not isinstance(outcome, ServerError):
                partitions = TopicRecord.decode(name, outcome[0]).partitions
                keys += [PartitionKey(name, partition) for partition in partitions]
    states, _ = await read_states(client, keys)
    return max((each.state.controller_epoch for each in states.values()), default=ControllerEpoch(0))


async def _read(
    client: Client, names: Sequence[Name], path_of: Callable[[Name], str]
) -> AsyncIterator[tuple[Name, tuple[bytes | None, Stat] | ServerError]]:
    for start in range(0, len(names), READ_CHUNK):
        chunk = names[start : start + READ_CHUNK]
        outcomes = await client.read_all([path_of(name) for name in chunk])
        for name, outcome in zip(chunk, outcomes, strict=True):
            yield name, outcome
