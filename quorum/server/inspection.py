"""Four-letter words that look into a node: its clients, watches, sessions, settings and surroundings.

Decides the text alone, line by line as ZooKeeper 3.9 prints it: cons, crst, srst, conf, dirs, envi, dump,
wchs, wchc and wchp. What a JVM would tell about itself has no line. Whether a word may be asked, and whether
the node serves at all, words.py decides. An answer comes in pieces, each of them little work, and others have
their turns in between: so the names of what is listed are copied first, and looked up when their line is
made. Source: ConsCommand, ConfCommand, DumpCommand, EnviCommand, WatchCommand and
ServerCnxn.dumpConnectionInfo of ZooKeeper 3.9.
"""

from __future__ import annotations

import getpass
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from quorum.core.codes import OP_CLOSE_SESSION, OP_CREATE_SESSION
from quorum.core.machine import CONFIG_PATH
from quorum.core.queries import get_data
from quorum.core.sessions import Session
from quorum.core.watches import DATA_KINDS
from quorum.server.client import ClientConnection
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.replica_view import ReplicaView
from quorum.wire.protocol import OpCode

_UINT64: Final = 2**64 - 1
#: the size of a data directory that could not be measured
UNKNOWN_BYTES: Final = -1
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
    connections: dict[ClientConnection, None]
    #: size of the data directory, just measured; UNKNOWN_BYTES if it could not be
    data_dir_bytes: int

    def serving(self) -> bool:
        """Tell whether there is contact to a leader."""

    def now_ms(self) -> float:
        """The monotonic clock."""


def brief(client: ClientConnection) -> str:
    """Return what stat tells about a connection."""
    return (
        f" /{client.stream.address}[{int(client.stream.reading)}](queued={client.outstanding},"
        f"recved={client.requests_received},sent={client.stream.packets_sent}"
    )


def _hex(number: int) -> str:
    return f"0x{number & _UINT64:x}"


def _wall_ms(server: Server, clock_ms: float) -> float:
    """Return a time of the monotonic clock as milliseconds since 1970."""
    return time.time() * 1000 - server.now_ms() + clock_ms


def _date(wall_ms: float) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def cons(server: Server) -> Iterator[str]:
    """List the connections with all that is known about each."""
    for each in list(server.connections):
        yield f"{_connection(server, each)})\n" if each in server.connections else ""
    yield "\n"


class Details(NamedTuple):
    """What is known of a connection besides its counts; times in milliseconds."""

    last_operation: str
    #: since 1970
    established_ms: float
    last_xid: int
    last_zxid: int
    #: of the monotonic clock
    last_response_ms: float
    last_ms: float
    min_ms: float
    average_ms: float
    max_ms: float


def details(server: Server, client: ClientConnection) -> Details:
    """Return what cons tells about a connection."""
    xid, op, zxid = client.last_request or (-1, None, -1)
    waits = client.waits
    answered = max(1, client.requests_received - client.outstanding)
    return Details(
        "NA" if op is None else _SHORT_NAMES.get(op, "NA"),
        _wall_ms(server, client.established_ms),
        xid,
        zxid,
        client.last_read_ms,
        waits.last_ms,
        # Reads are answered in the turn in which they come.
        waits.min_ms if waits.requests >= answered else 0.0,
        waits.total_ms / answered,
        waits.max_ms,
    )


def _connection(server: Server, client: ClientConnection) -> str:
    if client.last_request is None:
        return brief(client)
    found = details(server, client)
    return brief(client) + (
        f",sid={_hex(client.session_id)},lop={found.last_operation}"
        f",est={found.established_ms:.0f},to={client.timeout_ms}"
        f",lcxid={_hex(found.last_xid)},lzxid={_hex(found.last_zxid)},lresp={found.last_response_ms:.0f}"
        f",llat={found.last_ms:.0f},minlat={found.min_ms:.0f},avglat={found.average_ms:.0f}"
        f",maxlat={found.max_ms:.0f}"
    )


def crst(server: Server) -> Iterator[str]:
    """Begin to count again per connection."""
    for client in server.connections:
        client.reset_counts()
    yield "Connection stats reset.\n"


def srst(server: Server) -> Iterator[str]:
    """Begin to count again for the server."""
    server.counters.reset()
    yield "Server stats reset.\n"


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


def conf(server: Server) -> Iterator[str]:
    """Tell the settings that ZooKeeper has as well, then the members."""
    options = server.options
    size = server.data_dir_bytes
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
    yield "".join(f"{name}={value}\n" for name, value in rows)
    found = get_data(server.replica.machine, CONFIG_PATH, [["super", ""]])
    if server.replica.mode() != "standalone" and not isinstance(found, int):
        yield f"membership: \n{(found[0] or b'').decode('utf-8', 'replace')}"


