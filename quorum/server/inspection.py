"""Four-letter words that look into a node: its clients, watches, sessions, settings and surroundings.

Decides the text alone, line by line as ZooKeeper 3.9 prints it: cons, crst, srst, conf, dirs, envi, dump,
wchs, wchc and wchp. What a JVM would tell about itself has no line. Whether a word may be asked, and whether
the node serves at all, words.py decides. Source: ConsCommand, ConfCommand, DumpCommand, EnviCommand,
WatchCommand and ServerCnxn.dumpConnectionInfo of ZooKeeper 3.9.
"""

from __future__ import annotations

import getpass
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from quorum.core.codes import OP_CLOSE_SESSION, OP_CREATE_SESSION
from quorum.core.machine import CONFIG_PATH
from quorum.core.queries import get_data
from quorum.server.connection import Connection
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView
from quorum.server.stream import ClientStream
from quorum.wire.protocol import OpCode

_UINT64: Final = 2**64 - 1
#: {operation: what ZooKeeper calls it where there is little room}
_SHORT_NAMES: Final[dict[int, str]] = {
    OpCode.CREATE: "CREA",
    OpCode.DELETE: "DELE",
    OpCode.EXISTS: "EXIS",
    OpCode.GET_DATA: "GETD",
    OpCode.SET_DATA: "SETD",
    OpCode.GET_ACL: "GETA",
    OpCode.SET_ACL: "SETA",
    OpCode.GET_CHILDREN: "GETC",
    OpCode.SYNC: "SYNC",
    OpCode.PING: "PING",
    OpCode.GET_CHILDREN2: "GETC",
    OpCode.MULTI: "MULT",
    OpCode.CREATE2: "CREA",
    OpCode.RECONFIG: "RECO",
    OpCode.CHECK_WATCHES: "CHKW",
    OpCode.REMOVE_WATCHES: "REMW",
    OpCode.CREATE_CONTAINER: "CREA",
    OpCode.CREATE_TTL: "CREA",
    OpCode.MULTI_READ: "MLTR",
    OpCode.SET_WATCHES: "SETW",
    OpCode.GET_EPHEMERALS: "GETE",
    OpCode.GET_ALL_CHILDREN_NUMBER: "GETACN",
    OpCode.SET_WATCHES2: "STW2",
    OpCode.ADD_WATCH: "ADDW",
    OpCode.WHO_AM_I: "HOMI",
    OP_CREATE_SESSION: "SESS",
    OP_CLOSE_SESSION: "CLOS",
}


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


def clients(streams: Iterable[ClientStream]) -> Iterable[Connection]:
    """Return the connections among some streams."""
    return (each for each in streams if isinstance(each, Connection))


def brief(client: Connection) -> str:
    """Return what stat tells about a connection."""
    return (
        f" /{client.address}[{int(client.reading)}](queued={client.outstanding},"
        f"recved={client.requests_received},sent={client.packets_sent}"
    )


def _hex(number: int) -> str:
    return f"0x{number & _UINT64:x}"


def _wall_ms(server: Server, clock_ms: float) -> float:
    """Return a time of the monotonic clock as milliseconds since 1970."""
    return time.time() * 1000 - server.now_ms() + clock_ms


def _date(wall_ms: float) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def cons(server: Server) -> str:
    """List the connections with all that is known about each."""
    return "".join(f"{_connection(server, each)})\n" for each in clients(server.connections)) + "\n"


def _connection(server: Server, client: Connection) -> str:
    if client.last_request is None:
        return brief(client)
    xid, op, zxid = client.last_request
    waits = client.waits
    answered = max(1, client.requests_received - client.outstanding)
    # Reads are answered in the turn in which they come.
    min_ms = waits.min_ms if waits.requests >= answered else 0.0
    return brief(client) + (
        f",sid={_hex(client.session_id)},lop={_SHORT_NAMES.get(op, 'NA')}"
        f",est={_wall_ms(server, client.established_ms):.0f},to={client.timeout_ms}"
        f",lcxid={_hex(xid)},lzxid={_hex(zxid)},lresp={client.last_read_ms:.0f}"
        f",llat={waits.last_ms:.0f},minlat={min_ms:.0f},avglat={waits.total_ms / answered:.0f}"
        f",maxlat={waits.max_ms:.0f}"
    )


def crst(server: Server) -> str:
    """Begin to count again per connection."""
    for client in clients(server.connections):
        client.reset_counts()
    return "Connection stats reset.\n"


def srst(server: Server) -> str:
    """Begin to count again for the server."""
    server.counters.reset()
    return "Server stats reset.\n"


def _bytes_below(folder: str) -> int:
    """Return the size of all files below a folder; 0 where there is none."""
    total = 0
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(above) / name).stat().st_size
            except FileNotFoundError:
                # Removed since it was listed: compaction does that.
                continue
    return total


