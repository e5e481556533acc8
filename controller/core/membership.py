"""Brokers that come, go and bounce, in the order that keeps records.

Failures first (bounced brokers count as failed), and the ISR memberships of replaced disks and of shortened
logs go; then it is recorded what was judged; only then a broker is admitted, gets a channel, and may be
elected. So no broker learns of a role that rests on a disk or on records that are gone, and a controller that
dies in between leaves nothing behind that its successor would misread. A topic that is left alone meanwhile
stays in doubt: the record says so, the broker gets no role in it, and the judgement follows when the topic
can be decided about. Hard state: /brokers/incarnations/N; the rest is soft.
A broker that asks to shut down gives its leaderships away and leaves the ISRs of others first; a request of a
former life of it changes nothing.
Source: ARCHITECTURE.md, "Life of a broker failure"; docs/internals/requirements.md, [0.A], [0.E], [1.4],
[1.5]; KIP-380.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from controller.core import fences
from controller.core.brokers import diff_brokers, find_doubts, judgement
from controller.core.channels import Channels
from controller.core.deciding import Decider
from controller.core.effects import CreateNode, DeleteNode, Operation, SetData
from controller.core.inputs import Why
from controller.core.io import Io, Steps, UnsureError, declined
from controller.core.model import ClusterModel, LiveBroker
from controller.core.options import Counters
from controller.core.reading import (
    CheckSigned,
    JudgedIncarnation,
    read_incarnations,
    read_registrations,
)
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import IncarnationRecord


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
        io: Io,
        model: ClusterModel,
        decider: Decider,
        channels: Channels,
        counters: Counters,
        check_signed: CheckSigned,
        *,
        by_queue: bool,
    ) -> None:
        """Know no broker yet."""
        self._io = io
        self._model = model
        self._decider = decider
        self._channels = channels
        self._counters = counters
        self._check_signed = check_signed
        self._by_queue = by_queue
        #: Whether brokers may have bounced while nobody watched, until all partitions were decided once.
        self._taking_office = True
        #: Brokers whose failure is not settled yet.
        self._failed: dict[int, None] = {}
        #: {broker id: why its registration does not count, as it was logged}
        self.strangers: Mapping[int, str] = {}

    def update(self) -> Steps[bool]:
        """Compare the registrations with what is known, and act.

        Returns:
            False if not all of it could be settled: call it again.
        """
        registrations = yield from read_registrations(self._io, self._check_signed)
        self._complain_once(registrations.strangers)
        current = registrations.brokers
        diff = diff_brokers(self._model.brokers, current)
        if not (diff or self._taking_office or self._failed or self._model.reopened()):
            return True
        arrived = {each: current[each] for each in (*diff.new, *diff.bounced)}
        for each in (*diff.dead, *diff.bounced):
            self._io.info(f"broker {each} {'bounced' if each in diff.bounced else 'is gone'}")
            self._model.drop_broker(each)
            self._failed[each] = None
        self._channels.close((*diff.dead, *diff.bounced))
        judged = yield from self._doubt(arrived, current)
        live = [each for each in current if each not in self._failed]
        touched = dict.fromkeys((*self._naming(self._failed), *self._doubtful()))
        versions = {key: self._model.states[key].partition_version for key in touched}
        if not (yield from self._decider.settle(touched, live=live)):
            return False
        self._owe_losses([each for each in self._failed if each not in arrived], versions)
        yield from self._remove_queues(current if self._by_queue else ())
        self._failed.clear()
        reopened = yield from self._record(current, judged)
        self._admit(arrived)
        for each, topics in reopened.items():
            if each not in arrived:
                self._io.info(f"broker {each}: its ISR memberships were judged in {', '.join(topics)}")
                self._channels.owe_roles(each, topics)
        if not (arrived or reopened or self._taking_office):
            # A partition whose ISR names nobody that is gone stays as it is.
            return True
        self._channels.owe_brokers()
        self._channels.owe_metadata(self._with_replica_on(arrived))
        lives = {each: broker.generation for each, broker in current.items()}
        settled = yield from self._decider.settle(None, generations=lives if self._taking_office else None)
        self._taking_office = self._taking_office and not settled
        return settled

    def standing(self, broker_id: int, generation: BrokerGeneration) -> Standing:
        """Compare a generation with the one that is known."""
        known = self._model.brokers.get(broker_id)
        if known is None or known.generation < generation:
            return Standing.UNKNOWN
        return Standing.FORMER if fences.is_former_life(known, generation) else Standing.CURRENT

    def retire(self, broker_id: int) -> Steps[list[PartitionKey]]:
        """Let others lead what a broker leads, and take it out of their ISRs.

        Returns:
            The partitions that it still leads and that another live replica could lead, once it is in sync.
        """
        if broker_id not in self._model.leaving:
            self._io.info(f"broker {broker_id} shuts down")
            self._model.leaving[broker_id] = None
        keys = self._with_replica_on((broker_id,))
        yield from self._decider.settle(keys)
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

    def _doubt(
        self, arrived: Mapping[int, LiveBroker], current: Mapping[int, LiveBroker]
    ) -> Steps[dict[int, JudgedIncarnation]]:
        """Note what is to be judged of those that arrived; return what is recorded of all with doubts."""
        model = self._model
        for each in [each for each in model.doubts if each not in current]:
            del model.doubts[each]
        judged = yield from read_incarnations(self._io, dict.fromkeys((*arrived, *model.doubts)))
        for each, broker in arrived.items():
            record = judged[each].record if each in judged else None
            model.doubts[each] = find_doubts(broker, record, model.topics, model.left_alone)
        return judged

    def _doubtful(self) -> list[PartitionKey]:
        """Return the partitions whose ISRs are to be judged."""
        model = self._model
        topics = dict.fromkeys(topic for doubts in model.doubts.values() for topic in doubts)
        return [key for topic in topics for key in model.keys_of(topic) if key in model.states]

    def _record(
        self, current: Mapping[int, LiveBroker], judged: Mapping[int, JudgedIncarnation]
    ) -> Steps[dict[int, list[str]]]:
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
        if news:
            yield from self._write_incarnations(news, judged)
        for each, topics in settled.items():
            for topic in topics:
                del model.doubts[each][topic]
            if not model.doubts[each]:
                del model.doubts[each]
        for each, record in news.items():
            known = judged[each].record if each in judged else IncarnationRecord(record.incarnation)
            if fences.is_other_disk(known.incarnation, record.incarnation):
                self._counters.disks_replaced += 1
                self._io.warn(f"broker {each} came with another disk: it was taken out of every ISR")
            if record.generation not in (-1, known.generation):
                count = sum(map(len, current[each].record.shortened.values()))
                self._io.warn(
                    f"broker {each} came with {count} shortened logs: it was taken out of the ISRs of these"
                )
            if record.topics:
                self._io.warn(
                    f"broker {each}: its ISR memberships are in doubt while these topics are left alone: "
                    + ", ".join(record.topics)
                )
        return settled

    def _write_incarnations(
        self, records: Mapping[int, IncarnationRecord], known: Mapping[int, JudgedIncarnation]
    ) -> Steps[None]:
        operations: list[Operation] = []
        for broker_id, record in records.items():
            path, value = paths.broker_incarnation_path(broker_id), record.encode()
            if broker_id in known:
                operations.append(SetData(path, value, known[broker_id].version))
            else:
                operations.append(CreateNode(path, value))
        rejected = yield from self._io.write(*operations)
        if rejected is not None and rejected.failed_index >= 0:
            raise UnsureError(f"the record of incarnations: {rejected.problem}")
        if rejected is not None:
            raise declined(rejected)

    def _remove_queues(self, kept: Collection[int]) -> Steps[None]:
        """Remove the queues of all brokers but these, whichever controller filled them."""
        for name in (yield from self._io.read_children(paths.BROKER_QUEUES)):
            if name.isdecimal() and int(name) not in kept:
                path = f"{paths.BROKER_QUEUES}/{name}"
                entries = yield from self._io.read_children(path)
                for some in ([f"{path}/{entry}" for entry in entries], [path]):
                    for rejected in (yield from self._io.write_all([[DeleteNode(each)] for each in some])):
                        if rejected is not None and rejected.why is not Why.NO_NODE:
                            raise declined(rejected)

    def _admit(self, arrived: Mapping[int, LiveBroker]) -> None:
        self._model.brokers.update(arrived)
        for each, broker in arrived.items():
            self._io.info(f"broker {each} is here, generation {broker.generation}")
            self._channels.open(each, broker)

    def _owe_losses(self, gone: Collection[int], versions: Mapping[PartitionKey, PartitionVersion]) -> None:
        """Everybody needs to know which brokers are gone, and which partitions lack a replica by that.

        Args:
            gone: those brokers.
            versions: of states before they were decided: one that has another now is owed already.
        """
        if gone:
            states, lacking = self._model.states, self._with_replica_on(gone)
            self._channels.owe_brokers()
            self._channels.owe_metadata(
                [key for key in lacking if versions.get(key, -1) in (-1, states[key].partition_version)]
            )

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
                self._io.warn(f"broker {broker_id} is a stranger and counts as dead: {problem}")
        self.strangers = strangers
