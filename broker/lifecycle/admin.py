"""What a broker shows on its HTTP port: health, metrics, status.

Reads only; decides nothing and keeps nothing.
Source: Prometheus naming conventions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from broker.config.sections import BrokerLimitsSection
from broker.groups.lag_metrics import lag_metrics
from broker.groups.term import GroupsTerm, clock_ms
from broker.lifecycle.listening import Listeners
from broker.lifecycle.parts import BrokerParts
from broker.lifecycle.state import BrokerState
from broker.replication.clock import wall_ms
from broker.replication.compaction import CompactionStatus
from broker.server.listener import Listener
from controller.runtime.controller import Controller
from quorum.admin.metrics import audit_metrics, room_metrics, tls_metrics
from quorum.platform.disk_room import DiskRoom
from quorum.platform.loop_watch import LoopWatch

#: An open transaction is late once nothing was appended to it for so long beyond the longest time-out; as in
#: Kafka (KIP-664).
LATE_MS: Final = 300_000


class BrokerView:
    """The broker behind an admin port."""

    def __init__(self, state: BrokerState, listeners: Listeners, loop_watch: LoopWatch) -> None:
        """Look at a broker."""
        self._state = state
        self._listeners = listeners
        self._loop_watch = loop_watch
        self._room = DiskRoom(state.config.broker.data_dir)

    def readiness(self) -> tuple[bool, str]:
        """Return whether clients are served, and the reason in one sentence."""
        return self._state.readiness()

    def status(self) -> Mapping[str, object]:
        """Return what GET /v1/status answers.

        Returns:
            broker_id, cluster_id, generation (null while not registered), incarnation, rack, ready, problem,
            controller_id and controller_epoch (as the last control request said), partitions (led, followed,
            offline, under_replicated of this broker), and controller: null unless this broker is the
            controller, else controller_epoch, brokers ({id: generation}), strangers ({id: why that
            registration does not count}), under_replicated and offline (lists of [topic, partition]);
            coordinator_id, and coordinator: null unless this broker is the
            coordinator of groups, else coordinator_epoch, groups ({state: number}), members, left_alone
            (groups with a malformed record), unwritten ({group: why its last write was given up}),
            transactions_left_alone (ids with a malformed record).
        """
        state, registration = self._state, self._state.registration
        ready, problem = state.readiness()
        answer: dict[str, object] = {
            "broker_id": state.config.broker.id,
            "cluster_id": state.cluster_id,
            "generation": registration and registration.generation,
            "rack": state.config.broker.rack,
            "ready": ready,
            "problem": None if ready else problem,
            "controller_id": None,
            "controller_epoch": None,
            "controller": registration and _controller(registration.controller),
            "coordinator_id": registration and registration.coordinator.holder_id,
            "coordinator": registration and _coordinator(registration.coordinator.term),
        }
        if state.parts is not None:
            registry = state.parts.replicas.registry
            answer |= {
                "incarnation": state.parts.directory.incarnation,
                "controller_id": registry.gate.controller_id,
                "controller_epoch": registry.gate.controller_epoch,
                "partitions": state.parts.replicas.logs.counts(),
            }
        return answer

    def metrics(self) -> Iterable[Metric]:
        """Return the broker's metric families with their values of now."""
        state, registration = self._state, self._state.registration
        ready, _ = state.readiness()
        yield GaugeMetricFamily("quorate_broker_ready", "1 if clients are served", value=float(ready))
        yield GaugeMetricFamily(
            "quorate_broker_generation",
            "czxid of the registration; 0: none",
            value=0 if registration is None else registration.generation,
        )
        yield from _loop_metrics(self._loop_watch)
        yield from tls_metrics(self._listeners.certificates)
        yield from room_metrics(self._room.look())
        yield from audit_metrics(self._listeners.audit)
        if state.parts is None:
            return
        yield from _replica_metrics(state.parts)
        yield from _quota_metrics(state.parts)
        max_ms = state.config.transactions.transaction_max_timeout_ms
        yield GaugeMetricFamily(
            "quorate_broker_partitions_with_late_transactions",
            "partitions led here with a transaction that is open for longer than any may be",
            value=state.parts.replicas.logs.late_transactions(wall_ms() - max_ms - LATE_MS),
        )
        yield from _listener_metrics(self._listeners.each(), state.config.limits)
        bytes_max, partitions_max = state.config.groups.groups_bytes_max, state.config.limits.partitions_max
        yield from _group_metrics(registration and registration.coordinator.term, bytes_max)
        if registration and registration.coordinator.term:
            yield from lag_metrics(registration.lag.seen)
        yield from _controller_metrics(registration and registration.controller, partitions_max)


