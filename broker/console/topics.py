"""The topics of a cluster as the console holds them: read from a node once, and again when they changed.

Also as they were: then the records come from the node's history. Decides what of a topic is wrong. Soft
state: the copy.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from quorum.console.extension import PageCall
from quorum.console.upstream import Upstream
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord

_PAGE_ITEMS: Final = 1000
#: of znodes of the past
_PAST_ITEMS: Final = 5000
_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/([0-9]{1,9})/state", re.ASCII)


class ShownPartition(NamedTuple):
    """A partition.

    Attributes:
        replicas: the first is the preferred leader.
        leader: −1: nobody leads it, None: its state cannot be read.
    """

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leader: int | None
    isr: tuple[int, ...]
    leader_epoch: int | None = None

    @property
    def status(self) -> str:
        """As pages show it: ok, under-replicated or offline."""
        if self.leader is None or self.leader < 0:
            return "offline"
        return "ok" if set(self.isr) >= set(self.replicas) else "under-replicated"

    @property
    def is_preferred(self) -> bool:
        """Whether its first replica leads it."""
        return bool(self.replicas) and self.leader == self.replicas[0]


class Topic(NamedTuple):
    """A topic."""

    name: str
    partitions: tuple[ShownPartition, ...]
    problem: str | None = None

    @property
    def status(self) -> str:
        """The worst of its partitions."""
        found = {each.status for each in self.partitions}
        return next((each for each in ("offline", "under-replicated") if each in found), "ok")


#: {name: topic}, by name
Topics = Mapping[str, Topic]


class TopicCopy:
    """What a node had last."""

    def __init__(self) -> None:
        self._topics: Topics = {}
        self._reading = asyncio.Lock()
        #: changes that were seen, and how many of them the last read began after
        self._changes = 0
        self._read_after = -1

    def changed(self) -> None:
        """Note that topics changed."""
        self._changes += 1

    async def now(self, nodes: Upstream) -> Topics:
        """Return the topics of now.

        Raises:
            UnreachableError, NodeRefusalError: no node tells them.
        """
        async with self._reading:
            if self._read_after != self._changes:
                changes = self._changes
                self._topics = {each.name: each async for each in _read(nodes)}
                self._read_after = changes
            return self._topics


async def _read(nodes: Upstream) -> AsyncIterator[Topic]:
    async for row in items(nodes, "/v1/topics"):
        yield Topic(
            row["name"],
            tuple(
                ShownPartition(
                    *(row["name"], each["partition"], tuple(each["replicas"]), each["leader"]),
                    *(tuple(each["isr"]), each["leader_epoch"]),
                )
                for each in row["partitions"]
            ),
            row["problem"],
        )


async def items(nodes: Upstream, path: str, **query: object) -> AsyncIterator[dict[str, Any]]:
    """Yield the items of all pages."""
    after: object = None
    while True:
        page = await nodes.fields(path, {**query, "limit": _PAGE_ITEMS, "after": after})
        for item in page.get("items", ()):
            yield item
        after = page.get("next_after")
        if after is None:
            return


async def past_znodes(call: PageCall, root: str, as_of: int) -> AsyncIterator[tuple[str, bytes | None]]:
    """Yield (path, data) of everything below a znode, as it was after a transaction."""
    after = root
    while True:
        page = await call.upstream.fields(
            "/v1/changelog/tree",
            {"as_of_zxid": as_of, "after": after, "limit": _PAST_ITEMS},
            authorization=call.authorization,
        )
        for row in page["items"]:
            if not row["path"].startswith(root + "/"):
                return
            yield row["path"], None if row["data"] is None else base64.b64decode(row["data"])
        after = page["next_after"]
        if after is None:
            return


async def past_topics(call: PageCall, as_of: int) -> Topics:
    """Return the topics as they were after a transaction."""
    records: dict[str, bytes | None] = {}
    states: dict[PartitionKey, bytes | None] = {}
    async for path, data in past_znodes(call, paths.BROKER_TOPICS, as_of):
        if found := _STATE.fullmatch(path):
            states[PartitionKey(found[1], int(found[2]))] = data
        elif path.count("/") == paths.BROKER_TOPICS.count("/") + 1:
            records[path.rpartition("/")[2]] = data
    return {name: _past(name, data, states) for name, data in sorted(records.items())}


def _past(name: str, data: bytes | None, states: Mapping[PartitionKey, bytes | None]) -> Topic:
    try:
        record = TopicRecord.decode(name, data)
    except MetadataDecodeError as error:
        return Topic(name, (), error.message)
    rows = (
        _past_partition(PartitionKey(name, number), replicas, states)
        for number, replicas in sorted(record.partitions.items())
    )
    return Topic(name, tuple(rows))


def _past_partition(
    key: PartitionKey, replicas: Sequence[int], states: Mapping[PartitionKey, bytes | None]
) -> ShownPartition:
    try:
        state = PartitionStateRecord.decode(key, states.get(key))
    except MetadataDecodeError:
        return ShownPartition(key.topic, key.partition, tuple(replicas), None, ())
    return ShownPartition(
        *(key.topic, key.partition, tuple(replicas), state.leader, tuple(state.isr), state.leader_epoch)
    )


def partitions_of(topics: Topics) -> Iterable[ShownPartition]:
    """Yield all partitions, by topic and number."""
    for topic in topics.values():
        yield from topic.partitions
