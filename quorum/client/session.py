"""One session, kept alive over as many connections as it takes.

Decides which server serves the session, what becomes of requests, watches and credentials when a connection
breaks, and in which order replies, watch events and state changes reach the caller. Knows no operation:
requests encode themselves, and outstanding.py keeps their order. Everything here is soft state; the hard
state of a session is at the servers.

Order contract: requests leave in the order of the calls; replies are matched in that order; a watch event is
delivered before any later reply is, because both are taken from one stream and callbacks run at once, while
replies wake their callers. When a connection breaks, everything called before fails (indefinitely if it may
have reached the server), so that nothing later in a pipeline can overtake a lost request; what is called
afterwards waits for the next connection.
Source: ZooKeeper programmer's guide (sessions, guarantees); docs/concepts/guarantees.md, "Sessions and
watches", "Reads".
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar

from quorum.client.credentials import Credential, Credentials
from quorum.client.errors import (
    AuthFailedError,
    ClientClosedError,
    ConnectionLossError,
    InvalidArgumentError,
    NoServerError,
    SaslRefusedError,
    SessionExpiredError,
    remedy_for,
)
from quorum.client.hosts import HostPort, HostRotation
from quorum.client.link import ServerLink
from quorum.client.outstanding import Outstanding
from quorum.client.requests import PreparedRequest, close_session
from quorum.client.sasl import Login
from quorum.client.state import ClientState, check_transition
from quorum.client.token import SessionToken
from quorum.client.watches import WatchEvent, WatchRegistry
from quorum.errors import ProtocolError, describe_code
from quorum.wire import replies, requests
from quorum.wire.errors import WireError
from quorum.wire.protocol import XID_AUTH, XID_NOTIFICATION, XID_PING, XID_SET_WATCHES, EventType

_EVENT_TYPES: Final = frozenset(EventType)

DEFAULT_PATIENCE_MS: Final = 15_000.0
CONNECT_TIMEOUT_MIN_MS: Final = 200.0
#: A connection that ended sooner counts as a failure, so that two holders of one session, which take it from
#: each other, slow down instead of filling the log with moves.
STABLE_CONNECTION_MS: Final = 1000.0

T = TypeVar("T")
StateListener = Callable[[ClientState], None]


class ClientSession:
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
        tls: Callable[[], ssl.SSLContext] | None,
        sasl: Login | None,
    ) -> None:
        """Prepare; start() connects."""
        self._tls = tls
        self._rotation = HostRotation(hosts, rng)
        self._requested_timeout_ms = session_timeout_ms
        self._token = resume
        self._timeout_ms = session_timeout_ms
        self._state = ClientState.CONNECTING
        self._listeners: list[StateListener] = []
        self._watches = WatchRegistry()
        self._credentials = Credentials(sasl)
        self._link: ServerLink | None = None
        self._greeted = False
        self._closing = False
        #: why it is closed, "" if close() did it
        self._closed_reason = ""
        self._failure = "no server was tried"
        self._loop = asyncio.get_running_loop()
        self._outstanding = Outstanding(
            self._loop, requests_max=requests_max, request_bytes_max=request_bytes_max
        )
        #: the first connection, or why there will be none
        self._established: asyncio.Future[None] = self._loop.create_future()
        self._established.add_done_callback(_take_outcome)
        self._link_event: asyncio.Future[None] = self._loop.create_future()
        #: done as soon as the state is CLOSED
        self._dropped: asyncio.Future[None] = self._loop.create_future()
        self._runner: asyncio.Task[None] | None = None

    @property
    def state(self) -> ClientState:
        """Where the session is in its life."""
        return self._state

    @property
    def session_id(self) -> int:
        """Id of the session, 0 before there is one; ephemeral_owner of its ephemerals."""
        return self._token.session_id

    @property
    def session_token(self) -> SessionToken:
        """What another client can resume this session with, as of now."""
        return self._token

    @property
    def session_timeout_ms(self) -> int:
        """Session timeout: what the servers granted, before that what was asked for."""
        return self._timeout_ms

    def add_listener(self, listener: StateListener) -> None:
        """Call a function at every change of state, in order, from the event loop."""
        self._listeners.append(listener)

    def remove_listener(self, listener: StateListener) -> None:
        """Stop calling a function."""
        self._listeners.remove(listener)

    async def start(self, patience_ms: float = DEFAULT_PATIENCE_MS) -> None:
        """Connect and wait until a server serves the session.

        Raises:
            NoServerError: no server did so within patience_ms.
            SessionExpiredError: the session to resume is over.
            SaslRefusedError: the server does not believe the name and the password.
            ClientClosedError: the client is closed, or was closed meanwhile.
        """
        if self._state is ClientState.CLOSED:
            raise ClientClosedError(self._closed_reason)
        if self._runner is not None:
            raise RuntimeError("the client is started already")
        self._runner = self._loop.create_task(self._run())
        self._runner.add_done_callback(self._runner_ended)
        try:
            # wait, and not a timeout around it: what comes in the turn in which time is up counts.
            await asyncio.wait([self._established], timeout=patience_ms / 1000)
            if not self._established.done():
                raise NoServerError(
                    f"no session within {patience_ms:.0f} ms; last attempt: {self._failure}",
                    remedy_for(self._failure, by_tls=self._tls is not None),
                )
            self._established.result()
        except BaseException:
            await self.close(keep_session=True)
            raise

    async def call(self, request: PreparedRequest[T]) -> T:
        """Send a request and wait for its reply.

        At most requests_max are on the wire; further calls wait in order, as do calls while no server is
        connected.

        Raises:
            ClientError: what the server replied (definite or not), or ConnectionLossError,
                SessionExpiredError, ClientClosedError, InvalidArgumentError, RequestTooLargeError.
        """
        self._check_usable()
        pending = self._outstanding.prepare(request)
        self._outstanding.append(pending)
        self._pump()
        try:
            result: T = await pending.future
        except asyncio.CancelledError:
            self._outstanding.withdraw(pending)
            raise
        return result

    async def add_auth(self, scheme: str, credentials: bytes) -> None:
        """Prove something about this client, as ("digest", b"user:password"), on this and every later
        connection; returns when a server has accepted it.

        If a later server refuses what one has accepted, the client keeps its rights: it leaves that server,
        passes an AuthFailedError to the event loop's exception handler, and offers the same to the next one.
        While all refuse, it goes from server to server, slower and slower, and calls fail with
        ConnectionLossError.

        Raises:
            AuthFailedError: it was refused before any server accepted it. The server ends the connection; the
                session lives on without it.
            ClientError: as call does, but no ConnectionLossError: the next connection repeats it.
        """
        self._check_usable()
        label = f"add_auth {scheme}"
        try:
            frame = requests.encode_auth(scheme, credentials)
        except WireError as error:
            raise InvalidArgumentError(label, error.message) from error
        self._outstanding.check_size(label, frame)
        credential = self._credentials.find(frame)
        if credential is None:
            credential = Credential(scheme, frame, self._loop.create_future())
            credential.future.add_done_callback(_take_outcome)
            self._credentials.add(credential)
            if self._link is not None and self._state is ClientState.CONNECTED:
                self._link.send(self._credentials.send(credential))
        await asyncio.shield(credential.future)

    async def close(self, *, keep_session: bool = False) -> None:
        """End the session (its ephemerals vanish) and the connection; a start() under way ends as well.

        When it returns, nothing of this client runs any more. That does not say that a server has confirmed
        the end of the session: without a connection, or when it breaks first, the session expires on its own.
        What is on the wire still gets its reply. Another call meanwhile waits for the first and changes
        nothing; if the first is cancelled, the connection is dropped at once.

        Args:
            keep_session: only drop the connection, at once; the outcome of what is on the wire is unknown.
                The session lives on until its timeout and can be resumed.
        """
        if self._closing:
            await asyncio.wait([self._dropped])
        else:
            self._closing = True
            self._outstanding.fail_waiting(lambda _: ClientClosedError())
            try:
                if self._state is ClientState.CONNECTED and not keep_session:
                    await self._end_session()
            finally:
                self._drop()
        if self._runner is not None:
            await asyncio.wait([self._runner])

    async def _end_session(self) -> None:
        pending = self._outstanding.prepare(close_session())
        # The reply, or the end of the connection: both end the wait, and neither is an error here.
        pending.future.add_done_callback(_take_outcome)
        self._send(self._outstanding.take_to_wire(pending))
        await asyncio.wait([pending.future])

    def _drop(self, reason: str = "") -> None:
        if self._state is ClientState.CLOSED:
            return
        self._closing = True
        self._closed_reason = reason
        self._become(ClientState.CLOSED)
        story = reason or "the client was closed"
        if self._link is not None:
            self._link.abort(story)
        if self._runner is not None:
            self._runner.cancel()
        self._outstanding.fail_sent(story)
        self._outstanding.fail_waiting(lambda _: ClientClosedError(reason))
        if not self._established.done():
            self._established.set_exception(ClientClosedError(reason))
        self._credentials.fail(ClientClosedError(reason))
        self._lose_watches()
        self._dropped.set_result(None)

    # -- connections -----------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._state in (ClientState.CONNECTING, ClientState.SUSPENDED):
            host = self._rotation.next_host()
            self._failure = f"{host}: {await self._serve_through(host)}"
            delay_ms = self._rotation.failed_delay_ms()
            if delay_ms and self._state in (ClientState.CONNECTING, ClientState.SUSPENDED):
                await asyncio.sleep(delay_ms / 1000)

    def _runner_ended(self, runner: asyncio.Task[None]) -> None:
        """Close the client if nobody keeps its connection any more: no request may wait for ever."""
        error = None if runner.cancelled() else runner.exception()
        if error is not None:
            self._loop.call_exception_handler({"message": "the quorum client failed", "exception": error})
        if not self._closing and self._state is not ClientState.LOST:
            cause = "its task was cancelled" if error is None else f"{type(error).__name__}: {error}"
            self._drop(f"it stopped itself: {cause}")

    async def _serve_through(self, host: HostPort) -> str:
        """Use one server for as long as it serves; returns why that ended."""
        connect_timeout_ms = max(CONNECT_TIMEOUT_MIN_MS, self._timeout_ms / len(self._rotation))
        link = ServerLink(self._link_frame, self._link_closed, self._loop)
        self._greeted = False
        self._credentials.forget_connection()
        self._link_event = self._loop.create_future()
        try:
            async with asyncio.timeout(connect_timeout_ms / 1000):
                tls = None if self._tls is None else self._tls()
                await self._loop.create_connection(lambda: link, host.host, host.port, ssl=tls)
                if not link.is_open:
                    return "the server closed the connection at once"
                self._link = link
                link.send(self._token.handshake(self._requested_timeout_ms))
                await self._link_event
        except TimeoutError:
            # An answer that came in the turn in which time was up counts: the session is served already.
            if not self._greeted:
                reason = f"no answer to the handshake within {connect_timeout_ms:.0f} ms"
                link.abort(reason)
                # At once: what the transport tells later would be taken for the end of the next connection.
                self._link_closed(link, reason)
                return reason
        except (OSError, UnicodeError) as error:
            # UnicodeError: a host name that no name service could know.
            return f"cannot connect: {str(error) or type(error).__name__}"
        except asyncio.CancelledError:
            link.abort("the client was closed")
            raise
        begun_s = self._loop.time()
        while self._link is link:
            self._link_event = self._loop.create_future()
            await self._link_event
        if self._loop.time() - begun_s >= STABLE_CONNECTION_MS / 1000:
            self._rotation.connected()
        return self._failure

    def _link_frame(self, link: ServerLink, frame: memoryview) -> None:
        """Take one frame (called by the link)."""
        if link is not self._link:
            return
        if not self._greeted:
            self._greet(link, frame)
            return
        header = replies.decode_header(frame)
        if header.xid == XID_NOTIFICATION:
            self._handle_event(header.zxid, replies.decode_watch_event(frame))
        elif header.xid == XID_PING:
            self._saw_zxid(header.zxid)
        elif header.xid == XID_SET_WATCHES:
            if header.err:
                # Watches that are not armed there would stay silent; another server may take them.
                code = describe_code(header.err).name
                link.abort(f"the server refused to arm the watches again, with {code}")
                return
            self._saw_zxid(header.zxid)
            self._watches.rearmed()
        elif header.xid == XID_AUTH:
            refused = self._credentials.answered(header.err)
            if refused is not None:
                reason = f"the server refused credentials of {refused.scheme} that were accepted before"
                self._leave(link, reason, AuthFailedError(header.err, "", refused.scheme))
        else:
            self._handle_reply(header, frame)

    def _link_closed(self, link: ServerLink, reason: str) -> None:
        """Learn that the connection is gone (called by the link, or where it is given up)."""
        if link is not self._link:
            return
        self._link = None
        self._failure = reason
        self._outstanding.fail_sent(reason)
        if self._state is ClientState.CONNECTED and not self._closing:
            self._outstanding.fail_waiting(
                lambda request: ConnectionLossError(request.label, reason, sent=False)
            )
            self._become(ClientState.SUSPENDED)
        self._wake_runner()

    def _wake_runner(self) -> None:
        if not self._link_event.done():
            self._link_event.set_result(None)

    def _leave(self, link: ServerLink, reason: str, error: AuthFailedError) -> None:
        """Leave a server that does not believe what another one believed."""
        self._loop.call_exception_handler({"message": reason, "exception": error})
        link.abort(reason)

    def _greet(self, link: ServerLink, frame: memoryview) -> None:
        """Take a frame of the beginning of a connection: the answer to the handshake, then those of SASL."""
        if not self._credentials.proves_sasl:
            self._handle_handshake(link, frame)
            return
        try:
            packet = self._credentials.take_sasl(frame)
        except SaslRefusedError as error:
            if self._established.done():
                self._leave(link, error.message, error)
            else:
                self._established.set_exception(error)
                link.abort(error.message)
            return
        if packet is None:
            self._serve(link)
        else:
            link.send(packet)

    def _handle_handshake(self, link: ServerLink, frame: memoryview) -> None:
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
        packet = self._credentials.begin_sasl()
        if packet is None:
            self._serve(link)
        else:
            link.send(packet)

    def _serve(self, link: ServerLink) -> None:
        """Go on with the session on a connection that has begun."""
        self._greeted = True
        link.keep_alive(self._timeout_ms, requests.PING_FRAME)
        for packet in self._credentials.send_all():
            link.send(packet)
        for packet in self._watches.rearm(self._token.last_zxid):
            link.send(packet)
        self._become(ClientState.CONNECTED)
        if not self._established.done():
            self._established.set_result(None)
        self._wake_runner()
        self._pump()

    def _handle_loss(self) -> None:
        self._become(ClientState.LOST)
        self._outstanding.fail_waiting(lambda request: SessionExpiredError(path=request.path))
        if not self._established.done():
            self._established.set_exception(SessionExpiredError())
        self._credentials.fail(SessionExpiredError())
        self._lose_watches()

    # -- requests and replies --------------------------------------------------------------------------------

    def _check_usable(self) -> None:
        if self._closing or self._state is ClientState.CLOSED:
            raise ClientClosedError(self._closed_reason)
        if self._state is ClientState.LOST:
            raise SessionExpiredError

    def _pump(self) -> None:
        while self._state is ClientState.CONNECTED and (frame := self._outstanding.next_frame()) is not None:
            self._send(frame)

    def _send(self, frame: bytes) -> None:
        assert self._link is not None
        self._link.send(frame)

    def _handle_reply(self, header: replies.ReplyHeader, frame: memoryview) -> None:
        request = self._outstanding.settle(header, frame)
        self._saw_zxid(header.zxid)
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

    def _handle_event(self, zxid: int, seen: replies.WatcherEvent) -> None:
        if seen.event_type not in _EVENT_TYPES:
            raise ProtocolError(f"a watch event of type {seen.event_type} on {seen.path}")
        event = WatchEvent(EventType(seen.event_type), seen.path, zxid)
        for callback in self._watches.fire(event):
            self._call_back(callback, event)

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