def _controller(controller: Controller) -> Mapping[str, object] | None:
    if not controller.active:
        return None
    found = controller.status()
    return {
        "controller_epoch": found.controller_epoch,
        "brokers": {str(each): generation for each, generation in found.brokers.items()},
        "strangers": {str(each): problem for each, problem in found.strangers.items()},
        "step": found.step_under_way or None,
        "under_replicated": [list(key) for key in found.under_replicated],
        "offline": [list(key) for key in found.offline],
    }


def _coordinator(term: GroupsTerm | None) -> Mapping[str, object] | None:
    if term is None:
        return None
    found = term.machine.status()
    return {
        "coordinator_epoch": term.mandate.epoch,
        "groups": dict(found.groups),
        "members": found.members,
        "left_alone": list(found.left_alone),
        "unwritten": dict(found.unwritten),
        "transactions_left_alone": list(term.transactions.machine.status(clock_ms()).left_alone),
    }


def _loop_metrics(watch: LoopWatch) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "quorate_broker_longest_turn_seconds",
        "The longest that one piece of work held the event loop in the last minute or two",
        value=watch.longest_ms / 1000,
    )
    yield HistogramMetricFamily(
        "quorate_broker_turn_seconds",
        "How late the event loop came, twenty times a second",
        buckets=watch.turns.buckets(),
        sum_value=watch.turns.sum_s,
    )


def _replica_metrics(parts: BrokerParts) -> Iterable[Metric]:
    replicas, registry, counters = parts.replicas, parts.replicas.registry, parts.replicas.counters
    roles = replicas.logs.counts()
    yield _by("role", roles, "quorate_broker_partitions", "partitions of this broker by role")
    yield GaugeMetricFamily(
        "quorate_broker_shortened_logs",
        "logs that may lack what they had acknowledged, and have no role since",
        value=len(parts.directory.shortened),
    )
    sessions = replicas.fetching.sessions
    for name, documentation, value in (
        ("sessions", "incremental fetch sessions of followers and clients", len(sessions)),
        ("partitions_cached", "partitions that incremental fetch sessions hold", sessions.partition_count()),
    ):
        yield GaugeMetricFamily(f"quorate_broker_incremental_fetch_{name}", documentation, value=value)
    yield from _compaction_metrics(replicas.maintenance.compaction.status)
    sent, fetched = registry.leader_throttle.bytes_total, registry.follower_throttle.bytes_total
    for name, documentation, value in (
        ("isr_shrinks", "ISR changes by which followers left", counters.isr_shrinks),
        ("isr_expands", "ISR changes by which followers joined", counters.isr_expansions),
        ("isr_conflicts", "ISR changes that the quorum refused", counters.isr_conflicts),
        ("truncations", "logs cut back to what a new leader has", counters.truncations),
        ("records_produced", "records that producers appended", counters.records_produced),
        ("bytes_produced", "bytes that producers appended", counters.bytes_produced),
        ("bytes_consumed", "bytes of records given to consumers", counters.bytes_consumed),
        ("bytes_replicated", "bytes of records given to followers", counters.bytes_replicated),
        ("incremental_fetch_session_evictions", "fetch sessions that gave way", sessions.evictions),
        ("leader_throttled_bytes", "bytes that were sent to throttled followers", sent),
        ("follower_throttled_bytes", "bytes that were fetched for throttled replicas", fetched),
    ):
        yield CounterMetricFamily(f"quorate_broker_{name}", documentation, value=value)
    if parts.queue is not None:
        yield CounterMetricFamily(
            "quorate_broker_queue_strangers",
            "entries of this broker's queue that no holder of the peer secret signed, deleted",
            value=parts.queue.strangers,
        )


