"""A client connection that answers a four-letter word, piece by piece.

An answer may list a million watches: it is written in slices, one connection a turn, and only while its peer
reads. What such an answer lists is what there was when it began; each line says how that is when the line is
written, and what has gone meanwhile has no line. Soft state only.

Source: DIVERGENCES.md, "From ZooKeeper"; NIOServerCnxn.checkFourLetterWord of ZooKeeper 3.9 ("netcat
problem").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from quorum.core.results import RunOutcome
from quorum.server.client import ClientConnection, Host
from quorum.server.phases import Move, Phase

#: how long the loop is kept by one slice, and how much one slice writes
SLICE_MS_MAX: Final = 2.0
SLICE_BYTES_MAX: Final = 64 * 1024


class Speech:
    """The answer to the word that a connection asked, which is its last request."""

    def __init__(self, host: Host, connection: ClientConnection, word: str) -> None:
        """Ask the host for the answer; nothing is read any more."""
        self._host = host
        self._connection = connection
        self._pieces: Iterator[str] | None = None
        connection.move(Move.WORD_ASKED)
        connection.read_with(self)
        host.expect(connection)
        host.answer_word(word, self._begin)

    def take(self, data: bytes) -> None:
        """Read nothing."""

    def deliver(self, outcome: RunOutcome) -> None:
        """Nothing was submitted."""

    def forget(self) -> None:
        """The peer is gone."""
        self._pieces = None

    def forget_outcomes(self) -> None:
        """Nothing was submitted."""

    def proceed(self) -> None:
        """Go on: the peer has read."""
        self._host.turn.answer_long(self._connection, self.speak)

    def _begin(self, pieces: Iterator[str]) -> None:
        self._pieces = pieces
        self.speak()

    def speak(self) -> None:
        """Write one slice of the answer, if the peer reads; close after the last."""
        host, connection = self._host, self._connection
        stream = connection.stream
        if self._pieces is None or stream.blocked or connection.phase is not Phase.SPEAKING:
            return
        until_ms = host.now_ms() + SLICE_MS_MAX
        written: list[bytes] = []
        size = 0
        for piece in self._pieces:
            written.append(piece.encode())
            size += len(written[-1])
            if size >= SLICE_BYTES_MAX or host.now_ms() >= until_ms:
                # A peer that reads may take longer than a connection that is closed without a word.
                host.expect(connection)
                host.turn.answer_long(connection, self.speak)
                break
        else:
            connection.finish()
        if size:
            stream.queue(b"".join(written))
        stream.settle()
