"""All client connections of a node, joined with the replica below: outcomes and events to connections,
turns, time limits.

Decides who hears of an applied transaction, which connection serves a session, and when a connection must
end because nothing can be promised to it any more. Knows no frames (connections do) and no log (the replica
does). Soft state only.

Order contract: the replica hands over outcomes in the order of the log, one run at a time. Within one result
events are queued first, in transaction order, to all who watch; then the reply. `end_of_turn` then writes
everything queued.

A session that this node's client believes in must not expire elsewhere unseen. Once no leader was heard for a
third of its timeout, or for contact_loss_ms_max, its requests wait unanswered until one is; after a third of
its timeout, or four times contact_loss_ms_max, the connection ends. A pause of this process is no silence of
the leader: after one, what has arrived is read first, and a connection ends only after twice that, when its
session may be over. Silence is judged from one tick to the next before new contact counts, so a process that
was stopped for longer finds itself out even if old messages wait in its sockets. Source: architecture, "Life
of a write", "Sessions and clocks"; zookeeper design, "Ordering", "Watches".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from quorum.core.codes import PERM_READ, SESSION_ATTACHED, SESSION_CLOSED
from quorum.core.results import Event, Result, RunOutcome
from quorum.server import words
from quorum.server.connection import ClientConnection
from quorum.server.counters import Counters
from quorum.server.greeting import GreetingStream
from quorum.server.inspection import UNKNOWN_BYTES, bytes_below
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView
from quorum.server.shedding import ClientShedder
from quorum.server.speaking import SpeakingStream
from quorum.server.stream import ClientStream, Phase
from quorum.wire.replies import encode_watch_event

log = logging.getLogger("quorate.server")

#: Share of a session's timeout for which a leader may be silent.
_SILENT_SHARE: Final = 3
#: A node that hears nobody for so many times contact_loss_ms_max is cut off: its clients do better elsewhere.
_CUT_OFF_SHARE: Final = 4
#: So many of these shares it may be silent for a node that stood still itself: a client that talks once in a
#: third of its timeout cannot have expired before.
_SHARES_AFTER_PAUSE: Final = 2
#: How long a stopping node waits for its clients to read what is queued for them.
STOP_GRACE_S: Final = 0.2


def _overdue(deadlines: dict[ClientStream, float], now_ms: float) -> list[ClientStream]:
    """Return whose deadline has come; {connection: deadline} is in the order of the deadlines."""
    overdue = []
    for stream, deadline_ms in deadlines.items():
        if deadline_ms > now_ms:
            break
        overdue.append(stream)
    return overdue


class Frontend:
    """The client side of a node."""

    def __init__(
        self,
        options: ServerOptions,
        now_ms: Callable[[], float],
        call_soon: Callable[[Callable[[], None]], object],
        run_in_thread: Callable[
            [Callable[[], int], Callable[[int | None, BaseException | None], object]], object
        ],
    ) -> None:
        """Prepare; nothing is served before `attach`.

        Args:
            options: limits.
            now_ms: a clock that never goes back, in milliseconds.
            call_soon: runs a function in a later turn of the event loop.
            run_in_thread: runs a function beside the loop, then another one in it with its result or error.
        """
        self.options = options
        self.now_ms = now_ms
        self.counters = Counters()
        self.words = words.KNOWN
        #: every connection, in the order of acceptance
        self.connections: dict[ClientStream, None] = {}
        self.shedder = ClientShedder(options, self.counters, self.connections, now_ms)
        self.replica: ReplicaView
        self.started_ms = now_ms()
        self.dirty: dict[ClientStream, None] = {}
        self.resuming: dict[ClientStream, None] = {}
        self.blocked: dict[ClientStream, int] = {}
        self.held: dict[ClientStream, None] = {}
        #: connections that read on in a later turn
        self._proceeding: set[ClientStream] = set()
        #: connections whose requests wait until a leader is heard
        self._awaiting: dict[GreetingStream, None] = {}
        #: size of the data directory when it was last asked for
        self.data_dir_bytes = 0
        #: who waits until it is measured
        self._awaiting_size: list[Callable[[], None]] = []
        #: connections that go on with the answer to a word, the next one first
        self._speaking: dict[SpeakingStream, None] = {}
        self._speech_scheduled = False
        self._call_soon = call_soon
        self._run_in_thread = run_in_thread
        #: {connection without a session: when it must have one}, in the order of the deadlines
        self._greeting: dict[ClientStream, float] = {}
        #: {connection to be closed: when it is dropped, even if it does not read}, in that order
        self._finishing: dict[ClientStream, float] = {}
        #: {host: connections from it}
        self._per_address: dict[str, int] = {}
        #: {session id: the connection of this node that serves it}
        self._by_session: dict[int, GreetingStream] = {}
        #: connections that may only read, because there was no quorum
        self._read_only: dict[ClientStream, None] = {}
        #: the clock at the first outcome of this turn
        self._turn_ms: float | None = None
        #: when a leader was last known to be heard
        self._contact_ms = float("-inf")
        self._ticked_ms = now_ms()
        #: after so long without a leader the first connections are closed
        self._silence_ms_min = min(
            options.session_timeout_min_ms / _SILENT_SHARE, _CUT_OFF_SHARE * options.contact_loss_ms_max
        )
        #: until when silence may be due to a pause of this process
        self._listening_until_ms = float("-inf")
        self._attached = False
        self._stopped = False
        #: set when the last connection is gone after `stop`
        self._emptied = asyncio.Event()

    def attach(self, replica: ReplicaView) -> None:
        """Set the replica below; once, before any connection is accepted."""
        self.replica = self.shedder.replica = replica
        self._attached = True

    def new_connection(self) -> ClientConnection:
        """Make the protocol of a connection that was accepted."""
        return ClientConnection(self)

    # -- what the replica calls --

    def run_applied(self, connection: ClientConnection, outcome: RunOutcome) -> None:
        """Take the outcome of a run of this node; those of one connection in their order."""
        connection.deliver(outcome)
        self._note_activity(outcome)

    def observe(self, outcome: RunOutcome) -> None:
        """Take the outcome of a run of another node, or of a connection that was given up."""
        self.observe_results(outcome.results)
        self._note_activity(outcome)

    def observe_results(self, results: list[Result]) -> None:
        """Take results that belong to no client: expiries, a change of members."""
        for result in results:
            if result.events is not None:
                self.fire(result.zxid, result.events)

    def lost(self, connection: ClientConnection) -> None:
        """Give a connection up: a run of it has an outcome that will never be known here."""
        connection.forget()
        connection.finish()

    def end_of_turn(self) -> None:
        """Write what is queued, close what is finished, read on where that is possible again."""
        self._turn_ms = None
        if self.held and not self.replica.saturated():
            self.resuming.update(self.held)
            self.held.clear()
        if self.resuming:
            resuming = list(self.resuming)
            self.resuming.clear()
            for stream in resuming:
                stream.proceed()
        for stream in self.dirty:
            stream.flush()
        self.dirty.clear()
        if self._finishing:
            # A reply that leaves may cost others their connections.
            for stream in list(self._finishing):
                stream.close()
        self.shedder.settle()

    def installed(self) -> None:
        """The state was replaced: what fired in between is unknown, so clients must come back and ask.

        Nothing is answered any more: a reply would show a zxid behind events that were never told, and the
        client would not ask for those when it comes back.
        """
        for stream in self.connections:
            stream.forget()
        self._finish_all(list(self.connections), "a snapshot was installed")

    def tick(self, now_ms: float) -> None:
        """Judge time limits; to be called at least as often as heartbeats are sent."""
        self._judge_contact(now_ms)
        self.shedder.tick(now_ms)
        for stream in list(self.blocked):
            stream.look_at_unsent()
        if self._read_only and self.serving():
            # They come back, and get sessions that the log knows.
            self._finish_all(list(self._read_only), "there is a quorum again, they could only read")
            self._read_only.clear()
        for stream in _overdue(self._greeting, now_ms):
            del self._greeting[stream]
            if stream.phase is Phase.GREETING:
                log.info(
                    "closed the connection of %s: no handshake within %d ms",
                    stream.address,
                    self.options.handshake_timeout_ms,
                )
                stream.finish()
        for stream in _overdue(self._finishing, now_ms):
            stream.abort()
        self.end_of_turn()

    # -- what connections call --

    def turn_ms(self) -> float:
        """The clock at the first outcome of this turn."""
        if self._turn_ms is None:
            self._turn_ms = self.now_ms()
        return self._turn_ms

    def proceed_soon(self, stream: ClientStream) -> None:
        """Let a connection read on in a later turn."""
        if stream not in self._proceeding:
            self._proceeding.add(stream)
            self._call_soon(partial(self._proceed, stream))

    def _proceed(self, stream: ClientStream) -> None:
        self._proceeding.discard(stream)
        stream.proceed()

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""
        now_ms = self.now_ms()
        if now_ms - self._ticked_ms <= self.options.pause_ms_min:
            # After a pause the next tick judges the silence before new contact counts.
            self._contact_ms = max(self._contact_ms, now_ms - self.replica.contact_age_ms())
        return now_ms - self._contact_ms < self.options.contact_loss_ms_max

    def silence_ms(self, now_ms: float) -> float:
        """Milliseconds for which no contact to a leader was seen."""
        return now_ms - self._contact_ms

    def await_contact(self, connection: GreetingStream) -> None:
        """Let a connection read on once a leader is heard; that its client was heard is known already."""
        self._awaiting[connection] = None
        self.replica.sessions.touch(connection.session_id)

    def fire(self, zxid: int, events: list[Event]) -> None:
        """Queue the events of a transaction to all who watch, and act on its session notices.

        Whoever must not read the node is told nothing; a one-shot watch is used up all the same.
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
                        watcher.enqueue(frame)
            else:
                self._heed_notice(event)

    def opened(self, stream: ClientStream) -> bool:
        """Register a connection; false if its address has too many."""
        options = self.options
        if self._stopped or not self._attached:
            return False
        count = self._per_address.get(stream.host_name, 0)
        if 0 < options.connections_per_address_max <= count:
            self.counters.connections_rejected += 1
            log.info(
                "closed the connection of %s: its address has %d, connections_per_address_max = %d",
                stream.address,
                count,
                options.connections_per_address_max,
            )
            return False
        self._per_address[stream.host_name] = count + 1
        self.connections[stream] = None
        self.counters.connections_accepted += 1
        self._greeting[stream] = self.now_ms() + options.handshake_timeout_ms
        return True

    def bound(self, connection: GreetingStream, timeout_ms: int) -> None:
        """A connection has a session now."""
        self._greeting.pop(connection, None)
        loss_ms = self.options.contact_loss_ms_max
        connection.silence_limit_ms = min(timeout_ms / _SILENT_SHARE, _CUT_OFF_SHARE * loss_ms)
        connection.contact_limit_ms = min(connection.silence_limit_ms, loss_ms)
        self._by_session[connection.session_id] = connection
        self.replica.sessions.touch(connection.session_id)

    def opened_read_only(self, connection: GreetingStream) -> None:
        """A connection is served with reads alone, until there is a quorum."""
        self._greeting.pop(connection, None)
        self._read_only[connection] = None

    def finishing(self, stream: ClientStream) -> None:
        """A connection is to be closed at the end of the turn."""
        self._finishing.pop(stream, None)
        self._finishing[stream] = self.now_ms() + self.options.handshake_timeout_ms

    def closed(self, stream: ClientStream) -> None:
        """A connection is gone, and its watches with it."""
        for known in (
            *(self._greeting, self._finishing, self.dirty, self.resuming),
            *(self.held, self.blocked, self._read_only),
        ):
            known.pop(stream, None)
        self.shedder.forget(stream)
        if stream not in self.connections:
            return
        del self.connections[stream]
        if self._stopped and not self.connections:
            self._emptied.set()
        count = self._per_address[stream.host_name] - 1
        if count:
            self._per_address[stream.host_name] = count
        else:
            del self._per_address[stream.host_name]
        self.replica.watches.remove_watcher(stream)
        if isinstance(stream, ClientConnection):
            self._awaiting.pop(stream, None)
            self._speaking.pop(stream, None)
            if self._by_session.get(stream.session_id) is stream:
                del self._by_session[stream.session_id]

    def answer_word(self, word: str, speak: Callable[[Iterator[str]], None]) -> None:
        """Hand the answer to a four-letter word over; a word about the disk waits until that was measured."""
        if word not in words.MEASURED or word not in self.options.four_letter_words:
            speak(words.answer(word, self))
            return
        self._awaiting_size.append(partial(self._speak_of_size, word, speak))
        if len(self._awaiting_size) == 1:
            self._run_in_thread(partial(bytes_below, self.options.data_dir), self._measured)

    def _speak_of_size(self, word: str, speak: Callable[[Iterator[str]], None]) -> None:
        speak(words.answer(word, self))

    def _measured(self, size: int | None, error: BaseException | None) -> None:
        """Answer all who asked while the data directory was measured."""
        if size is None:
            log.warning("could not measure the data directory %s: %s", self.options.data_dir, error)
        self.data_dir_bytes = UNKNOWN_BYTES if size is None else size
        waiting, self._awaiting_size = self._awaiting_size, []
        for answer in waiting:
            answer()

    def speak_soon(self, stream: SpeakingStream) -> None:
        """Let a connection go on with the answer to a word: one a turn, by the order in which they ask."""
        self._speaking[stream] = None
        if not self._speech_scheduled:
            self._speech_scheduled = True
            self._call_soon(self._speak)

    def _speak(self) -> None:
        self._speech_scheduled = False
        if self._speaking:
            stream = next(iter(self._speaking))
            del self._speaking[stream]
            stream.speak()
        if self._speaking and not self._speech_scheduled:
            self._speech_scheduled = True
            self._call_soon(self._speak)

    # -- inner parts --

    def _note_activity(self, outcome: RunOutcome) -> None:
        """Tell the deadlines: a command that was applied is a sign of life."""
        sessions = self.replica.sessions
        if not sessions.leading:
            return
        if outcome.session_id:
            sessions.touched(outcome.session_id, self.turn_ms())
            return
        for result in outcome.results:
            if isinstance(result.value, tuple):
                session_id, timeout_ms = result.value
                assert isinstance(session_id, int)
                assert isinstance(timeout_ms, int)
                sessions.opened(session_id, timeout_ms, self.turn_ms())

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
                        connection.address,
                        session_id,
                    )
                    del self._by_session[session_id]
                    connection.finish()

    def _judge_contact(self, now_ms: float) -> None:
        """Close connections whose session the majority may let expire without this node knowing."""
        if now_ms - self._ticked_ms > self.options.pause_ms_min:
            self._listening_until_ms = now_ms + self.options.contact_loss_ms_max
        self._ticked_ms = now_ms
        shares = _SHARES_AFTER_PAUSE if now_ms < self._listening_until_ms else 1
        silence_ms = self.silence_ms(now_ms)
        if silence_ms >= shares * self._silence_ms_min:
            at_risk: list[ClientStream] = [
                each for each in self._by_session.values() if silence_ms >= shares * each.silence_limit_ms
            ]
            # The age of the contact is that of the disk, too; which of them it is /readyz tells.
            self._finish_all(at_risk, f"no leader was heard, or nothing was durable, for {silence_ms:.0f} ms")
        self._contact_ms = max(self._contact_ms, now_ms - self.replica.contact_age_ms())
        if self._awaiting:
            silence_ms = self.silence_ms(now_ms)
            for connection in [each for each in self._awaiting if silence_ms < each.contact_limit_ms]:
                del self._awaiting[connection]
                self.resuming[connection] = None

    def _finish_all(self, streams: list[ClientStream], reason: str) -> None:
        alive = [each for each in streams if each.phase not in (Phase.FINISHED, Phase.CLOSED)]
        if alive:
            log.info("closed %d client connections: %s", len(alive), reason)
        for stream in alive:
            stream.finish()

    def close(self) -> None:
        """Serve nobody any more: every connection is closed, new ones are refused."""
        self._stopped = True
        self._finish_all(list(self.connections), "this node stops")
        self.end_of_turn()

    async def stop(self) -> None:
        """Close, and wait a moment for clients to read what is queued for them."""
        self.close()
        if self.connections:
            try:
                async with asyncio.timeout(STOP_GRACE_S):
                    await self._emptied.wait()
            except TimeoutError:
                for stream in list(self.connections):
                    stream.abort()
