"""One view of a node, as ZooKeeper's four-letter words and the commands of its AdminServer show it.

Decides what is looked at and by which of ZooKeeper's names; how it is printed, and who may ask, words.py
decides. What a JVM would tell about itself is not there. Long lists come one by one, each of its own moment:
their names are copied first and looked up when it is their turn, and what has gone meanwhile is left out.
Keeps no state. Source: Commands, MonitorCommand and ServerCnxn.getConnectionInfo of ZooKeeper 3.9.
"""

from __future__ import annotations

import getpass
import os
import platform
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import quorum
from quorum.core.members import members_of
from quorum.core.watches import DATA_KINDS
from quorum.server.client import ClientConnection
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView
from quorum.wire.operations import OPERATIONS

#: What clients may expect of the protocol, then whose server it is.
VERSION: Final = f"3.9.5-quorate-{quorum.__version__}"
#: the size of a data directory that could not be measured
UNKNOWN_BYTES: Final = -1

Facts = dict[str, object]
#: (one, another that belongs to it), or None for one that does not count: others may have their turn
Pairs = Iterator[tuple[str | int, str | int] | None]


class Server(Protocol):
    """The client port of a node."""

    options: ServerOptions
    replica: ReplicaView
    counters: Counters
    #: when this server was made, by its own clock
    started_ms: float
    connections: dict[ClientConnection, None]
    #: size of the data directory, just measured; UNKNOWN_BYTES if it could not be
    data_dir_bytes: int

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""

    def now_ms(self) -> float:
        """The monotonic clock."""


class View(NamedTuple):
    """A node that is looked at; what no word shows may be left out for one."""

    server: Server
    #: just measured, where it is shown
    data_dir_bytes: int
    client_address: str = ""
    leads: bool = False
    leader_id: int | None = None
    #: of the last snapshot: its zxid, and when it was taken, in milliseconds since 1970
    snapshot: tuple[int, int] = (-1, -1)


def bytes_below(folder: str) -> int:
    """Return the size of all files below a folder, 0 where there is none; for a thread, disks may be slow."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(above) / name).stat().st_size
            except FileNotFoundError:
                # Removed since it was listed: compaction does that.
                continue
    return total


def wall_ms(server: Server, clock_ms: float) -> float:
    """Return a time of the monotonic clock as milliseconds since 1970."""
    return time.time() * 1000 - server.now_ms() + clock_ms


# --- the server


def outstanding(server: Server) -> int:
    """Count the requests of clients that have no reply yet."""
    return sum(each.outstanding for each in server.connections)


def read_only(view: View) -> Facts:
    """Whether no write is served."""
    return {"read_only": not view.server.serving()}


def _counts(server: Server) -> Facts:
    counters = server.counters
    return {
        "server_state": server.replica.mode() if server.serving() else "read-only",
        "num_alive_connections": len(server.connections),
        "outstanding_requests": outstanding(server),
        "packets_sent": counters.packets_sent,
        "packets_received": counters.requests_received,
        "min_latency": round(counters.latency_min_ms),
        "avg_latency": round(counters.latency_average_ms(), 4),
        "max_latency": round(counters.latency_max_ms),
        "uptime": round(server.now_ms() - server.started_ms),
    }


def monitor(view: View) -> Facts:
    """What monitors want to know, by the names that they know it by."""
    server = view.server
    replica, machine = server.replica, server.replica.machine
    connected = list(server.connections)
    return {
        "version": VERSION,
        **_counts(server),
        **_part(server),
        "ephemerals_count": sum(len(each.ephemerals) for each in machine.sessions.values()),
        "znode_count": machine.tree.node_count,
        "global_sessions": len(machine.sessions),
        "local_sessions": sum(each.read_only for each in connected),
        "watch_count": replica.watches.counts().watches,
        "max_file_descriptor_count": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "approximate_data_size": machine.tree.data_bytes,
        **_open_files(),
        "connection_rejected": server.counters.connections_rejected,
    }


def _part(server: Server) -> Facts:
    """Return what a member of an ensemble does, and on the leader who follows."""
    states = {"leader": "leading - broadcast", "follower": "following - broadcast"}
    state = states.get(server.replica.mode())
    if state is None or not server.serving():
        return {}
    found: Facts = {"peer_state": state}
    followers = server.replica.followers()
    if followers is not None:
        connected, synced = followers
        found |= {"learners": connected, "followers": connected, "synced_followers": synced}
    return found | {"quorum_size": len(members_of(server.replica.machine.configuration))}


def _open_files() -> Facts:
    """Return the number of open files, or nothing where the system does not tell."""
    try:
        return {"open_file_descriptor_count": len(os.listdir("/proc/self/fd"))}  # noqa: PTH208 -- names are enough
    except OSError:
        return {}


def server_stats(view: View) -> Facts:
    """What a server has done, and how much it holds."""
    counts = _counts(view.server)
    machine = view.server.replica.machine
    stats: Facts = {
        **counts,
        "num_alive_client_connections": counts["num_alive_connections"],
        "last_processed_zxid": machine.zxid,
        "data_dir_size": view.data_dir_bytes,
        "log_dir_size": view.data_dir_bytes,
        "provider_null": False,
    }
    del stats["num_alive_connections"]
    tree = {"node_count": machine.tree.node_count}
    return {"version": VERSION, **read_only(view), "server_stats": stats, **tree}


def configuration(view: View) -> Facts:
    """The settings that ZooKeeper has as well, by their names in its file."""
    options = view.server.options
    return {
        "clientPort": options.client_port,
        "secureClientPort": options.secure_client_port,
        "dataDir": options.data_dir,
        "dataDirSize": view.data_dir_bytes,
        "dataLogDir": options.data_dir,
        "dataLogSize": view.data_dir_bytes,
        "tickTime": options.tick_ms,
        "maxClientCnxns": options.connections_per_address_max,
        "minSessionTimeout": options.session_timeout_min_ms,
        "maxSessionTimeout": options.session_timeout_max_ms,
        "clientPortListenBacklog": -1,
        "serverId": options.node_id,
    }


def dirs(view: View) -> Facts:
    """How large the data directory is; snapshots and log are in it."""
    return {"datadir_size": view.data_dir_bytes, "logdir_size": view.data_dir_bytes}


def environment(view: View) -> Facts:
    """Where the server runs."""
    return {
        "zookeeper.version": VERSION,
        "host.name": socket.gethostname(),
        "python.version": platform.python_version(),
        "os.name": platform.system(),
        "os.arch": platform.machine(),
        "os.version": platform.release(),
        "user.name": _user_name(),
        "user.home": os.environ.get("HOME", "?"),
        "user.dir": _working_folder(),
        "data.dir": view.server.options.data_dir,
    }


def _user_name() -> str:
    """Return the user of this process; a container may run it under a number that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _working_folder() -> str:
    """Return where this process was started; somebody may have removed the folder since."""
    try:
        return str(Path.cwd())
    except OSError:
        return "?"


