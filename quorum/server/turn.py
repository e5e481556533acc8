"""What a turn of the event loop leaves to be done at its end, or in a later one.

Knows that connections read on and that their bytes leave, nothing of either. Soft state only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol


class Waiting(Protocol):
    """A connection that may read on."""

    def proceed(self) -> None:
        """Read on, if that is allowed again."""


class Written(Protocol):
    """The byte side of a connection."""

    def flush(self) -> None:
        """Write everything that is queued."""

    def close(self) -> None:
        """Close the transport after what is queued."""


class Turn:
    """The turn that is under way."""

    def __init__(
        self, call_soon: Callable[[Callable[[], None]], object], now_ms: Callable[[], float]
    ) -> None:
        """Begin with nothing to do; `call_soon` runs a function in a later turn."""
        #: with something queued
        self.dirty: dict[Written, None] = {}
        #: to be closed at the end of the turn
        self.closing: dict[Written, None] = {}
        #: connections that may read on at the end of the turn
        self.resuming: dict[Waiting, None] = {}
        #: connections that wait until the node is no longer saturated
        self.held: dict[Waiting, None] = {}
        self._proceeding: set[Waiting] = set()
        #: {connection with a long answer: what writes its next piece}, the next one first
        self._speaking: dict[Waiting, Callable[[], None]] = {}
        self.call_soon = call_soon
        self._now_ms = now_ms
        self._began_ms: float | None = None

    def ms(self) -> float:
        """The clock at the first outcome of this turn."""
        if self._began_ms is None:
            self._began_ms = self._now_ms()
        return self._began_ms

    def proceed_soon(self, connection: Waiting) -> None:
        """Let a connection read on in a later turn, once however often this was asked for until then."""
        if connection not in self._proceeding:
            self._proceeding.add(connection)
            self.call_soon(partial(self._proceed, connection))

    def _proceed(self, connection: Waiting) -> None:
        self._proceeding.discard(connection)
        connection.proceed()

    def speak_soon(self, connection: Waiting, speak: Callable[[], None]) -> None:
        """Let a connection write on in a later turn: one a turn, by the order in which they ask."""
        if not self._speaking:
            self.call_soon(self._speak)
        self._speaking.setdefault(connection, speak)

    def _speak(self) -> None:
        if self._speaking:
            connection = next(iter(self._speaking))
            speak = self._speaking.pop(connection)
            if self._speaking:
                self.call_soon(self._speak)
            speak()

    def end(self, saturated: Callable[[], bool]) -> None:
        """Read on where that is possible again, write what is queued, close what is finished."""
        self._began_ms = None
        if self.held and not saturated():
            self.resuming.update(self.held)
            self.held.clear()
        if self.resuming:
            resuming = list(self.resuming)
            self.resuming.clear()
            for connection in resuming:
                connection.proceed()
        for stream in self.dirty:
            stream.flush()
        self.dirty.clear()
        if self.closing:
            # A reply that leaves may cost others their connections.
            closing = list(self.closing)
            self.closing.clear()
            for stream in closing:
                stream.close()

    def forget(self, connection: Waiting, stream: Written) -> None:
        """A connection is gone."""
        for waiting in (self.resuming, self.held, self._speaking):
            waiting.pop(connection, None)
        for written in (self.dirty, self.closing):
            written.pop(stream, None)