def dirs(server: Server) -> Iterator[str]:
    """Tell how large the data directory is; snapshots and log are in it."""
    yield f"datadir_size: {server.data_dir_bytes}\nlogdir_size: {server.data_dir_bytes}\n"


def _user_name() -> str:
    """Return who runs this process; a container may run it under a number that has no name."""
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


def environment(server: Server, version: str) -> list[tuple[str, str]]:
    """Return what is known of the server's surroundings."""
    return [
        ("zookeeper.version", version),
        ("host.name", socket.gethostname()),
        ("python.version", platform.python_version()),
        ("os.name", platform.system()),
        ("os.arch", platform.machine()),
        ("os.version", platform.release()),
        ("user.name", _user_name()),
        ("user.home", os.environ.get("HOME", "?")),
        ("user.dir", _working_folder()),
        ("data.dir", server.options.data_dir),
    ]


def envi(server: Server, version: str) -> str:
    """Tell where the server runs."""
    rows = environment(server, version)
    return "Environment:\n" + "".join(f"{name}={value}\n" for name, value in rows)


def dump(server: Server) -> Iterator[str]:
    """List sessions, ephemerals and connections; deadlines of sessions are known to the leader only."""
    sessions = server.replica.machine.sessions
    ids = sorted(sessions)
    yield "SessionTracker dump:\n"
    if server.replica.sessions.leading:
        yield from _deadlines(server, len(ids))
    else:
        yield f"Global Sessions({len(ids)}):\n"
        for session_id in ids:
            session = sessions.get(session_id)
            yield f"{_hex(session_id)}\t{session.timeout_ms}ms\n" if session is not None else ""
    yield from _ephemerals(sessions, ids)
    connected = list(server.connections)
    yield f"Connections dump:\nConnections Sets (1)/({len(connected)}):\n"
    yield f"{len(connected)} expire at {_date(time.time() * 1000)}:\n"
    for each in connected:
        yield f"\tip: /{each.stream.address} sessionId: {_hex(each.session_id)}\n"


def _deadlines(server: Server, sessions: int) -> Iterator[str]:
    """List the sessions by the second in which they expire."""
    sets: dict[int, list[int]] = {}
    for deadline_ms, session_id in server.replica.sessions.deadlines():
        sets.setdefault(int(_wall_ms(server, deadline_ms) // 1000), []).append(session_id)
        yield ""
    yield f"Session Sets ({len(sets)})/({sessions}):\n"
    for second, session_ids in sorted(sets.items()):
        yield f"{len(session_ids)} expire at {_date(second * 1000)}:\n"
        for session_id in session_ids:
            yield f"\t{_hex(session_id)}\n"


def _ephemerals(sessions: Mapping[int, Session], ids: list[int]) -> Iterator[str]:
    """List the ephemerals of each session that has any."""
    owners = []
    for session_id in ids:
        session = sessions.get(session_id)
        if session is not None and session.ephemerals:
            owners.append(session)
        yield ""
    yield f"ephemeral nodes dump:\nSessions with Ephemerals ({len(owners)}):\n"
    for session in owners:
        yield f"{_hex(session.session_id)}:\n"
        for path in list(session.ephemerals):
            yield f"\t{path}\n" if path in session.ephemerals else ""


def wchs(server: Server) -> Iterator[str]:
    """Count the data watches, in ZooKeeper's meaning of them."""
    watches = server.replica.watches
    watchers: set[object] = set()
    paths = total = 0
    for path in watches.paths():
        found = 0
        for watcher in watches.watchers_of(path):
            if watches.has(path, watcher, DATA_KINDS):
                watchers.add(watcher)
                found += 1
            yield ""
        paths += bool(found)
        total += found
    yield f"{len(watchers)} connections watching {paths} paths\nTotal watches:{total}\n"


def wchc(server: Server) -> Iterator[str]:
    """List the watched paths of each session."""
    watches = server.replica.watches
    for watcher in watches.watchers():
        head = f"{_hex(watcher.session_id)}\n"
        for path in watches.paths_of(watcher):
            if watches.has(path, watcher, DATA_KINDS):
                yield f"{head}\t{path}\n"
                head = ""
            else:
                yield ""
    yield "\n"


def wchp(server: Server) -> Iterator[str]:
    """List the sessions that watch each path."""
    watches = server.replica.watches
    for path in watches.paths():
        head = f"{path}\n"
        for watcher in watches.watchers_of(path):
            if watches.has(path, watcher, DATA_KINDS):
                yield f"{head}\t{_hex(watcher.session_id)}\n"
                head = ""
            else:
                yield ""
    yield "\n"


#: {word: what answers it}, of a node that serves
INSPECTIONS: Final[dict[str, Callable[[Server], Iterator[str]]]] = {
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
