"""The endpoints of topics, partitions, groups and records.

Decides how lists are sorted and cut into pages: on the server, for a browser shall not hold 10,000 rows. In
the past, ends of logs, sizes and lag are not known, for they are in no znode. Soft state: what `KafkaAsker`
and `TopicCopy` hold.

Source: docs/operate/console.md.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Final, NamedTuple

from aiohttp import web

from broker.client import BrokerClient
from broker.client.errors import BrokerRequestError
from broker.client.goals import ResetGoal, moment_ms, reset_goals
from broker.console import records
from broker.console.kafka import Group, KafkaAsker, LogsSeen
from broker.console.past_groups import past_groups
from broker.console.rates import Rate
from broker.console.rates import shown as shown_rate
from broker.console.topics import ShownPartition, Topic, TopicCopy, Topics, past_topics
from controller.wire.codes import ErrorCode
from quorum.admin.reading import Says, fields_of, read_query
from quorum.admin.view import BadInputError, json_answer
from quorum.console.extension import Lists, PageCall
from quorum.console.guarding import RefusalError
from quorum.console.znodes import CALL, Zxid
from quorum.errors import QuorateError, shown
from quorum.metadata.paths import PartitionKey

PAGE_ITEMS: Final = 100
_RANKS: Final = {"offline": 0, "under-replicated": 1, "ok": 2}
#: of the settings of a topic, what Kafka calls their source
_TOPIC_SOURCE: Final = 1


class TopicsWanted(NamedTuple):
    """Which topics are wanted."""

    search: Annotated[str, Says("what names contain", most=300)] = ""
    sort: Annotated[str, Says("lag, state, size or name", pattern="lag|state|size|name")] = "name"
    offset: Annotated[int, Says("topics before this page")] = 0
    as_of: Zxid = -1


class TopicQuery(NamedTuple):
    """Which topic is wanted."""

    name: Annotated[str, Says("of the topic", most=300)]
    as_of: Zxid = -1


class RecordsQuery(NamedTuple):
    """Which records are wanted."""

    topic: Annotated[str, Says("its name", most=300)]
    partition: int
    offset: Annotated[int, Says("the first one; -1: see time", -1)] = -1
    time: Annotated[str, Says("of the first one, ISO 8601 or ms since 1970; empty: see offset")] = ""
    limit: Annotated[int, Says("how many", 1, records.RECORDS_MAX)] = records.RECORDS_MAX
    filter: Annotated[str, Says("what key or value contain")] = ""


class AsOf(NamedTuple):
    """Which time is wanted."""

    as_of: Zxid = -1


class GroupQuery(NamedTuple):
    """Which group is wanted."""

    group: Annotated[str, Says("its name", most=1024)]
    as_of: Zxid = -1


class GroupsQuery(NamedTuple):
    """Which groups are wanted."""

    search: Annotated[str, Says("what names contain", most=300)] = ""
    as_of: Zxid = -1


def _query(request: web.Request, kind: Any) -> Any:
    return kind(**read_query(request, fields_of(kind)))


class Pages:
    """The endpoints, over what they read from."""

    def __init__(self, topics: TopicCopy, kafka: KafkaAsker) -> None:
        self._topics = topics
        self._kafka = kafka

    async def _all(self, call: PageCall, as_of: int) -> tuple[Topics, LogsSeen | None]:
        """Return topics, and of the present what brokers say."""
        if as_of >= 0:
            return await past_topics(call, as_of), None
        topics = await self._topics.now(call.upstream)
        return topics, await self._kafka.logs(call.upstream, topics)

    async def _groups(self, call: PageCall, as_of: int) -> LogsSeen:
        if as_of >= 0:
            return await past_groups(call, as_of)
        return await self._kafka.logs(call.upstream, await self._topics.now(call.upstream))

    async def get_topics(self, request: web.Request) -> web.Response:
        """Answer a page of topics."""
        query: TopicsWanted = _query(request, TopicsWanted)
        call: PageCall = request.app[CALL](request)
        topics, logs = await self._all(call, query.as_of)
        lags = logs.lags_by_topic() if logs is not None else {}
        wanted = query.search.lower()
        rows = [_topic_row(each, logs, lags) for each in topics.values() if wanted in each.name.lower()]
        if query.sort == "lag":
            rows.sort(key=lambda row: -int(row["lag"] or 0))
        elif query.sort == "size":
            rows.sort(key=lambda row: -int(row["bytes"] or 0))
        elif query.sort == "state":
            rows.sort(key=lambda row: _RANKS[row["status"]])
        shown = rows[query.offset : query.offset + PAGE_ITEMS]
        more = query.offset + PAGE_ITEMS < len(rows)
        return json_answer(
            {
                "items": shown,
                "total": len(rows),
                "next": query.offset + PAGE_ITEMS if more else None,
                "problem": None if logs is None else logs.problem,
            }
        )

    async def get_topic(self, request: web.Request) -> web.Response:
        """Answer one topic: partitions, settings, groups."""
        query: TopicQuery = _query(request, TopicQuery)
        call: PageCall = request.app[CALL](request)
        topics, logs = await self._all(call, query.as_of)
        topic = topics.get(query.name)
        if topic is None:
            return json_answer({"name": query.name, "found": False})
        settings: list[dict[str, object]] = []
        if logs is not None and logs.problem is None:
            settings = await self._settings(call, query.name)
        moving = set() if logs is None else await self._moving(call)
        seen = logs if logs is not None else await past_groups(call, query.as_of)
        groups = [_in_topic(each, query.name, seen) for each in seen.groups.values()]
        return json_answer(
            {
                "name": topic.name,
                "found": True,
                "status": topic.status,
                "rate": None if logs is None else rate_row(logs.rates, topic.name),
                "problem": topic.problem or (logs.problem if logs is not None else None),
                "partitions": [
                    {**_partition_row(each, logs), "moving": (each.topic, each.partition) in moving}
                    for each in topic.partitions
                ],
                "settings": settings,
                "groups": [each for each in groups if each["partitions"]],
            }
        )

    async def _settings(self, call: PageCall, name: str) -> list[dict[str, object]]:
        client = await self._kafka.client(call.upstream)
        try:
            rows = (await client.describe_topic_configs([name])).get(name, [])
        except BrokerRequestError as error:
            if error.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            # Brokers have heard of its end before this console, or cannot read its record.
            rows = []
        found: list[dict[str, object]] = [
            {"name": row.name, "value": row.value, "changed": row.source == _TOPIC_SOURCE} for row in rows
        ]
        # Those that somebody changed come first.
        return sorted(found, key=lambda row: (not row["changed"], str(row["name"])))

    async def get_records(self, request: web.Request) -> web.Response:
        """Answer some records of a partition."""
        query: RecordsQuery = _query(request, RecordsQuery)
        call: PageCall = request.app[CALL](request)
        client = await self._kafka.client(call.upstream)
        key = PartitionKey(query.topic, query.partition)
        offset = query.offset if query.offset >= 0 else await _first(client, key, query.time)
        found = await records.read(client, key, offset, query.limit, query.filter.encode())
        return json_answer(
            {
                "offset": str(offset),
                "items": [_record_row(each) for each in found.records],
                "next_offset": str(found.next_offset),
                "ended": found.ended,
                "looked_at": found.looked_at,
            }
        )

    async def get_partitions(self, request: web.Request) -> web.Response:
        """Answer all partitions, in short: the heat map needs every one."""
        query: AsOf = _query(request, AsOf)
        call: PageCall = request.app[CALL](request)
        past = query.as_of >= 0
        topics = await past_topics(call, query.as_of) if past else await self._topics.now(call.upstream)
        moving = set() if past else await self._moving(call)
        rows = [
            [
                index,
                each.partition,
                each.replicas,
                each.leader,
                each.isr,
                (each.topic, each.partition) in moving,
            ]
            for index, topic in enumerate(topics.values())
            for each in topic.partitions
        ]
        return json_answer({"topics": list(topics), "partitions": rows})

    async def _moving(self, call: PageCall) -> set[tuple[str, int]]:
        try:
            client = await self._kafka.client(call.upstream)
            return {(key.topic, key.partition) for key in await client.list_reassignments()}
        except QuorateError:
            # Who moves is not known without brokers.
            await self._kafka.forget()
            return set()

    async def get_groups(self, request: web.Request) -> web.Response:
        """Answer all groups."""
        query: GroupsQuery = _query(request, GroupsQuery)
        call: PageCall = request.app[CALL](request)
        logs = await self._groups(call, query.as_of)
        wanted = query.search.lower()
        rows = [
            _group_row(each, logs) for name, each in sorted(logs.groups.items()) if wanted in name.lower()
        ]
        return json_answer({"items": rows, "problem": logs.problem})

    async def get_group(self, request: web.Request) -> web.Response:
        """Answer one group: members and offsets."""
        query: GroupQuery = _query(request, GroupQuery)
        call: PageCall = request.app[CALL](request)
        logs = await self._groups(call, query.as_of)
        group = logs.groups.get(query.group)
        if group is None:
            return json_answer({"name": query.group, "found": False})
        members: Mapping[str, tuple[PartitionKey, ...] | None] = {}
        if logs.problem is None:
            client = await self._kafka.client(call.upstream)
            told = await client.describe_group(query.group)
            members = {each.member_id: each.partitions for each in told.members}
        return json_answer(
            {
                **_group_row(group, logs),
                "found": True,
                "problem": logs.problem,
                "members": [_member_row(each, members) for each in group.row["members"]],
                "offsets": [_offset_row(group, key, logs) for key in sorted(group.committed)],
            }
        )

    def add_to(self, app: web.Application, may_read: bool) -> None:
        """Add the endpoints to an application."""
        app.router.add_get("/api/topics", self.get_topics)
        app.router.add_get("/api/topic", self.get_topic)
        app.router.add_get("/api/records", self.get_records if may_read else _refuse_records)
        app.router.add_get("/api/partitions", self.get_partitions)
        app.router.add_get("/api/groups", self.get_groups)
        app.router.add_get("/api/group", self.get_group)


async def _first(client: BrokerClient, key: PartitionKey, time: str) -> int:
    """Return the offset of the first record at or after a time, of the first one where it is empty."""
    try:
        goal = ResetGoal("time", moment_ms(time)) if time else ResetGoal("earliest")
    except ValueError as error:
        remedy = "write one as 2026-01-31T12:00Z, or as ms since 1970"
        raise BadInputError(f"time = {shown(time)} is no time", remedy, "time") from error
    return (await reset_goals(client, goal, (key,), {}))[key]


def listed(topics: Topics, logs: LogsSeen) -> Lists:
    """List all topics and groups: the worst state first, then the largest lag."""
    lags = logs.lags_by_topic()
    rows = [_topic_row(each, logs, lags) for each in topics.values()]
    rows.sort(key=lambda row: (_RANKS[row["status"]], -int(row["lag"] or 0), row["name"]))
    groups = [_group_row(each, logs) for each in logs.groups.values()]
    groups.sort(key=lambda row: (-int(row["lag"] or 0), row["name"]))
    return Lists(tuple(rows), tuple(groups), logs.problem)


async def _refuse_records(_request: web.Request) -> web.Response:
    raise RefusalError(403, "this console reads no records", "start it with --records, or on loopback")


def _topic_row(topic: Topic, logs: LogsSeen | None, lags: Mapping[str, int]) -> dict[str, Any]:
    keys = [PartitionKey(topic.name, each.partition) for each in topic.partitions]
    known = logs is not None and logs.problem is None
    count = size = 0
    if logs is not None:
        count = sum(logs.ends[key] - logs.starts.get(key, 0) for key in keys if key in logs.ends)
        size = sum(logs.sizes.get(key, 0) for key in keys)
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
        "status": topic.status,
        "lag": str(lags.get(topic.name, 0)) if known else None,
        "records": str(count) if known else None,
        "bytes": size if known else None,
        "rate": rate_row(logs.rates, topic.name) if known and logs is not None else None,
        "problem": topic.problem,
    }


def _partition_row(each: ShownPartition, logs: LogsSeen | None) -> dict[str, object]:
    key = PartitionKey(each.topic, each.partition)
    start = logs.starts.get(key) if logs is not None else None
    end = logs.ends.get(key) if logs is not None else None
    return {
        "id": each.partition,
        "leader": each.leader,
        "leader_epoch": each.leader_epoch,
        "replicas": each.replicas,
        "isr": each.isr,
        "status": each.status,
        "start": None if start is None else str(start),
        "end": None if end is None else str(end),
        "bytes": logs.sizes.get(key) if logs is not None else None,
    }


def _in_topic(group: Group, topic: str, logs: LogsSeen) -> dict[str, Any]:
    keys = [key for key in group.committed if key.topic == topic]
    lags = [lag for key in keys if (lag := logs.lag(group, key)) is not None]
    known = len(lags) == len(keys)
    return {
        "name": group.group_id,
        "state": group.row["state"],
        "partitions": len(keys),
        "lag": str(sum(each.records for each in lags)) if known else None,
        "seconds": round(max((each.seconds for each in lags), default=0.0), 1) if known else None,
        "trend": _trend(group, logs),
    }


def _trend(group: Group, logs: LogsSeen) -> str | None:
    found = logs.lags.get(group.group_id)
    return None if found is None else found.trend


def rate_row(rates: Mapping[str, Rate] | None, topic: str) -> dict[str, float] | None:
    """Return how fast a topic is written and read; None: it is not known yet."""
    if rates is None:
        return None
    return {name: shown_rate(each) for name, each in rates.get(topic, Rate())._asdict().items()}


def _record_row(record: records.Record) -> dict[str, object]:
    key, key_size = records.shortened(record.key)
    value, value_size = records.shortened(record.value)
    return {
        "offset": str(record.offset),
        "timestamp_ms": record.timestamp_ms,
        "key": _encoded(key),
        "key_size": key_size,
        "value": _encoded(value),
        "value_size": value_size,
        "headers": [[name, _encoded(content)] for name, content in record.headers],
    }


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def _group_row(group: Group, logs: LogsSeen) -> dict[str, Any]:
    lag = logs.lags.get(group.group_id)
    known = logs.problem is None and lag is not None
    return {
        "name": group.group_id,
        "status": group.row["state"] or "unknown",
        "type": group.row["type"],
        "protocol": group.row["protocol"],
        "member_count": len(group.row["members"]),
        "topics": len({key.topic for key in group.committed}),
        "lag": str(lag.records) if known and lag is not None else None,
        "seconds": round(lag.seconds, 1) if known and lag is not None else None,
        "trend": _trend(group, logs),
    }


def _member_row(
    row: Mapping[str, Any], assigned: Mapping[str, tuple[PartitionKey, ...] | None]
) -> dict[str, object]:
    keys = assigned.get(row["member_id"])
    named = None if keys is None else [f"{key.topic}-{key.partition}" for key in keys]
    return {**row, "assigned": named}


def _offset_row(group: Group, key: PartitionKey, logs: LogsSeen) -> dict[str, object]:
    lag, end = logs.lag(group, key), logs.ends.get(key)
    return {
        "topic": key.topic,
        "partition": key.partition,
        "offset": str(group.committed[key]),
        "end": None if end is None else str(end),
        "lag": None if lag is None else str(lag.records),
        "seconds": None if lag is None else round(lag.seconds, 1),
    }
