"""Brokers that come, go and bounce, in the order that keeps records.

Failures first (bounced brokers count as failed), and the ISR memberships of replaced disks and of shortened
logs go; then it is recorded what was judged; only then a broker is admitted, gets a channel, and may be
elected. So no broker learns of a role that rests on a disk or on records that are gone, and a controller that
dies in between leaves nothing behind that its successor would misread. A topic that is left alone meanwhile
stays in doubt: the record says so, the broker gets no role in it, and the judgement follows when the topic
can be decided about. Hard state: /brokers/incarnations/N; the rest is soft.
A broker that asks to shut down gives its leaderships away and leaves the ISRs of others first; a request of a
former life of it changes nothing.
Source: control-plane design, "Broker changes", "Registration", "Controlled shutdown"; seeds [0.A], [0.E],
[1.4], [1.5]; KIP-380.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from enum import Enum

from controller.core.brokers import diff_brokers, find_doubts, judgement
from controller.core.channels import Channels
from controller.core.model import ClusterModel, LiveBroker
from controller.core.options import Counters
from controller.runtime.deciding import Decider
from controller.runtime.reader import JudgedIncarnation, read_incarnations, read_registrations
from controller.runtime.store import Store
from quorum.client import Client, MultiFailedError
from quorum.metadata.errors import ContendedError
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import IncarnationRecord
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.controller")


class Standing(Enum):
    """What a generation is to the controller."""

    CURRENT = "current"
    FORMER = "former"
    #: The event of its registration is still to come.
    UNKNOWN = "unknown"


class Membership:
    """The brokers of one term."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        store: Store,
        decider: Decider,
        channels: Channels,
        counters: Counters,
        trust: Trust,
        *,
        by_queue: bool,
    ) -> None:
        """Know no broker yet."""
        self._client = client
        self._model = model
        self._store = store
        self._decider = decider
        self._channels = channels
        self._counters = counters
        self._trust = trust
        self._by_queue = by_queue
        #: Whether brokers may have bounced while nobody watched, until all partitions were decided once.
        self._taking_office = True
        #: Brokers whose failure is not settled yet.
        self._failed: dict[int, None] = {}
        #: {broker id: why its registration does not count, as it was logged}
        self.strangers: Mapping[int, str] = {}
        #: {broker id: the life of it that counts as dead although it is registered}
        self._given_up: dict[int, BrokerGeneration] = {}

    async def update(self) -> bool:
        """Compare the registrations with what is known, and act.

        Returns:
            False if not all of it could be settled: call it again.

        Raises:
            ContendedError: somebody else changed a record that only the controller writes; call it again.
        """
        registrations = await read_registrations(self._client, self._trust)
        self._complain_once(registrations.strangers)
        current = {
            each: broker
            for each, broker in registrations.brokers.items()
            if self._given_up.get(each) != broker.generation
        }
        diff = diff_brokers(self._model.brokers, current)
        if not (diff or self._taking_office or self._failed or self._model.reopened()):
            return True
        arrived = {each: current[each] for each in (*diff.new, *diff.bounced)}
        for each in (*diff.dead, *diff.bounced):
            log.info("broker %d %s", each, "bounced" if each in diff.bounced else "is gone")
            self._model.drop_broker(each)
            self._failed[each] = None
        self._channels.close((*diff.dead, *diff.bounced))
        judged = await self._doubt(arrived, current)
        live = [each for each in current if each not in self._failed]
        touched = dict.fromkeys((*self._naming(self._failed), *self._doubtful()))
        if not await self._decider.settle(touched, live=live):
            return False
        await self._store.remove_queues(current if self._by_queue else ())
        gone = tuple(self._failed)
        self._failed.clear()
        reopened = await self._record(current, judged)
        self._admit(arrived)
        for each, topics in reopened.items():
            if each not in arrived:
                log.info("broker %d: its ISR memberships were judged in %s", each, ", ".join(topics))
                self._channels.owe_roles(each, topics)
        self._channels.owe_brokers()
        self._channels.owe_metadata(self._with_replica_on((*gone, *arrived)))
        lives = {each: broker.generation for each, broker in current.items()}
        settled = await self._decider.settle(None, generations=lives if self._taking_office else None)
        self._taking_office = self._taking_office and not settled
        return settled

    def give_up(self, broker_id: int) -> bool:
        """Let this life of a broker count as dead; False if it does already."""
        known = self._model.brokers.get(broker_id)
        if known is None or self._given_up.get(broker_id) == known.generation:
            return False
        self._given_up[broker_id] = known.generation
        self._counters.queues_overrun += 1
        log.warning("broker %d leaves its queue alone and counts as dead: restart it", broker_id)
        return True

    def standing(self, broker_id: int, generation: BrokerGeneration) -> Standing:
        """Compare a generation with the one that is known."""
        known = self._model.brokers.get(broker_id)
        if known is None or known.generation < generation:
            return Standing.UNKNOWN
        return Standing.CURRENT if known.generation == generation else Standing.FORMER

    async def retire(self, broker_id: int) -> list[PartitionKey]:
        """Let others lead what a broker leads, and take it out of their ISRs.

        Returns:
            The partitions that it still leads and that another live replica could lead, once it is in sync.
        """
        if broker_id not in self._model.leaving:
            log.info("broker %d shuts down", broker_id)
            self._model.leaving[broker_id] = None
        keys = self._with_replica_on((broker_id,))
        await self._decider.settle(keys)
        self._channels.owe_stops_of_leaver(broker_id, keys)
        return [key for key in keys if self._leads(broker_id, key) and self._has_heir(broker_id, key)]

    def _leads(self, broker_id: int, key: PartitionKey) -> bool:
        known = self._model.states.get(key)
        return known is not None and known.state.leader == broker_id

    def _has_heir(self, broker_id: int, key: PartitionKey) -> bool:
        return any(
            each != broker_id and each in self._model.brokers and each not in self._model.leaving
            for each in self._model.holders(key)
        )

    async def _doubt(
        self, arrived: Mapping[int, LiveBroker], current: Mapping[int, LiveBroker]
    ) -> dict[int, JudgedIncarnation]:
        """Note what is to be judged of those that arrived; return what is recorded of all with doubts."""
        model = self._model
        for each in [each for each in model.doubts if each not in current]:
            del model.doubts[each]
        judged = await read_incarnations(self._client, dict.fromkeys((*arrived, *model.doubts)))
        for each, broker in arrived.items():
            record = judged[each].record if each in judged else None
            model.doubts[each] = find_doubts(broker, record, model.topics, model.left_alone)
        return judged

    def _doubtful(self) -> list[PartitionKey]:
        """Return the partitions whose ISRs are to be judged."""
        model = self._model
        topics = dict.fromkeys(topic for doubts in model.doubts.values() for topic in doubts)
        return [key for topic in topics for key in model.keys_of(topic) if key in model.states]

    async def _record(
        self, current: Mapping[int, LiveBroker], judged: Mapping[int, JudgedIncarnation]
    ) -> dict[int, list[str]]:
        """Record by what memberships are judged from now on; what could not be judged stays in doubt.

        Returns:
            {broker id: topics in which it was judged}
        """
        model = self._model
        settled = {
            each: [topic for topic in doubts if model.is_judged(each, topic)]
            for each, doubts in model.doubts.items()
        }
        news: dict[int, IncarnationRecord] = {}
        for each, topics in settled.items():
            known = judged[each].record if each in judged else None
            unsettled = model.doubts[each].keys() - dict.fromkeys(topics).keys()
            if (record := judgement(current[each], known, unsettled)) is not None:
                news[each] = record
        try:
            if news:
                await self._store.record_incarnations(news, judged)
        except MultiFailedError as error:
            raise ContendedError("the record of incarnations", 1) from error
        for each, topics in settled.items():
            for topic in topics:
                del model.doubts[each][topic]
            if not model.doubts[each]:
                del model.doubts[each]
        for each, record in news.items():
            known = judged[each].record if each in judged else IncarnationRecord(record.incarnation)
            if known.incarnation != record.incarnation:
                self._counters.disks_replaced += 1
                log.warning("broker %d came with another disk: it was taken out of every ISR", each)
            if record.generation not in (-1, known.generation):
                count = sum(map(len, current[each].record.shortened.values()))
                log.warning(
                    "broker %d came with %d shortened logs: it was taken out of the ISRs of these",
                    each,
                    count,
                )
            if record.topics:
                log.warning(
                    "broker %d: its ISR memberships are in doubt while these topics are left alone: %s",
                    each,
                    ", ".join(record.topics),
                )
        return settled

    def _admit(self, arrived: Mapping[int, LiveBroker]) -> None:
        self._model.brokers.update(arrived)
        for each, broker in arrived.items():
            log.info("broker %d is here, generation %d", each, broker.generation)
            self._channels.open(each, broker)

    def _naming(self, broker_ids: Collection[int]) -> list[PartitionKey]:
        return [
            key
            for key, known in self._model.states.items()
            if any(each in known.state.isr or each in known.state.shortened for each in broker_ids)
        ]

    def _with_replica_on(self, broker_ids: Collection[int]) -> list[PartitionKey]:
        return [
            key for key in self._model.states if any(each in broker_ids for each in self._model.replicas(key))
        ]

    def _complain_once(self, strangers: Mapping[int, str]) -> None:
        for broker_id, problem in strangers.items():
            if self.strangers.get(broker_id) != problem:
                log.warning("broker %d is a stranger and counts as dead: %s", broker_id, problem)
        self.strangers = strangers
