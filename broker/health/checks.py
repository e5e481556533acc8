"""The checks of brokers: registrations, partitions, throttles, groups.

Judges what the quorum's records, the brokers' admin ports and their logs say. Pure; no state.

Source: docs/operate/doctor.md; KIP-966 for what an ISR below min.insync.replicas means.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from broker.health.seen import BrokerSeen, BrokersSeen, PartitionSeen
from quorum.health.findings import Check, Found, Severity, Skipped

#: of the leaderships that are preferably a broker's, how many it may lack; Kafka's default
SKEW_SHARE_MAX: Final = 0.1
#: of what a limit allows
LIMIT_SHARE_MAX: Final = 0.9
_NO_CONTROLLER: Final = Skipped("the controller does not answer")
_NO_COORDINATOR: Final = Skipped("the coordinator of groups does not answer")


def _describe(topic: str) -> str:
    return f"quorate topics describe {shlex.quote(topic)}"


def _partitions(
    seen: BrokersSeen, find: Callable[[tuple[PartitionSeen, ...]], Iterable[Found]]
) -> Iterable[Found] | Skipped:
    return Skipped(seen.partitions) if isinstance(seen.partitions, str) else find(seen.partitions)


def _has_leader(each: PartitionSeen) -> bool:
    return each.leader is not None and each.leader >= 0


def _no_controller(seen: BrokersSeen) -> Iterator[Found]:
    if seen.controller_id is None:
        remedy = "see the logs of the brokers, and whether they have sessions with the quorum"
        yield Found("cluster", "no broker is the controller", remedy, "quorate status")


def _no_coordinator(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if seen.has_coordinator is None:
        return Skipped("no broker shows its state")
    remedy = "see the logs of the brokers, and whether they have sessions with the quorum"
    found = Found("cluster", "no broker is the coordinator of groups", remedy, "quorate status")
    return [] if seen.has_coordinator else [found]


def _offline(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    return _partitions(
        seen,
        lambda partitions: (
            Found(
                each.name,
                f"{each.name} is offline: none of its in-sync replicas "
                f"({', '.join(map(str, each.isr or each.replicas))}) can lead it",
                "start the broker of an in-sync replica",
                _describe(each.topic),
            )
            for each in partitions
            if not _has_leader(each)
        ),
    )


def _under_min_isr(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if isinstance(seen.min_isr, str):
        return Skipped(seen.min_isr)
    needed = seen.min_isr
    return _partitions(
        seen,
        lambda partitions: (
            Found(
                each.name,
                f"{each.name} has {len(each.isr)} in-sync replicas, and min.insync.replicas is "
                f"{needed[each.topic]}",
                "start the brokers of the other replicas, or see why they lag",
                _describe(each.topic),
            )
            for each in partitions
            if _has_leader(each) and each.topic in needed and len(each.isr) < needed[each.topic]
        ),
    )


def _broker_down(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    registered = {each.broker_id for each in seen.brokers}

    def find(partitions: tuple[PartitionSeen, ...]) -> Iterator[Found]:
        counts = Counter(broker_id for each in partitions for broker_id in each.replicas)
        for broker_id, count in sorted(counts.items()):
            if broker_id not in registered:
                yield Found(
                    f"broker {broker_id}",
                    f"broker {broker_id} is down: it holds {count} replicas and is not registered",
                    "start it, or move its replicas to others",
                    "quorate broker --config broker.toml",
                )

    return _partitions(seen, find)


def _broker_stranger(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if seen.controller is None:
        return _NO_CONTROLLER
    return (
        Found(
            f"broker {broker_id}",
            f"the registration of broker {broker_id} does not count: {why}",
            "give it the same security.peer_secret_file as the others",
        )
        for broker_id, why in seen.controller.strangers.items()
    )


def _broker_silent(seen: BrokersSeen) -> Iterator[Found]:
    for each in seen.brokers:
        if each.silence is not None:
            what = f"broker {each.broker_id} is registered, and {each.admin} does not answer: {each.silence}"
            remedy = "see whether its process hangs or has just ended, and its log"
            yield Found(f"broker {each.broker_id}", what, remedy)


def _broker_hidden(seen: BrokersSeen) -> Iterator[Found]:
    for each in seen.brokers:
        if each.refusal is not None:
            what = f"broker {each.broker_id} does not show its state at {each.admin}: {each.refusal}"
            remedy = "name that port with --admin, too, and give a file with a token that it knows"
            yield Found(f"broker {each.broker_id}", what, remedy, "quorate --token-file FILE doctor")


def _broker_not_ready(seen: BrokersSeen) -> Iterator[Found]:
    for each in seen.brokers:
        if each.problem is not None:
            what = f"broker {each.broker_id} serves no clients: {each.problem}"
            remedy = "wait if it has just started, else look at its log"
            yield Found(
                f"broker {each.broker_id}", what, remedy, f"curl {shlex.quote(f'{each.admin}/readyz')}"
            )


def _brokers(ids: Sequence[int]) -> str:
    return f"broker{'s' * (len(ids) != 1)} {', '.join(map(str, ids))}"


def _under_replicated(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    return _partitions(
        seen,
        lambda partitions: (
            Found(
                each.name,
                f"{each.name} is not in sync on "
                f"{_brokers([id_ for id_ in each.replicas if id_ not in each.isr])}",
                "start what does not run, or see why it lags",
                _describe(each.topic),
            )
            for each in partitions
            if _has_leader(each) and not set(each.replicas) <= set(each.isr)
        ),
    )


def _topic_malformed(seen: BrokersSeen) -> Iterator[Found]:
    for topic, why in seen.malformed.items():
        what = f"the record of topic {topic} cannot be read: {why}"
        yield Found(topic, what, "put an earlier value of its znode back, or delete it")


def _throttle_stale(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if isinstance(seen.throttled, str):
        return Skipped(seen.throttled)
    if seen.throttled and (seen.controller is None or seen.controller.moving is None):
        return _NO_CONTROLLER
    moving = seen.controller.moving if seen.controller is not None else 0
    return (
        Found(
            f"broker {broker_id}",
            f"broker {broker_id} throttles replication, and nothing is reassigned",
            "remove the throttle",
            "quorate reassign throttle off",
        )
        for broker_id in seen.throttled
        if not moving
    )


def _group_lag(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if isinstance(seen.lags, str):
        return Skipped(seen.lags)
    return (
        Found(
            f"group {group}",
            f"group {group} is {lag} records behind",
            "see whether its consumers run, and add some",
            f"quorate groups describe {shlex.quote(group)}",
        )
        for group, lag in sorted(seen.lags.items(), key=lambda item: -item[1])
        if lag > seen.lag_max
    )


def _group_unwritten(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if seen.coordinator is None:
        return _NO_COORDINATOR
    return (
        Found(
            f"group {group}",
            f"group {group} cannot be written: {why}",
            "see the log of the coordinator's broker",
            f"quorate groups describe {shlex.quote(group)}",
        )
        for group, why in seen.coordinator.unwritten.items()
    )


def _groups_full(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if seen.coordinator is None:
        return _NO_COORDINATOR
    held, most = seen.coordinator.groups_bytes, seen.coordinator.groups_bytes_max
    if held is None or not most:
        return Skipped("the coordinator shows no metrics")
    found = Found(
        "groups",
        f"groups hold {held:.0f} of {most:.0f} bytes",
        "delete groups that nobody uses, or raise groups.groups_bytes_max",
        "quorate groups list",
    )
    return [found] if held > LIMIT_SHARE_MAX * most else []


def _partitions_full(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    if seen.controller is None:
        return _NO_CONTROLLER
    count, most = seen.controller.partitions, seen.controller.partitions_max
    if count is None or not most:
        return Skipped("the controller shows no metrics")
    found = Found(
        "cluster",
        f"all topics have {count:.0f} partitions, and {most:.0f} are allowed",
        "delete topics that nobody uses, or raise limits.partitions_max",
        "quorate topics list",
    )
    return [found] if count > LIMIT_SHARE_MAX * most else []


def _of_brokers(
    seen: BrokersSeen, read: Callable[[BrokerSeen], float | None], find: Callable[[BrokerSeen], Found | None]
) -> Iterable[Found] | Skipped:
    """Judge each broker whose metrics say something."""
    known = [each for each in seen.brokers if read(each) is not None]
    if not known:
        return Skipped("no broker shows metrics")
    return [found for each in known if (found := find(each)) is not None]


def _logs_shortened(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    def find(each: BrokerSeen) -> Found | None:
        name, count = f"broker {each.broker_id}", each.shortened_logs or 0
        what = f"{count:.0f} logs of {name} may lack what they had acknowledged"
        return (
            Found(name, what, "see its log, and start the brokers of the other replicas") if count else None
        )

    return _of_brokers(seen, lambda each: each.shortened_logs, find)


def _uncleanable(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    def find(each: BrokerSeen) -> Found | None:
        name, count = f"broker {each.broker_id}", each.uncleanable or 0
        what = f"{count:.0f} logs of {name} cannot be compacted"
        return Found(name, what, "see its log for the damage, and replace the replica") if count else None

    return _of_brokers(seen, lambda each: each.uncleanable, find)


def _transactions_late(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    def find(each: BrokerSeen) -> Found | None:
        name, count = f"broker {each.broker_id}", each.late_transactions or 0
        what = f"{count:.0f} partitions of {name} have a transaction that is open for too long"
        remedy = "find the transaction and abort it"
        return Found(name, what, remedy, "quorate transactions hanging") if count else None

    return _of_brokers(seen, lambda each: each.late_transactions, find)


def _connections_full(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    def find(each: BrokerSeen) -> Found | None:
        name, count, most = f"broker {each.broker_id}", each.connections or 0, each.connections_max or 1
        what = f"{name} has {count:.0f} of {most:.0f} connections open on one listener"
        remedy = "see who opens so many, or raise limits.connections_max"
        return Found(name, what, remedy) if count > LIMIT_SHARE_MAX * most else None

    return _of_brokers(seen, lambda each: each.connections, find)


def _leaders_skewed(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    live = {each.broker_id for each in seen.brokers}

    def find(partitions: tuple[PartitionSeen, ...]) -> Iterator[Found]:
        preferred: Counter[int] = Counter()
        lacking: Counter[int] = Counter()
        for each in partitions:
            first = each.replicas[0] if each.replicas else -1
            if first in live and first in each.isr:
                preferred[first] += 1
                lacking[first] += each.leader != first
        for broker_id, count in sorted(preferred.items()):
            if lacking[broker_id] > SKEW_SHARE_MAX * count:
                what = (
                    f"broker {broker_id} leads {count - lacking[broker_id]} of the {count} partitions that "
                    "are preferably its own"
                )
                remedy = "give them back, or wait until the controller does"
                yield Found(f"broker {broker_id}", what, remedy, "quorate topics elect")

    return _partitions(seen, find)


def _replica_lone(seen: BrokersSeen) -> Iterable[Found] | Skipped:
    def find(partitions: tuple[PartitionSeen, ...]) -> Iterator[Found]:
        counts = Counter(each.topic for each in partitions if len(each.replicas) == 1)
        if counts and len(seen.brokers) > 1:
            topic, _ = counts.most_common(1)[0]
            total = sum(counts.values())
            what = f"{total} partitions, of topic {topic} for one, have one replica each"
            if total == 1:
                what = f"a partition of topic {topic} has one replica"
            remedy = "name more replicas for them in a file for `quorate reassign start`"
            yield Found(topic, what, remedy, f"quorate reassign plan {shlex.quote(topic)} > moves.json")

    return _partitions(seen, find)


_E, _W, _I = Severity.ERROR, Severity.WARNING, Severity.INFO
#: What is worse comes first.
CHECKS: Final[tuple[Check[BrokersSeen], ...]] = (
    Check(
        *("no-controller", _E, "no broker is the controller"),
        *("leaders that die have no successors, and topics are neither made nor deleted", _no_controller),
    ),
    Check(
        *("no-coordinator", _E, "no broker is the coordinator of groups"),
        *("consumer groups and transactions stand still", _no_coordinator),
    ),
    Check(
        *("partition-offline", _E, "a partition has no leader"),
        *("its records can be neither written nor read", _offline),
    ),
    Check(
        *("partition-under-min-isr", _E, "an ISR is smaller than min.insync.replicas of its topic"),
        *("producers with acks=all are refused", _under_min_isr),
    ),
    Check(
        *("broker-down", _W, "a broker has replicas and is not registered"),
        *("each of its partitions survives one failure less", _broker_down),
    ),
    Check(
        *("broker-stranger", _W, "a registration that no holder of the peer secret wrote"),
        *("the broker gets no partitions", _broker_stranger),
    ),
    Check(
        *("broker-silent", _W, "a broker is registered and its admin port does not answer"),
        *("it hangs or has just ended, and its clients wait", _broker_silent),
    ),
    Check(
        *("broker-not-ready", _W, "a broker answers and serves no clients"),
        *("its clients wait or fail", _broker_not_ready),
    ),
    Check(
        *("partition-under-replicated", _W, "an ISR lacks a replica"),
        *("the partition survives one failure less", _under_replicated),
    ),
    Check(
        *("topic-malformed", _W, "a topic's record cannot be read"),
        *("the controller leaves it alone, whatever happens to its leaders", _topic_malformed),
    ),
    Check(
        *("throttle-stale", _W, "a rate for reassignments is set, and nothing is reassigned"),
        *("a replica that falls behind catches up at that rate", _throttle_stale),
    ),
    Check(
        *("group-lag", _W, "a group is more records behind than `--lag-max`"),
        *("its consumers work on the past, and retention may delete what they have not read", _group_lag),
    ),
    Check(
        *("group-unwritten", _W, "the coordinator could not write a group the last time"),
        *("what the group commits is refused", _group_unwritten),
    ),
    Check(
        *("logs-shortened", _W, "a broker has logs that may lack what they had acknowledged"),
        *("these replicas have no role until a replica that has more is back", _logs_shortened),
    ),
    Check(
        *("transactions-late", _W, "a transaction is open for longer than any may be"),
        *("read_committed consumers wait behind it", _transactions_late),
    ),
    Check(
        *("logs-uncleanable", _W, "a compacted log that cannot be compacted"),
        *("it grows for ever", _uncleanable),
    ),
    Check(
        *("connections-full", _W, f"a listener has over {LIMIT_SHARE_MAX:.0%} of its connections open"),
        *("above the limit the connection goes that is idle the longest", _connections_full),
    ),
    Check(
        *("groups-full", _W, f"groups hold over {LIMIT_SHARE_MAX:.0%} of the bytes that they may"),
        *("above it new members and offsets are refused", _groups_full),
    ),
    Check(
        *("partitions-full", _W, f"topics have over {LIMIT_SHARE_MAX:.0%} of the partitions allowed"),
        *("above it no topic is created", _partitions_full),
    ),
    Check(
        "leaders-skewed",
        _I,
        f"a live broker lacks over {SKEW_SHARE_MAX:.0%} of the leaderships that are preferably its own",
        *("others carry its load", _leaders_skewed),
    ),
    Check(
        *("broker-hidden", _I, "a broker's admin port wants a token, or another one"),
        *("what only this broker knows is not looked at", _broker_hidden),
    ),
    Check(
        *("replica-lone", _I, "partitions have one replica, and there are more brokers"),
        *("the loss of one disk loses their records", _replica_lone),
    ),
)
