"""The client of a broker's `broker` listener: one connection, opened with the proof of the peer secret.

Requests may overtake each other's waiting, not each other on the wire: the broker answers in order, and each
answer is matched by its correlation id. A request without an answer in time ends the connection, because
every later answer would wait behind the missing one. Never connects again by itself, and knows no request:
bodies are bytes. All state is soft.
Source: Kafka protocol guide; NetworkClient (Kafka 3.9); ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar, cast

from controller.wire import sasl
from controller.wire.decoding import MalformedMessageError
from controller.wire.frames import (
    FRAME_BYTES_MAX,
    LENGTH,
    parse_correlation_id,
    request_head,
    response_body_offset,
)
from controller.wire.incoming import FrameBuffer, scratch
from controller.wire.scram import SaslClient, ScramClient, ScramError
from quorum.errors import Fault, QuorateError, told_by_os
from quorum.platform.tls import MakeContext

#: Requests of one connection that may wait for their answers; more wait for their turn.
IN_FLIGHT_MAX: Final = 64
_UNKNOWN: Final = "the outcome of what was under way is not known"
_CORRELATION_ID_MAX: Final = 2**31 - 1
#: How often while_current() looks.
_LOOK_S: Final = 0.1

T = TypeVar("T")


class BrokerUnreachableError(QuorateError):
    """A broker that could not be reached: the request was not sent and has had no effect."""

    fault = Fault.NETWORK
    retriable = True


class BrokerConnectionLostError(QuorateError):
    """A connection that ended while a request was under way: it may have had its effect, or may still."""

    fault = Fault.NETWORK
    definite = False
    retriable = True


class BrokerAuthenticationError(QuorateError):
    """A broker that refuses this process, or does not prove itself; nothing was sent."""

    fault = Fault.OPERATOR


async def while_current(asking: Awaitable[T], is_current: Callable[[], bool]) -> T:
    """Wait for a broker for as long as it is the one to ask.

    A frozen process, or one that is cut off, holds its connections open and does not answer.

    Args:
        asking: connects, asks and returns the answer; broken off when it is of no use any more.
        is_current: whether the answer is still of use.

    Raises:
        BrokerConnectionLostError: it is not. The caller closes the connection.
    """
    task = asyncio.ensure_future(asking)
    try:
        while is_current():
            await asyncio.wait({task}, timeout=_LOOK_S)
            if task.done():
                return task.result()
        raise BrokerConnectionLostError("another broker is to be asked by now", _UNKNOWN)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class BrokerConnection(asyncio.BufferedProtocol):
    """One open connection. It belongs to the event loop that opened it."""

    def __init__(self, *, address: str, client_id: str) -> None:
        """Make a connection without a socket; `open` and `connect` are the ways to get one."""
        #: "host:port", for messages.
        self.address = address
        self._client_id = client_id
        self._transport: asyncio.Transport | None = None
        self._incoming = FrameBuffer(scratch())
        #: {correlation id: (the caller's future, whether the answer's header has tagged fields)}
        self._waiting: dict[int, tuple[asyncio.Future[memoryview], bool]] = {}
        #: One slot for each entry of `_waiting`.
        self._slots = asyncio.Semaphore(IN_FLIGHT_MAX)
        #: Whether the broker takes what is sent.
        self._may_write = asyncio.Event()
        self._next_correlation_id = 0
        self._authenticated = False
        #: Why it ended, or "".
        self._end = ""

    @classmethod
    async def connect(
        cls, host: str, port: int, *, client_id: str, tls: MakeContext | None = None
    ) -> BrokerConnection:
        """Connect, without a proof; the caller bounds the time. Raises OSError."""

        def make() -> BrokerConnection:
            return cls(address=f"{host}:{port}", client_id=client_id)

        ssl = None if tls is None else tls()
        _, connection = await asyncio.get_running_loop().create_connection(make, host, port, ssl=ssl)
        return connection

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        secrets: Sequence[str],
        cluster_id: str,
        client_id: str,
        timeout_ms: int,
        tls: MakeContext | None = None,
    ) -> BrokerConnection:
        """Connect and authenticate.

        Args:
            host: of the broker listener.
            port: of the broker listener.
            secrets: peer secrets; the first one is proved.
            cluster_id: of this process; a broker of another cluster is refused.
            client_id: names this process to people.
            timeout_ms: for all of it.
            tls: makes the context of the connection; None: plain.
        """
        address = f"{host}:{port}"
        remedy = "see that the broker runs, and that its broker listener is reachable from here"
        connection: BrokerConnection | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                connection = await cls.connect(host, port, client_id=client_id, tls=tls)
                await connection.prove(ScramClient.of_peer(secrets[0], cluster_id), timeout_ms)
                return connection
        except TimeoutError as error:
            problem = f"broker {address} does not answer within {timeout_ms} ms"
            raise BrokerUnreachableError(problem, remedy) from error
        except OSError as error:
            problem = f"broker {address} cannot be reached: {told_by_os(error, 'connect')}"
            raise BrokerUnreachableError(problem, remedy) from error
        except (BrokerConnectionLostError, BrokerUnreachableError) as error:
            raise BrokerUnreachableError(f"{error.message} during authentication", remedy) from error
        except (ScramError, MalformedMessageError) as error:
            problem = f"authentication with broker {address} failed: {error.message}"
            raise BrokerAuthenticationError(problem, error.remedy) from error
        finally:
            if connection is not None and not connection._authenticated:
                connection.close()

    async def prove(self, client: SaslClient, timeout_ms: int) -> int:
        """Prove who this is, before anything else is asked.

        Args:
            client: the exchange. timeout_ms: for each of its requests.

        Returns:
            For how many milliseconds the proof holds; 0: for ever.

        Raises:
            ScramError: the broker refuses it, or does not prove itself.
        """
        handshake = sasl.handshake_request(client.mechanism)
        body = await self.request(
            sasl.SASL_HANDSHAKE,
            sasl.SASL_HANDSHAKE_VERSION,
            handshake,
            flexible=False,
            timeout_ms=timeout_ms,
        )
        sasl.check_handshake_response(body, client.mechanism)
        message: bytes | None = client.first()
        lifetime_ms = 0
        while message is not None:
            body = await self.request(
                sasl.SASL_AUTHENTICATE,
                sasl.SASL_AUTHENTICATE_VERSION,
                sasl.authenticate_request(message),
                flexible=True,
                timeout_ms=timeout_ms,
            )
            answer, lifetime_ms = sasl.read_authenticate_response(body, client.remedy)
            message = client.take(answer)
        self._authenticated = True
        return lifetime_ms

    @property
    def closed(self) -> bool:
        """Whether it has ended, by either side; it never opens again."""
        return bool(self._end)

    async def request(
        self, api_key: int, api_version: int, body: bytes, *, flexible: bool, timeout_ms: int
    ) -> memoryview:
        """Send a request and wait for its answer.

        Args:
            api_key: of the request's header.
            api_version: of the request's header.
            body: as encoded for that version.
            flexible: whether that version has tagged fields.
            timeout_ms: for waiting for a turn and for the answer; the connection ends if it passes.

        Returns:
            The answer's body, without its header; it holds the memory of the answer's frame.
        """
        answer: asyncio.Future[memoryview] | None = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._slots.acquire()
                if self._end:
                    self._slots.release()
                    raise BrokerUnreachableError(self._end, "open another connection")
                answer = self._send(api_key, api_version, body, flexible=flexible)
                try:
                    await self._may_write.wait()
                    return await answer
                finally:
                    answer.cancel()
        except TimeoutError as error:
            if answer is None:
                problem = f"broker {self.address} leaves {IN_FLIGHT_MAX} requests without an answer"
                raise BrokerUnreachableError(problem, "ask it less at once") from error
            self._finish(f"broker {self.address} did not answer a request within {timeout_ms} ms")
            raise BrokerConnectionLostError(self._end, _UNKNOWN) from error

    def _send(
        self, api_key: int, api_version: int, body: bytes, *, flexible: bool
    ) -> asyncio.Future[memoryview]:
        assert self._transport is not None
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & _CORRELATION_ID_MAX
        head = request_head(
            api_key, api_version, correlation_id, self._client_id, len(body), flexible=flexible
        )
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = (answer, flexible)
        self._transport.writelines((head, body))
        return answer

    # -- the transport's calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._may_write.set()

    def pause_writing(self) -> None:
        """Let requests wait until the broker takes what is sent."""
        self._may_write.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self._may_write.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the room has its own size
        """Return where received bytes go."""
        return self._incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Hand each answer that is there to its request."""
        incoming = self._incoming
        incoming.received(nbytes)
        try:
            while not self._end and (size := incoming.length()) is not None:
                if not LENGTH.size <= size <= FRAME_BYTES_MAX:
                    raise MalformedMessageError("response", f"a frame of {size} bytes")
                if not incoming.has_whole(size):
                    break
                self._settle(incoming.take(size))
        except MalformedMessageError as error:
            self._finish(f"broker {self.address} does not follow the protocol: {error.message}")
        incoming.let_go()

    def connection_lost(self, exc: Exception | None) -> None:
        """Learn that the connection ended."""
        if isinstance(exc, OSError):
            self._finish(f"the connection to broker {self.address} broke: {told_by_os(exc, 'receive')}")
        self._finish(f"broker {self.address} closed the connection")

    def _settle(self, frame: memoryview) -> None:
        correlation_id = parse_correlation_id(frame)
        if correlation_id not in self._waiting:
            raise MalformedMessageError("response", f"nobody asked with correlation id {correlation_id}")
        answer, flexible = self._waiting[correlation_id]
        offset = response_body_offset(frame, flexible=flexible)
        del self._waiting[correlation_id]
        self._slots.release()
        # A caller that was cancelled no longer waits, but its answer still comes.
        if not answer.done():
            answer.set_result(frame[offset:])

    def close(self) -> None:
        """End the connection; requests under way fail with BrokerConnectionLostError."""
        self._finish(f"the connection to broker {self.address} was closed here")

    def _finish(self, why: str) -> None:
        if self._end:
            return
        self._end = why
        # What is not sent yet must not wait for a broker that may be stopped.
        if self._transport is not None:
            self._transport.abort()
        self._incoming.clear()
        self._may_write.set()
        waiting, self._waiting = self._waiting, {}
        for answer, _ in waiting.values():
            self._slots.release()
            if not answer.done():
                answer.set_exception(BrokerConnectionLostError(why, _UNKNOWN))
