"""The requests that most tests of the client port send, and what they look at."""

from __future__ import annotations

from typing import Any, Final

from quorum.wire.requests import encode_command, encode_read
from tests.unit.server.memory import MemoryNode, Reply

EXISTS: Final = 3
GET_DATA: Final = 4
GET_CHILDREN: Final = 8
GET_CHILDREN2: Final = 12


def create(xid: int, path: str, data: bytes | None = b"", flags: int = 0) -> bytes:
    """Encode a create with an open access list."""
    return encode_command(xid, [1, path, data, None, flags])


def set_data(xid: int, path: str, data: bytes | None = b"", version: int = -1) -> bytes:
    """Encode a setData."""
    return encode_command(xid, [5, path, data, version])


def read(xid: int, op: int, path: str, *, watch: bool = False) -> bytes:
    """Encode one of the four reads."""
    return encode_read(xid, op, path, watch)


def xids(replies: list[Reply]) -> list[int]:
    """Return what was answered, in order."""
    return [reply.xid for reply in replies]


def runs_of(node: MemoryNode) -> list[list[Any]]:
    """Return the commands of each run that was submitted after the handshakes."""
    return [run[3] for run in node.replica.runs_submitted if run[3][0][0] not in (-10, -100)]
