"""The commands of ZooKeeper's AdminServer that monitors ask: what each answers, of this node.

Decides fields and their names, which are ZooKeeper's; values are those of the four-letter words. Commands
about a JVM, about trace masks and digests of its own kind have no counterpart here. Keeps no state.

Source: ZooKeeper 3.9 administrator's guide, "The AdminServer".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from quorum.node.member import QuorumMember
from quorum.server.inspection import clients
from quorum.server.words import VERSION, monitor_rows

NOT_SERVING: Final = "This ZooKeeper instance is not currently serving requests"
Answer = dict[str, object]


def _ruok(_member: QuorumMember) -> Answer:
    return {}


def _read_only(member: QuorumMember) -> Answer:
    return {"read_only": not member.frontend.serving()}


def _monitor(member: QuorumMember) -> Answer:
    return dict(monitor_rows(member.frontend))


def _leader(member: QuorumMember) -> Answer:
    leader_id = member.engine.leader_id
    configuration = member.replica.configuration()
    leader = configuration.member(leader_id) if configuration is not None and leader_id is not None else None
    address = "" if leader is None else leader.address.rpartition(":")[0]
    return {"is_leader": member.engine.leads, "leader_id": leader_id or -1, "leader_ip": address}


def _server_stats(member: QuorumMember) -> Answer:
    rows = dict(monitor_rows(member.frontend))
    names = ("packets_sent", "packets_received", "avg_latency", "min_latency", "max_latency", "server_state")
    stats: Answer = {name: rows[name] for name in (*names, "outstanding_requests", "uptime")}
    stats |= {
        "num_alive_client_connections": rows["num_alive_connections"],
        "last_processed_zxid": member.replica.machine.zxid,
        "provider_null": False,
    }
    return {
        "version": VERSION,
        **_read_only(member),
        "server_stats": stats,
        "node_count": member.replica.machine.tree.node_count,
    }


def _stats(member: QuorumMember) -> Answer:
    connections = [
        {
            "remote_socket_address": str(each.address),
            "outstanding_requests": each.outstanding,
            "packets_received": each.requests_received,
            "packets_sent": each.packets_sent,
        }
        for each in clients(member.frontend.connections)
    ]
    return {**_server_stats(member), "connections": connections, "secure_connections": []}


def _watch_summary(member: QuorumMember) -> Answer:
    counts = member.replica.watches.counts()
    return {
        "num_connections": counts.watchers,
        "num_paths": counts.paths,
        "num_total_watches": counts.watches,
    }


#: {name: (first name, what answers it)}
_COMMANDS: Final[Mapping[str, tuple[str, Callable[[QuorumMember], Answer]]]] = {
    name: (names[0], answer)
    for names, answer in (
        (("is_read_only", "isro"), _read_only),
        (("leader", "lead"), _leader),
        (("monitor", "mntr"), _monitor),
        (("ruok",), _ruok),
        (("server_stats", "srvr"), _server_stats),
        (("stats", "stat"), _stats),
        (("watch_summary", "wchs"), _watch_summary),
    )
    for name in names
}
NAMES: Final = tuple(sorted({first for first, _ in _COMMANDS.values()}))


def run(member: QuorumMember, name: str) -> Answer | None:
    """Answer a command; None if there is none of that name."""
    found = _COMMANDS.get(name)
    if found is None:
        return None
    first, answer = found
    if not member.frontend.serving() and not member.config.limits.read_only_mode:
        return {"command": first, "error": NOT_SERVING}
    return {**answer(member), "command": first, "error": None}
