"""Reassignments and elections through the controller, for `quorate reassign`.

Decides nothing: requests go to the controller, and again while the broker asked says that it is not. One that
begins a reassignment is repeated, too, where its outcome is unknown: the same target twice changes nothing.
Source: Kafka's AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from broker.client.client import ANSWER_GRACE_MS, BrokerClient
from broker.client.errors import BrokerRequestError
from broker.wire.apis import ApiKey
from broker.wire.codec import Values
from controller.messages.codes import ErrorCode
from quorum.metadata.paths import PartitionKey


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


class ReassignmentClient(BrokerClient):
    """A client of one cluster that also reassigns."""

    async def alter_reassignments(
        self, targets: Mapping[PartitionKey, tuple[int, ...] | None]
    ) -> dict[PartitionKey, PartitionResult]:
        """Begin reassignments, or cancel those whose target is None; returns what became of each.

        Raises:
            BrokerRequestError: nothing was begun, or the outcome is unknown (it says which).
        """
        rows = [
            {
                "name": topic,
                "partitions": [{"partition_index": key.partition, "replicas": targets[key]} for key in keys],
            }
            for topic, keys in _by_topic(targets).items()
        ]
        response = await self._ask_controller(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": rows}, repeatable=None not in targets.values()
        )
        return {
            PartitionKey(topic.name, row.partition_index): PartitionResult(row.error_code, row.error_message)
            for topic in response.responses
            for row in topic.partitions
        }

    async def list_reassignments(self) -> dict[PartitionKey, Ongoing]:
        """Return all reassignments under way."""
        response = await self._ask_controller(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, {"topics": None}, repeatable=True
        )
        return {
            PartitionKey(topic.name, row.partition_index): Ongoing(
                row.replicas, row.adding_replicas, row.removing_replicas
            )
            for topic in response.topics
            for row in topic.partitions
        }

    async def _ask_controller(self, api_key: ApiKey, values: Values, *, repeatable: bool) -> Any:
        async def attempt() -> Any:
            await self.metadata(())
            if self._metadata.controller_id not in self._metadata.brokers:
                raise BrokerRequestError(api_key.name, ErrorCode.NOT_CONTROLLER, "no controller is known")
            link = await self._broker(self._metadata.controller_id)
            response = await link.request(
                api_key,
                {**values, "timeout": self._timeout_ms},
                timeout_ms=self._timeout_ms + ANSWER_GRACE_MS,
            )
            if response.error_code:
                raise BrokerRequestError(api_key.name, response.error_code, response.error_message)
            return response

        return await self._until_deadline(attempt, repeatable=repeatable)


def _by_topic(keys: Iterable[PartitionKey]) -> dict[str, list[PartitionKey]]:
    topics: dict[str, list[PartitionKey]] = {}
    for key in keys:
        topics.setdefault(key.topic, []).append(key)
    return topics
