"""What quotas make of a request: how long its client is throttled, and its connection not read.

Only clients are limited: followers, the controller and other brokers use a listener of their own.
Source: KIP-13, KIP-219, KIP-599.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import Final

from broker.core.fetched import FetchOutcome
from broker.core.quotas.clients import QuotaClient
from broker.core.quotas.rates import Left, Spending
from broker.server.requests import Call
from broker.server.services import BrokerServices
from controller.core.outcomes import TopicOutcome
from controller.wire.codes import ErrorCode
from quorum.metadata.quota_records import QuotaKind

_UNLIMITED: Final = Left(math.inf)
_USER: Final = "User:"
_REFUSED: Final = "The throttling quota has been exceeded."


def throttle_produce(services: BrokerServices, call: Call) -> int:
    """Count a Produce request that has been carried out; returns for how many milliseconds to throttle."""
    quotas = services.quotas
    if call.from_broker or not quotas.limits(QuotaKind.PRODUCE):
        return 0
    return _throttled(call, quotas.used(QuotaKind.PRODUCE, _client(call), call.request.size, _now_ms()))


def fetch_left(services: BrokerServices, call: Call) -> Left:
    """Return how many bytes a fetch may be answered with, and throttle a consumer that is over its quota."""
    if call.from_broker or not services.quotas.limits(QuotaKind.FETCH):
        return _UNLIMITED
    left = services.quotas.fetch_left(_client(call), _now_ms())
    _throttled(call, left.throttle_ms)
    return left


def throttle_fetch(services: BrokerServices, call: Call, outcomes: Iterable[FetchOutcome]) -> int:
    """Count the records that answer a fetch; returns for how many milliseconds to throttle."""
    quotas = services.quotas
    if call.from_broker or not quotas.limits(QuotaKind.FETCH):
        return 0
    size = sum(len(each.records) for each in outcomes)
    return _throttled(call, quotas.used(QuotaKind.FETCH, _client(call), size, _now_ms()))


class Mutations:
    """What one request may change of the cluster's partitions, by the quota of its client."""

    def __init__(
        self, services: BrokerServices, call: Call, *, strict_since: int, counts: bool = True
    ) -> None:
        """Look at a request.

        Args:
            services: with the quotas.
            call: the request.
            strict_since: the version from which on single topics can be refused.
            counts: whether it shall change anything.
        """
        self._quotas = services.quotas
        self._call = call
        self._is_limited = counts and not call.from_broker and self._quotas.limits(QuotaKind.MUTATION)
        self._is_strict = call.request.api_version >= strict_since
        #: {topic: partitions}
        self._spent: dict[str, int] = {}
        self._throttle_ms = 0

    def refusal(self, topic: str, count: int) -> tuple[ErrorCode, str] | None:
        """Count partitions of a topic that are to be created or deleted; returns why they may not be."""
        if not self._is_limited:
            return None
        throttle_ms, passes = self._spend(count, is_strict=self._is_strict)
        self._throttle_ms = max(self._throttle_ms, throttle_ms)
        if not passes:
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED, _REFUSED
        self._spent[topic] = count
        return None

    def end(self, outcomes: Mapping[str, TopicOutcome]) -> int:
        """Give back what was counted for topics to which nothing was done, and throttle the client.

        Returns:
            For how many milliseconds.
        """
        failed = [topic for topic, outcome in outcomes.items() if outcome.error_code != ErrorCode.NONE]
        if (count := sum(self._spent.get(topic, 0) for topic in failed)) > 0:
            self._spend(-count, is_strict=False)
        self._quotas.throttled_ms[QuotaKind.MUTATION] += self._throttle_ms
        return _throttled(self._call, self._throttle_ms)

    def _spend(self, count: int, *, is_strict: bool) -> Spending:
        return self._quotas.mutates(_client(self._call), count, _now_ms(), is_strict=is_strict)


def _client(call: Call) -> QuotaClient:
    request = call.request
    return QuotaClient(request.principal.removeprefix(_USER), request.client_id or "")


def _throttled(call: Call, throttle_ms: int) -> int:
    if throttle_ms:
        call.request.throttle(throttle_ms)
    return throttle_ms


def _now_ms() -> float:
    return time.monotonic() * 1000
