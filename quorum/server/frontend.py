"""All client connections of a node, joined with the replica below: outcomes and events to connections,
turns, time limits.

Decides which clients hear of an applied transaction, which connection serves a session, and when a connection
must end because nothing can be promised to it any more. Knows no frames (connections do) and no log (the
replica does). Soft state only.

Order contract: the replica hands over outcomes in the order of the log, one run at a time. Within one result
events are queued first, in transaction order, to all watchers; then the reply. `end_of_turn` then writes
everything queued.

A session that this node's client believes in must not expire elsewhere unseen. Once no leader was heard for a
third of its timeout, or for contact_loss_ms_max, its requests wait unanswered until one is; after a third of
its timeout, or four times contact_loss_ms_max, the connection ends. A pause of this process is not silence of
the leader: after one, what has arrived is read first, and a connection ends only after twice that, when its
session may be over (contact.py). Source: ARCHITECTURE.md, "Life of a write"; docs/concepts/guarantees.md,
"Sessions and watches", "Reads".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Any, Final

from quorum.core.codes import PERM_READ, SESSION_ATTACHED, SESSION_CLOSED
from quorum.core.results import Event, RunOutcome
from quorum.platform.accepting import Room
from quorum.platform.addresses import Addresses
from quorum.server import words
from quorum.server.client import ClientConnection
from quorum.server.contact import Contact
from quorum.server.counters import Counters
from quorum.server.greeting import Greeting
from quorum.server.inspection import UNKNOWN_BYTES, bytes_below
from quorum.server.options import ServerOptions
from quorum.server.phases import Phase
from quorum.server.replica_view import ReplicaView
from quorum.server.shedding import ClientShedder
from quorum.server.stream import ClientStream, Turn
from quorum.wire.replies import encode_watch_event

log = logging.getLogger("quorate.server")

#: Share of a session's timeout for which a leader may be silent.
_SILENT_SHARE: Final = 3
#: A node that hears nobody for so many times contact_loss_ms_max is cut off: its clients do better elsewhere.
_CUT_OFF_SHARE: Final = 4
#: How long a stopping node waits for its clients to read what is queued for them.
STOP_GRACE_S: Final = 0.2


class Frontend:
    """The client side of a node."""

    words = words.KNOWN

    def __init__(
        self,
        options: ServerOptions,
        now_ms: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        run_in_thread: Callable[
            [Callable[[], int], Callable[[int | None, BaseException | None], object]], object
        ],
    ) -> None:
        """Prepare; nothing is served before `attach`.

        Args:
            options: limits.
            now_ms: a clock that never goes back, in milliseconds.
            call_soon: runs a function in a later turn of the event loop.
            call_later: runs a function after so many milliseconds.
            run_in_thread: runs a function in a thread, then another one in it with its result or error.
        """
        self.options = options
        self.now_ms = now_ms
        self.counters = Counters()
        #: every connection, in the order of acceptance
        self.connections: dict[ClientConnection, None] = {}
        self.shedder = ClientShedder(options, self.counters)
        self._room = Room("client", options.connections_max, lambda: now_ms() / 1000)
        self.turn = Turn(call_soon, call_later, now_ms)
        self.contact = Contact(options, now_ms())
        self.replica: ReplicaView
        self.started_ms = now_ms()
        self.blocked: dict[ClientStream, int] = {}
        #: connections whose requests wait until a leader is heard
        self._awaiting: dict[ClientConnection, None] = {}
        #: size of the data directory when it was last asked for
        self.data_dir_bytes = 0
        #: words that wait until it is measured, and what writes their answers
        self._awaiting_size: list[tuple[str, Callable[[Iterator[str]], None]]] = []
        self._run_in_thread = run_in_thread
        #: {connection without a session, or that is to close: when it has had its time}, in that order
        self._deadlines: dict[ClientConnection, float] = {}
        self._addresses = Addresses(options.connections_per_address_max)
        #: {session id: the connection of this node that serves it}
        self._by_session: dict[int, ClientConnection] = {}
        #: connections that may only read, because there was no quorum
        self._read_only: dict[ClientConnection, None] = {}
        #: set when the last connection is gone; None until this node stops
        self._emptied: asyncio.Event | None = None

    def attach(self, replica: ReplicaView) -> None:
        """Set the replica below; once, before any connection is accepted."""
        self.replica = replica

    def new_connection(self) -> ClientConnection:
        """Make a connection that was accepted; its stream is the protocol."""
        connection = ClientConnection(self)
        connection.read_with(Greeting(self, connection))
        return connection

    def has_room(self, coming: int) -> bool:
        """Tell whether one more connection may be accepted when so many are coming already."""
        return self._room.is_left(len(self.connections) + coming)

    def no_files(self) -> None:
        """The system has no file left: let the idlest connections go, and for a while no others in.

        Those without a session go first, the oldest before the others, then those silent the longest.
        """
        idlest = sorted(self.connections, key=lambda each: (each.session_id != 0, each.last_read_ms))
        for connection in idlest[: self._room.ran_out(len(idlest))]:
            self.counters.connections_shed += 1
            connection.stream.drop()

    # -- what the replica calls --

    def applied(self, connection: ClientConnection | None, outcome: RunOutcome) -> None:
        """Take an outcome; those of one connection in their order.

        Args:
            connection: whose run it was; None: of another node, given up, or of no client.
            outcome: what was applied; of session 0 where that belongs to no client.
        """
        if connection is not None:
            connection.reader.deliver(outcome)
        else:
            if self.options.audit is not None and not outcome.session_id and self.replica.sessions.leading:
                self.options.audit.by_time(outcome.results)
            for result in outcome.results:
                if result.events is not None:
                    self.fire(result.zxid, result.events)
        self._note_activity(outcome)

    def lost(self, connection: ClientConnection) -> None:
        """Give a connection up: a run of it has an outcome that will never be known here."""
        connection.reader.forget()
        connection.reader.forget_outcomes()
        connection.finish()

    def end_of_turn(self) -> None:
        """Write what is queued, close what is finished, read on where that is possible again."""
        self.turn.end(self.replica.saturated)
        self.shedder.settle()

    def installed(self) -> None:
        """The state was replaced: what fired in between is unknown, so clients must come back and ask.

        Nothing is answered any more: a reply would show a later zxid than events that were never sent, and
        the client would not ask for those when it comes back.
        """
        for connection in self.connections:
            connection.reader.forget()
            connection.reader.forget_outcomes()
        self._finish_all(list(self.connections), "a snapshot was installed")

    def tick(self, now_ms: float) -> None:
        """Judge time limits; to be called at least as often as heartbeats are sent."""
        self._judge_contact(now_ms)
        self.shedder.tick(now_ms)
        for stream in list(self.blocked):
            stream.look_at_unsent()
        for waiting in self.turn.waiting():
            # It is this node that does not read.
            waiting.took_bytes()
        if self._read_only and self.serving():
            # They come back, and get sessions that the log knows.
            self._finish_all(list(self._read_only), "there is a quorum again, they could only read")
            self._read_only.clear()
        for connection in list(takewhile(lambda each: self._deadlines[each] <= now_ms, self._deadlines)):
            del self._deadlines[connection]
            if connection.phase is Phase.GREETING:
                log.info(
                    "closed the connection of %s: no handshake within %d ms",
                    connection.stream.address,
                    self.options.handshake_timeout_ms,
                )
                connection.finish()
            elif connection.phase is not Phase.BINDING:
                connection.stream.abort()
        self.end_of_turn()

    # -- what connections call --

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""
        return self.contact.serves(self.now_ms(), self.replica.contact_age_ms())

    def await_contact(self, connection: ClientConnection) -> None:
        """Let a connection read on once a leader is heard; that its client was heard is known already."""
        self._awaiting[connection] = None
        self.replica.sessions.touch(connection.session_id)

    def fire(self, zxid: int, events: list[Event]) -> None:
        """Queue the events of a transaction to all watchers, and act on its session notices.

        A watcher that must not read the node gets none; its one-shot watch is used up all the same.
        """
        trigger = self.replica.watches.trigger
        for event in events:
            event_type, subject = event[0], event[1]
            if event_type > 0:
                path: Any = subject
                watchers = trigger(event_type, path)
                if watchers and len(event) == 3:
                    grants = event[2]
                    watchers = [each for each in watchers if grants.permit(PERM_READ, each.identities)]
                if watchers:
                    frame = encode_watch_event(zxid, event_type, path)
                    for watcher in watchers:
                        watcher.stream.queue(frame)
            else:
                self._heed_notice(event)

    def opened(self, connection: ClientConnection) -> bool:
        """Register a connection; false if its address has too many."""
        if self._emptied is not None:
            return False
        options, stream = self.options, connection.stream
        if not self._addresses.opened(stream.host_name):
            self.counters.connections_rejected += 1
            log.info(
                "closed the connection of %s: its address has %d, connections_per_address_max = %d",
                stream.address,
                self._addresses.count(stream.host_name),
                options.connections_per_address_max,
            )
            return False
        self.connections[connection] = None
        self.counters.connections_accepted += 1
        self.expect(connection)
        return True

    def bound(self, connection: ClientConnection) -> None:
        """A connection has a session now, or is served with reads alone until there is a quorum."""
        self._deadlines.pop(connection, None)
        if connection.read_only:
            self._read_only[connection] = None
            return
        loss_ms = self.options.contact_loss_ms_max
        connection.silence_limit_ms = min(connection.timeout_ms / _SILENT_SHARE, _CUT_OFF_SHARE * loss_ms)
        connection.contact_limit_ms = min(connection.silence_limit_ms, loss_ms)
        self._by_session[connection.session_id] = connection
        self.replica.sessions.touch(connection.session_id)

    def expect(self, connection: ClientConnection) -> None:
        """Give a connection handshake_timeout_ms from now to go on, or to take what it was sent."""
        self._deadlines.pop(connection, None)
        self._deadlines[connection] = self.now_ms() + self.options.handshake_timeout_ms

    def closed(self, connection: ClientConnection) -> None:
        """A connection is gone, and its watches with it."""
        stream = connection.stream
        for known in (self._deadlines, self._read_only, self._awaiting):
            known.pop(connection, None)
        self.blocked.pop(stream, None)
        self.turn.forget(connection, stream)
        self.shedder.forget(stream)
        if connection not in self.connections:
            return
        del self.connections[connection]
        if self._emptied is not None and not self.connections:
            self._emptied.set()
        self._addresses.closed(stream.host_name)
        self.replica.watches.remove_watcher(connection)
        if self._by_session.get(connection.session_id) is connection:
            del self._by_session[connection.session_id]

    def answer_word(self, word: str, speak: Callable[[Iterator[str]], None]) -> None:
        """Hand the answer to a four-letter word over; a word about the disk waits until that was measured."""
        if word not in words.MEASURED or word not in self.options.four_letter_words:
            speak(words.answer(word, self))
            return
        self._awaiting_size.append((word, speak))
        if len(self._awaiting_size) == 1:
            self._run_in_thread(partial(bytes_below, self.options.data_dir), self._measured)

    def _measured(self, size: int | None, error: BaseException | None) -> None:
        """Answer all that asked while the data directory was measured."""
        if size is None:
            log.warning("could not measure the data directory %s: %s", self.options.data_dir, error)
        self.data_dir_bytes = UNKNOWN_BYTES if size is None else size
        waiting, self._awaiting_size = self._awaiting_size, []
        for word, speak in waiting:
            speak(words.answer(word, self))

    # -- inner parts --

    def _note_activity(self, outcome: RunOutcome) -> None:
        """Tell the deadlines: a command that was applied is a sign of life."""
        sessions = self.replica.sessions
        if not sessions.leading:
            return
        if outcome.session_id:
            sessions.touched(outcome.session_id, self.turn.ms())
            return
        for result in outcome.results:
            if isinstance(result.value, tuple):
                session_id, timeout_ms = result.value
                assert isinstance(session_id, int)
                assert isinstance(timeout_ms, int)
                sessions.opened(session_id, timeout_ms, self.turn.ms())

    def _heed_notice(self, notice: Event) -> None:
        """Close the connection of a session that is over, or that is served elsewhere now."""
        match notice:
            case (kind, session_id) if kind == SESSION_CLOSED:
                assert isinstance(session_id, int)
                self.replica.sessions.closed(session_id)
                connection = self._by_session.pop(session_id, None)
                if connection is not None:
                    connection.finish()
            case (kind, session_id, node_id, nonce) if kind == SESSION_ATTACHED:
                connection = self._by_session.get(session_id)
                # Another node may have given the same nonce: each counts for itself.
                if connection is not None and (node_id, nonce) != (self.replica.node_id, connection.nonce):
                    log.info(
                        "closed the connection of %s: session 0x%x is served by another",
                        connection.stream.address,
                        session_id,
                    )
                    del self._by_session[session_id]
                    connection.finish()

    def _judge_contact(self, now_ms: float) -> None:
        """Close connections whose session the majority may let expire without this node knowing."""
        contact, options = self.contact, self.options
        shares = contact.tick(now_ms)
        silence_ms = contact.silence_ms(now_ms)
        if silence_ms >= shares * min(
            options.session_timeout_min_ms / _SILENT_SHARE, _CUT_OFF_SHARE * options.contact_loss_ms_max
        ):
            at_risk = [
                each for each in self._by_session.values() if silence_ms >= shares * each.silence_limit_ms
            ]
            # The age of the contact is that of the disk, too; which of them it is /readyz tells.
            self._finish_all(at_risk, f"no leader was heard, or nothing was durable, for {silence_ms:.0f} ms")
        contact.note(now_ms, self.replica.contact_age_ms())
        if self._awaiting:
            silence_ms = contact.silence_ms(now_ms)
            for connection in [each for each in self._awaiting if silence_ms < each.contact_limit_ms]:
                del self._awaiting[connection]
                self.turn.resuming[connection] = None

    def _finish_all(self, connections: list[ClientConnection], reason: str) -> None:
        alive = [each for each in connections if each.phase not in (Phase.FINISHED, Phase.CLOSED)]
        if alive:
            log.info("closed %d client connections: %s", len(alive), reason)
        for connection in alive:
            connection.finish()

    def close(self) -> None:
        """Serve nobody any more: every connection is closed, new ones are refused."""
        self._emptied = asyncio.Event()
        self._finish_all(list(self.connections), "this node stops")
        self.end_of_turn()

    async def stop(self) -> None:
        """Close, and wait a moment for clients to read what is queued for them."""
        self.close()
        if self.connections and self._emptied is not None:
            try:
                async with asyncio.timeout(STOP_GRACE_S):
                    await self._emptied.wait()
            except TimeoutError:
                for connection in list(self.connections):
                    connection.stream.abort()
