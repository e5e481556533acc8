"""Requests that were called and have no outcome yet, in the order of the calls.

Decides which xid a request gets, which ones may be on the wire, whose the next reply is, and what those learn
that will get none. Knows no connection and no operation: requests encode themselves and decode their replies.
Soft state only. Source: ZooKeeper programmer's guide (guarantees); docs/concepts/guarantees.md, "Reads".
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from quorum.client.errors import (
    ClientError,
    ConnectionLossError,
    InvalidArgumentError,
    RequestTooLargeError,
)
from quorum.client.requests import PreparedRequest
from quorum.errors import ProtocolError
from quorum.wire.errors import WireError
from quorum.wire.replies import ReplyHeader

XID_MAX: Final = 2**31 - 1


class Pending:
    """A request on its way, and the future that waits for it."""

    __slots__ = ("frame", "future", "request", "sent", "xid")

    def __init__(
        self, request: PreparedRequest[Any], xid: int, frame: bytes, future: asyncio.Future[Any]
    ) -> None:
        self.request = request
        self.xid = xid
        self.frame = frame
        self.future = future
        self.sent = False

    def fail(self, error: ClientError) -> None:
        """Tell the caller why there will be no reply."""
        if not self.future.done():
            self.future.set_exception(error)


class Outstanding:
    """Everything that waits to be sent, and everything that waits for its reply."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, requests_max: int, request_bytes_max: int) -> None:
        """Start empty; requests_max may be on the wire at a time, each of at most request_bytes_max bytes."""
        self._loop = loop
        self._requests_max = requests_max
        self._request_bytes_max = request_bytes_max
        #: Called and not sent, in order: the connection is away, or requests_max are on the wire.
        self._waiting: deque[Pending] = deque()
        #: On the wire, in order of xid; never more than requests_max, but for the end of the session.
        self._sent: deque[Pending] = deque()
        self._xid = 0

    def prepare(self, request: PreparedRequest[Any]) -> Pending:
        """Encode a request under the next xid; it takes no place yet.

        Raises:
            InvalidArgumentError: no frame can hold one of its arguments.
            RequestTooLargeError: it is longer than request_bytes_max.
        """
        xid = self._xid + 1 if self._xid < XID_MAX else 1
        try:
            frame = request.encode(xid)
        except WireError as error:
            raise InvalidArgumentError(request.label, error.message) from error
        except struct.error as error:
            raise InvalidArgumentError(request.label, str(error)) from error
        self.check_size(request.label, frame)
        self._xid = xid
        return Pending(request, xid, frame, self._loop.create_future())

    def check_size(self, label: str, frame: bytes) -> None:
        """Refuse what servers would close the connection on.

        Raises:
            RequestTooLargeError: the frame, without its length, is longer than request_bytes_max.
        """
        size = len(frame) - 4
        if size > self._request_bytes_max:
            raise RequestTooLargeError(label, size, self._request_bytes_max)

    def append(self, pending: Pending) -> None:
        """Let a request wait for its turn."""
        self._waiting.append(pending)

    def withdraw(self, pending: Pending) -> None:
        """Forget a request whose caller has given up, unless it was sent."""
        if not pending.sent and pending in self._waiting:
            self._waiting.remove(pending)

    def next_frame(self) -> bytes | None:
        """Take the next request in turn to the wire; None if none waits, or as many are there as may be."""
        while self._waiting and len(self._sent) < self._requests_max:
            pending = self._waiting.popleft()
            if not pending.future.done():
                return self.take_to_wire(pending)
        return None

    def take_to_wire(self, pending: Pending) -> bytes:
        """Count a request as sent; returns its frame, which the caller sends now."""
        pending.sent = True
        self._sent.append(pending)
        return pending.frame

    def settle(self, header: ReplyHeader, frame: memoryview) -> PreparedRequest[Any]:
        """Give the oldest request on the wire its outcome, and return it.

        Raises:
            ProtocolError: the reply is not the one that is due, or cannot be decoded; the request stays where
                it is, and the end of the connection fails it.
        """
        if not self._sent:
            raise ProtocolError(f"a reply with xid {header.xid} to no request")
        pending = self._sent[0]
        if pending.xid != header.xid:
            raise ProtocolError(f"a reply with xid {header.xid} where {pending.xid} was due")
        try:
            value = pending.request.decode(header.err, frame)
        except ClientError as error:
            self._sent.popleft()
            pending.fail(error)
        else:
            self._sent.popleft()
            if not pending.future.done():
                pending.future.set_result(value)
        return pending.request

    def fail_sent(self, reason: str) -> None:
        """Fail every request that waits for a reply: those outcomes are unknown."""
        sent, self._sent = self._sent, deque()
        for pending in sent:
            pending.fail(ConnectionLossError(pending.request.label, reason, sent=True))

    def fail_waiting(self, make_error: Callable[[PreparedRequest[Any]], ClientError]) -> None:
        """Fail every request that waits for its turn, with the reason."""
        waiting, self._waiting = self._waiting, deque()
        for pending in waiting:
            pending.fail(make_error(pending.request))
