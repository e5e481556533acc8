"""What monitors and ZooKeeper's own tools ask: four-letter words over the client port, and the commands of
the AdminServer over HTTP. One row for both, over one view of the node.

Decides the formats alone: text line by line as ZooKeeper 3.9 prints it and objects with its fields, because
others parse them. A word outside the allow-list is refused with ZooKeeper's own sentence; without contact to
a leader only ruok, isro and envi say more than that nothing is served, unless clients may read. Text comes
in pieces, each of them little work; an object lists only so much. Commands that change something have no
counterpart. Source: ZooKeeper 3.9 administrator's guide (four letter words, "The AdminServer"); a test runs
ZooKeeper's own beside these.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from quorum.core.machine import CONFIG_PATH
from quorum.core.queries import get_data
from quorum.server import inspection
from quorum.server.client import ClientConnection
from quorum.server.inspection import VERSION, Facts, Pairs, Server, View, brief, clients, details

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"
#: watches or sessions that an object lists
LISTED_MAX: Final = 10_000
_UINT64: Final = 2**64 - 1
#: settings that the word conf has alone
_CONF_ALONE: Final = ("secureClientPort", "dataDirSize", "dataLogSize")

Text = Iterator[str]


def _hex(number: Any) -> str:
    return f"0x{number & _UINT64:x}"


def _shown(each: str | int) -> str:
    return _hex(each) if isinstance(each, int) else each


def _date(wall_ms: float) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")


def _lines(line: str, facts: Callable[[View], Facts], head: str = "") -> Callable[[View], Text]:
    """Print each of some facts as a line."""
    return lambda view: iter((head + "".join(line.format(*each) for each in facts(view).items()),))


# --- text


def _isro(view: View) -> Text:
    yield "rw" if view.server.serving() else "ro" if view.server.options.read_only_mode else "null"


def _conf(view: View) -> Text:
    yield from _lines("{}={}\n", inspection.configuration)(view)
    replica = view.server.replica
    found = get_data(replica.machine, CONFIG_PATH, [["super", ""]])
    if replica.mode() != "standalone" and not isinstance(found, int):
        yield f"membership: \n{(found[0] or b'').decode('utf-8', 'replace')}"


def _status(view: View) -> str:
    found: dict[str, Any] = inspection.server_stats(view)
    stats = found["server_stats"]
    return (
        f"Latency min/avg/max: {stats['min_latency']}/{stats['avg_latency']}/{stats['max_latency']}\n"
        f"Received: {stats['packets_received']}\n"
        f"Sent: {stats['packets_sent']}\n"
        f"Connections: {stats['num_alive_client_connections']}\n"
        f"Outstanding: {stats['outstanding_requests']}\n"
        f"Zxid: {_hex(stats['last_processed_zxid'])}\n"
        f"Mode: {stats['server_state']}\n"
        f"Node count: {found['node_count']}\n"
    )


def _srvr(view: View) -> Text:
    yield f"Zookeeper version: {VERSION}\n{_status(view)}"


def _stat(view: View) -> Text:
    yield f"Zookeeper version: {VERSION}\nClients:\n"
    for each in clients(view):
        yield "" if each is None else f"{_counts(each)})\n"
    yield "\n" + _status(view)


def _cons(view: View) -> Text:
    for each in clients(view):
        yield "" if each is None else f"{_counts(each)}{_session(view, each)})\n"
    yield "\n"


def _counts(client: ClientConnection) -> str:
    return (
        " /{remote_socket_address}[{interest_ops}](queued={outstanding_requests},"
        "recved={packets_received},sent={packets_sent}"
    ).format_map(brief(client))


def _session(view: View, client: ClientConnection) -> str:
    if client.last_request is None:
        return ""
    found = details(view, client)
    numbers = {name: _hex(found[name]) for name in ("session_id", "last_cxid", "last_zxid")}
    return (
        ",sid={session_id},lop={last_operation},est={established},to={session_timeout},lcxid={last_cxid}"
        ",lzxid={last_zxid},lresp={last_response_time},llat={last_latency},minlat={min_latency}"
        ",avglat={avg_latency},maxlat={max_latency}"
    ).format_map(found | numbers)


def _dump(view: View) -> Text:
    """List sessions, ephemerals and connections; deadlines of sessions are known to the leader only."""
    replica = view.server.replica
    sessions = replica.machine.sessions
    yield "SessionTracker dump:\n"
    if replica.sessions.leading:
        yield from _deadlines(view)
    else:
        yield f"Global Sessions({len(sessions)}):\n"
        for session_id in sorted(sessions):
            session = sessions.get(session_id)
            yield f"{_hex(session_id)}\t{session.timeout_ms}ms\n" if session is not None else ""
    owners = 0
    for session_id in sorted(sessions):
        session = sessions.get(session_id)
        owners += bool(session is not None and session.ephemerals)
        yield ""
    yield f"ephemeral nodes dump:\nSessions with Ephemerals ({owners}):\n"
    yield from _groups("{}:\n", inspection.ephemerals(view))
    connected = [each for each in clients(view) if each is not None]
    yield f"Connections dump:\nConnections Sets (1)/({len(connected)}):\n"
    yield f"{len(connected)} expire at {_date(time.time() * 1000)}:\n"
    for each in connected:
        yield f"\tip: /{each.stream.address} sessionId: {_hex(each.session_id)}\n"


def _deadlines(view: View) -> Text:
    """List the sessions by the second in which they expire."""
    replica = view.server.replica
    sets: dict[int, list[int]] = {}
    for deadline_ms, session_id in replica.sessions.deadlines():
        sets.setdefault(int(inspection.wall_ms(view.server, deadline_ms) // 1000), []).append(session_id)
        yield ""
    yield f"Session Sets ({len(sets)})/({len(replica.machine.sessions)}):\n"
    for second, session_ids in sorted(sets.items()):
        yield f"{len(session_ids)} expire at {_date(second * 1000)}:\n"
        for session_id in session_ids:
            yield f"\t{_hex(session_id)}\n"


def _groups(head: str, pairs: Pairs) -> Text:
    """Print pairs as groups, a head for each and a line for each that belongs to it."""
    last: object = None
    for pair in pairs:
        if pair is None:
            yield ""
            continue
        yield f"{head.format(_shown(pair[0])) if pair[0] != last else ''}\t{_shown(pair[1])}\n"
        last = pair[0]


def _grouped(pairs: Callable[[View], Pairs]) -> Callable[[View], Text]:
    def text(view: View) -> Text:
        yield from _groups("{}\n", pairs(view))
        yield "\n"

    return text


def _wchs(view: View) -> Text:
    paths: set[object] = set()
    watchers: set[object] = set()
    total = 0
    for pair in inspection.watches_by_path(view):
        if pair is not None:
            paths.add(pair[0])
            watchers.add(pair[1])
            total += 1
        yield ""
    yield f"{len(watchers)} connections watching {len(paths)} paths\nTotal watches:{total}\n"


def _crst(view: View) -> Text:
    for client in clients(view):
        if client is not None:
            client.reset_counts()
    yield "Connection stats reset.\n"


def _srst(view: View) -> Text:
    view.server.counters.reset()
    yield "Server stats reset.\n"


# --- objects


def _configuration(view: View) -> Facts:
    found = inspection.configuration(view)
    return {
        re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): value
        for name, value in found.items()
        if name not in _CONF_ALONE
    }


def _connections(view: View) -> Facts:
    connections = [details(view, each) for each in clients(view) if each is not None]
    return {"connections": connections, "secure_connections": []}


def _stats(view: View) -> Facts:
    connections = [brief(each) for each in clients(view) if each is not None]
    return {**inspection.server_stats(view), "connections": connections, "secure_connections": []}


def _too_many(what: str, count: int, where: str) -> Facts:
    return {"error": f"{count} {what}, of which an answer lists {LISTED_MAX}: GET {where} has pages of them"}


def _collected(pairs: Pairs) -> dict[str, list[str | int]]:
    found: dict[str, list[str | int]] = {}
    for pair in pairs:
        if pair is not None:
            found.setdefault(str(pair[0]), []).append(pair[1])
    return found


def _sessions(view: View) -> Facts:
    """Sessions by deadline, which the leader alone knows, and their ephemerals."""
    replica = view.server.replica
    count = len(replica.machine.sessions)
    if count > LISTED_MAX:
        return _too_many("sessions", count, "/v1/sessions")
    deadlines = replica.sessions.deadlines() if replica.sessions.leading else ()
    return {
        "expiry_time_to_session_ids": _collected((round(at_ms), each) for at_ms, each in deadlines),
        "session_id_to_ephemeral_paths": _collected(inspection.ephemerals(view)),
    }


def _watch_summary(view: View) -> Facts:
    counts = view.server.replica.watches.counts()
    return {
        "num_connections": counts.watchers,
        "num_paths": counts.paths,
        "num_total_watches": counts.watches,
    }


def _watches(name: str, pairs: Callable[[View], Pairs]) -> Callable[[View], Facts]:
    def facts(view: View) -> Facts:
        count = view.server.replica.watches.counts().watches
        if count > LISTED_MAX:
            return _too_many("watches", count, "/v1/watches")
        return {name: _collected(pairs(view))}

    return facts


def _last_snapshot(view: View) -> Facts:
    zxid, stamp_ms = view.snapshot
    return {"zxid": _hex(zxid), "timestamp": stamp_ms}


# --- the table


class Row(NamedTuple):
    """How something of a node is shown: as text for a word, as fields for a command; None: there is none."""

    #: of the command, its first name first; the word is the one of four letters
    names: tuple[str, ...]
    text: Callable[[View], Text] | None
    fields: Callable[[View], Facts] | None


_ROWS: Final = (
    Row(("ruok",), lambda _view: iter(("imok",)), lambda _view: {}),
    Row(("is_read_only", "isro"), _isro, inspection.read_only),
    Row(
        ("environment", "envi", "env"),
        _lines("{}={}\n", inspection.environment, "Environment:\n"),
        inspection.environment,
    ),
    Row(("configuration", "conf", "config"), _conf, _configuration),
    Row(("dirs",), _lines("{}: {}\n", inspection.dirs), inspection.dirs),
    Row(("monitor", "mntr"), _lines("zk_{}\t{}\n", inspection.monitor), inspection.monitor),
    Row(("server_stats", "srvr"), _srvr, inspection.server_stats),
    Row(("stats", "stat"), _stat, _stats),
    Row(("connections", "cons"), _cons, _connections),
    Row(("dump",), _dump, _sessions),
    Row(("watch_summary", "wchs"), _wchs, _watch_summary),
    Row(
        ("watches", "wchc"),
        _grouped(inspection.watches),
        _watches("session_id_to_watched_paths", inspection.watches),
    ),
    Row(
        ("watches_by_path", "wchp"),
        _grouped(inspection.watches_by_path),
        _watches("path_to_session_ids", inspection.watches_by_path),
    ),
    Row(("crst",), _crst, None),
    Row(("srst",), _srst, None),
    Row(("leader", "lead"), None, inspection.leader),
    Row(("voting_view",), None, inspection.voting_view),
    Row(("zabstate",), None, inspection.zab_state),
    Row(("observers", "obsr"), None, lambda _view: {"synced_observers": 0, "observers": []}),
    Row(("last_snapshot", "lsnp"), None, _last_snapshot),
)
_TEXTS: Final = {name: row.text for row in _ROWS if row.text for name in row.names if len(name) == 4}
_FIELDS: Final = {row.names[0]: row.fields for row in _ROWS if row.fields}
#: {any name of a command: its first one}
COMMANDS: Final = {name: row.names[0] for row in _ROWS if row.fields for name in row.names}
#: {the four bytes: the word}
KNOWN: Final = {word.encode("ascii"): word for word in _TEXTS}
#: words that are answered in whatever state the node is
_ALWAYS: Final = frozenset({"ruok", "isro", "envi"})
#: words, and commands by their first names, that show the size of the data directory
MEASURED: Final = frozenset({"conf", "dirs", "server_stats", "stats"})


def _running(server: Server) -> bool:
    """Tell whether clients are served, be it with reads alone."""
    return server.serving() or server.options.read_only_mode


def answer(word: str, server: Server) -> Text:
    """Answer a word, in pieces: the writer decides when to ask for the next.

    Args:
        word: one of KNOWN.
        server: the node that is asked; for a word of MEASURED it knows how large its data directory is.
    """
    if word not in server.options.four_letter_words:
        yield f"{word} is not executed because it is not in the whitelist.\n"
    elif word in _ALWAYS or _running(server):
        yield from _TEXTS[word](View(server, server.data_dir_bytes))
    else:
        yield f"{NOT_SERVING}\n"


def command(name: str, view: View) -> Facts:
    """Answer a command by its first name; for one of MEASURED the view has the size of the data directory."""
    if not _running(view.server):
        return {"command": name, "error": NOT_SERVING}
    return {"error": None, **_FIELDS[name](view), "command": name}
