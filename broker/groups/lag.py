"""Sampling how far groups lag: the coordinator asks leaders where their logs end, rarely and in batches.

A round copies what groups have committed, asks every leader of such a partition over its broker listener, and
gives both to the pure model. Leaders are asked at once, each for one batch of partitions after the other. One
that is away or slow leaves its partitions unknown, and the round ends all the same. The pause after a round
is a multiple of what it took, up to a bound, so sampling has a small share of the loop. Soft state: what was
seen, one connection to each leader.

Source: ARCHITECTURE.md, "Life of a consumer group".
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.core.cluster_view import ClusterView
from broker.core.groups.slot import GroupSlot
from broker.core.listed_offsets import LATEST
from broker.health.lag import GroupLag, LagHistory, PartitionLag
from broker.wire.codec import Values, decode_response, encode_request
from controller.core.brokers import BROKER_LISTENER
from controller.wire.apis import ApiKey
from controller.wire.connection import BrokerConnection
from controller.wire.decoding import MalformedMessageError
from quorum.errors import QuorateError
from quorum.metadata.paths import PartitionKey, by_topic

log = logging.getLogger("quorate.broker.groups")

#: Between two rounds, at least; and the pause is so many times as long as the round was.
SAMPLE_INTERVAL_MS: Final = 5_000
#: Until it is looked again whether this broker is the coordinator.
IDLE_INTERVAL_MS: Final = 1_000
PAUSE_FACTOR: Final = 19
#: A leader that hangs makes a round long and costs no work; the lag of others stays fresh.
PAUSE_MS_MAX: Final = 15_000
#: of all batches of one leader
LEADER_PATIENCE_S: Final = 4.0
#: Partitions in one request: a leader answers it in a few milliseconds.
BATCH_MAX: Final = 500
#: Partitions of groups that metrics name one by one; those with the largest lag come first.
SERIES_MAX: Final = 1_000
#: Offsets that are copied before others have the loop.
_TURN_OFFSETS: Final = 2_000
_VERSION: Final = 7

#: {group: {partition: the offset that comes next}}
Committed = Mapping[str, Mapping[PartitionKey, int]]


class LagsSeen(NamedTuple):
    """What the last round has found.

    Attributes:
        groups: {group: its lag}; None: no round has ended yet.
        rows: (group, partition, its lag), the largest ones, at most SERIES_MAX.
        left_out: how many more there are.
    """

    groups: Mapping[str, GroupLag] | None = None
    rows: Sequence[tuple[str, PartitionKey, PartitionLag]] = ()
    left_out: int = 0


class LagSampler:
    """Follows the lag of all groups, while this broker is their coordinator."""

    def __init__(
        self,
        slots: Callable[[], Sequence[GroupSlot] | None],
        view: ClusterView,
        connect: Callable[[int], Awaitable[BrokerConnection]],
        clock_ms: Callable[[], int],
    ) -> None:
        """Ask nobody yet.

        Args:
            slots: returns every group; None: another broker is the coordinator.
            view: knows leaders.
            connect: opens a connection to a broker's broker listener.
            clock_ms: monotonic.
        """
        self._slots = slots
        self._view = view
        self._connect = connect
        self._clock_ms = clock_ms
        self._history = LagHistory()
        self._connections: dict[int, BrokerConnection] = {}
        #: leaders that did not answer the last time
        self._silent: set[int] = set()
        self.seen = LagsSeen()

    async def run(self) -> None:
        """Go one round after the other, until it is cancelled."""
        try:
            while True:
                pause_ms = await self.sample()
                await asyncio.sleep(pause_ms / 1000)
        finally:
            self._forget()

    async def sample(self) -> float:
        """Go one round; returns for how many milliseconds to pause after it."""
        slots = self._slots()
        if slots is None:
            self._forget()
            return IDLE_INTERVAL_MS
        began_ms = self._clock_ms()
        committed = await _committed(slots)
        ends = await self._ask({key for offsets in committed.values() for key in offsets})
        # With many groups it takes long; nothing else has what it reads.
        self.seen = await asyncio.to_thread(_judge, self._history, self._clock_ms() / 1000, committed, ends)
        took_ms = self._clock_ms() - began_ms
        return min(max(SAMPLE_INTERVAL_MS, PAUSE_FACTOR * took_ms), PAUSE_MS_MAX)

    def _forget(self) -> None:
        """End the connections; a coordinator begins anew."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._silent.clear()
        self._history, self.seen = LagHistory(), LagsSeen()

    # -- leaders ---------------------------------------------------------------------------------------------

    async def _ask(self, keys: set[PartitionKey]) -> dict[PartitionKey, int]:
        """Return where logs end, as far as leaders say it in time."""
        by_leader: dict[int, list[PartitionKey]] = {}
        for key in sorted(keys):
            found = self._view.partition(*key)
            if found is not None and self._view.endpoint(found.leader, BROKER_LISTENER):
                by_leader.setdefault(found.leader, []).append(key)
        for gone in self._connections.keys() - by_leader.keys():
            self._connections.pop(gone).close()
        ends: dict[PartitionKey, int] = {}
        async with asyncio.TaskGroup() as asking:
            for leader, wanted in by_leader.items():
                asking.create_task(self._ask_leader(leader, wanted, ends))
        self._silent &= by_leader.keys()
        return ends

    async def _ask_leader(
        self, leader: int, keys: Sequence[PartitionKey], ends: dict[PartitionKey, int]
    ) -> None:
        try:
            async with asyncio.timeout(LEADER_PATIENCE_S):
                connection = self._connections.get(leader)
                if connection is None or connection.closed:
                    connection = self._connections[leader] = await self._connect(leader)
                for first in range(0, len(keys), BATCH_MAX):
                    ends |= await _ends(connection, keys[first : first + BATCH_MAX])
        except (QuorateError, MalformedMessageError, TimeoutError) as error:
            if leader not in self._silent:
                told = error.message if isinstance(error, QuorateError) else "it is too slow"
                log.info("broker %d does not say where its logs end: %s", leader, told)
            self._silent.add(leader)
            if (connection := self._connections.pop(leader, None)) is not None:
                connection.close()
        else:
            self._silent.discard(leader)


