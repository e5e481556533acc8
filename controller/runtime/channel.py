"""Control requests on their way: one ordered channel per broker and generation, one request at a time.

What is due stands in the outbox; a request is made when it leaves, from what is newest then, and it leaves
only after the decisions it carries were acknowledged, because the model holds no others. A request without
an answer is sent again after a growing pause, until the broker is gone or has bounced: then its channel is
closed and another generation gets another channel. How a request travels is a carrier's: by a connection to
the broker, or by the broker's queue in the quorum (queue.py). STALE_BROKER_EPOCH (77) ends a channel: that
life of the broker is over. STALE_CONTROLLER_EPOCH (11) ends the term. Soft state only.
Source: control-plane design, "Channel"; KIP-380; seeds [0.disc2], [1.7].
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from controller.core.model import ClusterModel, KnownState, LiveBroker
from controller.core.outbox import Batch, Outbox
from controller.election.fenced import Beside
from controller.election.plans import Mandate
from controller.messages.entities import (
    CONTROL_VERSIONS,
    ControlResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    decode_response,
)
from controller.runtime.bodies import Bodies, Sender
from controller.runtime.options import ControllerOptions, Counters
from controller.runtime.queue import ENTRY_PARTITIONS_MAX, QueueCarrier, QueueGoneError
from controller.runtime.store import Store
from controller.wire.codes import ErrorCode, code_name
from controller.wire.connection import (
    BrokerAuthenticationError,
    BrokerConnectionLostError,
    BrokerUnreachableError,
)
from controller.wire.decoding import MalformedMessageError
from quorum.client import Client, ConnectionLossError
from quorum.errors import QuorateError
from quorum.metadata.numbers import ControllerEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.controller.channel")

PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0

_NO_ANSWER: Final = (
    BrokerUnreachableError,
    BrokerConnectionLostError,
    BrokerAuthenticationError,
    MalformedMessageError,
    ConnectionLossError,
)
#: Bytes of a partition in an entry of a queue, at most, beside its names and replicas.
_ENTRY_PARTITION_BYTES: Final = 160


class Connection(Protocol):
    """What a channel needs of a connection to a broker."""

    async def request(
        self, api_key: int, api_version: int, body: bytes, *, flexible: bool, timeout_ms: int
    ) -> bytes:
        """Send one request and return the body of its answer."""

    def close(self) -> None:
        """Drop the connection."""


class Carrier(Protocol):
    """How requests get to one life of one broker, and their answers back."""

    async def exchange(self, batch: Batch) -> ControlResponse:
        """Have the broker carry out what is newest of a batch."""

    def close(self) -> None:
        """Drop what is open; the next exchange opens it again."""


#: Opens a connection to the broker listener of a registration.
Connect = Callable[[int, LiveBroker], Awaitable[Connection]]


class _GenerationOverError(QuorateError):
    """The broker says that this life of it is over."""


class TermShare(NamedTuple):
    """What the channels of one term share."""

    client: Client
    store: Store
    mandate: Mandate[ControllerEpoch]
    model: ClusterModel
    bodies: Bodies
    connect: Connect
    options: ControllerOptions
    counters: Counters
    trust: Trust
    #: Called after every answer, and when a channel has ended.
    on_progress: Callable[[], None]
    #: Called with the reason when the term must end.
    on_over: Callable[[str], None]
    #: Called with a broker that leaves too much in its queue.
    on_overrun: Callable[[int], None]
    #: Called with what broke a channel that should not have.
    on_failure: Callable[[BaseException], None]

    @property
    def by_queue(self) -> bool:
        """Whether requests travel by the quorum, to those brokers that read their queues."""
        return self.options.channel == "queue"


class DirectCarrier:
    """One ordered connection to the broker listener."""

    def __init__(self, share: TermShare, sender: Sender, broker_id: int, broker: LiveBroker) -> None:
        """Dial nobody yet."""
        self._share = share
        self._sender = sender
        self._broker_id = broker_id
        self._broker = broker
        self._connection: Connection | None = None

    async def exchange(self, batch: Batch) -> ControlResponse:
        """Send a request and return its answer."""
        share = self._share
        if self._connection is None:
            self._connection = await share.connect(self._broker_id, self._broker)
            # What has been decided meanwhile goes out with this very request.
        api_key, body = share.bodies.make(self._sender, batch)
        share.counters.requests_sent += 1
        answer = await self._connection.request(
            api_key,
            CONTROL_VERSIONS[api_key],
            body,
            flexible=True,
            timeout_ms=share.options.control_request_timeout_ms,
        )
        return decode_response(api_key, CONTROL_VERSIONS[api_key], answer)

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Channel:
    """The way to one life of one broker."""

    def __init__(self, share: TermShare, broker_id: int, broker: LiveBroker) -> None:
        """Begin to send what is put into the outbox."""
        sender = Sender(share.mandate.broker_id, share.mandate.epoch, broker.generation)
        self.queue: QueueCarrier | None = None
        self.outbox = Outbox()
        if share.by_queue and broker.record.reads_queue:
            self.queue = QueueCarrier(
                share.client, share.store, share.bodies, sender, broker_id, share.counters, share.trust
            )
            self.outbox = Outbox(ENTRY_PARTITIONS_MAX)
        self._carrier: Carrier = self.queue or DirectCarrier(share, sender, broker_id, broker)
        #: {partition: its state, where the newest write of states had the role beside it}
        self.carried: dict[PartitionKey, PartitionStateRecord] = {}
        self.broker_id = broker_id
        self._broker = broker
        self._share = share
        self._due = asyncio.Event()
        self._due.set()
        self._complaint = ""
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"control requests to broker {broker_id}"
        )

    def wake(self) -> None:
        """Look at the outbox again."""
        self._due.set()

    def has_carried(self, key: PartitionKey, state: PartitionStateRecord) -> bool:
        """Say whether the entry of a state that stands in the quorum was written with it."""
        return self.carried.get(key) == state

    def check_depth(self) -> None:
        """Give the broker up if it leaves too much in its queue."""
        if self.queue is not None and self.queue.depth > self._share.options.queue_entries_max:
            self._share.on_overrun(self.broker_id)

    async def close(self) -> None:
        """Send nothing more; what is under way has an unknown outcome."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        try:
            while True:
                await self._due.wait()
                self._due.clear()
                await self._send_all()
        except _GenerationOverError as error:
            log.info("control requests to broker %d stopped: %s", self.broker_id, error.message)
        except QueueGoneError as error:
            self._share.on_over(error.message)
        except Exception as error:  # noqa: BLE001 - the top of a task: the term ends with the story
            self._share.on_failure(error)
        finally:
            self._carrier.close()
            self._share.on_progress()

    async def _send_all(self) -> None:
        pause = PAUSE_MIN_S
        while (batch := self.outbox.next_batch()) is not None:
            try:
                self._judge(await self._carrier.exchange(batch))
                pause = PAUSE_MIN_S
            except _NO_ANSWER as error:
                self._carrier.close()
                self.outbox.put_back()
                self._share.counters.requests_repeated += 1
                self._complain(f"no answer, sending again: {error.message}")
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
            self._share.on_progress()

    def _judge(self, response: ControlResponse) -> None:
        """Act on an answer."""
        match response.error_code:
            case ErrorCode.NONE:
                self._complaint = ""
                self._take_partition_errors(response)
            case ErrorCode.STALE_BROKER_EPOCH:
                self._share.counters.stale_generations += 1
                raise _GenerationOverError(f"generation {self._broker.generation} of it is over")
            case ErrorCode.STALE_CONTROLLER_EPOCH:
                log.warning("broker %d knows a later controller than this one", self.broker_id)
                self._share.on_over("a broker knows a later controller")
                raise _GenerationOverError("this controller is deposed")
            case code:
                raise MalformedMessageError("control request", f"the broker answered {code_name(code)}")

    def _take_partition_errors(self, response: ControlResponse) -> None:
        match response:
            case LeaderAndIsrResponse():
                codes = [each.error_code for topic in response.topics for each in topic.partition_errors]
                self._count_errors("LeaderAndIsr", codes)
                self.outbox.confirm()
            case StopReplicaResponse():
                failed = {
                    PartitionKey(each.topic_name, each.partition_index)
                    for each in response.partition_errors
                    if each.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                }
                self._count_errors("StopReplica", [each.error_code for each in response.partition_errors])
                if failed:
                    self.outbox.put_back(failed)
                else:
                    self.outbox.confirm()
            case _:
                self.outbox.confirm()

    def _count_errors(self, name: str, codes: Sequence[int]) -> None:
        refused = [code for code in codes if code != ErrorCode.NONE]
        if refused:
            self._share.counters.partition_errors += len(refused)
            self._complain(
                f"{name}: {len(refused)} partitions refused, the first with {code_name(refused[0])}"
            )

    def _complain(self, complaint: str) -> None:
        """Log a complaint once, not at every repetition."""
        if complaint != self._complaint:
            self._complaint = complaint
            log.warning("broker %d: %s", self.broker_id, complaint)


