"""What the console shows of brokers, topics and groups: its rows of the overview, and its endpoints.

Decides what counts as offline, under-replicated or not led by the preferred replica. Soft state: a copy of
the topics, a Kafka client.

Source: docs/operate/console.md.
"""

from __future__ import annotations

import base64
import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from heapq import nlargest
from typing import Any, Final

from aiohttp import web

from broker.console.acting import Acting
from broker.console.kafka import KafkaAsker, addresses
from broker.console.meaning import concerns, meaning
from broker.console.pages import Pages, listed
from broker.console.rates import Rate, shown, total
from broker.console.topics import TopicCopy, Topics, items, partitions_of, past_topics, past_znodes
from quorum.console.extension import Lists, PageAction, PageCall, Rows
from quorum.console.upstream import NodeRefusalError, Upstream
from quorum.errors import UnreachableError
from quorum.health.seen import QuorumSeen
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.group_records import CoordinatorRecord
from quorum.metadata.records import BrokerRecord, ControllerRecord

#: topics on the overview
BUSIEST_MAX: Final = 5


class BrokerPages:
    """The extension of one console."""

    def __init__(self, bootstrap: str | None, *, records: bool) -> None:
        self._topics = TopicCopy()
        self._kafka = KafkaAsker(bootstrap)
        self._pages = Pages(self._topics, self._kafka)
        self._may_read = records
        self.actions: tuple[PageAction, ...] = Acting(self._topics, self._kafka).actions
        #: brokers that were registered
        self._known: set[int] = set()
        self._rows = Rows()

    def add_routes(self, app: web.Application) -> None:
        """Add endpoints below /api."""
        self._pages.add_to(app, self._may_read)

    async def close(self) -> None:
        """End connections to brokers."""
        await self._kafka.close()

    def concerns(self, path: str) -> bool:
        """Whether a change of this znode may change the rows or the findings."""
        found = concerns(path)
        if found:
            self._topics.changed()
        return found

    def meaning(
        self, op: str, path: str, before: bytes | None, after: bytes | None
    ) -> Iterable[tuple[str, str, str]]:
        """Say what a change means for the timeline."""
        return meaning(op, path, before, after)

    async def rows(self, upstream: Upstream, quorum: QuorumSeen) -> Rows:
        """Look at brokers and topics; what was seen last, where no node answers."""
        if quorum.nodes:
            try:
                self._rows = await self._look(upstream)
            except (UnreachableError, NodeRefusalError):
                pass
        return self._rows

    async def lists(self, upstream: Upstream, patience_s: float) -> Lists:
        """List topics and groups; of a quorum without brokers there are none."""
        topics = await self._topics.now(upstream)
        if not topics and not self._rows.brokers:
            return Lists()
        return listed(topics, await self._kafka.logs(upstream, topics, patience_s))

    async def past_rows(self, call: PageCall, as_of: int) -> Rows:
        """Read brokers and topics as they were."""
        registered: dict[int, dict[str, Any]] = {}
        async for path, data in past_znodes(call, paths.BROKER_IDS, as_of):
            broker_id = int(path.rpartition("/")[2])
            record = BrokerRecord.decode(broker_id, data)
            registered[broker_id] = {"endpoints": record.endpoints, "rack": record.rack}
        topics = await past_topics(call, as_of)
        return _rows(registered, await _leads(call.upstream, call.authorization, as_of), topics, set())

    async def _look(self, upstream: Upstream) -> Rows:
        leads = await _leads(upstream, None, None)
        registered = {row["broker_id"]: row async for row in items(upstream, "/v1/brokers")}
        topics = await self._topics.now(upstream)
        rows = _rows(registered, leads, topics, self._known)
        logs = self._kafka.logs_now(upstream, topics)
        if logs.rates is not None:
            rows = rows._replace(rates=_shown(total(logs.rates)), busiest=_busiest(logs.rates))
        self._known |= {int(str(each["id"])) for each in rows.brokers}
        return rows


def _shown(rate: Rate) -> dict[str, float]:
    return {name: shown(each) for name, each in rate._asdict().items()}


def _busiest(rates: Mapping[str, Rate]) -> tuple[Mapping[str, object], ...]:
    most = nlargest(BUSIEST_MAX, rates.items(), key=lambda row: (row[1].bytes_in, row[1].records_out))
    return tuple({"name": name, **_shown(rate)} for name, rate in most)


async def _leads(
    nodes: Upstream, authorization: str | None, as_of: int | None
) -> tuple[int | None, int | None]:
    """Return the brokers that are the controller and the coordinator of groups; None: none is."""
    found: list[int | None] = []
    records = ((paths.CONTROLLER, ControllerRecord), (paths.COORDINATOR, CoordinatorRecord))
    for path, record in records:
        query = {"path": path, "as_of_zxid": as_of, "children": False}
        answer = await nodes.ask("/v1/znodes", query, authorization=authorization)
        broker_id = None
        if answer.status == 200:
            with contextlib.suppress(MetadataDecodeError):
                broker_id = record.decode(base64.b64decode(answer.fields["data"] or "")).broker_id
        found.append(broker_id)
    return found[0], found[1]


def _rows(
    registered: Mapping[int, Mapping[str, Any]],
    leading: tuple[int | None, int | None],
    topics: Topics,
    known: set[int],
) -> Rows:
    partitions = list(partitions_of(topics))
    leads = Counter(each.leader for each in partitions)
    replicas = Counter(each for partition in partitions for each in partition.replicas)
    ids = sorted({*known, *registered, *replicas})
    return Rows(
        tuple(
            {
                "id": broker_id,
                "status": "up" if broker_id in registered else "down",
                "clients": _clients(registered.get(broker_id, {})),
                "rack": registered.get(broker_id, {}).get("rack"),
                "leads": leads[broker_id],
                "replicas": replicas[broker_id],
            }
            for broker_id in ids
        ),
        *leading,
        len(topics),
        len(partitions),
        sum(each.status == "offline" for each in partitions),
        sum(not set(each.isr) >= set(each.replicas) for each in partitions),
        sum(not each.is_preferred for each in partitions),
    )


def _clients(row: Mapping[str, Any]) -> str | None:
    """Return the address for clients among the listeners of a registration."""
    return next(iter(addresses(row.get("endpoints", ()))), None)


def extension(bootstrap: str | None, *, records: bool) -> BrokerPages:
    """Make the extension.

    Args:
        bootstrap: brokers that were named, "host:port,…"; None: those that are registered.
        records: whether pages may read records.
    """
    return BrokerPages(bootstrap, records=records)
