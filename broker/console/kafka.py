"""The console's Kafka client: where logs begin and end, how large they are, how far groups lag, records.

Decides how old such an answer may be: lists of topics and groups are sorted by it, and one question to every
leader serves all who look. Lag and rates come of what was answered before, so they are known for as long as
somebody looks. Soft state: the client, the last answers.

Source: docs/operate/console.md.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.client.partition_admin import PartitionAdminClient
from broker.console.rates import LogsMoved, Rate, RateMeter
from broker.console.topics import Topics as TopicRows
from broker.console.topics import items, partitions_of
from broker.health.lag import GroupLag, LagHistory, PartitionLag, committed_in, known_offsets
from quorum.console.upstream import NodeRefusalError, Upstream
from quorum.errors import QuorateError, UnreachableError, printable
from quorum.metadata.paths import PartitionKey
from quorum.platform.tls import DIALLING

TIMEOUT_MS: Final = 4_000
#: an answer that is older is asked for again
FRESH_S: Final = 2.0
#: how long a page waits for a new one; then it gets the last one
PATIENCE_S: Final = 1.5
_LATEST, _EARLIEST = -1, -2


class Group(NamedTuple):
    """A group, as the quorum's records have it.

    Attributes:
        committed: {partition: offset}.
        row: the record, as GET /v1/groups has it.
    """

    group_id: str
    committed: Mapping[PartitionKey, int]
    row: Mapping[str, Any]


class LogsSeen(NamedTuple):
    """What brokers said last.

    Attributes:
        starts, ends: {partition: offset}, without those whose leader did not answer.
        sizes: {partition: bytes of its largest replica}.
        groups: {group: its record}.
        lags: {group: how far it is behind}.
        rates: {topic: how fast it is written and read}, where it is; None: it is not known yet.
        problem: why brokers were not asked, else None.
    """

    starts: Mapping[PartitionKey, int] = {}
    ends: Mapping[PartitionKey, int] = {}
    sizes: Mapping[PartitionKey, int] = {}
    groups: Mapping[str, Group] = {}
    lags: Mapping[str, GroupLag] = {}
    rates: Mapping[str, Rate] | None = None
    problem: str | None = None

    def lag(self, group: Group, key: PartitionKey) -> PartitionLag | None:
        """Return how far a group is behind in a partition; None: it is not known."""
        found = self.lags.get(group.group_id)
        return None if found is None else found.partitions.get(key)

    def lags_by_topic(self) -> dict[str, int]:
        """Return {topic: records that all its groups are behind, together}."""
        found: dict[str, int] = defaultdict(int)
        for group in self.groups.values():
            for key in group.committed:
                lag = self.lag(group, key)
                found[key.topic] += 0 if lag is None else lag.records
        return found


class KafkaAsker:
    """Asks the brokers, over one client that is made anew when it fails."""

    def __init__(self, bootstrap: str | None) -> None:
        self._named = bootstrap
        self._client: PartitionAdminClient | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._logs = LogsSeen(problem="they have not answered yet")
        self._asked_s = float("-inf")
        self._took_s = 0.0
        self._lags = LagHistory()
        self._meter = RateMeter()

    async def close(self) -> None:
        """End every connection."""
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def client(self, nodes: Upstream) -> PartitionAdminClient:
        """Return a client.

        Raises:
            UnreachableError: no broker is known.
        """
        if self._client is None:
            bootstrap, tls = self._named or "", DIALLING.get()
            if not bootstrap:
                bootstrap, is_plain = await _registered(nodes)
                # The admin ports may speak TLS where brokers have no such listener.
                tls = None if is_plain else tls
            if not bootstrap:
                raise UnreachableError(
                    "no registered broker has a listener for clients", "name one: --bootstrap"
                )
            self._client = PartitionAdminClient(
                bootstrap, client_id="quorate-console", timeout_ms=TIMEOUT_MS, tls=tls
            )
        return self._client

    async def forget(self) -> None:
        """Make another client the next time: the brokers may have moved."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def expire(self) -> None:
        """Ask again the next time: something was changed."""
        self._asked_s = float("-inf")

    async def logs(self, nodes: Upstream, topics: TopicRows, patience_s: float = PATIENCE_S) -> LogsSeen:
        """Return what brokers say of partitions with a leader, or what they said last, if they are slow."""
        self.logs_now(nodes, topics)
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=patience_s)
        return self._logs

    def logs_now(self, nodes: Upstream, topics: TopicRows) -> LogsSeen:
        """Return what brokers said last; they are asked again if that is old."""
        since_s = asyncio.get_running_loop().time() - self._asked_s
        if self._refreshing is None or (
            self._refreshing.done() and since_s >= max(FRESH_S, 3 * self._took_s)
        ):
            self._refreshing = asyncio.create_task(self._refresh(nodes, topics))
        return self._logs

    async def _refresh(self, nodes: Upstream, topics: TopicRows) -> None:
        begun_s = asyncio.get_running_loop().time()
        try:
            self._logs = await self._ask(nodes, topics)
        except (QuorateError, NodeRefusalError, TimeoutError) as error:
            await self.forget()
            told = printable(str(error)) or "brokers did not answer in time"
            self._logs = LogsSeen(groups=self._logs.groups, problem=told)
        self._asked_s = asyncio.get_running_loop().time()
        self._took_s = self._asked_s - begun_s

    async def _ask(self, nodes: Upstream, topics: TopicRows) -> LogsSeen:
        groups = {
            row["group_id"]: Group(row["group_id"], committed_in(row), row)
            async for row in items(nodes, "/v1/groups")
        }
        # Groups are known even if no broker answers.
        self._logs = self._logs._replace(groups=groups)
        keys = [
            PartitionKey(each.topic, each.partition)
            for each in partitions_of(topics)
            if each.status != "offline"
        ]
        client = await self.client(nodes)
        async with asyncio.timeout(2 * TIMEOUT_MS / 1000):
            starts, ends, sizes = await asyncio.gather(
                client.list_offsets(dict.fromkeys(keys, _EARLIEST)),
                client.list_offsets(dict.fromkeys(keys, _LATEST)),
                client.log_sizes(),
            )
        now_s = asyncio.get_running_loop().time()
        committed = {name: each.committed for name, each in groups.items()}
        known = known_offsets(ends)
        lags = self._lags.take(now_s, committed, known)
        rates = self._meter.take(now_s, LogsMoved(known, sizes, committed))
        return LogsSeen(known_offsets(starts), known, sizes, groups, lags, rates)


async def _registered(nodes: Upstream) -> tuple[str, bool]:
    """Return listeners of registered brokers, and whether they are plain: those by TLS where we dial so."""
    plain: list[str] = []
    by_tls: list[str] = []
    async for row in items(nodes, "/v1/brokers"):
        plain += addresses(row.get("endpoints", ()))
        by_tls += addresses(row.get("endpoints", ()), "SSL")
    is_plain = DIALLING.get() is None or not by_tls
    return ",".join(plain if is_plain else by_tls), is_plain


def addresses(endpoints: Sequence[str], wanted: str = "CLIENT") -> list[str]:
    """Return the addresses of one listener among those of a registration."""
    split = (str(each).partition("://") for each in endpoints)
    return [address for listener, _, address in split if listener == wanted and address]