def _compaction_metrics(status: CompactionStatus) -> Iterable[Metric]:
    for name, documentation, value in (
        ("max_dirty_ratio", "largest share of a compacted log that is not compacted", status.max_dirty_ratio),
        (
            "due_seconds",
            "for how long the log waits for compaction that has waited longest",
            status.waited_ms(clock_ms()) / 1000,
        ),
        ("uncleanable_partitions", "logs that cannot be compacted", float(len(status.uncleanable))),
    ):
        yield GaugeMetricFamily(f"quorate_broker_cleaner_{name}", documentation, value=value)
    for name, documentation, count in (
        ("bytes_read", "bytes of logs that were compacted", status.bytes_read),
        ("bytes_written", "bytes that compaction has left of logs", status.bytes_written),
        ("failures", "rounds of compaction that failed", status.failures),
    ):
        yield CounterMetricFamily(f"quorate_broker_cleaner_{name}", documentation, value=count)


def _by(label: str, values: Mapping[str, int], name: str, documentation: str) -> Metric:
    """Return a gauge with one value for each value of a label."""
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for each, value in values.items():
        family.add_metric([each], value)
    return family


def _quota_metrics(parts: BrokerParts) -> Iterable[Metric]:
    told = "sum of the throttle times of all requests; those of pipelined requests overlap"
    family = CounterMetricFamily("quorate_broker_throttled_seconds", told, labels=["quota"])
    for kind, throttled_ms in parts.quotas.throttled_ms.items():
        family.add_metric([kind.value], throttled_ms / 1000)
    yield family


def _controller_metrics(controller: Controller | None, partitions_max: int) -> Iterable[Metric]:
    active = controller is not None and controller.active
    yield GaugeMetricFamily("quorate_controller_active", "1 in the controller", value=float(active))
    if controller is None:
        return
    found = controller.status()
    counters = found.counters
    disks = "brokers that came with another disk, and lost their places in every ISR"
    requests = "control requests sent, or entries written to queues of brokers"
    unclean = "leaders from outside the ISR: records may be lost"
    rounds = "rounds of decisions taken again, because what they read had changed"
    stale = "requests that brokers refused: they were for an earlier life of theirs"
    for name, documentation, value in (
        ("unclean_elections", unclean, counters.unclean_elections),
        ("leaders_rebalanced", "leaderships that went back unasked", counters.leaders_rebalanced),
        ("requests", requests, counters.requests_sent),
        ("requests_repeated", "requests sent again for want of an answer", counters.requests_repeated),
        ("stale_generations", stale, counters.stale_generations),
        ("disks_replaced", disks, counters.disks_replaced),
        ("rounds_repeated", rounds, counters.rounds_repeated),
    ):
        yield CounterMetricFamily(f"quorate_controller_{name}", documentation, value=value)
    if not active:
        return
    troubles = {
        "offline": len(found.offline),
        "under_replicated": len(found.under_replicated),
        "reassigned": sum(1 for _ in controller.reassignments() or ()),
    }
    documentation = "partitions of the cluster that are in trouble or on the move"
    yield _by("state", troubles, "quorate_controller_partitions", documentation)
    at = found.step_under_way or "none"
    yield _by("step", {at: 1}, "quorate_controller_step", "the step of its work that the controller is at")
    strangers = "registrations of brokers that no holder of the peer secret wrote, or that are malformed"
    for name, documentation, value in (
        ("topics_left_alone", "topics that cannot be read or written", len(found.left_alone)),
        ("partition_count", "partitions of all topics", found.partition_count),
        ("partition_count_max", "partitions that all topics may have", partitions_max),
        ("strangers", strangers, len(found.strangers)),
    ):
        yield GaugeMetricFamily(f"quorate_controller_{name}", documentation, value=value)


