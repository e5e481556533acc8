"""What only tests make and read of ZooKeeper's client protocol: the other direction of the shipped codec."""

from __future__ import annotations

from quorum.core.codes import OP_CLOSE_SESSION
from quorum.wire.errors import WireError
from quorum.wire.jute import Buffer, JuteReader, Stat, buffer_bytes
from quorum.wire.operations import OPERATIONS, Treatment
from quorum.wire.protocol import OpCode
from quorum.wire.requests import Command, Reconfig, frame


def decode_command(op: int, buffer: Buffer, start: int, end: int) -> Command:
    """Decode the body of a write, or of closeSession, as the server does.

    Args:
        op: of the request header.
        buffer: holds the frame.
        start: first byte after the request header.
        end: first byte after the frame.
    """
    if op == OP_CLOSE_SESSION:
        return [OP_CLOSE_SESSION]
    row = OPERATIONS.get(op)
    if row is None or row.treatment is not Treatment.WRITE or row.decode is None:
        raise WireError("header.type", op, "this operation makes no command")
    command: Command = row.decode(buffer, start, end)[0]
    return command


def encode_reconfig(xid: int, request: Reconfig) -> bytes:
    """Encode a reconfig as a whole frame, with its length."""
    texts = [buffer_bytes(None if text is None else text.encode()) for text in request[:3]]
    body = b"".join((*texts, request.config_version.to_bytes(8, "big", signed=True)))
    return frame(xid, OpCode.RECONFIG, body)


def unpack_stat(packed: Buffer) -> Stat:
    """Name the fields of a packed Stat of 68 bytes."""
    return JuteReader(packed, 0, len(packed), "stat").stat("fields")
