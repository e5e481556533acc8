"""The quotas of all clients of a broker: which one counts for whom, and how long it throttles.

The most special entity that has a quota of the kind decides: a user's client, the user, the default user, the
client id, the default client id, in Kafka's order. So a quota of the default user hides all client-id quotas.
Who shares an entity shares its rate, but each user and client that a default stands for has its own. A
bounded number of them is kept: those that are idle go, then those that were idle the longest. Soft state.
Source: ClientQuotaManager, ControllerMutationQuotaManager (Kafka 3.9); KIP-55, KIP-599.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from broker.core.quotas.rates import Bucket, Left, Spending, Window
from quorum.metadata.quota_records import QuotaEntity, QuotaKind, precedence

#: Rates that are kept for one kind of quota: client ids cost whoever invents them nothing.
TRACKED_MAX: Final = 10_000
_UNLIMITED: Final = Left(math.inf)

#: User and client id, "" for all of them.
Share = tuple[str, str]


class QuotaClient(NamedTuple):
    """Who sends a request."""

    user: str
    client_id: str


class _Use(Protocol):
    def is_clear(self, now_ms: float) -> bool:
        """Say whether a new one would be the same."""


U = TypeVar("U", bound=_Use)


class _Tracked(Generic[U]):
    """What each share has used."""

    def __init__(self, make: Callable[[], U], tracked_max: int) -> None:
        self._make = make
        self._tracked_max = tracked_max
        #: {share: use}, the longest unused first; at most tracked_max
        self._uses: OrderedDict[Share, U] = OrderedDict()

    def __len__(self) -> int:
        return len(self._uses)

    def of(self, share: Share, now_ms: float) -> U:
        found = self._uses.get(share)
        if found is None:
            self._drop(now_ms)
            found = self._uses[share] = self._make()
        else:
            self._uses.move_to_end(share)
        return found

    def _drop(self, now_ms: float) -> None:
        uses = self._uses
        while uses:
            oldest = next(iter(uses))
            if len(uses) < self._tracked_max and not uses[oldest].is_clear(now_ms):
                return
            del uses[oldest]


class ClientQuotas:
    """Quotas, and what clients have used of them."""

    def __init__(self, tracked_max: int = TRACKED_MAX) -> None:
        """Limit nobody yet."""
        #: {kind: {entity: rate}}; rates are above 0
        self._rates: dict[QuotaKind, dict[QuotaEntity, float]] = {each: {} for each in QuotaKind}
        self._windows = {kind: _Tracked(Window, tracked_max) for kind in (QuotaKind.PRODUCE, QuotaKind.FETCH)}
        self._buckets = _Tracked(Bucket, tracked_max)
        #: {kind: for how long clients were throttled, in milliseconds}
        self.throttled_ms = dict.fromkeys(QuotaKind, 0)

    def set_quotas(self, entity: QuotaEntity, rates: Mapping[QuotaKind, float]) -> None:
        """Let these quotas hold for an entity, and no others."""
        for kind, of_kind in self._rates.items():
            if kind in rates:
                of_kind[entity] = rates[kind]
            else:
                of_kind.pop(entity, None)

    def limits(self, kind: QuotaKind) -> bool:
        """Say whether there is any quota of a kind: if not, nothing else need be asked."""
        return bool(self._rates[kind])

    def quota_of(self, kind: QuotaKind, client: QuotaClient) -> tuple[Share, float] | None:
        """Return with whom a client shares a rate, and the rate; None: it has no quota."""
        rates = self._rates[kind]
        for entity, share in precedence(*client):
            if (rate := rates.get(entity)) is not None:
                return share, rate
        return None

    def tracked(self) -> int:
        """Return how many rates are kept."""
        return len(self._buckets) + sum(map(len, self._windows.values()))

    def used(self, kind: QuotaKind, client: QuotaClient, size: int, now_ms: float) -> int:
        """Count bytes that were produced or fetched; returns for how many milliseconds to throttle."""
        found = self.quota_of(kind, client)
        if found is None:
            return 0
        share, rate = found
        throttle_ms = self._windows[kind].of(share, now_ms).record(size, rate, now_ms)
        self.throttled_ms[kind] += throttle_ms
        return throttle_ms

    def fetch_left(self, client: QuotaClient, now_ms: float) -> Left:
        """Return how many bytes a client may fetch now."""
        found = self.quota_of(QuotaKind.FETCH, client)
        if found is None:
            return _UNLIMITED
        share, rate = found
        left = self._windows[QuotaKind.FETCH].of(share, now_ms).left(rate, now_ms)
        self.throttled_ms[QuotaKind.FETCH] += left.throttle_ms
        return left

    def mutates(self, client: QuotaClient, count: int, now_ms: float, *, is_strict: bool) -> Spending:
        """Count partitions that are created or deleted; negative: they were not, after all.

        Args:
            client: who asks. count: of partitions. now_ms: by any monotonic clock.
            is_strict: whether a client that is over its quota is refused; else it is only throttled.
        """
        found = self.quota_of(QuotaKind.MUTATION, client)
        if found is None:
            return Spending(0)
        share, rate = found
        return self._buckets.of(share, now_ms).spend(count, rate, now_ms, is_strict=is_strict)
