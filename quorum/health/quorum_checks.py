"""The checks of a quorum: leader, members, voters, progress, disks.

Judges what the nodes say of themselves and of each other. Pure; no state.

Source: docs/operate/doctor.md; docs/internals/consensus.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final

from quorum.health.findings import Check, Found, Severity, Skipped
from quorum.health.seen import MemberSeen, NodeSeen, QuorumSeen

#: log entries that a member may lack
MEMBER_LAG_MAX: Final = 10_000
#: what 99 of 100 writes of the journal take at most on a sound disk
FSYNC_P99_S_MAX: Final = 0.1
#: writes below which their times say nothing
FSYNC_WRITES_MIN: Final = 1_000
#: bytes of history that may wait for the disk
CHANGELOG_PENDING_BYTES_MAX: Final = 8 * 1024 * 1024
#: by how much the term may rise in an hour; a leader that is given up on purpose raises it by one
ELECTIONS_AN_HOUR_MAX: Final = 6

_NO_NODE: Final = Skipped("no node answers")


def _leader(seen: QuorumSeen) -> NodeSeen | None:
    """Return the node that leads the newest term, of those that answered."""
    leaders = [node for node in seen.nodes if node.role == "leader"]
    return max(leaders, key=lambda node: node.term or 0, default=None)


def _members(seen: QuorumSeen) -> tuple[MemberSeen, ...]:
    """Return the members as the leader sees them, or else the node that has applied the most."""
    leader = _leader(seen)
    if leader is not None:
        return leader.members
    newest = max(seen.nodes, key=lambda node: (node.zxid or 0, node.node_id), default=None)
    return () if newest is None else newest.members


def _no_quorum(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    if not seen.nodes and seen.refused:
        return Skipped("the admin ports that answer do not show their state")
    return _without_leader(seen)


def _without_leader(seen: QuorumSeen) -> Iterator[Found]:
    if not seen.nodes:
        urls = ", ".join(f"{url} ({reason})" for url, reason in seen.silent.items()) or "a named port"
        remedy = "start the nodes, or name their admin ports with --admin URL,…"
        yield Found("quorum", f"no node answers at {urls}", remedy, "quorate up --detach")
    elif all(node.leader_id is None for node in seen.nodes):
        story = next((node.problem for node in seen.nodes if node.problem), "no node knows a leader")
        remedy = "start the nodes that are missing for a majority of the voters"
        yield Found("quorum", f"the quorum has no leader, so nothing is written: {story}", remedy)


def _clusters_differ(seen: QuorumSeen) -> Iterator[Found]:
    ids = sorted({node.cluster_id for node in seen.nodes if node.cluster_id})
    if len(ids) > 1:
        what = f"the nodes that answer are of {len(ids)} clusters: {', '.join(ids)}"
        yield Found("quorum", what, "name admin ports of one cluster with --admin")


def _digests_differ(seen: QuorumSeen) -> Iterator[Found]:
    by_zxid: dict[tuple[str | None, int], dict[str, list[int]]] = {}
    for node in seen.nodes:
        if node.zxid is not None and node.digest:
            by_zxid.setdefault((node.cluster_id, node.zxid), {}).setdefault(node.digest, []).append(
                node.node_id
            )
    for (_, zxid), digests in by_zxid.items():
        if len(digests) > 1:
            sides = " and ".join(", ".join(map(str, ids)) for ids in digests.values())
            what = f"nodes {sides} hold different states at zxid {zxid}"
            remedy = "stop the node whose state is wrong, and replace it by one with an empty disk"
            yield Found("quorum", what, remedy)


def _node_down(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    if not seen.nodes:
        return _NO_NODE
    answered = {node.node_id for node in seen.nodes}
    down = [each for each in _members(seen) if each.role == "unreachable" and each.node_id not in answered]
    return (
        Found(
            f"node {each.node_id}",
            f"node {each.node_id} is down: the others do not reach it",
            "start it, or look at its log and at the link to it",
            "quorate serve --config node.toml",
        )
        for each in down
    )


def _node_refused(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    if not seen.nodes:
        return _NO_NODE
    return (
        Found(
            f"node {each.node_id}",
            f"what speaks for node {each.node_id} does not count: {each.refusal}",
            "start it with its own disk, or replace the member if that disk is lost",
            f"quorate members replace {each.node_id}",
        )
        for each in _members(seen)
        if each.refusal
    )


def _node_not_ready(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    if not seen.nodes:
        return _NO_NODE
    return (
        Found(
            node.process.name,
            f"{node.process.name} serves no clients: {node.problem}",
            "wait if it catches up, else look at its log",
            f"quorate status --admin {node.process.url}",
        )
        for node in seen.nodes
        if node.problem
    )


def _admin_silent(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    if not seen.nodes:
        return _NO_NODE
    if not seen.named:
        return Skipped("the default admin ports were asked, which may be nobody's; name them with --admin")
    answered = {node.node_id for node in seen.nodes}
    gone = sum(each.role == "unreachable" and each.node_id not in answered for each in _members(seen))
    # Which member a silent port is of, nobody knows; as many as are down are explained by that.
    silent = seen.silent.items() if len(seen.silent) > gone else ()
    return (
        Found(
            url,
            f"the admin port {url} does not answer: {reason}",
            "correct --admin, or see whether its process hangs",
        )
        for url, reason in silent
    )


def _admin_refused(seen: QuorumSeen) -> Iterator[Found]:
    for url, reason in seen.refused.items():
        what = f"the admin port {url} does not show its state: {reason}"
        yield Found(url, what, "give a file with a token that it knows", "quorate --token-file FILE doctor")


def _voters_even(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    members = _members(seen)
    voters = [each.node_id for each in members if each.voter]
    if not voters:
        return _NO_NODE if not seen.nodes else Skipped("no node knows the members")
    return _even(voters)


def _add_member(node_id: int) -> str:
    return f"quorate members add {node_id} host:2281"


def _even(voters: list[int]) -> Iterator[Found]:
    count = len(voters)
    if count % 2 == 0:
        survives = count - (count // 2 + 1)
        failures = f"{survives} failure{'s' if survives != 1 else ''}"
        what = f"the quorum has {count} voters, which survive {failures}, as {count - 1} would"
        yield Found("quorum", what, "add a node, or remove one", _add_member(max(voters) + 1))


def _voter_lone(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    members = _members(seen)
    if not members:
        return _NO_NODE if not seen.nodes else Skipped("no node knows the members")
    voters = [each.node_id for each in members if each.voter]
    lone = voters if len(voters) == 1 else []
    return (
        Found(
            f"node {node_id}",
            f"node {node_id} is the only voter",
            "add two nodes, each of which first runs with serve --join",
            _add_member(node_id + 1),
        )
        for node_id in lone
    )


def _member_lag(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    leader = _leader(seen)
    if leader is None:
        return Skipped("the leader alone knows it, and it does not answer")
    commit_index = leader.commit_index or 0
    lags = {
        each.node_id: commit_index - each.match_index
        for each in leader.members
        if each.match_index is not None and each.role not in ("unreachable", "refused")
    }
    return (
        Found(
            f"node {node_id}",
            f"node {node_id} lacks {lag} committed log entries",
            "look at its disk, its log and the link to it",
            f"quorate status --admin {leader.process.url}",
        )
        for node_id, lag in lags.items()
        if lag > MEMBER_LAG_MAX
    )


def p99_s(buckets: tuple[tuple[float, float], ...]) -> float | None:
    """Return the bound that 99 of 100 observations keep; infinite above the last one, None of none.

    Args:
        buckets: rising (upper bound, observations up to it), the last bound infinite.
    """
    total = buckets[-1][1] if buckets else 0
    return next((bound for bound, count in buckets if count >= 0.99 * total), None) if total else None


def _fsync_slow(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    enough = [node for node in seen.nodes if node.journal and node.journal[-1][1] >= FSYNC_WRITES_MIN]
    if not enough:
        return Skipped(f"no node that answers has written its journal {FSYNC_WRITES_MIN} times yet")
    return _slow(enough)


def _slow(nodes: list[NodeSeen]) -> Iterator[Found]:
    for node in nodes:
        p99 = p99_s(node.journal)
        if p99 is None or p99 <= FSYNC_P99_S_MAX:
            continue
        finite = [bound for bound, _ in node.journal if math.isfinite(bound)]
        time = f"over {max(finite) * 1000:g} ms" if math.isinf(p99) else f"up to {p99 * 1000:g} ms"
        what = f"since its start, one of 100 writes of the journal of {node.process.name} takes {time}"
        yield Found(node.process.name, what, "give its data directory a disk of its own, or a quicker one")


def _changelog_waits(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    known = [(node, node.changelog_pending_bytes) for node in seen.nodes]
    if all(pending is None for _, pending in known):
        return Skipped("no node shows metrics")
    return (
        Found(
            node.process.name,
            f"{pending:.0f} bytes of the change log of {node.process.name} wait for its disk",
            "make room on its disk; what waits for too long is dropped from this node's history",
        )
        for node, pending in known
        if pending is not None and pending > CHANGELOG_PENDING_BYTES_MAX
    )


def _snapshots_failed(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    known = [(node, node.snapshots_failed) for node in seen.nodes]
    if all(count is None for _, count in known):
        return Skipped("no node shows metrics")
    return (
        Found(
            node.process.name,
            f"{node.process.name} gave up {count:.0f} snapshots since its start",
            "see its log: a full disk, or an overlay that is too small",
            f"quorate snapshot take --admin {node.process.url}",
        )
        for node, count in known
        if count
    )


def _elections_often(seen: QuorumSeen) -> Iterable[Found] | Skipped:
    if isinstance(seen.terms, str):
        return Skipped(seen.terms)
    before, now, span_s = seen.terms
    hours = span_s / 3600
    if now - before <= ELECTIONS_AN_HOUR_MAX * max(hours, 1.0):
        return ()
    told = f"{hours:.1f} hours" if hours >= 1 else f"{span_s / 60:.0f} minutes"
    what = f"the term rose from {before} to {now} within {told}: so often a leader was sought"
    remedy = "see in the nodes' logs why leaders were given up: a slow disk, a busy machine, a bad network"
    return (Found("quorum", what, remedy, "quorate status"),)


def _import_under_way(seen: QuorumSeen) -> Iterator[Found] | Skipped:
    if not seen.nodes:
        return _NO_NODE
    newest = max(seen.nodes, key=lambda node: node.zxid or 0)
    return (
        Found(
            "quorum",
            f"an import of {source} is under way: clients' writes are refused",
            "cut over when the source is quiet, with the words of that import and --cutover; to abandon it, "
            "stop the nodes, delete their data directories and found the cluster again",
        )
        for source in [newest.import_source]
        if source
    )


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
#: What is worse comes first.
QUORUM_CHECKS: Final[tuple[Check[QuorumSeen], ...]] = (
    Check(
        *("no-quorum", _E, "no node answers, or none of those that do knows a leader"),
        *("without a leader nothing is written, and brokers lose their sessions", _no_quorum),
    ),
    Check(
        *("admin-refused", _E, "an admin port that was named wants a token, or another one"),
        *("nothing is known of that node", _admin_refused),
    ),
    Check(
        *("digests-differ", _E, "two nodes hold different states at the same zxid"),
        *("clients of one of them read what was never written", _digests_differ),
    ),
    Check(
        *("clusters-differ", _E, "the nodes that answer are of more than one cluster"),
        *("what is said of one cluster is not true of the other", _clusters_differ),
    ),
    Check(
        *("node-down", _W, "a member is not reached by the others"),
        *("the quorum survives one failure less", _node_down),
    ),
    Check(
        *("node-refused", _W, "a process speaks for a member with another disk"),
        *("the member counts as absent, so the quorum survives one failure less", _node_refused),
    ),
    Check(
        *("node-not-ready", _W, "a node answers and serves no clients"),
        *("its clients go to the other nodes, which carry their load", _node_not_ready),
    ),
    Check(
        *("admin-silent", _W, "an admin port that was named does not answer, though its node may run"),
        *("monitors and this command do not see that process", _admin_silent),
    ),
    Check(
        *("member-lag", _W, f"a member lacks more than {MEMBER_LAG_MAX:,} committed log entries"),
        *("it cannot take over, and a majority may have to wait for it", _member_lag),
    ),
    Check(
        *("elections-often", _W, f"the term rises more than {ELECTIONS_AN_HOUR_MAX} times an hour"),
        *("while a leader is sought nothing is written", _elections_often),
    ),
    Check(
        *("voters-even", _W, "the number of voters is even"),
        *("one more voter costs a write more and survives no failure more", _voters_even),
    ),
    Check(
        *("import-under-way", _W, "an import has begun and is not cut over"),
        *("clients read, and all their writes are refused", _import_under_way),
    ),
    Check(
        "fsync-slow",
        _W,
        f"99 of 100 writes of a journal take longer than {FSYNC_P99_S_MAX * 1000:.0f} ms",
        *("each write of a client waits for the disks of a majority", _fsync_slow),
    ),
    Check(
        *("changelog-waits", _W, "more than 8 MiB of a node's change log wait for its disk"),
        *("history that waits for too long is dropped", _changelog_waits),
    ),
    Check(
        *("snapshots-failed", _I, "a node gave up snapshots since its start"),
        *("without snapshots the journal grows and a start takes longer", _snapshots_failed),
    ),
    Check(
        *("voter-lone", _I, "the quorum has one voter"),
        *("the loss of its disk is the loss of the cluster", _voter_lone),
    ),
)