class Channels:
    """The channels to all admitted brokers."""

    def __init__(self, share: TermShare) -> None:
        """Have none yet."""
        self._share = share
        self._channels: dict[int, Channel] = {}

    def open(self, broker_id: int, broker: LiveBroker) -> None:
        """Open the channel of an admitted broker and owe it everything: what was ever published."""
        model = self._share.model
        channel = self._channels[broker_id] = Channel(self._share, broker_id, broker)
        channel.outbox.owe_metadata(model.states)
        for key, replicas in model.partitions():
            if broker_id not in replicas:
                continue
            if key.topic in model.deleting:
                channel.outbox.owe_stop(key)
            elif key in model.states:
                self._owe_role(channel, key)

    async def close(self, broker_ids: Iterable[int]) -> None:
        """Close the channels of brokers that are gone, or whose life is over."""
        for broker_id in broker_ids:
            channel = self._channels.pop(broker_id, None)
            if channel is not None:
                await channel.close()

    async def remove_queues(self, live: Collection[int]) -> None:
        """Remove the queues of brokers that are gone, whichever controller filled them.

        Raises:
            ConnectionLossError: the outcome is unknown; repeat it.
        """
        await self._share.store.remove_queues(live if self._share.by_queue else ())

    async def close_all(self) -> None:
        """Close all channels."""
        await self.close(list(self._channels))

    def owe_brokers(self) -> None:
        """Everybody needs the new list of live brokers."""
        for channel in self._channels.values():
            channel.outbox.owe_brokers()
            channel.wake()

    def owe_metadata(self, keys: Sequence[PartitionKey]) -> None:
        """Everybody needs these partitions for its clients."""
        for channel in self._channels.values():
            channel.outbox.owe_metadata(keys)
            channel.wake()

    def owe_leadership(self, key: PartitionKey, *, is_new: bool) -> None:
        """The brokers of a partition's replicas need its new roles, and everybody needs to know them."""
        for broker_id in self._share.model.replicas(key):
            channel = self._channels.get(broker_id)
            if channel is not None and not channel.has_carried(key, self._share.model.states[key].state):
                self._owe_role(channel, key, is_new=is_new)
        self.owe_metadata((key,))

    # -- what goes into the multis of states -----------------------------------------------------------------

    def beside(self) -> Beside | None:
        """Begin another write of states; returns what goes with it, if anything does."""
        for channel in self._channels.values():
            channel.carried.clear()
        return self if self._share.by_queue else None

    def lost_queue(self) -> None:
        """End the term: somebody has removed a queue, and nobody knows what stood in it."""
        self._share.on_over("a queue of a broker was removed")

    def bytes_of(self, key: PartitionKey) -> int:
        """Say how many bytes the entries of a partition take at most."""
        replicas = len(self._share.model.replicas(key))
        return replicas * (_ENTRY_PARTITION_BYTES + 2 * len(key.topic) + 12 * replicas)

    def nodes(
        self, states: Mapping[PartitionKey, tuple[PartitionStateRecord, PartitionVersion]], *, is_new: bool
    ) -> Iterator[tuple[str, bytes]]:
        """Yield the entries of the brokers that get roles by these states.

        Not every role can go with its state: those of a reassignment follow, as do those of a broker that
        has not seen the cluster yet, or that shuts down.
        """
        model = self._share.model
        carried: dict[int, dict[PartitionKey, KnownState]] = {}
        for key, (state, version) in states.items():
            for broker_id in model.replicas(key) if model.move(key) is None else ():
                if broker_id not in model.leaving:
                    carried.setdefault(broker_id, {})[key] = KnownState(state, version, None)
        for broker_id, named in carried.items():
            channel = self._channels.get(broker_id)
            if channel is None or channel.queue is None or not channel.outbox.takes_roles:
                continue
            channel.carried.update({key: known.state for key, known in named.items()})
            yield channel.queue.roles(named, is_new=is_new)
            channel.check_depth()

    # -- stops -----------------------------------------------------------------------------------------------

    def owe_stops_of_leaver(self, broker_id: int, keys: Iterable[PartitionKey]) -> None:
        """A broker that shuts down must stop those of these replicas that are in no ISR any more."""
        channel = self._channels.get(broker_id)
        for key in keys if channel is not None else ():
            known = self._share.model.states.get(key)
            if channel is not None and known is not None and broker_id not in known.state.isr:
                self._owe_role(channel, key)
                channel.wake()

    def owe_roles(self, broker_id: int, topics: Iterable[str]) -> None:
        """A broker needs its roles in these topics: until now its ISR memberships there were in doubt."""
        channel, model = self._channels.get(broker_id), self._share.model
        if channel is not None:
            for key in (key for topic in topics for key in model.keys_of(topic)):
                if key in model.states and broker_id in model.replicas(key):
                    self._owe_role(channel, key)
            channel.wake()

    def _owe_role(self, channel: Channel, key: PartitionKey, *, is_new: bool = False) -> None:
        """Owe a broker what its replica shall be: leader or follower, stopped, or gone.

        Not while the state may count on records that the broker does not have.
        """
        model, broker_id = self._share.model, channel.broker_id
        if key.topic in model.doubts.get(broker_id, ()):
            return
        if broker_id not in model.holders(key):
            channel.outbox.owe_stop(key)
        elif broker_id in model.leaving and broker_id not in model.states[key].state.isr:
            # It would fetch its way back into the ISR.
            channel.outbox.owe_stop(key, deletes=False)
        else:
            move = model.move(key)
            comes = move is not None and broker_id in move.adding
            channel.outbox.owe_leadership(key, is_new=is_new or comes)

    def owe_stops(self, keys: Iterable[PartitionKey]) -> None:
        """The brokers of these partitions must delete their replicas."""
        for key in keys:
            for broker_id in self._share.model.replicas(key):
                channel = self._channels.get(broker_id)
                if channel is not None:
                    channel.outbox.owe_stop(key)
                    channel.wake()

    def stopped(self, key: PartitionKey, broker_ids: Iterable[int]) -> bool:
        """Say whether these brokers, as far as they live, have confirmed that they stopped a replica."""
        found = [self._channels[each] for each in broker_ids if each in self._channels]
        return not any(channel.outbox.owes_stop(key) for channel in found)

    def pending_topics(self) -> set[str]:
        """Return the topics of which a live broker has not answered all."""
        return set().union(*(channel.outbox.pending_topics() for channel in self._channels.values()))
