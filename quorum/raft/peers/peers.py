"""What the peer transport and the modules around it say about members.

Decides the shape of nodes, options, counters and link states, how an address is written, and how often a log
line is repeated. Knows no sockets and no protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pysyncobj.node import Node

from quorum.platform.tls import MakeContext, TlsPort
from quorum.raft.core.configuration import Configuration

#: (peer, reason) pairs whose last log line is remembered.
LOG_KEYS_MAX: Final = 1024


class PeerNode(Node):  # type: ignore[misc]  # pysyncobj is untyped
    """A member: pysyncobj's id is the node id in decimal, so equal ids are equal nodes."""

    node_id: int
    address: str  #: host:port; empty if the transport knows it already
    incarnation: str  #: proven in the hello of the connection that this object came from; else empty
    feature_level: int  #: the highest that it supports, from the same hello

    def __init__(
        self, node_id: int, address: str = "", incarnation: str = "", feature_level: int = 1
    ) -> None:
        proven = {"incarnation": incarnation, "feature_level": feature_level}
        super().__init__(str(node_id), node_id=node_id, address=address, **proven)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """Bounds and times of a transport."""

    peer_queue_bytes_max: int = 64 * 1024 * 1024  #: frames that wait for one peer
    write_bytes_max: int = 256 * 1024  #: handed to a socket at once, and kept by it before writing pauses
    pending_handshakes_max: int = 64  #: connections whose hello is not done; the oldest makes room
    handshake_timeout_ms: int = 5000
    lookup_timeout_ms: int = 10_000  #: of a name; the time of a connection begins after it
    connect_timeout_ms: int = 1000
    unacknowledged_timeout_ms: int = 5000  #: sent bytes without an answer of the peer's kernel
    backoff_min_ms: int = 20
    backoff_max_ms: int = 500
    log_interval_ms: int = 5000  #: between two lines of the same peer and reason

    def __post_init__(self) -> None:
        if not 0 < self.backoff_min_ms <= self.backoff_max_ms:
            raise ValueError(f"backoff_min_ms = {self.backoff_min_ms} is not within 1..{self.backoff_max_ms}")


class PeerTls(NamedTuple):
    """How connections with peers become TLS.

    Attributes:
        port: those that are accepted; None: they stay plain.
        dial: makes the context of each that is dialled; None: they are plain.
    """

    port: TlsPort | None = None
    dial: MakeContext | None = None


@dataclass(slots=True)
class TransportCounters:
    """What happened since the start; only ever added to."""

    messages_sent: int = 0
    bytes_sent: int = 0
    messages_received: int = 0
    messages_unsent: int = 0  #: for a peer without a connection
    queue_overflows: int = 0  #: messages dropped together with the connection whose queue was full
    connections_opened: int = 0
    connections_lost: int = 0
    hellos_refused: int = 0
    protocol_errors: int = 0


@dataclass(slots=True)
class QuietLog:
    """Lets one line per key and interval through."""

    interval_ms: float
    #: {key: monotonic ms of its last line}
    last_ms: dict[tuple[str, str], float] = field(default_factory=dict)

    def admits(self, key: tuple[str, str], now_ms: float) -> bool:
        """Tell whether a line may be written now, and remember that it was."""
        last_ms = self.last_ms.pop(key, None)
        quiet = last_ms is not None and now_ms - last_ms < self.interval_ms
        self.last_ms[key] = last_ms if quiet and last_ms is not None else now_ms
        if len(self.last_ms) > LOG_KEYS_MAX:
            del self.last_ms[next(iter(self.last_ms))]
        return not quiet


class PeerLinks(NamedTuple):
    """The connections with one member, for status and metrics."""

    address: str
    outbound: bool
    inbound: bool
    queued_bytes: int
    heard_ms: float  #: when it was heard last, monotonic; -inf without an inbound connection


def speaks_for_member(configuration: Configuration | None, node: PeerNode) -> bool:
    """Tell whether a process may speak for its node id: a retired or an unrecorded disk may not.

    Args:
        configuration: the latest; None before the founding, when everybody may.
        node: as its connection proved it.
    """
    if configuration is None:
        return True
    member = configuration.member(node.node_id)
    known = member is not None and member.incarnation in ("", node.incarnation)
    return known and node.incarnation not in configuration.retired


def split_address(address: str) -> tuple[str, int]:
    """Split "host:port" or "[IPv6 address]:port"."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"address {address!r} is not host:port")
    return host, int(port)
