"""What one broker still has to hear: the newest of each partition, not a queue of requests.

Names partitions only; what is said about them is taken from the model when a request leaves, so a broker
that was slow gets the present state once. One request is under way at a time. A broker's first requests are
UpdateMetadata, all of it; after that the order is StopReplica, LeaderAndIsr, UpdateMetadata: a replica of a
deleted topic goes before one of the same name comes, and clients are sent to a leader that knows its role.
Source: ARCHITECTURE.md, "Life of a controller"; KIP-380 (requests carry the generation, which is the
channel's).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple, TypeVar

from quorum.metadata.paths import PartitionKey

V = TypeVar("V")

#: Partitions of one request.
REQUEST_PARTITIONS_MAX: Final = 10_000


class MetadataBatch(NamedTuple):
    """An UpdateMetadata: all live brokers, and these partitions."""

    keys: tuple[PartitionKey, ...]


class LeadershipBatch(NamedTuple):
    """A LeaderAndIsr."""

    #: {partition: whether the controller has just created it}
    new: Mapping[PartitionKey, bool]


class StopBatch(NamedTuple):
    """A StopReplica."""

    #: {partition: whether its log is deleted, too}
    stops: Mapping[PartitionKey, bool]


Batch = MetadataBatch | LeadershipBatch | StopBatch


class Outbox:
    """What is due to one broker of one generation."""

    def __init__(self, partitions_max: int = REQUEST_PARTITIONS_MAX) -> None:
        """Owe nothing but the list of brokers; a request names at most partitions_max partitions."""
        self._partitions_max = partitions_max
        #: Whether all that introduces the broker has left, and whether it has been answered.
        self._introduced = False
        self._has_confirmed = False
        self._owes_brokers = True
        self._metadata: dict[PartitionKey, None] = {}
        self._leadership: dict[PartitionKey, bool] = {}
        self._stops: dict[PartitionKey, bool] = {}
        #: The request that nobody has answered yet.
        self.under_way: Batch | None = None

    def owe_brokers(self) -> None:
        """The list of live brokers has changed."""
        self._owes_brokers = True

    def owe_metadata(self, keys: Iterable[PartitionKey]) -> None:
        """These partitions have changed for clients."""
        self._metadata.update(dict.fromkeys(keys))

    def owe_leadership(self, key: PartitionKey, *, is_new: bool = False) -> None:
        """The broker's replica of this partition has a new role, or a new ISR by the controller."""
        if not self._stops.get(key, True):
            del self._stops[key]
        self._leadership[key] = is_new or self._leadership.get(key, False)

    def owe_stop(self, key: PartitionKey, *, deletes: bool = True) -> None:
        """The broker must stop its replica of this partition, and delete its log."""
        self._leadership.pop(key, None)
        self._stops[key] = deletes or self._stops.get(key, False)

    def owes_stop(self, key: PartitionKey) -> bool:
        """Say whether the broker has yet to confirm that its replica is stopped."""
        return key in self._stops or (isinstance(self.under_way, StopBatch) and key in self.under_way.stops)

    def next_batch(self, *, may_stop: bool = True) -> Batch | None:
        """Take the next request, or None if nothing is due or one is under way.

        Args:
            may_stop: whether stops are due now; roles of replicas that are to be stopped wait for them.
        """
        if self.under_way is None:
            self.under_way = self._choose(may_stop=may_stop)
        else:
            return None
        return self.under_way

    def confirm(self) -> None:
        """The request under way has been answered."""
        self.under_way = None
        self._has_confirmed = self._introduced

    def put_back(self, failed: Collection[PartitionKey] | None = None) -> None:
        """The request under way must be sent again, with what is newest then.

        Args:
            failed: only these of its partitions; None: all of it.
        """
        batch, self.under_way = self.under_way, None
        match batch:
            case MetadataBatch(keys):
                self._introduced = self._has_confirmed
                self._owes_brokers = True
                self.owe_metadata(keys)
            case LeadershipBatch(new):
                for key, is_new in new.items():
                    if (failed is None or key in failed) and key not in self._stops:
                        self.owe_leadership(key, is_new=is_new)
            case StopBatch(stops):
                for key, deletes in stops.items():
                    # One that only stops is over once another role is due.
                    if (failed is None or key in failed) and (deletes or key not in self._leadership):
                        self._stops[key] = deletes or self._stops.get(key, False)
            case None:
                pass

    def pending_topics(self) -> set[str]:
        """Return the topics of which the broker has not answered all."""
        pending: list[Iterable[PartitionKey]] = [self._metadata, self._leadership, self._stops]
        match self.under_way:
            case MetadataBatch(keys):
                pending.append(keys)
            case LeadershipBatch(named) | StopBatch(named):
                pending.append(named)
            case None:
                pass
        return {key.topic for key in chain.from_iterable(pending)}

    def _choose(self, *, may_stop: bool) -> Batch | None:
        if not self._introduced:
            batch = self._take_metadata()
            self._introduced = not self._metadata
            return batch
        if self._stops and may_stop:
            return StopBatch(_take(self._stops, self._partitions_max))
        if self._leadership:
            held = {key: self._leadership.pop(key) for key in self._stops if key in self._leadership}
            roles = _take(self._leadership, self._partitions_max)
            self._leadership.update(held)
            if roles:
                return LeadershipBatch(roles)
        if self._metadata or self._owes_brokers:
            return self._take_metadata()
        return None

    def _take_metadata(self) -> MetadataBatch:
        self._owes_brokers = False
        return MetadataBatch(tuple(_take(self._metadata, self._partitions_max)))


def _take(due: dict[PartitionKey, V], count: int) -> dict[PartitionKey, V]:
    taken = dict(islice(due.items(), count))
    for key in taken:
        del due[key]
    return taken
