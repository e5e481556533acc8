"""A client connection that answers a four-letter word, piece by piece.

An answer may list a million watches: it is written in slices, one connection a turn, and only while its peer
reads. What such an answer lists is what there was when it began; each line says how that is when the line is
written, and what has gone meanwhile has no line. Soft state only.

Source: zookeeper design, "Access"; NIOServerCnxn.checkFourLetterWord of ZooKeeper 3.9 ("netcat problem").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from quorum.server.stream import ClientStream, Phase, StreamHost

#: how long the loop is kept by one slice, and how much one slice writes
SLICE_MS_MAX: Final = 2.0
SLICE_BYTES_MAX: Final = 64 * 1024


class SpeakingHost(StreamHost, Protocol):
    """What all connections share, as one sees it that may have asked a word."""

    def now_ms(self) -> float:
        """The monotonic clock."""

    def answer_word(self, word: str, speak: Callable[[Iterator[str]], None]) -> None:
        """Hand the answer to a four-letter word over, now or later."""

    def speak_soon(self, stream: SpeakingStream) -> None:
        """Call `stream.speak` in a later turn; one stream a turn."""


class SpeakingStream(ClientStream):
    """A client connection that may have asked a word, which is its last request then."""

    _host: SpeakingHost

    def __init__(self, host: SpeakingHost) -> None:
        super().__init__(host)
        #: whether the answer to a word is under way, or awaited
        self._speaking = False
        #: the pieces that are left of it
        self._pieces: Iterator[str] = iter(())

    def _ask_word(self, word: str) -> None:
        """Ask the host for the answer; nothing else is read any more."""
        self._speaking = True
        self.finish()
        self._host.answer_word(word, self.begin_to_speak)

    def begin_to_speak(self, pieces: Iterator[str]) -> None:
        """Take the answer; it is written from now on."""
        self._pieces = pieces
        self.speak()

    def speak(self) -> None:
        """Write one slice of the answer, if the peer reads; close after the last."""
        if not self._speaking or self._blocked or self.phase is Phase.CLOSED:
            return
        host = self._host
        until_ms = host.now_ms() + SLICE_MS_MAX
        written: list[bytes] = []
        size = 0
        for piece in self._pieces:
            written.append(piece.encode())
            size += len(written[-1])
            if size >= SLICE_BYTES_MAX or host.now_ms() >= until_ms:
                # Whoever reads may take longer than a connection that is closed without a word.
                host.finishing(self)
                host.speak_soon(self)
                break
        else:
            self._speaking = False
        if size:
            self._queue(b"".join(written))
        self.settle()

    def eof_received(self) -> bool:
        """Tell whether the connection stays open for an answer: netcat says a word, ends its side and reads
        (called by the event loop)."""
        return self._speaking

    def resume_writing(self) -> None:
        """The peer has read (called by the event loop)."""
        super().resume_writing()
        if self._speaking:
            self._host.speak_soon(self)

    def close(self) -> None:
        """Close the transport after what is queued, and after the whole answer to a word."""
        if self._speaking:
            self.flush()
        else:
            super().close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget everything (called by the event loop)."""
        self._speaking = False
        self._pieces = iter(())
        super().connection_lost(exc)
