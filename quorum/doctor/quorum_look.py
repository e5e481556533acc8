"""Looks at the nodes of a quorum through their admin ports.

Turns answers into what the checks take; what does not have the shape of a node's answer counts as silence.
No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from quorum.doctor.asking import AdminAsker, Metrics, RefusedError
from quorum.errors import UnreachableError, printable
from quorum.health.seen import MemberSeen, NodeSeen, ProcessSeen, QuorumSeen, RoomSeen

#: where a node of `quorate up` answers


async def look_at_quorum(asker: AdminAsker, urls: Sequence[str], *, named: bool) -> QuorumSeen:
    """Ask every admin port at once.

    Args:
        asker: what asks.
        urls: of the admin ports.
        named: whether somebody named them.
    """
    answers = await asyncio.gather(*(_look_at_node(asker, url) for url in dict.fromkeys(urls)))
    asked = dict(zip(dict.fromkeys(urls), answers, strict=True))
    nodes = {each.node_id: each for each in answers if isinstance(each, NodeSeen)}
    refused = {url: each.message for url, each in asked.items() if isinstance(each, RefusedError)}
    silent = {url: each.message for url, each in asked.items() if isinstance(each, UnreachableError)}
    return QuorumSeen(
        tuple(node for _, node in sorted(nodes.items())),
        {url: reason for url, reason in silent.items() if url not in refused},
        refused,
        named,
    )


async def _look_at_node(asker: AdminAsker, url: str) -> NodeSeen | UnreachableError | None:
    """Return a node, or why there is no answer; None for a broker, which its registration leads to."""
    asked = await asyncio.gather(
        asker.get_object(url, "/v1/status"), asker.metrics(url), return_exceptions=True
    )
    status, metrics = asked
    if isinstance(status, UnreachableError):
        return status
    if isinstance(status, BaseException):
        raise status
    if isinstance(metrics, BaseException):
        raise metrics
    answer, page = status
    if isinstance(answer.get("broker_id"), int):
        return None
    if not isinstance(answer.get("node_id"), int):
        return UnreachableError("what answers is no admin port of a node")
    name = f"node {answer['node_id']}"
    return _node(answer, process_seen(name, url, metrics, page.clock_ahead_s), metrics)


def process_seen(
    name: str, url: str, metrics: Metrics | None, clock_ahead_s: float | None = None
) -> ProcessSeen:
    """Return what the metrics of a process say of it.

    Args:
        name: "node 2" or "broker 3".
        url: of its admin port.
        metrics: its metrics, if there are any.
        clock_ahead_s: as Page has it.
    """
    if metrics is None:
        return ProcessSeen(name, url, clock_ahead_s=clock_ahead_s)
    return ProcessSeen(
        name,
        url,
        metrics.label("quorate_build_info", "version"),
        clock_ahead_s,
        _whole(metrics.value("process_open_fds")),
        _whole(metrics.value("process_max_fds")),
        metrics.by_label("quorate_tls_certificate_expiry_seconds", "name"),
        metrics.value("quorate_broker_longest_turn_seconds"),
        _whole(metrics.value("quorate_feature_level_supported")),
        _room(metrics),
    )


def _room(metrics: Metrics) -> RoomSeen | None:
    names = ("free_bytes", "free_change_bytes", "free_change_seconds")
    values = [value for name in names if (value := metrics.value(f"quorate_disk_{name}")) is not None]
    return RoomSeen(*values) if len(values) == len(names) else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _node(answer: dict[str, Any], process: ProcessSeen, metrics: Metrics | None) -> NodeSeen:
    source = answer.get("import_source")
    problem = answer.get("problem")
    return NodeSeen(
        process,
        answer["node_id"],
        answer.get("cluster_id"),
        str(answer.get("role")),
        answer.get("term"),
        answer.get("leader_id"),
        answer.get("commit_index"),
        answer.get("zxid"),
        answer.get("state_digest"),
        None if problem is None else printable(str(problem)),
        tuple(_member(each) for each in answer.get("members") or () if isinstance(each, dict)),
        () if metrics is None else metrics.buckets("quorate_journal_write_seconds"),
        None if metrics is None else metrics.value("quorate_changelog_pending_bytes"),
        None if metrics is None else metrics.value("quorate_snapshots_failed_total"),
        None if source is None else printable(str(source)),
    )


def _member(row: dict[str, Any]) -> MemberSeen:
    refusal = row.get("refusal")
    return MemberSeen(
        int(row.get("node_id", 0)),
        str(row.get("role")),
        bool(row.get("voter", True)),
        row.get("match_index"),
        None if not refusal else printable(str(refusal)),
    )
