"""What the brokers are owed and when it leaves: one channel per broker and generation, one request at a time.

The outbox names partitions; a request is built when it leaves, from the model, which holds acknowledged
states only. A request without an answer is sent again after a growing pause, until the broker is gone or has
bounced: then its channel is closed and the next generation gets another. Stops that a broker refuses are sent
again after such a pause, too, which holds nothing else up. STALE_BROKER_EPOCH (77) ends a channel,
STALE_CONTROLLER_EPOCH (11) the term. Soft state only.
Source: ARCHITECTURE.md, "Life of a controller"; KIP-380; docs/internals/requirements.md, [0.disc2], [1.7].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from controller.core import fences
from controller.core.effects import CloseChannel, Effect, Level, OpenChannel, Resign, Send, Trace
from controller.core.inputs import Answered, NoAnswer
from controller.core.model import ClusterModel, LiveBroker
from controller.core.options import Counters
from controller.core.outbox import REQUEST_PARTITIONS_MAX, Outbox, StopBatch
from controller.wire.codes import ErrorCode, code_name
from quorum.metadata.paths import PartitionKey

PAUSE_MIN_MS: Final = 50
PAUSE_MAX_MS: Final = 2_000
#: Partitions of one entry of a queue.
ENTRY_PARTITIONS_MAX: Final = 1_000


class Pause:
    """A pause that doubles each time, until all is well."""

    def __init__(self) -> None:
        """Be over."""
        #: When it ends; None: it is over.
        self.until_ms: int | None = None
        self._next_ms = PAUSE_MIN_MS

    def begin(self, now_ms: int) -> None:
        """Begin a pause, longer than the one before."""
        self.until_ms = now_ms + self._next_ms
        self._next_ms = min(2 * self._next_ms, PAUSE_MAX_MS)

    def is_over(self, now_ms: int) -> bool:
        """Say whether it is; one that is ends for good."""
        if self.until_ms is not None and self.until_ms <= now_ms:
            self.until_ms = None
        return self.until_ms is None

    def shorten(self) -> None:
        """Let the next one be a first one."""
        self._next_ms = PAUSE_MIN_MS


class Channel:
    """The way to one life of one broker."""

    def __init__(self, broker_id: int, broker: LiveBroker, *, by_queue: bool) -> None:
        """Owe what introduces the broker to the cluster."""
        self.broker_id = broker_id
        self.generation = broker.generation
        self.outbox = Outbox(ENTRY_PARTITIONS_MAX if by_queue else REQUEST_PARTITIONS_MAX)
        #: Whether the broker has said that this life of it is over.
        self.is_over = False
        #: Nothing is sent after a request without an answer, no stops after refused ones.
        self.pause, self.pause_of_stops = Pause(), Pause()
        self._complaint = ""

    def next_send(self, now_ms: int) -> Send | None:
        """Take the next request; None if nothing is due, one is under way, or the pause is not over."""
        may_stop = self.pause_of_stops.is_over(now_ms)
        if not self.pause.is_over(now_ms):
            return None
        batch = self.outbox.next_batch(may_stop=may_stop)
        return None if batch is None else Send(self.broker_id, self.generation, batch)

    def take(self, refused: Mapping[PartitionKey, int], now_ms: int) -> Trace | None:
        """The request under way was applied, but for these partitions; returns a complaint."""
        self.pause.shorten()
        is_stop = isinstance(self.outbox.under_way, StopBatch)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        failed = {key for key, code in refused.items() if is_stop and code != unknown}
        if failed:
            self.outbox.put_back(failed)
            self.pause_of_stops.begin(now_ms)
        else:
            self.outbox.confirm()
            if is_stop:
                self.pause_of_stops.shorten()
        if not refused:
            self._complaint = ""
            return None
        name = "StopReplica" if is_stop else "LeaderAndIsr"
        first = code_name(next(iter(refused.values())))
        return self._complain(f"{name}: {len(refused)} partitions refused, the first with {first}")

    def repeat(self, problem: str, now_ms: int) -> Trace | None:
        """The request under way must be sent again, after a pause; returns a complaint."""
        self.outbox.put_back()
        self.pause.begin(now_ms)
        return self._complain(f"no answer, sending again: {problem}")

    def _complain(self, complaint: str) -> Trace | None:
        """Return a complaint once, not at every repetition."""
        if complaint == self._complaint:
            return None
        self._complaint = complaint
        return Trace(Level.WARNING, f"broker {self.broker_id}: {complaint}")


class Channels:
    """The channels to all admitted brokers."""

    def __init__(
        self,
        model: ClusterModel,
        counters: Counters,
        emit: Callable[[Effect], None],
        *,
        by_queue: bool,
    ) -> None:
        """Have none yet.

        Args:
            model: what is owed is taken from it.
            counters: of repeated requests and stale generations.
            emit: takes effects, in order.
            by_queue: whether requests travel by the quorum, to those brokers that read their queues.
        """
        self._model = model
        self._counters = counters
        self._emit = emit
        self._by_queue = by_queue
        self._channels: dict[int, Channel] = {}

    def open(self, broker_id: int, broker: LiveBroker) -> None:
        """Open the channel of an admitted broker and owe it everything: what was ever published."""
        model = self._model
        channel = Channel(broker_id, broker, by_queue=self._by_queue and broker.record.reads_queue)
        self._channels[broker_id] = channel
        self._emit(OpenChannel(broker_id, broker))
        channel.outbox.owe_metadata(model.states)
        for key, replicas in model.partitions():
            if broker_id not in replicas:
                continue
            if key.topic in model.deleting:
                channel.outbox.owe_stop(key)
            elif key in model.states:
                self._owe_role(channel, key)

    def close(self, broker_ids: Iterable[int]) -> None:
        """Close the channels of brokers that are gone, or whose life is over."""
        for broker_id in broker_ids:
            channel = self._channels.pop(broker_id, None)
            if channel is not None and not channel.is_over:
                self._emit(CloseChannel(broker_id, channel.generation))

    def close_all(self) -> None:
        """Close all channels."""
        self.close(list(self._channels))

    # -- requests and their answers --------------------------------------------------------------------------

    def flush(self, now_ms: int) -> None:
        """Send what is due, one request to each broker that has none under way and whose pause is over."""
        for channel in self._channels.values():
            if (send := channel.next_send(now_ms)) is not None:
                self._emit(send)

    @property
    def wake_ms(self) -> int | None:
        """When the next pause is over: time for flush(); None: nobody pauses."""
        pauses = [pause for each in self._channels.values() for pause in (each.pause, each.pause_of_stops)]
        return min((each.until_ms for each in pauses if each.until_ms is not None), default=None)

    def answered(self, answer: Answered, now_ms: int) -> Resign | None:
        """Take an answer; returns that the term must end, where a broker says so."""
        channel = self._asked(answer)
        if channel is None:
            return None
        code = answer.error_code
        if fences.ends_term(code):
            self._end(channel, Level.WARNING, "it knows a later controller than this one")
            return Resign("a broker knows a later controller")
        if fences.ends_life(code):
            self._counters.stale_generations += 1
            self._end(channel, Level.INFO, f"no more requests, generation {channel.generation} of it is over")
        elif code == ErrorCode.NONE:
            self._trace(channel.take(answer.partition_errors, now_ms))
        else:
            self._repeat(channel, f"it answered {code_name(code)}", now_ms)
        return None

    def no_answer(self, answer: NoAnswer, now_ms: int) -> None:
        """Send what was under way again, after a pause, with what is newest then."""
        channel = self._asked(answer)
        if channel is not None:
            self._repeat(channel, answer.problem, now_ms)

    def _asked(self, answer: Answered | NoAnswer) -> Channel | None:
        channel = self._channels.get(answer.broker_id)
        if channel is None or channel.is_over:
            return None
        return channel if fences.is_of_this_life(answer.generation, channel.generation) else None

    def _repeat(self, channel: Channel, problem: str, now_ms: int) -> None:
        self._counters.requests_repeated += 1
        self._trace(channel.repeat(problem, now_ms))

    def _end(self, channel: Channel, level: Level, reason: str) -> None:
        """Send nothing more: the request under way stays so until the channel is closed."""
        channel.is_over = True
        self._emit(Trace(level, f"broker {channel.broker_id}: {reason}"))
        self._emit(CloseChannel(channel.broker_id, channel.generation))

    def _trace(self, trace: Trace | None) -> None:
        if trace is not None:
            self._emit(trace)

    # -- what is owed ----------------------------------------------------------------------------------------

    def owe_brokers(self) -> None:
        """Everybody needs the new list of live brokers."""
        for channel in self._channels.values():
            channel.outbox.owe_brokers()

    def owe_metadata(self, keys: Sequence[PartitionKey]) -> None:
        """Everybody needs these partitions for its clients."""
        for channel in self._channels.values():
            channel.outbox.owe_metadata(keys)

    def owe_leadership(self, key: PartitionKey, *, is_new: bool) -> None:
        """The brokers of a partition's replicas need its new roles, and everybody needs to know them."""
        for broker_id in self._model.replicas(key):
            if (channel := self._channels.get(broker_id)) is not None:
                self._owe_role(channel, key, is_new=is_new)
        self.owe_metadata((key,))

    def owe_roles(self, broker_id: int, topics: Iterable[str]) -> None:
        """A broker needs its roles in these topics: until now its ISR memberships there were in doubt."""
        channel, model = self._channels.get(broker_id), self._model
        if channel is not None:
            for key in (key for topic in topics for key in model.keys_of(topic)):
                if key in model.states and broker_id in model.replicas(key):
                    self._owe_role(channel, key)

    def owe_stops(self, keys: Iterable[PartitionKey]) -> None:
        """The brokers of these partitions must delete their replicas."""
        for key in keys:
            for broker_id in self._model.replicas(key):
                if (channel := self._channels.get(broker_id)) is not None:
                    channel.outbox.owe_stop(key)

    def owe_stops_of_leaver(self, broker_id: int, keys: Iterable[PartitionKey]) -> None:
        """A broker that shuts down must stop those of these replicas that are in no ISR any more."""
        channel, states = self._channels.get(broker_id), self._model.states
        if channel is not None:
            for key in keys:
                if key in states and broker_id not in states[key].state.isr:
                    self._owe_role(channel, key)

    def _owe_role(self, channel: Channel, key: PartitionKey, *, is_new: bool = False) -> None:
        """Owe a broker what its replica shall be: leader or follower, stopped, or gone.

        Not while the state may count on records that the broker does not have.
        """
        model, broker_id = self._model, channel.broker_id
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

    def stopped(self, key: PartitionKey, broker_ids: Iterable[int]) -> bool:
        """Say whether these brokers, as far as they live, have confirmed that they stopped a replica."""
        found = [self._channels[each] for each in broker_ids if each in self._channels]
        return not any(channel.outbox.owes_stop(key) for channel in found)

    def pending_topics(self) -> set[str]:
        """Return the topics of which a live broker has not answered all."""
        return set().union(*(channel.outbox.pending_topics() for channel in self._channels.values()))
