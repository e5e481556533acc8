"""One session, kept alive over as many connections as it takes.

Decides which requests may be on the wire, what becomes of them when a connection breaks, and in which order
replies, watch events and state changes reach the caller. Knows no operation: requests arrive encoded, with
their own decoders. Everything here is soft state; the hard state of a session is at the servers.

Order contract: requests leave in the order of the calls; replies are matched in that order; a watch event is
delivered before any later reply is, because both are taken from one stream and callbacks run at once, while
replies wake their callers. When a connection breaks, everything called before fails (indefinitely if it may
have reached the server), so that nothing later in a pipeline can overtake a lost request; what is called
afterwards waits for the next connection.
Source: ZooKeeper programmer's guide (sessions, guarantees); zookeeper design, "Handshake and sessions",
"Ordering".
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

from quorum.client.credentials import Credential, Credentials
from quorum.client.errors import (
    ClientClosedError,
    ClientError,
    ConnectionLossError,
    InvalidArgumentError,
    NoServerError,
    RequestTooLargeError,
    SessionExpiredError,
)
from quorum.client.hosts import HostPort, HostRotation
from quorum.client.link import Link
from quorum.client.requests import Request, close_session
from quorum.client.state import ClientState, check_transition
from quorum.client.watches import WatchEvent, WatchRegistry
from quorum.errors import ProtocolError
from quorum.wire import replies, requests
from quorum.wire.errors import WireError
from quorum.wire.protocol import XID_AUTH, XID_NOTIFICATION, XID_PING, XID_SET_WATCHES, EventType

_EVENT_TYPES: Final = frozenset(EventType)

XID_MAX: Final = 2**31 - 1
CONNECT_TIMEOUT_MIN_MS: Final = 200.0
#: A connection that ended sooner counts as a failure, so that two holders of one session, who take it from
#: each other, slow down instead of filling the log with moves.
STABLE_CONNECTION_MS: Final = 1000.0

T = TypeVar("T")
StateListener = Callable[[ClientState], None]


class SessionToken(NamedTuple):
    """What a session can be resumed with; keep it as secret as a password."""

    session_id: int
    password: bytes
    #: Last transaction that the holder has seen; a server behind it refuses the resumption and another one is
    #: tried.
    last_zxid: int


NO_SESSION: Final = SessionToken(0, bytes(16), 0)


class _Pending:
    """A request on its way, and who waits for it."""

    __slots__ = ("frame", "future", "request", "sent", "xid")

    def __init__(self, request: Request[Any], xid: int, frame: bytes, future: asyncio.Future[Any]) -> None:
        self.request = request
        self.xid = xid
        self.frame = frame
        self.future = future
        self.sent = False

    def fail(self, error: ClientError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Session:
    """A session and the connection that serves it now."""

    def __init__(
        self,
        hosts: list[HostPort],
        *,
        session_timeout_ms: int,
        requests_max: int,
        request_bytes_max: int,
        rng: random.Random,
        resume: SessionToken,
    ) -> None:
        """Prepare; start() connects."""
        self._rotation = HostRotation(hosts, rng)
        self._requested_timeout_ms = session_timeout_ms
        self._requests_max = requests_max
        self._request_bytes_max = request_bytes_max
        self._token = resume
        self._timeout_ms = session_timeout_ms
        self._state = ClientState.CONNECTING
        self._listeners: list[StateListener] = []
        self._watches = WatchRegistry()
        self._credentials = Credentials()
        #: Called and not sent, in order: the connection is away, or requests_max are on the wire.
        self._waiting: deque[_Pending] = deque()
        #: On the wire, in order of xid; never more than requests_max.
        self._sent: deque[_Pending] = deque()
        self._xid = 0
        self._link: Link | None = None
        self._greeted = False
        #: what armed watches were told up to, and parts of them that no server has answered since
        self._rearm_zxid = 0
        self._rearming = 0
        self._closing = False
        self._failure = "no server was tried"
        self._loop = asyncio.get_running_loop()
        self._established: asyncio.Future[None] = self._loop.create_future()
        self._link_event: asyncio.Future[None] = self._loop.create_future()
        self._runner: asyncio.Task[None] | None = None

    @property
    def state(self) -> ClientState:
        """Where the session is in its life."""
        return self._state

    @property
    def token(self) -> SessionToken:
        """What this session can be resumed with."""
        return self._token

    @property
    def timeout_ms(self) -> int:
        """Session timeout: what the servers granted, before that what was asked for."""
        return self._timeout_ms

    @property
    def watches(self) -> WatchRegistry:
        """Everything that is armed."""
        return self._watches

    def add_listener(self, listener: StateListener) -> None:
        """Call a function at every change of state, in order, from the event loop."""
        self._listeners.append(listener)

    def remove_listener(self, listener: StateListener) -> None:
        """Stop calling a function."""
        self._listeners.remove(listener)

    async def start(self, patience_ms: float) -> None:
        """Connect and wait until a server serves the session.

        Raises:
            NoServerError: no server did so within patience_ms.
            SessionExpiredError: the session to resume is over.
        """
        if self._runner is not None:
            raise RuntimeError("the client is started already")
        self._runner = self._loop.create_task(self._run())
        try:
            async with asyncio.timeout(patience_ms / 1000):
                await self._established
        except TimeoutError:
            failure = self._failure
            await self.close(keep_session=True)
            raise NoServerError(
                f"no session within {patience_ms:.0f} ms; last attempt: {failure}",
                "check that the servers run, have a majority, and listen at these addresses",
            ) from None
        except BaseException:
            await self.close(keep_session=True)
            raise

    async def call(self, request: Request[T]) -> T:
        """Send a request and wait for its reply.

        At most requests_max are on the wire; further calls wait in order, as do calls while no server is
        connected.

        Raises:
            ClientError: what the server replied (definite or not), or ConnectionLossError,
                SessionExpiredError, ClientClosedError, RequestTooLargeError.
        """
        self._check_usable()
        pending = self._prepare(request)
        self._waiting.append(pending)
        self._pump()
        try:
            result: T = await pending.future
        except asyncio.CancelledError:
            if not pending.sent and pending in self._waiting:
                self._waiting.remove(pending)
            raise
        return result

    async def add_auth(self, scheme: str, credentials: bytes) -> None:
        """Prove something on this connection and on every one to come; returns when it was accepted.

        Raises:
            AuthFailedError: it was refused, and is not tried again.
            ClientError: as call does, but no ConnectionLossError: the next connection repeats it.
        """
        self._check_usable()
        label = f"add_auth {scheme}"
        try:
            frame = requests.encode_auth(scheme, credentials)
        except WireError as error:
            raise InvalidArgumentError(label, error.message) from error
        if len(frame) - 4 > self._request_bytes_max:
            raise RequestTooLargeError(label, len(frame) - 4, self._request_bytes_max)
        credential = self._credentials.find(frame)
        if credential is None:
            credential = Credential(scheme, frame, self._loop.create_future())
            credential.future.add_done_callback(_take_outcome)
            self._credentials.add(credential)
            if self._link is not None and self._state is ClientState.CONNECTED:
                self._link.send(self._credentials.send(credential))
        await asyncio.shield(credential.future)

    async def close(self, *, keep_session: bool = False) -> None:
        """End the session (its ephemerals vanish) and the connection.

        Without a connection the session cannot be ended and expires on its own.

        Args:
            keep_session: only drop the connection; the session lives on until its timeout and can be resumed.
        """
        self._fail_waiting(lambda _: ClientClosedError())
        try:
            if self._state is ClientState.CONNECTED and not keep_session and not self._closing:
                self._closing = True
                await self._end_session()
        finally:
            runner = self._runner
            self._drop()
        if runner is not None:
            await asyncio.wait([runner])

    async def _end_session(self) -> None:
        pending = self._prepare(close_session())
        # The reply, or the end of the connection: both end the wait, and neither is an error here.
        pending.future.add_done_callback(_take_outcome)
        self._send(pending)
        await asyncio.wait([pending.future])

    def _drop(self) -> None:
        if self._state is ClientState.CLOSED:
            return
        self._closing = True
        self._become(ClientState.CLOSED)
        if self._link is not None:
            self._link.finish("the client was closed")
        if self._runner is not None:
            self._runner.cancel()
        self._fail_sent("the client was closed")
        self._credentials.fail(ClientClosedError())
        self._lose_watches()

    # -- connections -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._state in (ClientState.CONNECTING, ClientState.SUSPENDED):
            host = self._rotation.next_host()
            self._failure = f"{host}: {await self._serve_through(host)}"
            delay_ms = self._rotation.failed_delay_ms()
            if delay_ms and self._state in (ClientState.CONNECTING, ClientState.SUSPENDED):
                await asyncio.sleep(delay_ms / 1000)

    async def _serve_through(self, host: HostPort) -> str:
        """Use one server for as long as it serves; returns why that ended."""
        connect_timeout_ms = max(CONNECT_TIMEOUT_MIN_MS, self._timeout_ms / len(self._rotation))
        link = Link(self, self._loop)
        self._greeted = False
        self._link_event = self._loop.create_future()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                await self._loop.create_connection(lambda: link, host.host, host.port)
                if not link.is_open:
                    return "the server closed the connection at once"
                self._link = link
                link.send(self._handshake())
                await self._link_event
        except TimeoutError:
            link.abort("")
            return f"no answer to the handshake within {connect_timeout_ms:.0f} ms"
        except (OSError, UnicodeError) as error:
            # UnicodeError: a host name that no name service could know.
            return f"cannot connect: {error}"
        except asyncio.CancelledError:
            link.finish("the client was closed")
            raise
        begun_s = self._loop.time()
        while self._link is link:
            self._link_event = self._loop.create_future()
            await self._link_event
        if self._loop.time() - begun_s >= STABLE_CONNECTION_MS / 1000:
            self._rotation.connected()
        return self._failure

    def link_frame(self, link: Link, frame: memoryview) -> None:
        """Take one frame (called by the link)."""
        if link is not self._link:
            return
        if not self._greeted:
            self._greeted = True
            self._handle_handshake(link, frame)
            self._wake_runner()
            return
        header = replies.decode_header(frame)
        if header.xid == XID_NOTIFICATION:
            self._handle_event(header.zxid, replies.decode_watch_event(frame))
        elif header.xid in (XID_PING, XID_SET_WATCHES):
            self._saw_zxid(header.zxid)
            self._rearming -= header.xid == XID_SET_WATCHES
        elif header.xid == XID_AUTH:
            if not self._credentials.answered(header.err):
                raise ProtocolError("an answer to credentials that were not sent")
        else:
            self._handle_reply(header, frame)

    def link_closed(self, link: Link, reason: str) -> None:
        """Learn that the connection is gone (called by the link)."""
        if link is not self._link:
            return
        self._link = None
        self._failure = reason
        self._fail_sent(reason)
        if self._state is ClientState.CONNECTED and not self._closing:
            self._fail_waiting(lambda request: ConnectionLossError(request.label, reason, sent=False))
            self._become(ClientState.SUSPENDED)
        self._wake_runner()

    def _wake_runner(self) -> None:
        if not self._link_event.done():
            self._link_event.set_result(None)

    def _handle_handshake(self, link: Link, frame: memoryview) -> None:
        granted = replies.decode_connect_response(frame)
        if granted.session_timeout_ms <= 0 or granted.session_id == 0:
            if self._token.session_id == 0:
                link.abort("the server refused a new session")
                return
            link.abort("the server said that the session has expired")
            self._handle_loss()
            return
        if self._token.session_id not in (0, granted.session_id):
            raise ProtocolError(
                f"asked for session 0x{self._token.session_id:x}, got 0x{granted.session_id:x}"
            )
        self._token = SessionToken(granted.session_id, granted.password, self._token.last_zxid)
        self._timeout_ms = granted.session_timeout_ms
        link.keep_alive(granted.session_timeout_ms, requests.PING_FRAME)
        for packet in self._credentials.send_all():
            link.send(packet)
        if self._rearming <= 0:
            # Else a part of the last time was not answered, and its watches were told nothing since.
            self._rearm_zxid = self._token.last_zxid
        parts = list(self._watches.rearm_requests())
        self._rearming = len(parts)
        for part in parts:
            link.send(part.encode(self._rearm_zxid))
        self._become(ClientState.CONNECTED)
        if not self._established.done():
            self._established.set_result(None)
        self._pump()

    def _handle_loss(self) -> None:
        self._become(ClientState.LOST)
        self._fail_waiting(lambda request: SessionExpiredError(path=request.path))
        if not self._established.done():
            self._established.set_exception(SessionExpiredError())
        self._credentials.fail(SessionExpiredError())
        self._lose_watches()

    def _handshake(self) -> bytes:
        token = self._token
        return requests.encode_connect(
            requests.ConnectRequest(
                0,
                token.last_zxid,
                self._requested_timeout_ms,
                token.session_id,
                token.password,
                read_only=False,
            )
        )

    # -- requests and replies --------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closing or self._state is ClientState.CLOSED:
            raise ClientClosedError
        if self._state is ClientState.LOST:
            raise SessionExpiredError

    def _pump(self) -> None:
        while self._waiting and len(self._sent) < self._requests_max and self._state is ClientState.CONNECTED:
            pending = self._waiting.popleft()
            if not pending.future.done():
                self._send(pending)

    def _prepare(self, request: Request[Any]) -> _Pending:
        xid = self._xid + 1 if self._xid < XID_MAX else 1
        try:
            frame = request.encode(xid)
        except WireError as error:
            raise InvalidArgumentError(request.label, error.message) from error
        size = len(frame) - 4
        if size > self._request_bytes_max:
            raise RequestTooLargeError(request.label, size, self._request_bytes_max)
        self._xid = xid
        return _Pending(request, xid, frame, self._loop.create_future())

    def _send(self, pending: _Pending) -> None:
        assert self._link is not None
        pending.sent = True
        self._sent.append(pending)
        self._link.send(pending.frame)

    def _handle_reply(self, header: replies.ReplyHeader, frame: memoryview) -> None:
        if not self._sent:
            raise ProtocolError(f"a reply with xid {header.xid} to no request")
        pending = self._sent[0]
        if pending.xid != header.xid:
            raise ProtocolError(f"a reply with xid {header.xid} where {pending.xid} was due")
        request = pending.request
        self._saw_zxid(header.zxid)
        try:
            value = request.decode(header.err, frame)
        except ClientError as error:
            self._sent.popleft()
            pending.fail(error)
        else:
            self._sent.popleft()
            if not pending.future.done():
                pending.future.set_result(value)
        if request.watch is not None and (kind := request.watch.armed_kind(header.err)) is not None:
            self._watches.arm(kind, request.path, request.watch.callback)
        if request.removes is not None and header.err == 0:
            for callback, event in self._watches.remove(request.path, request.removes):
                self._call_back(callback, event)
        self._pump()

    def _saw_zxid(self, zxid: int) -> None:
        # Events do not count: after a break inside a multi's events the others of that zxid must still fire.
        if zxid > self._token.last_zxid:
            self._token = self._token._replace(last_zxid=zxid)

    def _handle_event(self, zxid: int, told: replies.WatcherEvent) -> None:
        if told.event_type not in _EVENT_TYPES:
            raise ProtocolError(f"a watch event of type {told.event_type} on {told.path}")
        event = WatchEvent(EventType(told.event_type), told.path, zxid)
        for callback in self._watches.fire(event):
            self._call_back(callback, event)

    def _fail_sent(self, reason: str) -> None:
        sent, self._sent = self._sent, deque()
        for pending in sent:
            pending.fail(ConnectionLossError(pending.request.label, reason, sent=True))

    def _fail_waiting(self, make_error: Callable[[Request[Any]], ClientError]) -> None:
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            pending.fail(make_error(pending.request))

    # -- telling the caller ----------------------------------------------------------------------------------

    def _become(self, state: ClientState) -> None:
        check_transition(self._state, state)
        self._state = state
        for listener in list(self._listeners):
            self._call_back(listener, state)

    def _lose_watches(self) -> None:
        for callback, event in self._watches.lose_all():
            self._call_back(callback, event)

    def _call_back(self, callback: Callable[[Any], None], argument: object) -> None:
        try:
            callback(argument)
        except Exception as error:  # noqa: BLE001 - the caller's bug is reported to the loop and must not cut the stream
            self._loop.call_exception_handler(
                {"message": f"a callback of the quorum client failed on {argument}", "exception": error}
            )


def _take_outcome(future: asyncio.Future[Any]) -> None:
    """Look at an outcome that does not matter, so that it is not reported as overlooked."""
    if not future.cancelled():
        future.exception()