def _group_metrics(term: GroupsTerm | None, bytes_max: int) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "quorate_coordinator_active", "1 in the coordinator of groups", value=float(term is not None)
    )
    if term is None:
        return
    found = term.machine.status()
    yield _by("state", dict(sorted(found.groups.items())), "quorate_groups", "consumer groups by state")
    for name, documentation, value in (
        ("group_members", "members of consumer groups", found.members),
        ("groups_unwritten", "groups whose last write was given up", len(found.unwritten)),
        ("groups_bytes", "bytes that groups hold on each node of the quorum, roughly", found.held_bytes),
        ("groups_bytes_max", "bytes that groups may hold", bytes_max),
    ):
        yield GaugeMetricFamily(f"quorate_{name}", documentation, value=value)
    ids = term.transactions.machine.status(clock_ms())
    yield _by(
        "state", dict(sorted(ids.states.items())), "quorate_transactional_ids", "transactional ids by state"
    )
    yield GaugeMetricFamily(
        "quorate_transaction_oldest_open_seconds",
        "how long the oldest transaction is open; 0: none is",
        value=ids.oldest_open_ms / 1000,
    )
    for name, documentation, value in (
        ("requests_refused", "requests refused because groups hold all they may", found.refused),
        ("rebalances", "generations of groups that have begun", found.counters.rebalances),
        ("deadlines", "deadlines of members and rebalances that have passed", found.counters.deadlines),
        ("writes_failed", "writes of groups that were given up", found.counters.writes_failed),
    ):
        yield CounterMetricFamily(f"quorate_group_{name}", documentation, value=value)


def _listener_metrics(listeners: Sequence[Listener], limits: BrokerLimitsSection) -> Iterable[Metric]:
    connections = GaugeMetricFamily(
        "quorate_broker_connections", "connections that are open", labels=["listener"]
    )
    connections_max = GaugeMetricFamily(
        "quorate_broker_connections_max", "connections that may be open", labels=["listener"]
    )
    refused = CounterMetricFamily(
        "quorate_broker_connections_refused",
        "connections closed for what their peers did: failed authentication, malformed requests",
        labels=["listener"],
    )
    crowd = CounterMetricFamily(
        "quorate_broker_connections_over_address_max",
        "connections closed because their addresses had as many as they may",
        labels=["listener"],
    )
    shed = CounterMetricFamily(
        "quorate_broker_connections_shed",
        "connections closed for what all of them held together, or because they were idle",
        labels=["listener"],
    )
    held = GaugeMetricFamily(
        "quorate_broker_held_bytes",
        "bytes of requests that are not answered, and of answers that are not read",
        labels=["listener", "kind"],
    )
    held_max = GaugeMetricFamily(
        "quorate_broker_held_bytes_max",
        "bytes of requests and answers that may be held",
        labels=["listener", "kind"],
    )
    totals_max = {"received": limits.received_bytes_total_max, "unread": limits.unread_bytes_total_max}
    times = HistogramMetricFamily(
        "quorate_broker_request_seconds",
        "From taking a request in until its response, waiting included",
        labels=["listener", "api"],
    )
    for listener in listeners:
        connections.add_metric([listener.name], listener.connection_count)
        connections_max.add_metric([listener.name], limits.connections_max)
        refused.add_metric([listener.name], listener.refused_count)
        crowd.add_metric([listener.name], listener.crowd_count)
        shed.add_metric([listener.name], listener.shed_count)
        for kind, size in listener.held_bytes().items():
            held.add_metric([listener.name, kind], size)
            held_max.add_metric([listener.name, kind], totals_max[kind])
        for api, histogram in listener.times().items():
            times.add_metric([listener.name, api], histogram.buckets(), histogram.sum_s)
    yield from (connections, connections_max, refused, crowd, shed, held, held_max, times)
