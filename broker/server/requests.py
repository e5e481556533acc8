"""One request on its way through the broker, and the ways in which it is answered.

Holds shapes only. Source: Kafka's protocol guide, "Request header".
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from broker.wire.apis import Versions
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
    #: Address of the peer, without its port.
    client_host: str = ""
    #: Of the records in its answer, in bytes.
    answer_bytes_max: int = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Call:
    """A decoded request, as a handler gets it."""

    api_key: int
    api_version: int
    client_id: str | None
    #: kio's entity of this version, or a control request's.
    body: Any
    #: Whether it came through the broker listener, from a peer that has authenticated.
    from_broker: bool
    #: Address of the peer, without its port.
    client_host: str = ""
    #: Of the records in its answer, in bytes.
    answer_bytes_max: int = 2**31 - 1


#: What a handler returns: values to encode (an array may be a generator of its rows), parts that are packed
#: already, or None for no response at all.
Answer = Values | Parts | None


#: The body of a response, one that is written in steps, or None for no response at all.
Response = Parts | LongResponse | None


class Api(Protocol):
    """The requests that one listener serves."""

    @property
    def apis(self) -> Mapping[int, Versions]:
        """What is served: {api key: versions}."""

    def handle(self, request: Request, /) -> Response | Awaitable[Response]:
        """Carry a request out; returns its response.

        Raises:
            MalformedMessageError: the body is not such a request.
            CloseConnectionError: the connection must end.
        """


class CloseConnectionError(ProtocolError):
    """The protocol has no response for this; the connection ends, others are unharmed."""
