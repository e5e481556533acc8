"""What protects the frames of a connection between peers that is not TLS: a MAC for each, and its place.

The key is one connection's alone, and one direction's: HKDF makes it from the peer secret and the nonces of
the hello. A sealed frame is, in this order::

    check   4 bytes: keyed BLAKE2b over the frame's number and its length
    frame   as the codec packs it, its length first
    tag     16 bytes: keyed BLAKE2b over the frame's number and all before it

Numbers count from 0 and are not sent: a frame that was changed, repeated, swapped, or follows one that was
lost has a wrong tag. The check tells that a length is wrong before so many bytes came; without it one changed
bit would leave a connection mute for megabytes. Nothing is encrypted. A connection by TLS needs none of it.

Pure; soft state only: how many frames passed. Source: RFC 5869 (HKDF), RFC 7693 (BLAKE2).
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from quorum.errors import ProtocolError

#: Bytes before a sealed frame, and behind it.
CHECK_BYTES: Final = 4
TAG_BYTES: Final = 16
KEY_BYTES: Final = 32

_NUMBER: Final = struct.Struct(">Q")
_INFO: Final = b"Quorate peer frames, dialler to acceptor"
_REMEDY: Final = "what was lost is sent again on another connection; find what sits between the two nodes"


def frame_key(secret: bytes, dialler_nonce: bytes, acceptor_nonce: bytes) -> bytes:
    """Return the key of the frames that a dialler sends on one connection: HKDF-SHA256, KEY_BYTES long."""
    extracted = hmac.digest(dialler_nonce + acceptor_nonce, secret, "sha256")
    # One block of the expansion is as long as the key.
    return hmac.digest(extracted, _INFO + b"\x01", "sha256")


class FrameSeal:
    """One end of one connection: it seals what leaves, or opens what comes, in one order."""

    __slots__ = ("_check", "_tag", "number")

    def __init__(self, key: bytes) -> None:
        """Begin with frame 0.

        Args:
            key: of `frame_key`.
        """
        # Copies of them are cheaper than keyed ones made anew.
        self._check = blake2b(key=key, digest_size=CHECK_BYTES, person=b"length")
        self._tag = blake2b(key=key, digest_size=TAG_BYTES, person=b"frame")
        #: frames that passed
        self.number = 0

    def seal(self, frame: Iterable[bytes]) -> tuple[bytes, ...]:
        """Return the parts of a frame with check and tag around them.

        Args:
            frame: its parts; the first one begins with the length.
        """
        number = _NUMBER.pack(self.number)
        self.number += 1
        first, *rest = frame
        check = self._check.copy()
        check.update(number + first[:4])
        head = check.digest() + first
        tag = self._tag.copy()
        tag.update(number + head)
        for part in rest:
            tag.update(part)
        return (head, *rest, tag.digest())

    def check_length(self, check: memoryview, length: memoryview) -> None:
        """See that the length of a frame that is not whole yet is the sender's.

        Raises:
            ProtocolError: it is another one.
        """
        mac = self._check.copy()
        mac.update(_NUMBER.pack(self.number) + length)
        if not hmac.compare_digest(mac.digest(), check):
            raise self._broken("the length")

    def open(self, frame: memoryview, tag: memoryview) -> None:
        """See that a frame is the next one that the sender sealed.

        Args:
            frame: whole, its check first.

        Raises:
            ProtocolError: it is not.
        """
        mac = self._tag.copy()
        mac.update(_NUMBER.pack(self.number))
        mac.update(frame)
        if not hmac.compare_digest(mac.digest(), tag):
            raise self._broken("the MAC")
        self.number += 1

    def _broken(self, what: str) -> ProtocolError:
        told = f"{what} of frame {self.number} is not what the peer sealed"
        return ProtocolError(
            f"{told}: bytes were changed, lost, repeated or swapped on the way, or somebody else's came",
            _REMEDY,
        )
