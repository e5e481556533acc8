"""What a peer has sent and nobody has taken yet: bytes are received into its room, whole frames go out.

A long frame is received into memory of its own and taken out without a copy. That memory grows with what has
come, whatever length a peer claims. Short frames are received into memory that connections share, and leave
it as copies. Decides nothing: the connection looks at the length and the api key of a frame and says whether
it is taken. Soft state only.
"""

from __future__ import annotations

from typing import Final

from controller.wire.frames import LENGTH, REQUEST_KEY

#: received at once while no long frame comes
SCRATCH_BYTES: Final = 64 * 1024
#: of a frame's memory: what it has at once, and how many times what has come it has at most
_ROOM_BYTES: Final = 4096
_GROWTH: Final = 16


def scratch() -> memoryview:
    """Return memory to receive into; connections of one event loop may share it."""
    return memoryview(bytearray(SCRATCH_BYTES))


class FrameBuffer:
    """The bytes of one connection."""

    __slots__ = ("_begin", "_buffer", "_end", "_scratch")

    def __init__(self, scratch: memoryview) -> None:
        """Begin with none; `scratch` is used between room() and let_go() only."""
        self._scratch = scratch
        self._buffer, self._begin, self._end = scratch, 0, 0

    @property
    def size_bytes(self) -> int:
        """What is held, with the room that was made for the rest of a frame."""
        return 0 if self._buffer is self._scratch else len(self._buffer)

    def room(self) -> memoryview:
        """Return where to receive; it is not empty."""
        if self._end == len(self._buffer):
            self._move()
        return self._buffer[self._end :]

    def received(self, size_bytes: int) -> None:
        """Keep what was received into the room; let_go() must follow in the same turn."""
        self._end += size_bytes

    def length(self) -> int | None:
        """Return the length of the next frame, whatever it is; None: it has not arrived."""
        if self._end - self._begin < LENGTH.size:
            return None
        length: int = LENGTH.unpack_from(self._buffer, self._begin)[0]
        return length

    def api_key(self) -> int | None:
        """Return the api key of a frame whose length was returned; None: it has not arrived."""
        if self._end - self._begin < LENGTH.size + REQUEST_KEY.size:
            return None
        key: int = REQUEST_KEY.unpack_from(self._buffer, self._begin + LENGTH.size)[0]
        return key

    def has_whole(self, length: int) -> bool:
        """Whether all of a frame of this length, which was returned, has arrived."""
        return self._end - self._begin >= LENGTH.size + length

    def take(self, length: int) -> memoryview:
        """Take a whole frame out; returns what is behind its length."""
        begin = self._begin + LENGTH.size
        self._begin = begin + length
        frame = self._buffer[begin : self._begin].toreadonly()
        return memoryview(bytes(frame)) if self._buffer is self._scratch else frame

    def let_go(self) -> None:
        """Leave the scratch, and let no small rest hold the memory of what was taken."""
        if self._begin == self._end:
            self.clear()
        elif self._buffer is self._scratch or self._begin > len(self._buffer) // 2:
            self._move()

    def _move(self) -> None:
        """Give what is held memory of its own, with room for the rest of the next frame."""
        held = self._buffer[self._begin : self._end]
        length = self.length()
        frame_bytes = _ROOM_BYTES if length is None else LENGTH.size + length
        room_bytes = min(frame_bytes, max(_GROWTH * len(held), _ROOM_BYTES)) - len(held)
        buffer = memoryview(bytearray(len(held) + (room_bytes if room_bytes > 0 else _ROOM_BYTES)))
        buffer[: len(held)] = held
        self._buffer, self._begin, self._end = buffer, 0, len(held)

    def clear(self) -> None:
        """Forget all of it."""
        self._buffer, self._begin, self._end = self._scratch, 0, 0
