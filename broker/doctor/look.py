"""Looks at brokers, topics and groups: at records of the quorum, the brokers' admin ports, and their logs.

Records come from the admin port of any node, with a leader or without. Where logs end and which settings are
in force, a Kafka client asks. What cannot be had is said with its reason, and the rest is judged without it.
No state.

Source: docs/reference/http.md.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.doctor.kafka import ask_kafka, bootstrap_of
from broker.health.checks import CHECKS
from broker.health.lag import committed_in
from broker.health.seen import BrokerSeen, BrokersSeen, ControllerSeen, CoordinatorSeen, PartitionSeen
from quorum.doctor.asking import AdminAsker, Metrics, RefusedError
from quorum.doctor.doctor import Looked, Scope
from quorum.doctor.quorum_look import process_seen
from quorum.errors import QuorateError, UnreachableError, printable
from quorum.health.findings import examine, skip_all
from quorum.health.seen import ProcessSeen, QuorumSeen
from quorum.metadata import paths
from quorum.metadata.broker_settings import THROTTLED_RATES
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerConfigRecord

if TYPE_CHECKING:
    from broker.config.broker import BrokerConfig

__all__ = ["CHECKS", "LOADERS", "look"]

#: for all pages of one list
LIST_TIMEOUT_S: Final = 5.0
#: topics with all their replicas whose settings are asked
TOPICS_MAX: Final = 2000
T = TypeVar("T")


def _load(path: Path) -> BrokerConfig:
    # Only where there is such a file.
    from broker.config.broker import load_broker_config  # noqa: PLC0415

    return load_broker_config(path)


LOADERS: Final = {"broker": _load}


async def look(asker: AdminAsker, quorum: QuorumSeen, scope: Scope) -> Looked:
    """Look at everything at once, as far as it answers, and judge."""
    source = _source(quorum)
    if source is None:
        return Looked(skip_all(CHECKS, "no node answers"))
    try:
        cluster, _ = await asker.get_object(source, "/v1/cluster")
        rows = [row async for row in asker.items(source, "/v1/brokers")]
    except UnreachableError as error:
        return Looked(skip_all(CHECKS, f"{source} does not answer: {error.message}"))
    if not rows and not cluster.get("topics") and cluster.get("controller_epoch") is None:
        return Looked(skip_all(CHECKS, "no broker was ever registered"))
    asked, topics, throttled, committed = await asyncio.gather(
        asyncio.gather(*(_broker(asker, row) for row in rows)),
        _within(_topics(asker, source), "topics"),
        _within(_throttled(asker, source), "settings of brokers"),
        _within(_committed(asker, source), "groups"),
    )
    partitions, malformed = (topics, {}) if isinstance(topics, str) else topics
    answering = {each.seen.broker_id for each in asked if each.seen.silence is None}
    led: Sequence[PartitionSeen] = () if isinstance(partitions, str) else partitions
    rows.sort(key=lambda row: row["broker_id"] not in answering)
    bootstrap = scope.bootstrap or bootstrap_of(rows, scope.login)
    names = _topics_to_ask(led)
    reachable = {PartitionKey(each.topic, each.partition) for each in led if each.leader in answering}
    unknown = next((each for each in (partitions, committed) if isinstance(each, str)), "")
    wanted = _only(committed, reachable) if not unknown and not isinstance(committed, str) else unknown
    min_isr, lags = await ask_kafka(bootstrap, names, wanted, scope.login, scope.mechanism)
    seen = BrokersSeen(
        tuple(each.seen for each in asked),
        cluster.get("controller_id"),
        any(each.knows_coordinator for each in asked) if any(each.process for each in asked) else None,
        next((each.controller for each in asked if each.controller is not None), None),
        next((each.coordinator for each in asked if each.coordinator is not None), None),
        partitions,
        malformed,
        partitions if isinstance(partitions, str) else min_isr,
        throttled,
        lags,
        scope.lag_max,
    )
    return Looked(
        examine(CHECKS, seen),
        tuple(each.process for each in asked if each.process is not None),
        {f"broker {each.broker_id}": why for each in seen.brokers if (why := each.silence or each.refusal)},
    )


def _topics_to_ask(partitions: Sequence[PartitionSeen]) -> list[str]:
    """Return the topics whose settings are wanted: those that lack replicas, and of the others the first."""
    lacking = sorted({each.topic for each in partitions if len(each.isr) < len(each.replicas)})
    others = sorted({each.topic for each in partitions}.difference(lacking))
    return [*lacking, *others[:TOPICS_MAX]]


def _source(quorum: QuorumSeen) -> str | None:
    """Return the admin port of a node that has applied the most, one that serves clients before others."""
    nodes = sorted(quorum.nodes, key=lambda node: (node.problem is not None, -(node.zxid or 0)))
    return nodes[0].process.url if nodes else None


async def _within(work: Awaitable[T], what: str) -> T | str:
    """Return what came in time, or why it is not known."""
    try:
        async with asyncio.timeout(LIST_TIMEOUT_S):
            return await work
    except TimeoutError:
        return f"reading the {what} took longer than {LIST_TIMEOUT_S:g} s"
    except QuorateError as error:
        return f"the {what} cannot be read: {error.message}"


def _only(
    committed: Mapping[str, Mapping[PartitionKey, int]], keys: set[PartitionKey]
) -> dict[str, dict[PartitionKey, int]]:
    return {
        group: {key: offset for key, offset in offsets.items() if key in keys}
        for group, offsets in committed.items()
    }


# -- brokers -------------------------------------------------------------------------------------------------


class _Asked:
    """What became of asking one broker."""

    def __init__(self, seen: BrokerSeen) -> None:
        self.seen = seen
        self.process: ProcessSeen | None = None
        self.controller: ControllerSeen | None = None
        self.coordinator: CoordinatorSeen | None = None
        self.knows_coordinator = False


async def _broker(asker: AdminAsker, row: Mapping[str, Any]) -> _Asked:
    broker_id, url = row["broker_id"], row.get("admin")
    if not isinstance(url, str):
        return _Asked(BrokerSeen(broker_id, None))
    url = url.rstrip("/")
    metrics_asked = asyncio.ensure_future(asker.metrics(url))
    try:
        answer, page = await asker.get_object(url, "/v1/status")
    except RefusedError as error:
        return _Asked(BrokerSeen(broker_id, url, refusal=printable(error.message)))
    except UnreachableError as error:
        return _Asked(BrokerSeen(broker_id, url, printable(error.message)))
    finally:
        metrics = await metrics_asked
    problem = answer.get("problem")
    seen = BrokerSeen(broker_id, url, problem=None if problem is None else printable(str(problem)))
    found = _Asked(seen if metrics is None else _with_metrics(seen, metrics))
    found.process = process_seen(f"broker {broker_id}", url, metrics, page.clock_ahead_s)
    found.knows_coordinator = answer.get("coordinator_id") is not None
    found.controller = _controller(answer.get("controller"), metrics)
    found.coordinator = _coordinator(answer.get("coordinator"), metrics)
    return found


def _with_metrics(seen: BrokerSeen, metrics: Metrics) -> BrokerSeen:
    open_now = metrics.by_label("quorate_broker_connections", "listener")
    most = metrics.by_label("quorate_broker_connections_max", "listener")
    fullest = max(open_now, key=lambda name: open_now[name] / (most.get(name) or 1), default="")
    return seen._replace(
        connections=open_now.get(fullest),
        connections_max=most.get(fullest),
        shortened_logs=metrics.value("quorate_broker_shortened_logs"),
        uncleanable=metrics.value("quorate_broker_cleaner_uncleanable_partitions"),
        late_transactions=metrics.value("quorate_broker_partitions_with_late_transactions"),
    )


def _controller(answer: Any, metrics: Metrics | None) -> ControllerSeen | None:
    if not isinstance(answer, dict):
        return None
    strangers = {int(each): printable(str(why)) for each, why in (answer.get("strangers") or {}).items()}
    if metrics is None:
        return ControllerSeen(strangers)
    return ControllerSeen(
        strangers,
        metrics.by_label("quorate_controller_partitions", "state").get("reassigned"),
        metrics.value("quorate_controller_partition_count"),
        metrics.value("quorate_controller_partition_count_max"),
    )


def _coordinator(answer: Any, metrics: Metrics | None) -> CoordinatorSeen | None:
    if not isinstance(answer, dict):
        return None
    unwritten = {str(group): printable(str(why)) for group, why in (answer.get("unwritten") or {}).items()}
    if metrics is None:
        return CoordinatorSeen(unwritten)
    return CoordinatorSeen(
        unwritten, metrics.value("quorate_groups_bytes"), metrics.value("quorate_groups_bytes_max")
    )


# -- records -------------------------------------------------------------------------------------------------


async def _topics(asker: AdminAsker, source: str) -> tuple[tuple[PartitionSeen, ...], dict[str, str]]:
    """Return all partitions, and {topic: why its record cannot be read}."""
    found: list[PartitionSeen] = []
    malformed: dict[str, str] = {}
    async for topic in asker.items(source, "/v1/topics"):
        if topic.get("problem"):
            malformed[topic["name"]] = printable(topic["problem"])
        found += [
            PartitionSeen(
                topic["name"], row["partition"], tuple(row["replicas"]), row["leader"], tuple(row["isr"])
            )
            for row in topic["partitions"]
        ]
    return tuple(found), malformed


async def _throttled(asker: AdminAsker, source: str) -> tuple[int, ...]:
    """Return the brokers whose settings have a rate for reassignments."""
    found: list[int] = []
    async for broker_id, data in _broker_settings(asker, source):
        settings = BrokerConfigRecord.decode(broker_id, data).settings
        if any(name in settings for name in THROTTLED_RATES):
            found.append(broker_id)
    return tuple(sorted(found))


async def _broker_settings(asker: AdminAsker, source: str) -> AsyncIterator[tuple[int, bytes]]:
    page = await asker.get(source, "/v1/znodes", {"path": paths.CONFIG_BROKERS})
    if page.status == 404:
        return
    answer, _ = await asker.get_object(source, "/v1/znodes", {"path": paths.CONFIG_BROKERS})
    for name in answer.get("children", ()):
        if name.isascii() and name.isdecimal():
            path = paths.config_broker_path(int(name))
            row, _ = await asker.get_object(source, "/v1/znodes", {"path": path})
            yield int(name), base64.b64decode(row.get("data") or "")


async def _committed(asker: AdminAsker, source: str) -> dict[str, dict[PartitionKey, int]]:
    """Return {group: {partition: what it has committed}}."""
    return {row["group_id"]: committed_in(row) async for row in asker.items(source, "/v1/groups")}
