"""What a session is resumed with, and the handshake that asks for it. No state."""

from __future__ import annotations

from typing import Final, NamedTuple

from quorum.wire.requests import ConnectRequest, encode_connect


class SessionToken(NamedTuple):
    """What a session can be resumed with; keep it as secret as a password."""

    session_id: int
    password: bytes
    #: Last transaction that the holder has seen; a server that lacks it refuses the resumption, and
    #: another one is tried.
    last_zxid: int

    def handshake(self, session_timeout_ms: int) -> bytes:
        """Return the frame that asks a server for the session; id 0 asks for a new one."""
        return encode_connect(
            ConnectRequest(
                0, self.last_zxid, session_timeout_ms, self.session_id, self.password, read_only=False
            )
        )


NO_SESSION: Final = SessionToken(0, bytes(16), 0)
