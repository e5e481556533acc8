"""Four-letter words: what monitors and ZooKeeper's own tools ask over the client port.

Decides the text alone, line by line as ZooKeeper 3.9 prints it, because it is parsed by others. A word
outside the allow-list is refused with ZooKeeper's own sentence; without contact to a leader only ruok, isro
and envi say more than that nothing is served, unless clients may read. The words that look into the node
stand in inspection.py. Source: ZooKeeper administrator's guide (four letter words), StatCommand,
MonitorCommand, ServerStats.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from typing import Final

import quorum
from quorum.core.members import members_of
from quorum.server.inspection import INSPECTIONS, Server, brief, envi

#: every word of ZooKeeper 3.9 that does not change settings
_ALL: Final = (
    *("ruok", "srvr", "stat", "mntr", "isro", "conf", "cons", "dirs"),
    *("wchs", "wchc", "wchp", "dump", "envi", "crst", "srst"),
)
#: {the four bytes: the word}
KNOWN: Final = {word.encode("ascii"): word for word in _ALL}

#: words that tell the size of the data directory
MEASURED: Final = frozenset({"conf", "dirs"})

#: What clients may expect of the protocol, then whose server it is.
VERSION: Final = f"3.9.5-quorate-{quorum.__version__}"
NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests\n"


def answer(word: str, server: Server) -> Iterator[str]:
    """Answer a word, in pieces: whoever writes them decides when to ask for the next.

    Args:
        word: one of KNOWN.
        server: the node that is asked; for a word of MEASURED it knows how large its data directory is.
    """
    if word not in server.options.four_letter_words:
        yield f"{word} is not executed because it is not in the whitelist.\n"
    elif word in _SPOKEN:
        yield from _SPOKEN[word](server)
    elif _running(server):
        yield from INSPECTIONS[word](server)
    else:
        yield NOT_SERVING


def _running(server: Server) -> bool:
    """Tell whether clients are served, be it with reads alone."""
    return server.serving() or server.options.read_only_mode


def _mode(server: Server) -> str:
    return server.replica.mode() if server.serving() else "read-only"


def _envi(server: Server) -> Iterator[str]:
    yield envi(server, VERSION)


def _ruok(_server: Server) -> Iterator[str]:
    yield "imok"


def _isro(server: Server) -> Iterator[str]:
    if server.serving():
        yield "rw"
    else:
        yield "ro" if server.options.read_only_mode else "null"


def _srvr(server: Server) -> Iterator[str]:
    yield f"Zookeeper version: {VERSION}\n{_status(server)}" if _running(server) else NOT_SERVING


def _stat(server: Server) -> Iterator[str]:
    if not _running(server):
        yield NOT_SERVING
        return
    yield f"Zookeeper version: {VERSION}\nClients:\n"
    for each in list(server.connections):
        yield f"{brief(each)})\n" if each in server.connections else ""
    yield "\n" + _status(server)


def _status(server: Server) -> str:
    counters = server.counters
    machine = server.replica.machine
    return (
        f"Latency min/avg/max: {counters.latency_min_ms:.0f}/{round(counters.latency_average_ms(), 4)}"
        f"/{counters.latency_max_ms:.0f}\n"
        f"Received: {counters.requests_received}\n"
        f"Sent: {counters.packets_sent}\n"
        f"Connections: {len(server.connections)}\n"
        f"Outstanding: {outstanding(server)}\n"
        f"Zxid: 0x{machine.zxid:x}\n"
        f"Mode: {_mode(server)}\n"
        f"Node count: {machine.tree.node_count}\n"
    )


def _mntr(server: Server) -> Iterator[str]:
    if not _running(server):
        yield NOT_SERVING
        return
    yield "".join(f"zk_{name}\t{value}\n" for name, value in monitor_rows(server))


def monitor_rows(server: Server) -> list[tuple[str, object]]:
    """Return what monitors want to know, by the names that they know it by."""
    counters = server.counters
    replica = server.replica
    machine = replica.machine
    return [
        ("version", VERSION),
        ("server_state", _mode(server)),
        *_part(server),
        ("ephemerals_count", sum(len(each.ephemerals) for each in machine.sessions.values())),
        ("num_alive_connections", len(server.connections)),
        ("avg_latency", round(counters.latency_average_ms(), 4)),
        ("outstanding_requests", outstanding(server)),
        ("znode_count", machine.tree.node_count),
        ("global_sessions", len(machine.sessions)),
        ("local_sessions", sum(each.read_only for each in server.connections)),
        ("packets_sent", counters.packets_sent),
        ("packets_received", counters.requests_received),
        ("watch_count", replica.watches.counts().watches),
        ("min_latency", round(counters.latency_min_ms)),
        ("max_file_descriptor_count", resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ("approximate_data_size", machine.tree.data_bytes),
        *_open_files(),
        ("uptime", round(server.now_ms() - server.started_ms)),
        ("max_latency", round(counters.latency_max_ms)),
        ("connection_rejected", counters.connections_rejected),
    ]


def _part(server: Server) -> list[tuple[str, object]]:
    """Return the rows of a member of an ensemble: what it does, and on the leader who follows."""
    rows: list[tuple[str, object]] = []
    states = {"leader": "leading - broadcast", "follower": "following - broadcast"}
    state = states.get(server.replica.mode())
    if state is None or not server.serving():
        return rows
    rows.append(("peer_state", state))
    followers = server.replica.followers()
    if followers is not None:
        connected, synced = followers
        rows += [("learners", connected), ("followers", connected), ("synced_followers", synced)]
    rows.append(("quorum_size", len(members_of(server.replica.machine.configuration))))
    return rows


def _open_files() -> list[tuple[str, object]]:
    """Return the row of open files, or nothing where the system does not tell."""
    try:
        return [("open_file_descriptor_count", len(os.listdir("/proc/self/fd")))]  # noqa: PTH208 -- names are enough
    except OSError:
        return []


def outstanding(server: Server) -> int:
    """Count the requests of clients that have no reply yet."""
    return sum(each.outstanding for each in server.connections)


#: {word: what answers it}, in whatever state the node is; the others are asked of a node that serves
_SPOKEN: Final[dict[str, Callable[[Server], Iterator[str]]]] = {
    "ruok": _ruok,
    "isro": _isro,
    "srvr": _srvr,
    "stat": _stat,
    "mntr": _mntr,
    "envi": _envi,
}