async def _committed(slots: Sequence[GroupSlot]) -> dict[str, dict[PartitionKey, int]]:
    found: dict[str, dict[PartitionKey, int]] = {}
    copied = 0
    for slot in slots:
        offsets = {key: each.offset for key, each in slot.stored.offsets.items() if each.offset >= 0}
        if offsets:
            found[slot.group_id] = offsets
        copied += 1 + len(offsets)
        if copied >= _TURN_OFFSETS:
            copied = 0
            await asyncio.sleep(0)
    return found


async def _ends(connection: BrokerConnection, keys: Sequence[PartitionKey]) -> dict[PartitionKey, int]:
    body = encode_request(ApiKey.LIST_OFFSETS, _VERSION, _question(keys))
    answered = await connection.request(
        ApiKey.LIST_OFFSETS, _VERSION, body, flexible=True, timeout_ms=int(LEADER_PATIENCE_S * 1000)
    )
    response: Any = decode_response(ApiKey.LIST_OFFSETS, _VERSION, answered)
    return {
        PartitionKey(topic.name, each.partition_index): each.offset
        for topic in response.topics
        for each in topic.partitions
        if not each.error_code and each.offset >= 0
    }


def _question(keys: Sequence[PartitionKey]) -> Values:
    topics = [
        {"name": topic, "partitions": [{"partition_index": each, "timestamp": LATEST} for _, each in wanted]}
        for topic, wanted in by_topic(keys).items()
    ]
    # As a consumer, who sees what is committed.
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


def _judge(
    history: LagHistory, now_s: float, committed: Committed, ends: Mapping[PartitionKey, int]
) -> LagsSeen:
    groups = history.take(now_s, committed, ends)
    count = sum(len(each.partitions) for each in groups.values())
    rows = heapq.nsmallest(
        SERIES_MAX,
        ((group, key, lag) for group, each in groups.items() for key, lag in each.partitions.items()),
        key=lambda row: (-row[2].records, row[0], row[1]),
    )
    return LagsSeen(groups, rows, count - len(rows))
