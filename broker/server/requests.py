"""One request on its way through the broker, and the ways in which it is answered.

Holds shapes only. Source: Kafka's protocol guide, "Request header".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, Protocol

from broker.core.access.asking import UNLIMITED, Access
from broker.core.access.lists import ANONYMOUS
from broker.server.services import BrokerServices
from broker.wire.codec import LongResponse, Values
from broker.wire.packing import Parts
from quorum.errors import ProtocolError


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose header has been read and whose key and version are served."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    #: What is behind the header.
    body: memoryview
    #: Of the whole frame, in bytes.
    size: int
    #: When its frame was taken from what was received, by the monotonic clock, in seconds.
    received_s: float
    #: Address of the peer, without its port; and host:port.
    client_host: str = ""
    peer: str = ""
    #: Who has proved to be the peer.
    principal: str = ANONYMOUS
    #: Of the records in its answer, in bytes.
    answer_bytes_max: int = 2**31 - 1
    #: Called when a peer that has proved itself sends another request: a fetch that waits answers then.
    on_next: list[Callable[[], None]] | None = None
    #: Reads nothing more of the peer for so many milliseconds.
    throttle: Callable[[int], None] = lambda _: None


class Call(NamedTuple):
    """A decoded request, as a handler gets it."""

    request: Request
    #: kio's entity of this version, or a control request's.
    body: Any
    #: Whether it came through the broker listener, from a peer that has authenticated.
    from_broker: bool
    #: The record batches of the body, in their order, as views of the request's frame.
    records: Sequence[memoryview | None]
    #: The listener of clients on which it came, or would have: clients are sent to brokers' endpoints of it.
    listener: str
    #: What its sender may do.
    access: Access = UNLIMITED


#: What a handler returns: values to encode (an array may be a generator of its rows), parts that are packed
#: already, or None for no response at all.
Answer = Values | Parts | None


#: The body of a response, one that is written in steps, or None for no response at all.
Response = Parts | LongResponse | None


Handler = Callable[[BrokerServices, Call], Answer | Awaitable[Answer]]


class Versions(NamedTuple):
    """The versions of a request that a listener serves, both inclusive."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Row:
    """One request: which versions of it a listener serves, how large, and what carries it out."""

    #: None: the connection itself; it is about the connection, and may come before any proof
    handler: Handler | None
    #: on the listener of Kafka's clients; None: not served there
    client: Versions | None = None
    #: there where access lists count; None: the same
    guarded: Versions | None = None
    #: on the listener of the controller and of followers
    broker: Versions | None = None
    #: the lowest version that ApiVersions names, where it is not the lowest that is served
    advertised_from: int | None = None
    #: the largest frame, without its length; None: as limits.frame_bytes_max allows
    frame_bytes_max: int | None = 1024 * 1024
    #: such requests that follow each other run at once, each beginning after the one before it
    overlaps: bool = False
    #: its answer carries records: it begins when all answers before it have left
    carries_records: bool = False
    #: it changes nothing and may take long: it ends with its connection
    ends_with_connection: bool = False
    #: whether its handler may wait
    waits: bool = field(init=False)

    def __post_init__(self) -> None:
        """Look at the handler once."""
        object.__setattr__(self, "waits", iscoroutinefunction(self.handler))


class Served(NamedTuple):
    """A request as one listener serves it."""

    versions: Versions
    row: Row


def advertised(served: Mapping[int, Served]) -> list[dict[str, object]]:
    """Return the rows of an ApiVersions response."""
    return [
        {
            "api_key": key,
            "min_version": versions.low if row.advertised_from is None else row.advertised_from,
            "max_version": versions.high,
        }
        for key, (versions, row) in sorted(served.items())
    ]


class Api(Protocol):
    """The requests that one listener serves."""

    @property
    def served(self) -> Mapping[int, Served]:
        """What is served, by api key."""

    def handle(self, request: Request, /) -> Response | Awaitable[Response]:
        """Carry a request out; returns its response."""


class CloseConnectionError(ProtocolError):
    """The protocol has no response for this; the connection ends, others are unharmed."""
