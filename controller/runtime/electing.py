"""Elections on request: preferred leaders, unclean ones, and the balance of leaderships.

Runs inside the controller's one loop. What is not needed is refused by Kafka's codes, before anything is
decided; the rest is decided by the core, and the outcome is what stands in the model afterwards.
Source: KIP-460 (ElectLeaders); kafka.controller.KafkaController (3.9); control-plane design, "Preferred
leaders".
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from controller.core.balance import find_imbalanced
from controller.core.elections import ElectionKind
from controller.core.model import ClusterModel
from controller.core.options import Counters
from controller.core.outcomes import PartitionOutcome
from controller.core.topics import NO_SUCH_PARTITION
from controller.runtime.deciding import Decider
from controller.runtime.store import Store
from controller.wire.codes import ErrorCode
from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.admin_requests import PreferredElectionRecord
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import read_node
from quorum.metadata.records import NO_LEADER
from quorum.platform.pace import Pace

log = logging.getLogger("quorate.controller")

_UNKNOWN: Final = PartitionOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_SUCH_PARTITION)
_NOT_NEEDED: Final = PartitionOutcome(
    ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
)


class Elections:
    """Elections on request, in one term."""

    def __init__(
        self, client: Client, model: ClusterModel, store: Store, decider: Decider, counters: Counters
    ) -> None:
        """Elect nobody yet."""
        self._client = client
        self._model = model
        self._store = store
        self._decider = decider
        self._counters = counters

    async def elect(
        self, keys: Collection[PartitionKey] | None, *, unclean: bool
    ) -> dict[PartitionKey, PartitionOutcome]:
        """Elect preferred leaders, or leaders outside of the ISR where no member of it lives.

        Args:
            keys: the partitions; None: all, and those that need no election are left out of the answer.
            unclean: the latter.
        """
        chosen = [key for key, _ in self._model.partitions()] if keys is None else list(dict.fromkeys(keys))
        outcomes: dict[PartitionKey, PartitionOutcome] = {}
        needed: list[PartitionKey] = []
        pace = Pace()
        for key in chosen:
            await pace.rest()
            if not self._model.replicas(key) or not self._model.may_decide(key.topic):
                outcomes[key] = _UNKNOWN
            elif self._is_led(key, unclean=unclean):
                outcomes[key] = _NOT_NEEDED
            else:
                needed.append(key)
        if needed:
            await self._decider.settle(
                needed, kind=ElectionKind.UNCLEAN if unclean else ElectionKind.PREFERRED
            )
        for key in needed:
            await pace.rest()
            outcomes[key] = self._outcome(key, unclean=unclean)
        if keys is None:
            return {key: each for key, each in outcomes.items() if each not in (_NOT_NEEDED, _UNKNOWN)}
        return outcomes

    async def take_request(self) -> None:
        """Carry out what stands in /admin/preferred_replica_election, and remove it."""
        node = await read_node(self._client, paths.PREFERRED_REPLICA_ELECTION)
        if node is None:
            return
        try:
            wanted = PreferredElectionRecord.decode(node.data).partitions
        except MetadataDecodeError as error:
            log.warning("a request for preferred leaders was removed: %s", error)
            wanted = ()
        for key, outcome in (await self.elect(wanted, unclean=False)).items():
            if outcome.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                log.warning("no election of the preferred leader of %s-%d: %s", *key, outcome.message)
        await self._store.replace_request(paths.PREFERRED_REPLICA_ELECTION, None, node.stat.version)

    async def balance(self, percentage: int) -> None:
        """Give leaderships back to brokers that lack more than so many percent of their own."""
        keys = find_imbalanced(self._model, percentage)
        if keys:
            log.info("%d partitions go back to their preferred leaders", len(keys))
            await self._decider.settle(keys, kind=ElectionKind.PREFERRED)
            self._counters.leaders_rebalanced += sum(self._is_led(key, unclean=False) for key in keys)

    def _is_led(self, key: PartitionKey, *, unclean: bool) -> bool:
        known = self._model.states.get(key)
        if known is None:
            return False
        leader = known.state.leader
        return leader != NO_LEADER if unclean else leader == self._model.holders(key)[0]

    def _outcome(self, key: PartitionKey, *, unclean: bool) -> PartitionOutcome:
        if self._is_led(key, unclean=unclean):
            return PartitionOutcome(ErrorCode.NONE)
        if unclean:
            return PartitionOutcome(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its replicas lives")
        preferred = self._model.holders(key)[0] if self._model.replicas(key) else NO_LEADER
        message = f"broker {preferred} is not live or not in the ISR: start it and let it catch up"
        return PartitionOutcome(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)
