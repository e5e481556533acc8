"""Four-letter words: what monitors and ZooKeeper's own tools ask over the client port.

Decides the text alone, line by line as ZooKeeper 3.9 prints it, because it is parsed by others. A word
outside the allow-list is refused with ZooKeeper's own sentence; without contact to a leader only ruok and
isro say more than that nothing is served. Source: ZooKeeper administrator's guide (four letter words),
StatCommand, MonitorCommand, ServerStats.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import quorum
from quorum.server.connection import Connection
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView
from quorum.server.stream import ClientStream

#: every word of ZooKeeper 3.9; one that is not answered yet is never on the allow-list's effective part
_ALL: Final = (
    *("ruok", "srvr", "stat", "mntr", "isro", "conf", "cons", "dirs"),
    *("wchs", "wchc", "wchp", "dump", "envi", "crst", "srst"),
)
#: {the four bytes: the word}
KNOWN: Final = {word.encode("ascii"): word for word in _ALL}

#: What clients may expect of the protocol, then whose server it is.
VERSION: Final = f"3.9.5-quorate-{quorum.__version__}"
NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests\n"


class Server(Protocol):
    """What the words tell about."""

    options: ServerOptions
    replica: ReplicaView
    counters: Counters
    #: when this server was made, by its own clock
    started_ms: float
    connections: dict[ClientStream, None]

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""

    def now_ms(self) -> float:
        """The monotonic clock."""


def answer(word: str, server: Server) -> bytes:
    """Answer a word.

    Args:
        word: one of KNOWN.
        server: the node that is asked.
    """
    speak = _SPOKEN.get(word)
    if speak is None or word not in server.options.four_letter_words:
        return f"{word} is not executed because it is not in the whitelist.\n".encode()
    return speak(server).encode()


def _ruok(_server: Server) -> str:
    return "imok"


def _isro(server: Server) -> str:
    return "rw" if server.serving() else "null"


def _srvr(server: Server) -> str:
    if not server.serving():
        return NOT_SERVING
    return f"Zookeeper version: {VERSION}\n" + _status(server)


def _stat(server: Server) -> str:
    if not server.serving():
        return NOT_SERVING
    lines = [f"Zookeeper version: {VERSION}\n", "Clients:\n"]
    for each in _clients(server.connections):
        reads = int(each.reading)
        lines.append(
            f" /{each.address}[{reads}](queued={each.outstanding},recved={each.requests_received},"
            f"sent={each.packets_sent})\n"
        )
    return "".join((*lines, "\n", _status(server)))


def _status(server: Server) -> str:
    counters = server.counters
    machine = server.replica.machine
    return (
        f"Latency min/avg/max: {counters.latency_min_ms:.0f}/{round(counters.latency_average_ms(), 4)}"
        f"/{counters.latency_max_ms:.0f}\n"
        f"Received: {counters.requests_received}\n"
        f"Sent: {counters.packets_sent}\n"
        f"Connections: {len(server.connections)}\n"
        f"Outstanding: {_outstanding(server)}\n"
        f"Zxid: 0x{machine.zxid:x}\n"
        f"Mode: {server.replica.mode()}\n"
        f"Node count: {machine.tree.node_count}\n"
    )


def _mntr(server: Server) -> str:
    if not server.serving():
        return NOT_SERVING
    counters = server.counters
    replica = server.replica
    machine = replica.machine
    rows: list[tuple[str, object]] = [
        ("version", VERSION),
        ("server_state", replica.mode()),
        ("ephemerals_count", sum(len(each.ephemerals) for each in machine.sessions.values())),
        ("num_alive_connections", len(server.connections)),
        ("avg_latency", round(counters.latency_average_ms(), 4)),
        ("outstanding_requests", _outstanding(server)),
        ("znode_count", machine.tree.node_count),
        ("global_sessions", len(machine.sessions)),
        ("packets_sent", counters.packets_sent),
        ("packets_received", counters.requests_received),
        ("watch_count", replica.watches.counts().watches),
        ("min_latency", f"{counters.latency_min_ms:.0f}"),
        ("max_file_descriptor_count", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("approximate_data_size", machine.tree.data_bytes),
        *_open_files(),
        ("uptime", f"{server.now_ms() - server.started_ms:.0f}"),
        ("max_latency", f"{counters.latency_max_ms:.0f}"),
        ("connection_rejected", counters.connections_rejected),
    ]
    return "".join(f"zk_{name}\t{value}\n" for name, value in rows)


def _open_files() -> list[tuple[str, object]]:
    """Return the row of open files, or nothing where the system does not tell."""
    try:
        return [("open_file_descriptor_count", len(os.listdir("/proc/self/fd")))]  # noqa: PTH208 -- names are enough
    except OSError:
        return []


def _clients(streams: Iterable[ClientStream]) -> Iterable[Connection]:
    return (each for each in streams if isinstance(each, Connection))


def _outstanding(server: Server) -> int:
    return sum(each.outstanding for each in _clients(server.connections))


#: {word: what answers it}; the others are known, and refused like those that the allow-list leaves out
_SPOKEN: Final[dict[str, Callable[[Server], str]]] = {
    "ruok": _ruok,
    "isro": _isro,
    "srvr": _srvr,
    "stat": _stat,
    "mntr": _mntr,
}
