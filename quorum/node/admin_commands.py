"""The commands of ZooKeeper's AdminServer that look into a node: what each answers, of this one.

Decides fields and their names, which are ZooKeeper's; values are those of the four-letter words. Commands
that change something, and those about a JVM or digests of ZooKeeper's own kind, have no counterpart here.
Keeps no state.

Source: ZooKeeper 3.9 administrator's guide, "The AdminServer"; its Commands, which a test runs beside these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from quorum.core.members import members_of
from quorum.core.watches import DATA_KINDS
from quorum.node.member import QuorumMember
from quorum.server.client import ClientConnection
from quorum.server.inspection import details, environment
from quorum.server.words import VERSION, monitor_rows

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"
#: watches or sessions that one answer lists
LISTED_MAX: Final = 10_000
Answer = dict[str, object]


class Asked(NamedTuple):
    """A node that is asked, and the size of its data directory if the command needs it."""

    member: QuorumMember
    data_dir_bytes: int


def _ruok(_asked: Asked) -> Answer:
    return {}


def _read_only(asked: Asked) -> Answer:
    return {"read_only": not asked.member.frontend.serving()}


def _monitor(asked: Asked) -> Answer:
    return dict(monitor_rows(asked.member.frontend))


def _configuration(asked: Asked) -> Answer:
    options = asked.member.frontend.options
    return {
        "client_port": options.client_port,
        "data_dir": options.data_dir,
        "data_log_dir": options.data_dir,
        "tick_time": options.tick_ms,
        "max_client_cnxns": options.connections_per_address_max,
        "min_session_timeout": options.session_timeout_min_ms,
        "max_session_timeout": options.session_timeout_max_ms,
        "server_id": options.node_id,
        "client_port_listen_backlog": -1,
    }


def _environment(asked: Asked) -> Answer:
    return dict(environment(asked.member.frontend, VERSION))


def _dirs(asked: Asked) -> Answer:
    return {"datadir_size": asked.data_dir_bytes, "logdir_size": asked.data_dir_bytes}


def _leader_address(member: QuorumMember) -> str:
    leader_id = member.engine.leader_id
    configuration = member.replica.configuration()
    leader = configuration.member(leader_id) if configuration is not None and leader_id is not None else None
    return "" if leader is None else leader.address.rpartition(":")[0]


def _leader(asked: Asked) -> Answer:
    engine = asked.member.engine
    return {
        "is_leader": engine.leads,
        "leader_id": engine.leader_id or -1,
        "leader_ip": _leader_address(asked.member),
    }


def _voting_view(asked: Asked) -> Answer:
    members = members_of(asked.member.replica.machine.configuration)
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


def _zab_state(asked: Asked) -> Answer:
    member = asked.member
    node_id, zxid = member.config.node.id, member.replica.machine.zxid
    address, votes = members_of(member.replica.machine.configuration).get(node_id, ("", False))
    return {
        "myid": node_id,
        "is_leader": member.engine.leads,
        "quorum_address": address,
        "election_address": address,
        "client_address": str(member.config.listen.client),
        "voting": votes,
        "last_zxid": f"0x{zxid:x}",
        "zab_epoch": zxid >> 32,
        "zab_counter": zxid & 0xFFFF_FFFF,
        "zabstate": "broadcast" if member.frontend.serving() else "election",
    }


def _observers(_asked: Asked) -> Answer:
    return {"synced_observers": 0, "observers": []}


def _server_stats(asked: Asked) -> Answer:
    member = asked.member
    rows = dict(monitor_rows(member.frontend))
    names = ("packets_sent", "packets_received", "avg_latency", "min_latency", "max_latency", "server_state")
    stats: Answer = {name: rows[name] for name in (*names, "outstanding_requests", "uptime")}
    stats |= {
        "num_alive_client_connections": rows["num_alive_connections"],
        "last_processed_zxid": member.replica.machine.zxid,
        "data_dir_size": asked.data_dir_bytes,
        "log_dir_size": asked.data_dir_bytes,
        "provider_null": False,
    }
    return {
        "version": VERSION,
        **_read_only(asked),
        "server_stats": stats,
        "node_count": member.replica.machine.tree.node_count,
    }


def _brief(client: ClientConnection) -> Answer:
    return {
        "remote_socket_address": client.stream.address,
        "interest_ops": int(client.stream.reading),
        "outstanding_requests": client.outstanding,
        "packets_received": client.requests_received,
        "packets_sent": client.stream.packets_sent,
    }


def _full(asked: Asked, client: ClientConnection) -> Answer:
    found = details(asked.member.frontend, client)
    return {
        **_brief(client),
        "session_id": client.session_id,
        "last_operation": found.last_operation,
        "established": round(found.established_ms),
        "session_timeout": client.timeout_ms,
        "last_cxid": found.last_xid,
        "last_zxid": found.last_zxid,
        "last_response_time": round(found.last_response_ms),
        "last_latency": round(found.last_ms),
        "min_latency": round(found.min_ms),
        "avg_latency": round(found.average_ms),
        "max_latency": round(found.max_ms),
    }


def _connections(asked: Asked) -> Answer:
    connected = asked.member.frontend.connections
    return {"connections": [_full(asked, each) for each in connected], "secure_connections": []}


def _stats(asked: Asked) -> Answer:
    connections = [_brief(each) for each in asked.member.frontend.connections]
    return {**_server_stats(asked), "connections": connections, "secure_connections": []}


def _too_many(what: str, count: int, where: str) -> Answer:
    return {"error": f"{count} {what}, of which an answer lists {LISTED_MAX}: GET {where} has pages of them"}


def _dump(asked: Asked) -> Answer:
    """Sessions by deadline, which the leader alone knows, and their ephemerals."""
    replica = asked.member.replica
    sessions = replica.machine.sessions
    if len(sessions) > LISTED_MAX:
        return _too_many("sessions", len(sessions), "/v1/sessions")
    deadlines: dict[str, list[int]] = {}
    for deadline_ms, session_id in replica.sessions.deadlines() if replica.sessions.leading else ():
        deadlines.setdefault(str(round(deadline_ms)), []).append(session_id)
    return {
        "expiry_time_to_session_ids": deadlines,
        "session_id_to_ephemeral_paths": {
            str(each.session_id): sorted(each.ephemerals) for each in sessions.values() if each.ephemerals
        },
    }


def _watch_summary(asked: Asked) -> Answer:
    counts = asked.member.replica.watches.counts()
    return {
        "num_connections": counts.watchers,
        "num_paths": counts.paths,
        "num_total_watches": counts.watches,
    }


def _watches(asked: Asked) -> Answer:
    watches = asked.member.replica.watches
    if watches.counts().watches > LISTED_MAX:
        return _too_many("watches", watches.counts().watches, "/v1/watches")
    found = {
        str(watcher.session_id): [
            path for path in watches.paths_of(watcher) if watches.has(path, watcher, DATA_KINDS)
        ]
        for watcher in watches.watchers()
    }
    return {"session_id_to_watched_paths": {name: paths for name, paths in found.items() if paths}}


def _watches_by_path(asked: Asked) -> Answer:
    watches = asked.member.replica.watches
    if watches.counts().watches > LISTED_MAX:
        return _too_many("watches", watches.counts().watches, "/v1/watches")
    found = {
        path: [each.session_id for each in watches.watchers_of(path) if watches.has(path, each, DATA_KINDS)]
        for path in watches.paths()
    }
    return {"path_to_session_ids": {path: ids for path, ids in found.items() if ids}}


def _last_snapshot(asked: Asked) -> Answer:
    last = asked.member.snapshotter.last
    if last is None:
        return {"zxid": "0xffffffffffffffff", "timestamp": -1}
    return {"zxid": f"0x{last.zxid:x}", "timestamp": last.stamp_ms}


#: {name: (first name, what answers it)}
_COMMANDS: Final[Mapping[str, tuple[str, Callable[[Asked], Answer]]]] = {
    name: (names[0], answer)
    for names, answer in (
        (("configuration", "conf", "config"), _configuration),
        (("connections", "cons"), _connections),
        (("dirs",), _dirs),
        (("dump",), _dump),
        (("environment", "envi", "env"), _environment),
        (("is_read_only", "isro"), _read_only),
        (("last_snapshot", "lsnp"), _last_snapshot),
        (("leader", "lead"), _leader),
        (("monitor", "mntr"), _monitor),
        (("observers", "obsr"), _observers),
        (("ruok",), _ruok),
        (("server_stats", "srvr"), _server_stats),
        (("stats", "stat"), _stats),
        (("voting_view",), _voting_view),
        (("watch_summary", "wchs"), _watch_summary),
        (("watches", "wchc"), _watches),
        (("watches_by_path", "wchp"), _watches_by_path),
        (("zabstate",), _zab_state),
    )
    for name in names
}
NAMES: Final = tuple(sorted({first for first, _ in _COMMANDS.values()}))
_MEASURED: Final = (_dirs, _server_stats, _stats)


def measures(name: str) -> bool:
    """Tell whether a command tells the size of the data directory."""
    return name in _COMMANDS and _COMMANDS[name][1] in _MEASURED


def run(member: QuorumMember, name: str, data_dir_bytes: int) -> Answer | None:
    """Answer a command; None if there is none of that name.

    Args:
        member: the node.
        name: any name of the command.
        data_dir_bytes: size of the data directory, just measured, if the command `measures` it.
    """
    found = _COMMANDS.get(name)
    if found is None:
        return None
    first, answer = found
    if not member.frontend.serving() and not member.config.limits.read_only_mode:
        return {"command": first, "error": NOT_SERVING}
    return {"error": None, **answer(Asked(member, data_dir_bytes)), "command": first}