def conf(server: Server) -> str:
    """Tell the settings that ZooKeeper has as well, then the members."""
    options = server.options
    size = _bytes_below(options.data_dir) if options.data_dir else 0
    rows: list[tuple[str, object]] = [
        ("clientPort", options.client_port),
        ("secureClientPort", -1),
        ("dataDir", options.data_dir),
        ("dataDirSize", size),
        ("dataLogDir", options.data_dir),
        ("dataLogSize", size),
        ("tickTime", options.tick_ms),
        ("maxClientCnxns", options.connections_per_address_max),
        ("minSessionTimeout", options.session_timeout_min_ms),
        ("maxSessionTimeout", options.session_timeout_max_ms),
        ("clientPortListenBacklog", -1),
        ("serverId", options.node_id),
    ]
    text = "".join(f"{name}={value}\n" for name, value in rows)
    found = get_data(server.replica.machine, CONFIG_PATH, [["super", ""]])
    if server.replica.mode() == "standalone" or isinstance(found, int):
        return text
    return f"{text}membership: \n{(found[0] or b'').decode('utf-8', 'replace')}\n"


def dirs(server: Server) -> str:
    """Tell how large the data directory is; snapshots and log are in it."""
    size = _bytes_below(server.options.data_dir) if server.options.data_dir else 0
    return f"datadir_size: {size}\nlogdir_size: {size}\n"


def _user_name() -> str:
    """Return who runs this process; a container may run it under a number that has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def envi(server: Server, version: str) -> str:
    """Tell where the server runs."""
    rows = [
        ("zookeeper.version", version),
        ("host.name", socket.gethostname()),
        ("python.version", platform.python_version()),
        ("os.name", platform.system()),
        ("os.arch", platform.machine()),
        ("os.version", platform.release()),
        ("user.name", _user_name()),
        ("user.home", os.environ.get("HOME", "?")),
        ("user.dir", str(Path.cwd())),
        ("data.dir", server.options.data_dir),
    ]
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in rows)


def dump(server: Server) -> str:
    """List sessions, ephemerals and connections; deadlines of sessions are known to the leader only."""
    replica = server.replica
    sessions = replica.machine.sessions
    lines: list[str] = ["SessionTracker dump:"]
    if replica.sessions.leading:
        sets: dict[str, list[int]] = {}
        for deadline_ms, session_id in sorted(replica.sessions.deadlines()):
            sets.setdefault(_date(_wall_ms(server, deadline_ms)), []).append(session_id)
        lines.append(f"Session Sets ({len(sets)})/({len(sessions)}):")
        for date, session_ids in sets.items():
            lines.append(f"{len(session_ids)} expire at {date}:")
            lines += [f"\t{_hex(session_id)}" for session_id in session_ids]
    else:
        lines.append(f"Global Sessions({len(sessions)}):")
        lines += [f"{_hex(session_id)}\t{each.timeout_ms}ms" for session_id, each in sorted(sessions.items())]
    owners = {session_id: sorted(each.ephemerals) for session_id, each in sessions.items() if each.ephemerals}
    lines += ["ephemeral nodes dump:", f"Sessions with Ephemerals ({len(owners)}):"]
    for session_id, paths in sorted(owners.items()):
        lines += [f"{_hex(session_id)}:", *(f"\t{path}" for path in paths)]
    connected = list(clients(server.connections))
    lines += ["Connections dump:", f"Connections Sets (1)/({len(connected)}):"]
    lines.append(f"{len(connected)} expire at {_date(time.time() * 1000)}:")
    lines += [f"\tip: /{each.address} sessionId: {_hex(each.session_id)}" for each in connected]
    return "\n".join(lines) + "\n"


def wchs(server: Server) -> str:
    """Count the data watches, in ZooKeeper's meaning of them."""
    found = server.replica.watches.data_watches()
    watchers = {watcher for watching in found.values() for watcher in watching}
    total = sum(map(len, found.values()))
    return f"{len(watchers)} connections watching {len(found)} paths\nTotal watches:{total}\n"


def _listed(rows: Mapping[str, Iterable[str]]) -> str:
    lines = [line for head, below in rows.items() for line in (head, *(f"\t{each}" for each in below))]
    return "".join(f"{line}\n" for line in (*lines, ""))


def wchc(server: Server) -> str:
    """List the watched paths of each session."""
    rows: dict[str, list[str]] = {}
    for path, watching in server.replica.watches.data_watches().items():
        for watcher in watching:
            rows.setdefault(_hex(watcher.session_id), []).append(path)
    return _listed(rows)


def wchp(server: Server) -> str:
    """List the sessions that watch each path."""
    found = server.replica.watches.data_watches()
    return _listed({path: [_hex(each.session_id) for each in watching] for path, watching in found.items()})


#: {word: what answers it}, of a node that serves
INSPECTIONS: Final[dict[str, Callable[[Server], str]]] = {
    "cons": cons,
    "crst": crst,
    "srst": srst,
    "conf": conf,
    "dirs": dirs,
    "dump": dump,
    "wchs": wchs,
    "wchc": wchc,
    "wchp": wchp,
}
