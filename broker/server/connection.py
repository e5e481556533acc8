"""One connection of a listener: frames in, responses out in the order of the requests.

Decides when a request begins. Requests of a connection run one after the other, as in Kafka; only Produce
requests that follow each other run at once, each beginning after the one before it, so that a producer with
several requests in flight waits for replication once. Reading pauses while enough requests wait or the peer
does not take its responses. What a request does is decided by its handler. Soft state only.
Source: kafka.network.Processor (one request of a channel at a time).
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from inspect import iscoroutine
from typing import Final, cast

from broker.config.principals import MappingRule, principal_of
from broker.core.access.lists import ANONYMOUS, Principal
from broker.core.control_gate import ControlOrder
from broker.server.audit import RequestAudit
from broker.server.authentication import NO_SASL, Authentication
from broker.server.flow import MOVES, FlowInput, RequestFlow
from broker.server.frames import frame_problem, read_request
from broker.server.refusals import Refusals
from broker.server.requests import Api, CloseConnectionError, Request, Response, Row, advertised
from broker.server.shedding import ListenerLimits, Shedder
from broker.server.turns import Turns
from broker.wire.codec import LongResponse, encode_response, is_flexible
from broker.wire.packing import Parts
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.frames import response_head
from controller.wire.incoming import FrameBuffer, scratch
from controller.wire.sasl import SaslAnswer
from controller.wire.scram import SaslServer
from quorum.errors import ProtocolError
from quorum.platform.addresses import Addresses
from quorum.platform.budgets import UNREAD_NOTED_BYTES_MIN
from quorum.platform.histogram import Histogram
from quorum.platform.tls import peer_subject

#: Bytes of responses that the transport holds above which no further request begins.
WRITE_BUFFER_BYTES_MAX: Final = 1024 * 1024

#: An answer may not grow larger, those with records apart.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024

#: What a controller asks: an older request would undo a newer one, and not each has a fence of its own.
_OF_CONTROLLER: Final = frozenset((ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA))

# Members of an enum cost a look-up each; these stand on the path of every request.
_READING: Final = RequestFlow.READING
_FULL: Final = RequestFlow.FULL


@dataclass(frozen=True, slots=True)
class Shared:
    """What the connections of a listener have in common."""

    api: Api
    #: what a peer must prove first; None: nothing
    sasl: SaslServer | None
    limits: ListenerLimits
    #: where a connection is noted that its peer's mistake ends
    refusals: Refusals
    #: where one is noted that a fault of this broker ends
    failures: Refusals
    shedder: Shedder[ListenerConnection]
    turns: Turns
    #: how many there are of each address; may be shared with other listeners
    addresses: Addresses
    #: where one is noted that is too many of its address
    crowd: Refusals
    #: {api key: from the arrival of a request until its response}
    times: defaultdict[int, Histogram]
    #: how certificates name principals
    rules: Sequence[MappingRule] = (MappingRule(),)
    #: principals of the certificates that are taken; None: none is looked at
    admits: frozenset[str] | None = None
    #: for how long a user's proof holds; 0: for ever
    reauth_ms: int = 0
    #: where proofs that failed are noted; None: nowhere
    audit: RequestAudit | None = None
    #: which of the connections a controller is heard by
    order: ControlOrder = field(default_factory=ControlOrder)
    #: of the connections, as they are accepted
    numbers: Iterator[int] = field(default_factory=itertools.count)
    #: where each of them receives what belongs to no long frame
    scratch: memoryview = field(default_factory=scratch)


@dataclass(slots=True, eq=False)
class _Running:
    """A request that has begun."""

    request: Request
    task: asyncio.Task[None] | None = None
    done: bool = False
    response: Parts | None = None


class ListenerConnection(asyncio.BufferedProtocol):
    """A connection of a client, a follower or the controller."""

    def __init__(self, shared: Shared) -> None:
        """Serve one connection of a listener."""
        self._shared = shared
        self._number = next(shared.numbers)
        self._gate = None if shared.sasl is None else Authentication(shared.sasl, shared.reauth_ms)
        self._shedder = shared.shedder
        self._transport: asyncio.Transport | None = None
        #: host:port of the peer, for the log
        self.peer = ""
        self._sender = Principal(ANONYMOUS, "")
        self._incoming = FrameBuffer(shared.scratch)
        self._waiting: deque[Request] = deque()
        #: Begun, in the order of the requests.
        self._running: deque[_Running] = deque()
        #: Called when another request comes; see Request.on_next.
        self._on_next: list[Callable[[], None]] = []
        self._request_bytes = 0
        self._flow = RequestFlow.READING
        self._deadline: asyncio.TimerHandle | None = None
        #: when the peer is read again
        self._release: asyncio.TimerHandle | None = None

    # -- the transport's calls ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        address = transport.get_extra_info("peername")
        self.peer = f"{address[0]}:{address[1]}" if address else "a peer that has left"
        sender = self._admitted(self._transport, str(address[0]) if address else "")
        if sender is None:
            return
        self._sender = sender
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        # A peer that vanished without a word is found by the system's probes.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._gate is not None:
            self._deadline = asyncio.get_running_loop().call_later(
                self._shared.limits.authentication_timeout_ms / 1000, self._check_authenticated
            )
        self._shedder.opened(self)

    def _admitted(self, transport: asyncio.Transport, host: str) -> Principal | None:
        """Return who the peer has proved to be by TLS; None: it may not speak here, and is gone."""
        subject, shared = peer_subject(transport), self._shared
        name = ANONYMOUS if subject is None else principal_of(subject, shared.rules)
        refusals = shared.refusals
        if name is None:
            problem = f"no rule of security.ssl_principal_mapping_rules is for {subject!r}"
        elif shared.admits is not None and name not in shared.admits:
            problem = f"{name} is not in security.super_users"
        elif not shared.addresses.opened(host):
            refusals, maximum = shared.crowd, shared.addresses.connections_max
            problem = f"its address has {maximum} connections (limits.connections_per_address_max)"
        else:
            return Principal(name, host)
        refusals.note(self.peer, problem)
        if shared.audit is not None and refusals is shared.refusals:
            shared.audit.unproved(self.peer, name or str(subject), "certificate")
        self._transport = None
        transport.abort()
        return None

    def is_idle(self) -> bool:
        """Tell whether nothing is done for the peer; what waits for it to read its answers does not count."""
        return not self._running

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget what waits. What has begun ends by itself, but for what only reads."""
        if self._transport is None:
            return
        self._transport = None
        self._shared.addresses.closed(self._sender.host)
        for timer in (self._deadline, self._release):
            if timer is not None:
                timer.cancel()
        self._waiting.clear()
        self._incoming.clear()
        for running in self._running:
            if running.task is not None and self._row(running.request).ends_with_connection:
                running.task.cancel()
        self._shedder.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the room has its own size
        """Return where received bytes go."""
        return self._incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes."""
        self._shedder.touched(self)
        self._incoming.received(nbytes)
        if self._flow is _READING:
            self._take_apart()
        else:
            self._incoming.let_go()
        self._note_received()
        self._shedder.settle()

    def eof_received(self) -> bool:
        """Close: a peer that has shut its side down waits for nothing."""
        return False

    def pause_writing(self) -> None:
        """Begin nothing more until the peer takes its responses."""
        self._move(FlowInput.NOT_READ)
        self._update_reading()

    def resume_writing(self) -> None:
        """Go on."""
        self._shedder.touched(self)
        self._move(FlowInput.READ)
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES_MAX)
        self._go_on()

    # -- ends --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the connection; responses that are written already still leave."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End the connection and everything that it has begun."""
        if self._transport is not None:
            self._transport.abort()
        for running in self._running:
            if running.task is not None:
                running.task.cancel()

    def drop(self) -> None:
        """End the connection at once, with all that it has not sent; what has begun ends by itself."""
        self._waiting.clear()
        self._incoming.clear()
        if self._transport is not None:
            self._transport.abort()

    def unsent_bytes(self) -> int:
        """Return what the peer has not taken, if that is worth counting."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return waiting if waiting > UNREAD_NOTED_BYTES_MIN else 0

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """Requests that have begun and not ended."""
        return [each.task for each in self._running if each.task is not None and not each.done]

    def _refuse(self, problem: str) -> None:
        """End the connection because of what its peer did."""
        self._shared.refusals.note(self.peer, problem)
        self._waiting.clear()
        self.close()

    def _check_authenticated(self) -> None:
        if self._gate is not None and not self._gate.proved:
            self._refuse(f"not authenticated within {self._shared.limits.authentication_timeout_ms} ms")

    @property
    def _closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    # -- throttling ----------------------------------------------------------------------------------------

    def _mute(self, throttle_ms: int) -> None:
        """Read nothing more of the peer for so long; answers still leave."""
        if self._transport is None:
            return
        loop, before = asyncio.get_running_loop(), self._release
        until_s = loop.time() + throttle_ms / 1000
        if before is not None:
            if before.when() >= until_s:
                return
            before.cancel()
        self._release = loop.call_at(until_s, self._unmute)
        self._move(FlowInput.THROTTLED)
        self._update_reading()

    def _unmute(self) -> None:
        self._release = None
        self._move(FlowInput.RELEASED)
        self._go_on()

    # -- requests ----------------------------------------------------------------------------------------

    def _move(self, happened: FlowInput) -> None:
        self._flow = MOVES[self._flow, happened]

    def _take_apart(self) -> None:
        """Take whole frames out of what was received, as far as there is room for them."""
        incoming, api, limits = self._incoming, self._shared.api, self._shared.limits
        while not self._closing and (length := incoming.length()) is not None:
            is_unproven = self._gate is not None and not self._gate.proved
            problem = frame_problem(api, limits.frame_bytes_max, length, incoming.api_key(), is_unproven)
            if problem is not None:
                self._refuse(problem)
                break
            if not incoming.has_whole(length):
                break
            if not self._has_room():
                self._move(FlowInput.NO_ROOM)
                break
            self._receive(incoming.take(length))
        if self._closing:
            incoming.clear()
        incoming.let_go()
        self._update_reading()

    def _note_received(self) -> None:
        """Count what is held of the peer's requests."""
        held_bytes = self._incoming.size_bytes + self._request_bytes
        self._shedder.received.note(self, 0 if self._transport is None else held_bytes)

    def _has_room(self) -> bool:
        limits = self._shared.limits
        return (
            len(self._waiting) + len(self._running) < limits.requests_in_flight_max
            and self._request_bytes < limits.frame_bytes_max
        )

    def _receive(self, frame: memoryview) -> None:
        now_s, sender, gate = time.monotonic(), (self._sender, self.peer), self._gate
        read = read_request(self._shared.api, frame, now_s, sender, self._mute, gate)
        if isinstance(read, str):
            self._refuse(read)
        else:
            self._enqueue(read)

    def _enqueue(self, request: Request) -> None:
        self._waiting.append(request)
        self._request_bytes += request.size
        if self._running:
            for end_wait in self._on_next:
                end_wait()
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self._transport is not None and not self._closing:
            if self._flow is not _READING and self._flow is not _FULL:
                return
            request = self._waiting[0]
            row = self._row(request)
            if self._running and not (row.overlaps and request.api_key == self._running[-1].request.api_key):
                return
            if row.carries_records and self._transport.get_write_buffer_size():
                self._transport.set_write_buffer_limits(high=0)
                return
            running = _Running(self._waiting.popleft())
            self._running.append(running)
            self._start(running)

    def _row(self, request: Request) -> Row:
        return self._shared.api.served[request.api_key].row

    def _start(self, running: _Running) -> None:
        try:
            answer = self._answer(running.request)
        except Exception as error:  # noqa: BLE001 - costs its connection, with the story
            self._fail(running, error)
            return
        if isinstance(answer, list) or answer is None:
            self._finish(running, answer)
        else:
            running.task = asyncio.get_running_loop().create_task(self._run(running, answer))
            if iscoroutine(answer):
                # One that has not begun when its task is cancelled is left without this.
                running.task.add_done_callback(lambda _task: answer.close())

    async def _run(self, running: _Running, answer: LongResponse | Awaitable[Response]) -> None:
        try:
            response = answer if isinstance(answer, LongResponse) else await answer
            if isinstance(response, LongResponse):
                response = await self._written(response)
        except Exception as error:  # noqa: BLE001 - as above
            self._fail(running, error)
        else:
            self._finish(running, response)

    async def _written(self, response: LongResponse) -> Parts | None:
        """Write a long response as far as anybody waits for it."""

        def may_go_on() -> bool:
            if response.size_bytes > ANSWER_BYTES_MAX:
                raise CloseConnectionError(
                    f"the answer is larger than {ANSWER_BYTES_MAX} bytes; ask for less"
                )
            return not self._closing

        return response.parts if await self._shared.turns.take(response.steps(), may_go_on) else None

    def _answer(self, request: Request) -> Response | Awaitable[Response]:
        api_key = request.api_key
        if api_key == ApiKey.API_VERSIONS:
            return [self._api_versions(request.api_version)]
        if api_key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
            gate = self._gate
            if gate is None:
                return [encode_response(api_key, request.api_version, NO_SASL)]
            if gate.takes_long(request):
                return self._authenticate_later(gate, request)
            return self._authenticated(gate, gate.answer(request))
        if api_key in _OF_CONTROLLER and not self._shared.order.admits(self._number):
            raise CloseConnectionError(f"{ApiKey(api_key).name} by a connection that has a successor")
        if self._row(request).carries_records:
            self._on_next.clear()
            on_next = self._on_next if self._gate is not None and self._gate.is_peer else None
            request = replace(request, answer_bytes_max=self._shedder.answer_bytes_max(), on_next=on_next)
        return self._shared.api.handle(request)

    async def _authenticate_later(self, gate: Authentication, request: Request) -> Response:
        return self._authenticated(gate, await asyncio.to_thread(gate.answer, request))

    def _authenticated(self, gate: Authentication, answer: SaslAnswer) -> Response:
        if gate.is_peer:
            self._shedder.proved(self)
        elif gate.proved:
            self._sender = self._sender._replace(name=gate.principal)
        if answer.close:
            if self._shared.audit is not None:
                self._shared.audit.unproved(self.peer, *gate.claimed)
            # After this turn, so that the refusal is written first.
            asyncio.get_running_loop().call_soon(self._refuse, f"authentication failed: {gate.refusal}")
        return [answer.body]

    def _api_versions(self, api_version: int) -> bytes:
        """Answer which versions are served; to a version that is not, in version 0 and with the error."""
        values = {"error_code": 0, "api_keys": advertised(self._shared.api.served)}
        if api_version < 0:
            values["error_code"] = ErrorCode.UNSUPPORTED_VERSION
            api_version = 0
        return encode_response(ApiKey.API_VERSIONS, api_version, values)

    # -- responses ---------------------------------------------------------------------------------------

    def _fail(self, running: _Running, error: Exception) -> None:
        running.done = True
        name = f"{ApiKey(running.request.api_key).name} version {running.request.api_version}"
        if isinstance(error, ProtocolError):
            self._refuse(f"{name}: {error.message}")
        else:
            self._shared.failures.note(self.peer, f"{name} failed", error)
            self.close()

    def _finish(self, running: _Running, response: Parts | None) -> None:
        running.done = True
        running.response = response
        while self._running and self._running[0].done:
            first = self._running.popleft()
            self._request_bytes -= first.request.size
            elapsed_s = time.monotonic() - first.request.received_s
            self._shared.times[first.request.api_key].add(elapsed_s * 1000)
            if first.response is not None and not self._closing:
                self._write(first.request, first.response)
        self._note_received()
        if running.task is not None:
            self._go_on()

    def _go_on(self) -> None:
        """Begin what waited for a response to leave, then take apart what waited for room."""
        self._start_waiting()
        if self._flow is _FULL and self._has_room() and not self._closing:
            self._move(FlowInput.ROOM)
            self._take_apart()
        self._update_reading()

    def _write(self, request: Request, body: Parts) -> None:
        assert self._transport is not None
        # The response header of ApiVersions has no tagged fields in any version: KIP-511.
        flexible = (
            is_flexible(request.api_key, request.api_version) and request.api_key != ApiKey.API_VERSIONS
        )
        size = sum(map(len, body))
        if size > WRITE_BUFFER_BYTES_MAX and not self._shedder.may_write(self, size):
            return
        head = response_head(request.correlation_id, size, flexible=flexible)
        if len(body) == 1:
            self._transport.write(head + body[0])
        else:
            self._transport.writelines([head, *body])
        self._shedder.touched(self)
        if unread := self.unsent_bytes():
            self._shedder.unread.note(self, unread)

    def _update_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or (self._flow is _READING) == transport.is_reading():
            return
        if self._flow is _READING:
            transport.resume_reading()
        else:
            transport.pause_reading()
