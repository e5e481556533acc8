"""The one error of the codec: bytes that do not follow ZooKeeper's records.

It names the field, what stood there and what was allowed, so that one log line tells why a connection was
closed. The reader of the bytes decides what follows; the codec only refuses. Source: jute's
BinaryInputArchive (ZooKeeper 3.9).
"""

from __future__ import annotations

from quorum.core.codes import BAD_ARGUMENTS
from quorum.errors import ProtocolError, shown


class WireError(ProtocolError):
    """Bytes that cannot be decoded; nothing of the frame took effect.

    Attributes:
        field: record and field, such as ``setData.path``.
        value: what stood there.
    """

    def __init__(self, field: str, value: object, problem: str) -> None:
        super().__init__(
            f"{field} = {shown(value)}: {problem}", "the sender must follow ZooKeeper's protocol as of 3.9"
        )
        self.field = field
        self.value = value


class FrameTooLargeError(WireError):
    """A request that can be decoded, but asks for more than one request may; nothing of it took effect.

    Attributes:
        err: ZooKeeper's error code for the answer.
    """

    def __init__(self, field: str, count: int, count_max: int, err: int) -> None:
        super().__init__(field, count, f"at most {count_max} are taken in one request")
        self.err = err


class PathTooLongError(FrameTooLargeError):
    """A path that no request may name; its answer is BADARGUMENTS, as that of every path that is none."""

    def __init__(self, field: str, excess: str) -> None:
        WireError.__init__(self, field, "a path", excess)
        self.err = BAD_ARGUMENTS
