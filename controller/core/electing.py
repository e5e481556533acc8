"""Elections on request: preferred leaders, unclean ones, and the balance of leaderships.

What is not needed is refused by Kafka's codes, before anything is decided; the outcome is what the model has
afterwards.
Source: KIP-460 (ElectLeaders); kafka.controller.KafkaController (3.9); ARCHITECTURE.md, "Life of a
controller".
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from controller.core.balance import find_imbalanced
from controller.core.deciding import Decider
from controller.core.elections import ElectionKind
from controller.core.io import Io, Steps, parts_of, rest
from controller.core.model import ClusterModel
from controller.core.options import Counters
from controller.core.outcomes import PartitionOutcome
from controller.core.phases import PartitionPhase, phase_of
from controller.core.topics import NO_SUCH_PARTITION
from controller.core.writing import replace_request
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.admin_requests import PreferredElectionRecord
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER

_NOT_DECIDED: Final = (None, PartitionPhase.DELETING, PartitionPhase.LEFT_ALONE)
_UNKNOWN: Final = PartitionOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION)
_NOT_NEEDED: Final = PartitionOutcome(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)


class Elections:
    """Elections on request, in one term."""

    def __init__(self, io: Io, model: ClusterModel, decider: Decider, counters: Counters) -> None:
        """Elect nobody yet."""
        self._io = io
        self._model = model
        self._decider = decider
        self._counters = counters

    def elect(
        self, keys: Collection[PartitionKey] | None, kind: ElectionKind
    ) -> Steps[dict[PartitionKey, PartitionOutcome]]:
        """Elect preferred leaders, or leaders outside of the ISR where no member of it lives (UNCLEAN).

        Args:
            keys: the partitions; None: all, and those that need no election are left out of the answer.
            kind: which of the two.
        """
        chosen = [key for key, _ in self._model.partitions()] if keys is None else list(dict.fromkeys(keys))
        outcomes: dict[PartitionKey, PartitionOutcome] = {}
        needed: list[PartitionKey] = []
        for part in parts_of(chosen):
            for key in part:
                if phase_of(self._model, key) in _NOT_DECIDED:
                    outcomes[key] = _UNKNOWN
                elif self._is_led(key, kind):
                    outcomes[key] = _NOT_NEEDED
                else:
                    needed.append(key)
            yield from rest(part)
        if needed:
            yield from self._decider.settle(needed, kind=kind)
        for part in parts_of(needed):
            outcomes.update({key: self._outcome(key, kind) for key in part})
            yield from rest(part)
        if keys is None:
            return {key: each for key, each in outcomes.items() if each not in (_NOT_NEEDED, _UNKNOWN)}
        return outcomes

    def take_request(self) -> Steps[None]:
        """Carry out what /admin/preferred_replica_election holds, and remove it."""
        node = yield from self._io.read_one(paths.PREFERRED_REPLICA_ELECTION)
        if node is None:
            return
        try:
            wanted = PreferredElectionRecord.decode(node.data).partitions
        except MetadataDecodeError as error:
            self._io.warn(f"a request for preferred leaders was removed: {error}")
            wanted = ()
        for key, outcome in (yield from self.elect(wanted, ElectionKind.PREFERRED)).items():
            if outcome.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                self._io.warn(
                    f"no election of the preferred leader of {key.topic}-{key.partition}: {outcome.message}"
                )
        yield from replace_request(self._io, paths.PREFERRED_REPLICA_ELECTION, None, node.version)

    def balance(self, percentage: int) -> Steps[None]:
        """Give leaderships back to brokers that lack more than so many percent of their own."""
        keys = find_imbalanced(self._model, percentage)
        if keys:
            self._io.info(f"{len(keys)} partitions go back to their preferred leaders")
            yield from self._decider.settle(keys, kind=ElectionKind.PREFERRED)
            self._counters.leaders_rebalanced += sum(
                self._is_led(key, ElectionKind.PREFERRED) for key in keys
            )

    def _is_led(self, key: PartitionKey, kind: ElectionKind) -> bool:
        known = self._model.states.get(key)
        if known is None:
            return False
        leader = known.state.leader
        return leader != NO_LEADER if kind is ElectionKind.UNCLEAN else leader == self._model.holders(key)[0]

    def _outcome(self, key: PartitionKey, kind: ElectionKind) -> PartitionOutcome:
        if self._is_led(key, kind):
            return PartitionOutcome(ErrorCode.NONE)
        if kind is ElectionKind.UNCLEAN:
            return PartitionOutcome(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its replicas lives")
        preferred = self._model.holders(key)[0] if self._model.replicas(key) else NO_LEADER
        message = f"broker {preferred} is not live or not in the ISR: start it and let it catch up"
        return PartitionOutcome(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
