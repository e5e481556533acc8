"""Whether a connection's requests are taken, and the moves between the answers.

Two rules: whatever changes the state is in MOVES, and this file knows no bytes and no transport. A
connection that is not READING is not read: what its peer sends waits in the sockets. Soft state only.
Source: KIP-219 (channels that are muted while their client is throttled).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class RequestFlow(Enum):
    """What becomes of a connection's requests."""

    #: they are taken as they come
    READING = "reading"
    #: enough of them wait for their responses; the next ones are kept as bytes
    FULL = "full"
    #: the peer does not take its responses: none begins, and the next ones are kept as bytes
    UNREAD = "unread"
    #: its client is over a quota: none begins, and the next ones are kept as bytes
    MUTED = "muted"
    #: both
    MUTED_UNREAD = "muted and unread"


class FlowInput(Enum):
    """What moves a connection from one to another."""

    #: one more request would be too many
    NO_ROOM = "no room"
    #: there is room again
    ROOM = "room"
    #: the transport holds too many bytes of responses
    NOT_READ = "not read"
    #: the peer has taken them
    READ = "read"
    #: its client is over a quota
    THROTTLED = "throttled"
    #: that has been long enough
    RELEASED = "released"


#: What is not listed does not happen: room is asked for only where there was none, and a transport that holds
#: too much says so once. One that is read again, or released, looks for room before it takes more.
MOVES: Final[Mapping[tuple[RequestFlow, FlowInput], RequestFlow]] = MappingProxyType(
    {
        (RequestFlow.READING, FlowInput.NO_ROOM): RequestFlow.FULL,
        (RequestFlow.READING, FlowInput.NOT_READ): RequestFlow.UNREAD,
        (RequestFlow.FULL, FlowInput.ROOM): RequestFlow.READING,
        (RequestFlow.FULL, FlowInput.NOT_READ): RequestFlow.UNREAD,
        (RequestFlow.UNREAD, FlowInput.NO_ROOM): RequestFlow.UNREAD,
        (RequestFlow.UNREAD, FlowInput.READ): RequestFlow.FULL,
        (RequestFlow.READING, FlowInput.THROTTLED): RequestFlow.MUTED,
        (RequestFlow.FULL, FlowInput.THROTTLED): RequestFlow.MUTED,
        (RequestFlow.UNREAD, FlowInput.THROTTLED): RequestFlow.MUTED_UNREAD,
        (RequestFlow.MUTED, FlowInput.THROTTLED): RequestFlow.MUTED,
        (RequestFlow.MUTED, FlowInput.NO_ROOM): RequestFlow.MUTED,
        (RequestFlow.MUTED, FlowInput.NOT_READ): RequestFlow.MUTED_UNREAD,
        (RequestFlow.MUTED, FlowInput.RELEASED): RequestFlow.FULL,
        (RequestFlow.MUTED_UNREAD, FlowInput.THROTTLED): RequestFlow.MUTED_UNREAD,
        (RequestFlow.MUTED_UNREAD, FlowInput.NO_ROOM): RequestFlow.MUTED_UNREAD,
        (RequestFlow.MUTED_UNREAD, FlowInput.READ): RequestFlow.MUTED,
        (RequestFlow.MUTED_UNREAD, FlowInput.RELEASED): RequestFlow.UNREAD,
    }
)
