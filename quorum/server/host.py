"""What all connections of a node share, as a connection sees it.

A seam, so that a connection knows neither the listener nor how outcomes reach it. No state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

from quorum.core.results import Event
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView
from quorum.server.shedding import Shedder

if TYPE_CHECKING:
    from quorum.server.greeting import GreetingStream
    from quorum.server.speaking import SpeakingStream
    from quorum.server.stream import ClientStream


class Host(Protocol):
    """The shared part."""

    options: ServerOptions
    replica: ReplicaView
    counters: Counters
    #: the bounds of all connections together
    shedder: Shedder
    #: {the four bytes that a connection may begin with: the word that they are}
    words: dict[bytes, str]
    #: connections with something queued
    dirty: dict[ClientStream, None]
    #: connections that may read on at the end of the turn
    resuming: dict[ClientStream, None]
    #: {connection whose peer does not keep up with what it is sent: bytes that waited when last looked at}
    blocked: dict[ClientStream, int]
    #: connections that wait until the node is no longer saturated
    held: dict[ClientStream, None]

    def now_ms(self) -> float:
        """The monotonic clock."""

    def turn_ms(self) -> float:
        """The clock at the first outcome of this turn."""

    def proceed_soon(self, stream: ClientStream) -> None:
        """Call `stream.proceed` in a later turn, once however often this was asked for until then."""

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""

    def silence_ms(self, now_ms: float) -> float:
        """Milliseconds for which no contact to a leader was seen."""

    def await_contact(self, connection: GreetingStream) -> None:
        """Let a connection read on once a leader is heard."""

    def fire(self, zxid: int, events: list[Event]) -> None:
        """Queue the events of a transaction to all who watch, and act on its session notices."""

    def opened(self, stream: ClientStream) -> bool:
        """Register a connection; false if its address has too many."""

    def bound(self, connection: GreetingStream, timeout_ms: int) -> None:
        """Learn that a connection has a session now."""

    def opened_read_only(self, connection: GreetingStream) -> None:
        """Learn that a connection is served with reads alone."""

    def finishing(self, stream: ClientStream) -> None:
        """Learn that a connection is to be closed at the end of the turn."""

    def closed(self, stream: ClientStream) -> None:
        """Learn that a connection is gone."""

    def answer_word(self, word: str, speak: Callable[[Iterator[str]], None]) -> None:
        """Hand the answer to a four-letter word over, now or later."""

    def speak_soon(self, stream: SpeakingStream) -> None:
        """Call `stream.speak` in a later turn; one stream a turn."""
