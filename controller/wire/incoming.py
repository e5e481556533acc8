"""What a peer has sent and nobody has taken yet: pieces in, whole frames out.

Puts a long frame together once, not again with each piece. Decides nothing: the connection looks at the
length and the api key of a frame and says whether it is taken. Soft state only.
"""

from __future__ import annotations

from typing import Final

from controller.wire.frames import LENGTH, REQUEST_KEY

#: what a piece of a frame costs besides its bytes
PIECE_BYTES: Final = 64


class FrameBuffer:
    """The bytes of one connection."""

    __slots__ = ("_held_bytes", "_pieces", "_position", "_wanted_bytes")

    def __init__(self) -> None:
        """Begin with none."""
        #: received and not taken, but for the first `_position` bytes of the first piece
        self._pieces: list[bytes] = []
        self._position = 0
        self._held_bytes = 0
        #: held bytes without which there is nothing to look at
        self._wanted_bytes = LENGTH.size

    @property
    def size_bytes(self) -> int:
        """What is held; a piece costs more than its bytes."""
        return self._held_bytes + PIECE_BYTES * len(self._pieces)

    @property
    def is_ready(self) -> bool:
        """Whether more can be said about the next frame than before."""
        return self._held_bytes >= self._wanted_bytes

    def add(self, data: bytes) -> None:
        """Keep what was received."""
        self._pieces.append(data)
        self._held_bytes += len(data)

    def length(self) -> int | None:
        """Return the length of the next frame, whatever it is; None: it has not arrived."""
        if self._held_bytes < LENGTH.size:
            self._wanted_bytes = LENGTH.size
            return None
        if len(self._pieces) > 1:
            first = memoryview(self._pieces[0])[self._position :]
            self._pieces, self._position = [b"".join([first, *self._pieces[1:]])], 0
        length: int = LENGTH.unpack_from(self._pieces[0], self._position)[0]
        return length

    def api_key(self) -> int | None:
        """Return the api key of a frame whose length was returned; None: it has not arrived."""
        if self._held_bytes < LENGTH.size + REQUEST_KEY.size:
            return None
        key: int = REQUEST_KEY.unpack_from(self._pieces[0], self._position + LENGTH.size)[0]
        return key

    def has_whole(self, length: int) -> bool:
        """Whether all of a frame of this length, which was returned, has arrived."""
        size = LENGTH.size + length
        if self._held_bytes >= size:
            self._wanted_bytes = LENGTH.size
            return True
        # The key is looked at as soon as it is there, before its frame is kept.
        head_size = LENGTH.size + REQUEST_KEY.size
        self._wanted_bytes = size if self._held_bytes >= head_size else head_size
        return False

    def take(self, length: int) -> memoryview:
        """Take a whole frame out; returns what is behind its length."""
        begin = self._position + LENGTH.size
        self._position = begin + length
        self._held_bytes -= LENGTH.size + length
        return memoryview(self._pieces[0])[begin : self._position]

    def let_go(self) -> None:
        """Let no small rest hold the memory of what was taken."""
        if not self._held_bytes:
            self.clear()
        elif self._position > len(self._pieces[0]) // 2:
            self._pieces[0], self._position = self._pieces[0][self._position :], 0

    def clear(self) -> None:
        """Forget all of it."""
        self._pieces = []
        self._position = self._held_bytes = 0
