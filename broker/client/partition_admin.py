"""Reassignments and elections through the controller, and the throttle of what is copied.

Requests go to the controller, and again while the broker asked says that it is not. One that begins a
reassignment or elects preferred leaders is repeated, too, where its outcome is unknown: the same twice
changes nothing. A throttle is a rate at each broker, set by a request to that broker, and a setting of each
topic that the rate is for. The latter names all replicas: those in the ISR are never throttled.
Source: Kafka's AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders and
IncrementalAlterConfigs requests; KIP-73.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from broker.client.client import BrokerClient
from broker.client.errors import BrokerRequestError
from broker.client.links import Link
from broker.client.partitions import by_topic
from broker.client.topics import alter_values, describe_values, read_configs
from broker.wire.codec import Values
from controller.wire.apis import ApiKey
from controller.wire.connection import BrokerUnreachableError
from quorum.metadata.broker_settings import RATE_MAX, THROTTLED_RATES
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_setting_rows import FOLLOWER_THROTTLED_REPLICAS, LEADER_THROTTLED_REPLICAS

_BROKER: Final = 4
_PREFERRED: Final = 0
_UNCLEAN: Final = 1
#: Where a setting comes from: the topic itself.
_OF_TOPIC: Final = 1
_THROTTLED_REPLICAS: Final = (LEADER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_REPLICAS)


class Ongoing(NamedTuple):
    """A reassignment under way."""

    #: All that take part.
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionResult(NamedTuple):
    """What became of one partition of a request."""

    error_code: int
    message: str | None


class PartitionAdminClient(BrokerClient):
    """A client of one cluster that also reassigns and elects."""

    async def alter_reassignments(
        self, targets: Mapping[PartitionKey, tuple[int, ...] | None]
    ) -> dict[PartitionKey, PartitionResult]:
        """Begin reassignments, or cancel those whose target is None; returns what became of each.

        Raises:
            BrokerRequestError: nothing was begun, or the outcome is unknown (it says which).
        """
        rows = by_topic(targets, "name", lambda index, to: {"partition_index": index, "replicas": to})
        response = await self._ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": rows}, repeatable=None not in targets.values()
        )
        return {
            PartitionKey(topic.name, row.partition_index): PartitionResult(row.error_code, row.error_message)
            for topic in response.responses
            for row in topic.partitions
        }

    async def list_reassignments(self) -> dict[PartitionKey, Ongoing]:
        """Return all reassignments under way."""
        response = await self._ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None}, repeatable=True)
        return {
            PartitionKey(topic.name, row.partition_index): Ongoing(
                row.replicas, row.adding_replicas, row.removing_replicas
            )
            for topic in response.topics
            for row in topic.partitions
        }

    async def elect_leaders(
        self, keys: Collection[PartitionKey], *, unclean: bool
    ) -> dict[PartitionKey, PartitionResult]:
        """Elect the preferred leaders of partitions; returns what became of each.

        Args:
            keys: partitions.
            unclean: elect a live replica that was not in sync, where no other lives: records are lost.

        Raises:
            BrokerRequestError: nobody was elected, or the outcome is unknown (it says which).
        """
        rows = by_topic(dict.fromkeys(keys), "topic", lambda index, _: index)
        values = {"election_type": _UNCLEAN if unclean else _PREFERRED, "topic_partitions": rows}
        response = await self._ask(ApiKey.ELECT_LEADERS, values, repeatable=not unclean)
        return {
            PartitionKey(topic.topic, row.partition_id): PartitionResult(row.error_code, row.error_message)
            for topic in response.replica_election_results
            for row in topic.partition_result
        }

    async def log_sizes(self) -> dict[PartitionKey, int]:
        """Return the bytes of each partition's largest replica, as far as brokers can be reached."""
        found: dict[PartitionKey, int] = {}
        for _, link in await self._live_brokers():
            response = await link.request(
                ApiKey.DESCRIBE_LOG_DIRS, {"topics": None}, timeout_ms=self._timeout_ms
            )
            for row in (row for each in response.results for topic in each.topics for row in _named(topic)):
                found[row[0]] = max(found.get(row[0], 0), row[1])
        return found

    async def set_throttle(self, topics: Collection[str], rate: int) -> list[int]:
        """Throttle how replicas of these topics that are not in the ISR are copied.

        Args:
            topics: names.
            rate: bytes a second, of each broker, in each direction.

        Returns:
            The ids of the live brokers.

        Raises:
            BrokerRequestError: one of them refuses; others may be throttled.
            BrokerConnectionLostError: the outcome at one of them is unknown.
        """
        for topic in topics:
            await self.alter_topic_configs(topic, dict.fromkeys(_THROTTLED_REPLICAS, "*"))
        # The topics first: a broker hears of their settings before its own write of the rates is answered.
        return await self._alter_brokers(dict.fromkeys(THROTTLED_RATES, str(rate)), ())

    async def remove_throttle(self) -> list[int]:
        """Remove all throttles, of topics and of the live brokers, whose ids it returns.

        Raises:
            BrokerRequestError, BrokerConnectionLostError: as `set_throttle`; some throttles may be left.
        """
        topics = list((await self.metadata()).topics)
        for topic, rows in (await self.describe_topic_configs(topics)).items():
            if given := [
                row.name for row in rows if row.name in _THROTTLED_REPLICAS and row.source == _OF_TOPIC
            ]:
                await self.alter_topic_configs(topic, {}, given)
        return await self._alter_brokers({}, list(THROTTLED_RATES))

    async def throttled_brokers(self) -> list[int]:
        """Return the ids of the live brokers that have a rate."""
        found = []
        for broker_id, link in await self._live_brokers():
            values = describe_values(_BROKER, [str(broker_id)])
            response = await link.request(ApiKey.DESCRIBE_CONFIGS, values, timeout_ms=self._timeout_ms)
            rows = read_configs(response.results)[str(broker_id)]
            if any(row.name in THROTTLED_RATES and row.value != str(RATE_MAX) for row in rows):
                found.append(broker_id)
        return found

    async def _alter_brokers(self, changed: Mapping[str, str], removed: Sequence[str]) -> list[int]:
        """Change settings of every broker that can be reached; returns their ids."""
        brokers = await self._live_brokers()
        for broker_id, link in brokers:
            values = alter_values(_BROKER, str(broker_id), changed, removed)
            await self._alter_configs(link, values, f"settings of broker {broker_id}")
        return [broker_id for broker_id, _ in brokers]

    async def _live_brokers(self) -> list[tuple[int, Link]]:
        found = []
        for broker_id in sorted((await self.metadata(())).brokers):
            # One that has just died is still registered.
            with contextlib.suppress(BrokerUnreachableError):
                found.append((broker_id, await self._broker(broker_id)))
        return found

    async def _ask(self, api_key: ApiKey, values: Values, *, repeatable: bool) -> Any:
        def read(response: Any) -> Any:
            if response.error_code:
                message = getattr(response, "error_message", None)
                raise BrokerRequestError(api_key.name, response.error_code, message)
            return response

        return await self._ask_controller(api_key, values, read, repeatable=repeatable)


def _named(topic: Any) -> Iterator[tuple[PartitionKey, int]]:
    for row in topic.partitions:
        yield PartitionKey(topic.name, row.partition_index), row.partition_size