# --- the ensemble


def leader(view: View) -> Facts:
    """The leader."""
    members = members_of(view.server.replica.machine.configuration)
    address, _ = members.get(view.leader_id or -1, ("", False))
    return {
        "is_leader": view.leads,
        "leader_id": view.leader_id or -1,
        "leader_ip": address.rpartition(":")[0],
    }


def voting_view(view: View) -> Facts:
    """The voters."""
    members = members_of(view.server.replica.machine.configuration)
    return {
        "current_config": {
            str(node_id): {
                "server_addresses": [address],
                "election_addresses": [address],
                "client_address": "",
                "learner_type": "participant",
            }
            for node_id, (address, votes) in sorted(members.items())
            if votes
        }
    }


def zab_state(view: View) -> Facts:
    """What this member does, in the terms of ZooKeeper's protocol."""
    server, machine = view.server, view.server.replica.machine
    address, votes = members_of(machine.configuration).get(server.options.node_id, ("", False))
    return {
        "myid": server.options.node_id,
        "is_leader": view.leads,
        "quorum_address": address,
        "election_address": address,
        "client_address": view.client_address,
        "voting": votes,
        "last_zxid": f"0x{machine.zxid:x}",
        "zab_epoch": machine.zxid >> 32,
        "zab_counter": machine.zxid & 0xFFFF_FFFF,
        "zabstate": "broadcast" if server.serving() else "election",
    }


# --- clients


def clients(view: View) -> Iterator[ClientConnection | None]:
    """Go through the connections; None for one that has gone meanwhile."""
    connections = view.server.connections
    for each in list(connections):
        yield each if each in connections else None


def brief(client: ClientConnection) -> Facts:
    """What a connection has sent and received."""
    return {
        "remote_socket_address": client.stream.address,
        "interest_ops": int(client.stream.reading),
        "outstanding_requests": client.outstanding,
        "packets_received": client.requests_received,
        "packets_sent": client.stream.packets_sent,
    }


def details(view: View, client: ClientConnection) -> Facts:
    """All that is known of a connection."""
    xid, op, zxid = client.last_request or (-1, None, -1)
    waits = client.waits
    answered = max(1, client.requests_received - client.outstanding)
    operation = None if op is None else OPERATIONS.get(op)
    return {
        **brief(client),
        "session_id": client.session_id,
        "last_operation": "NA" if operation is None else operation.short_name,
        "established": round(wall_ms(view.server, client.established_ms)),
        "session_timeout": client.timeout_ms,
        "last_cxid": xid,
        "last_zxid": zxid,
        "last_response_time": round(client.last_read_ms),
        "last_latency": round(waits.last_ms),
        # Reads are answered in the turn in which they come.
        "min_latency": round(waits.min_ms) if waits.requests >= answered else 0,
        "avg_latency": round(waits.total_ms / answered),
        "max_latency": round(waits.max_ms),
    }


def ephemerals(view: View) -> Pairs:
    """Go through the sessions and their ephemerals."""
    sessions = view.server.replica.machine.sessions
    for session_id in sorted(sessions):
        session = sessions.get(session_id)
        for path in list(session.ephemerals) if session is not None else ():
            yield (session_id, path) if session is not None and path in session.ephemerals else None
        yield None


def watches(view: View) -> Pairs:
    """Go through the sessions and the paths whose data they watch, in ZooKeeper's meaning of it."""
    table = view.server.replica.watches
    for watcher in table.watchers():
        for path in table.paths_of(watcher):
            yield (watcher.session_id, path) if table.has(path, watcher, DATA_KINDS) else None


def watches_by_path(view: View) -> Pairs:
    """Go through the paths and the sessions that watch their data."""
    table = view.server.replica.watches
    for path in table.paths():
        for watcher in table.watchers_of(path):
            yield (path, watcher.session_id) if table.has(path, watcher, DATA_KINDS) else None
