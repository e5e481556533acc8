"""Carries control requests to the brokers, one at a time to each, and says what became of them.

Decides nothing: the channels of the core say what leaves and when, and judge the answers. A request is built
once the way to its broker is open, so what has been decided meanwhile goes out with it. How a request travels
is a carrier's: by a connection to the broker, or by the broker's queue in the quorum (queue.py).
Source: ARCHITECTURE.md, "Life of a controller"; KIP-380; docs/internals/requirements.md, [0.disc2], [1.7].
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NamedTuple, Protocol

from controller.core.effects import CloseChannel, OpenChannel, Send
from controller.core.inputs import Answered, Ended, Input, NoAnswer
from controller.core.model import LiveBroker
from controller.core.options import ControllerOptions, Counters
from controller.core.outbox import Batch, LeadershipBatch
from controller.messages.entities import (
    CONTROL_VERSIONS,
    ControlResponse,
    LeaderAndIsrResponse,
    StopReplicaResponse,
    decode_response,
)
from controller.runtime.bodies import Bodies, Sender
from controller.runtime.queue import FencedMulti, QueueCarrier, QueueGoneError
from controller.wire.codes import ErrorCode
from controller.wire.connection import (
    BrokerAuthenticationError,
    BrokerConnectionLostError,
    BrokerUnreachableError,
)
from controller.wire.decoding import Buffer, MalformedMessageError
from quorum.client import Client, ConnectionLossError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.trust import Trust

_NO_ANSWER: Final = (
    BrokerUnreachableError,
    BrokerConnectionLostError,
    BrokerAuthenticationError,
    MalformedMessageError,
    ConnectionLossError,
)


class Connection(Protocol):
    """What a sender needs of a connection to a broker."""

    async def request(
        self, api_key: int, api_version: int, body: bytes, *, flexible: bool, timeout_ms: int
    ) -> Buffer:
        """Send one request and return the body of its answer."""

    def close(self) -> None:
        """Drop the connection."""


class Carrier(Protocol):
    """How requests get to one life of one broker, and their answers back."""

    async def exchange(self, batch: Batch) -> Answered:
        """Have the broker carry out what is newest of a batch."""

    def close(self) -> None:
        """Drop what is open; the next exchange opens it again."""


#: Opens a connection to the broker listener of a registration.
Connect = Callable[[int, LiveBroker], Awaitable[Connection]]


class TermShare(NamedTuple):
    """What the senders of one term share."""

    client: Client
    multi: FencedMulti
    broker_id: int
    controller_epoch: ControllerEpoch
    bodies: Bodies
    connect: Connect
    options: ControllerOptions
    counters: Counters
    trust: Trust
    #: Takes what became of requests.
    put: Callable[[Input], None]
    #: Takes what breaks the term.
    on_failure: Callable[[BaseException], None]


class DirectCarrier:
    """One ordered connection to the broker listener."""

    def __init__(self, share: TermShare, sender: Sender, broker_id: int, broker: LiveBroker) -> None:
        """Dial nobody yet."""
        self._share = share
        self._sender = sender
        self._broker_id = broker_id
        self._broker = broker
        self._connection: Connection | None = None

    async def exchange(self, batch: Batch) -> Answered:
        """Send a request and return its answer."""
        share = self._share
        if self._connection is None:
            self._connection = await share.connect(self._broker_id, self._broker)
        api_key, body = share.bodies.make(self._sender, batch)
        share.counters.requests_sent += 1
        answer = await self._connection.request(
            api_key,
            CONTROL_VERSIONS[api_key],
            body,
            flexible=True,
            timeout_ms=share.options.control_request_timeout_ms,
        )
        response = decode_response(api_key, CONTROL_VERSIONS[api_key], answer)
        errors = dict(_partition_errors(response, batch, share.bodies))
        return Answered(self._broker_id, self._sender.generation, response.error_code, errors)

    def close(self) -> None:
        """Drop the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _partition_errors(
    response: ControlResponse, batch: Batch, bodies: Bodies
) -> Iterator[tuple[PartitionKey, int]]:
    """Yield the partitions that a broker refused, and why."""
    match response:
        case LeaderAndIsrResponse(topics=topics) if isinstance(batch, LeadershipBatch):
            refused = [
                (topic.topic_id, each.partition_index, each.error_code)
                for topic in topics
                for each in topic.partition_errors
                if each.error_code != ErrorCode.NONE
            ]
            names = {bodies.topic_id(key.topic): key.topic for key in batch.new} if refused else {}
            for topic_id, partition, code in refused:
                yield PartitionKey(names.get(topic_id, str(topic_id)), partition), code
        case StopReplicaResponse(partition_errors=errors):
            for each in errors:
                if each.error_code != ErrorCode.NONE:
                    yield PartitionKey(each.topic_name, each.partition_index), each.error_code
        case _:
            return


class _Line:
    """The sender to one life of one broker."""

    def __init__(self, broker_id: int, generation: BrokerGeneration, carrier: Carrier) -> None:
        self.broker_id = broker_id
        self.generation = generation
        self.carrier = carrier
        #: The request under way.
        self.task: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Send nothing more; what is under way has an unknown outcome."""
        if self.task is not None:
            self.task.cancel()
        self.carrier.close()


class Senders:
    """The senders of one term: they carry out OpenChannel, CloseChannel and Send."""

    def __init__(self, share: TermShare) -> None:
        """Have none yet."""
        self._share = share
        self._lines: dict[int, _Line] = {}

    def open(self, effect: OpenChannel) -> None:
        """Be ready to send; dials nobody yet."""
        share, (broker_id, broker) = self._share, effect
        sender = Sender(share.broker_id, share.controller_epoch, broker.generation)
        carrier: Carrier
        if share.options.channel == "queue" and broker.record.reads_queue:
            carrier = QueueCarrier(
                share.client, share.multi, share.bodies, sender, broker_id, share.counters, share.trust
            )
        else:
            carrier = DirectCarrier(share, sender, broker_id, broker)
        self._lines[broker_id] = _Line(broker_id, broker.generation, carrier)

    def close(self, effect: CloseChannel) -> None:
        """Send nothing more to that life of a broker; an answer that is still to come is dropped."""
        line = self._lines.get(effect.broker_id)
        if line is not None and line.generation == effect.generation:
            del self._lines[effect.broker_id]
            line.close()

    async def close_all(self) -> None:
        """Send nothing more to anybody; returns once nothing is under way."""
        lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            line.close()
        tasks = [line.task for line in lines if line.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def send(self, effect: Send) -> None:
        """Begin to send a request; what became of it is put as Answered, NoAnswer or Ended."""
        line = self._lines[effect.broker_id]
        line.task = asyncio.get_running_loop().create_task(
            self._exchange(line, effect.batch), name=f"control request to broker {effect.broker_id}"
        )

    async def _exchange(self, line: _Line, batch: Batch) -> None:
        share = self._share
        try:
            answer = await line.carrier.exchange(batch)
        except _NO_ANSWER as error:
            line.carrier.close()
            share.put(NoAnswer(line.broker_id, line.generation, error.message))
        except QueueGoneError as error:
            share.put(Ended(error.message, is_fenced=False))
        except Exception as error:  # noqa: BLE001 - the top of a task: the term ends with the story
            share.on_failure(error)
        else:
            if answer.error_code != ErrorCode.NONE:
                line.carrier.close()
            share.put(answer)
