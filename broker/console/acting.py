"""The actions of topics, partitions and groups, by a Kafka client.

Decides what a preview says; what may be done is the brokers' to say. No state.

Source: docs/operate/console.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, NamedTuple

from broker.client.errors import BrokerRequestError
from broker.client.goals import ResetGoal, moment_ms, reset_goals
from broker.client.partition_admin import PartitionAdminClient
from broker.console.kafka import KafkaAsker
from broker.console.topics import TopicCopy, partitions_of
from quorum.admin.reading import Says
from quorum.admin.view import BadInputError
from quorum.console.extension import PageAction, PageCall
from quorum.console.guarding import RefusalError
from quorum.metadata.paths import PartitionKey

Name = Annotated[str, Says("its name", 1, 1024)]
_NUMBERS: Final = "|[0-9]{1,9}(,[0-9]{1,9})*"
_ROWS_MAX: Final = 200


class DeleteTopic(NamedTuple):
    """Delete a topic."""

    name: Name
    confirm: str


class ChangeSettings(NamedTuple):
    """Change a setting of a topic."""

    name: Name
    setting: Annotated[str, Says("as retention.ms", 1, 200)]
    value: Annotated[str, Says("its value; empty: back to the default")] = ""


class ElectPreferred(NamedTuple):
    """Let the first replica of each partition lead it, where it is in sync."""

    name: Annotated[str, Says("of a topic; empty: all")] = ""


class ReassignPartition(NamedTuple):
    """Move the replicas of a partition."""

    name: Name
    partition: int
    replicas: Annotated[str, Says("ids of brokers by commas", pattern="[0-9]{1,10}(,[0-9]{1,10})*")]
    throttle: Annotated[int, Says("bytes a second; 0: none")] = 0


class Cancel(NamedTuple):
    """Cancel the reassignments of a topic."""

    name: Name


class RemoveThrottle(NamedTuple):
    """Let replicas be copied as fast as they can be."""


class ResetOffsets(NamedTuple):
    """Move what a group has committed."""

    group: Name
    topic: Annotated[str, Says("empty: all that it has committed")] = ""
    partitions: Annotated[str, Says("of the topic, by commas; empty: all", pattern=_NUMBERS)] = ""
    to: Annotated[
        str, Says("earliest, latest, offset, time or shift", pattern="earliest|latest|offset|time|shift")
    ] = "earliest"
    value: Annotated[
        str, Says("an offset, a time (ISO 8601 or ms since 1970), or by how many records; else empty")
    ] = ""


class Acting:
    """The actions, over what they ask."""

    def __init__(self, topics: TopicCopy, kafka: KafkaAsker) -> None:
        self._topics = topics
        self._kafka = kafka
        self.actions = (
            PageAction("delete-topic", DeleteTopic, self._preview_delete, self._delete),
            PageAction("change-settings", ChangeSettings, self._preview_settings, self._settings),
            PageAction("elect-preferred", ElectPreferred, self._preview_elect, self._elect),
            PageAction("reassign", ReassignPartition, self._preview_reassign, self._reassign),
            PageAction("cancel-reassignment", Cancel, self._preview_cancel, self._cancel),
            PageAction("remove-throttle", RemoveThrottle, self._preview_unthrottle, self._unthrottle),
            PageAction("reset-offsets", ResetOffsets, self._preview_reset, self._reset),
        )

    async def _client(self, call: PageCall) -> PartitionAdminClient:
        return await self._kafka.client(call.upstream)

    # -- topics ----------------------------------------------------------------------------------------------

    async def _preview_delete(self, call: PageCall, body: DeleteTopic) -> Mapping[str, object]:
        topic = (await self._topics.now(call.upstream)).get(body.name)
        if topic is None:
            raise RefusalError(404, f"topic {body.name} does not exist", "there is nothing to delete")
        partitions = _partitions(len(topic.partitions))
        return {"text": f"Delete topic {body.name} with {partitions} and all their records."}

    async def _delete(self, call: PageCall, body: DeleteTopic) -> Mapping[str, object]:
        if body.confirm != body.name:
            problem = f"confirm = {body.confirm!r} is not the name of the topic"
            raise BadInputError(problem, "type the name of the topic", "confirm")
        result = (await (await self._client(call)).delete_topics([body.name]))[body.name]
        if result.error_code:
            raise BrokerRequestError(f"topic {body.name}", result.error_code, result.message)
        return {"text": f"topic {body.name} is deleted"}

    async def _preview_settings(self, call: PageCall, body: ChangeSettings) -> Mapping[str, object]:
        rows = (await (await self._client(call)).describe_topic_configs([body.name])).get(body.name, [])
        now = next((row.value for row in rows if row.name == body.setting), None)
        if now is None and not any(row.name == body.setting for row in rows):
            raise BadInputError(f"there is no setting {body.setting}", "choose one of the list", "setting")
        await self._alter(call, body, validate_only=True)
        then = body.value or "its default"
        return {"text": f"{body.setting} of {body.name}: {now} becomes {then}."}

    async def _settings(self, call: PageCall, body: ChangeSettings) -> Mapping[str, object]:
        await self._alter(call, body, validate_only=False)
        return {"text": f"{body.setting} of {body.name} is changed"}

    async def _alter(self, call: PageCall, body: ChangeSettings, *, validate_only: bool) -> None:
        changed = {body.setting: body.value} if body.value else {}
        removed = () if body.value else (body.setting,)
        client = await self._client(call)
        await client.alter_topic_configs(body.name, changed, removed, validate_only=validate_only)

    async def _to_elect(self, call: PageCall, body: ElectPreferred) -> list[PartitionKey]:
        topics = await self._topics.now(call.upstream)
        return [
            PartitionKey(each.topic, each.partition)
            for each in partitions_of(topics)
            if not each.is_preferred
            and body.name in ("", each.topic)
            and each.replicas
            and each.replicas[0] in each.isr
        ]

    async def _preview_elect(self, call: PageCall, body: ElectPreferred) -> Mapping[str, object]:
        keys = await self._to_elect(call, body)
        rows = [[each.topic, str(each.partition)] for each in keys[:_ROWS_MAX]]
        is_not = "is not" if len(keys) == 1 else "are not"
        text = f"{_partitions(len(keys))} {is_not} led by the first replica, which is in sync."
        return {"text": text, "columns": ["Topic", "Partition"], "rows": rows}

    async def _elect(self, call: PageCall, body: ElectPreferred) -> Mapping[str, object]:
        keys = await self._to_elect(call, body)
        results = await (await self._client(call)).elect_leaders(keys, unclean=False) if keys else {}
        failed = [each for each in results.values() if each.error_code]
        return {"text": f"{len(keys) - len(failed)} of {len(keys)} partitions have their preferred leader"}

    async def _preview_reassign(self, call: PageCall, body: ReassignPartition) -> Mapping[str, object]:
        topic = (await self._topics.now(call.upstream)).get(body.name)
        rows = topic.partitions if topic is not None else ()
        now = next((each for each in rows if each.partition == body.partition), None)
        if now is None:
            raise RefusalError(
                404, f"there is no partition {body.partition} of {body.name}", "choose another"
            )
        ids = _ids(body.replicas)
        absent = sorted(set(ids) - (await (await self._client(call)).metadata([])).brokers.keys())
        if absent:
            raise BadInputError(f"there is no live broker {absent[0]}", "name brokers that run", "replicas")
        rate = f", at {body.throttle} bytes a second" if body.throttle else ""
        then = ", ".join(map(str, ids))
        before = ", ".join(map(str, now.replicas))
        return {"text": f"{body.name}-{body.partition} moves from brokers {before} to {then}{rate}."}

    async def _reassign(self, call: PageCall, body: ReassignPartition) -> Mapping[str, object]:
        client = await self._client(call)
        if body.throttle:
            await client.set_throttle([body.name], body.throttle)
        key = PartitionKey(body.name, body.partition)
        result = (await client.alter_reassignments({key: _ids(body.replicas)}))[key]
        if result.error_code:
            raise BrokerRequestError(f"{body.name}-{body.partition}", result.error_code, result.message)
        throttled = "; remove the throttle when it has ended" if body.throttle else ""
        return {"text": f"{body.name}-{body.partition} moves{throttled}"}

    async def _moving(self, call: PageCall, name: str) -> list[PartitionKey]:
        return [key for key in await (await self._client(call)).list_reassignments() if key.topic == name]

    async def _preview_cancel(self, call: PageCall, body: Cancel) -> Mapping[str, object]:
        keys = await self._moving(call, body.name)
        return {
            "text": f"Where {_partitions(len(keys))} of {body.name} now move, replicas stay as they were."
        }

    async def _cancel(self, call: PageCall, body: Cancel) -> Mapping[str, object]:
        keys = await self._moving(call, body.name)
        if keys:
            await (await self._client(call)).alter_reassignments(dict.fromkeys(keys))
        return {"text": f"{len(keys)} reassignments of {body.name} are cancelled"}

    async def _preview_unthrottle(self, call: PageCall, _body: RemoveThrottle) -> Mapping[str, object]:
        ids = await (await self._client(call)).throttled_brokers()
        which = ", ".join(map(str, ids)) or "none"
        return {"text": f"Brokers that throttle replication: {which}. The throttles of topics go, too."}

    async def _unthrottle(self, call: PageCall, _body: RemoveThrottle) -> Mapping[str, object]:
        ids = await (await self._client(call)).remove_throttle()
        return {"text": f"no throttle is left at brokers {', '.join(map(str, ids))}"}

    # -- groups ----------------------------------------------------------------------------------------------

    async def _goals(
        self, call: PageCall, body: ResetOffsets
    ) -> tuple[dict[PartitionKey, int], dict[PartitionKey, int]]:
        """Return where the group is, and where it goes."""
        goal = _goal(body)
        client = await self._client(call)
        found = await client.describe_group(body.group)
        if found.members:
            problem = f"group {body.group} has {len(found.members)} members"
            raise RefusalError(409, problem, "stop its consumers, or wait until their sessions end")
        committed = await client.committed_offsets(body.group)
        before = {key: each.offset for key, each in committed.items() if body.topic in ("", key.topic)}
        keys = sorted(before)
        if body.topic and goal.kind != "shift":
            topic = (await self._topics.now(call.upstream)).get(body.topic)
            rows = topic.partitions if topic is not None else ()
            keys = [PartitionKey(each.topic, each.partition) for each in rows]
        if body.partitions:
            keys = [_named(body, int(number), keys) for number in body.partitions.split(",")]
        if not keys:
            raise BadInputError(
                f"group {body.group} has committed nothing there", "choose another topic", "topic"
            )
        return before, await reset_goals(client, goal, keys, before)

    async def _preview_reset(self, call: PageCall, body: ResetOffsets) -> Mapping[str, object]:
        before, after = await self._goals(call, body)
        rows = [
            [
                key.topic,
                str(key.partition),
                str(before.get(key, "none")),
                str(to),
                _moved(before.get(key), to),
            ]
            for key, to in sorted(after.items())
        ]
        text = f"{len(after)} offsets of group {body.group} move {_where(_goal(body))}."
        columns = ["Topic", "Partition", "From", "To", "Records"]
        return {"text": text, "columns": columns, "rows": rows[:_ROWS_MAX]}

    async def _reset(self, call: PageCall, body: ResetOffsets) -> Mapping[str, object]:
        _, after = await self._goals(call, body)
        await (await self._client(call)).commit_offsets(body.group, after)
        self._kafka.expire()
        return {"text": f"{len(after)} offsets of group {body.group} are reset"}


def _partitions(count: int) -> str:
    return f"{count} partition{'s' * (count != 1)}"


def _ids(given: str) -> tuple[int, ...]:
    return tuple(int(each) for each in given.split(","))


def _goal(body: ResetOffsets) -> ResetGoal:
    try:
        match body.to:
            case "earliest" | "latest":
                if body.value:
                    raise BadInputError(
                        f"value = {body.value!r} is not for {body.to}", "leave it empty", "value"
                    )
                return ResetGoal(body.to)
            case "time":
                return ResetGoal("time", moment_ms(body.value))
            case "offset":
                return ResetGoal("offset", _whole(body.value, signed=False))
            case _:
                return ResetGoal("shift", _whole(body.value, signed=True))
    except ValueError as error:
        problem = f"value = {body.value!r} is no {_NOUNS[body.to]}"
        raise BadInputError(problem, f"write one as {_EXAMPLES[body.to]}", "value") from error


_NOUNS: Final = {"time": "time", "offset": "offset", "shift": "number of records"}
_EXAMPLES: Final = {"time": "2026-01-31T12:00Z, or as ms since 1970", "offset": "1200", "shift": "-100"}
_WHOLE: Final = re.compile("-?[0-9]{1,18}", re.ASCII)


def _whole(text: str, *, signed: bool) -> int:
    if not _WHOLE.fullmatch(text) or (text.startswith("-") and not signed):
        raise ValueError(text)
    return int(text)


def _named(body: ResetOffsets, number: int, keys: Sequence[PartitionKey]) -> PartitionKey:
    key = PartitionKey(body.topic, number)
    if key not in keys:
        problem = f"partitions = {body.partitions!r}: {number} is no partition that can be reset"
        raise BadInputError(problem, "choose a topic, and partitions of it", "partitions")
    return key


def _where(goal: ResetGoal) -> str:
    match goal.kind:
        case "earliest":
            return "to the earliest record"
        case "latest":
            return "behind the latest record"
        case "offset":
            return f"to offset {goal.number}, within each log"
        case "shift":
            return f"by {goal.number:+} records, within each log"
        case "time":
            at = datetime.fromtimestamp(goal.number / 1000, UTC).isoformat(timespec="milliseconds")
            return f"to the first record at or after {at.removesuffix('+00:00')}Z"


def _moved(before: int | None, after: int) -> str:
    """Say how many records are skipped, or read again."""
    return "" if before is None else f"{after - before:+}" if after != before else "0"
