"""What a broker shows on its HTTP port: health, metrics, status.

Reads only; decides nothing and keeps nothing.
Source: issue of brokers, "A broker's admin port"; Prometheus naming conventions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

if TYPE_CHECKING:
    from broker.config.broker import LimitsSection
    from broker.lifecycle.broker import Broker
    from broker.server.listener import Listener


class BrokerView:
    """The broker behind an admin port."""

    def __init__(self, broker: Broker) -> None:
        """Look at a broker."""
        self._broker = broker

    def readiness(self) -> tuple[bool, str]:
        """Return whether clients are served, and the reason in one sentence."""
        return self._broker.readiness()

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
            (groups with a malformed record), unwritten ({group: why its last write was given up}).
        """
        broker = self._broker
        ready, problem = broker.readiness()
        answer: dict[str, object] = {
            "broker_id": broker.broker_id,
            "cluster_id": broker.cluster_id,
            "generation": broker.generation,
            "rack": broker.config.broker.rack,
            "ready": ready,
            "problem": None if ready else problem,
            "controller_id": None,
            "controller_epoch": None,
            "controller": self._controller(),
            "coordinator_id": None if broker.coordinator is None else broker.coordinator.coordinator_id,
            "coordinator": self._coordinator(),
        }
        if broker.parts is not None:
            replicas = broker.parts.replicas.status()
            answer |= {
                "incarnation": broker.parts.directory.incarnation,
                "controller_id": replicas.controller_id,
                "controller_epoch": replicas.controller_epoch,
                "partitions": {
                    "led": replicas.led,
                    "followed": replicas.followed,
                    "offline": replicas.offline,
                    "under_replicated": replicas.under_replicated,
                },
            }
        return answer

    def metrics(self) -> Iterable[Metric]:
        """Return the broker's metric families with their values of now."""
        ready, _ = self._broker.readiness()
        yield GaugeMetricFamily("quorate_broker_ready", "1 if clients are served", value=float(ready))
        yield GaugeMetricFamily(
            "quorate_broker_generation",
            "czxid of the registration; 0: none",
            value=self._broker.generation or 0,
        )
        yield from self._loop_metrics()
        if self._broker.parts is None:
            return
        replicas = self._broker.parts.replicas.status()
        partitions = GaugeMetricFamily(
            "quorate_broker_partitions", "partitions of this broker by role", labels=["role"]
        )
        for role in ("led", "followed", "offline", "under_replicated"):
            partitions.add_metric([role], getattr(replicas, role))
        yield partitions
        yield GaugeMetricFamily(
            "quorate_broker_shortened_logs",
            "logs that may lack what they had acknowledged, and have no role since",
            value=len(self._broker.parts.directory.shortened),
        )
        counters = replicas.counters
        for name, documentation, value in (
            ("isr_shrinks", "ISR changes by which followers left", counters.isr_shrinks),
            ("isr_expands", "ISR changes by which followers joined", counters.isr_expansions),
            ("isr_conflicts", "ISR changes that the quorum refused", counters.isr_conflicts),
            ("truncations", "logs cut back to what a new leader has", counters.truncations),
            ("records_produced", "records that producers appended", counters.records_produced),
            ("bytes_produced", "bytes that producers appended", counters.bytes_produced),
            ("bytes_consumed", "bytes of records given to consumers", counters.bytes_consumed),
            ("bytes_replicated", "bytes of records given to followers", counters.bytes_replicated),
            (
                "leader_throttled_bytes",
                "bytes that were sent to throttled followers",
                replicas.leader_throttled_bytes,
            ),
            (
                "follower_throttled_bytes",
                "bytes that were fetched for throttled replicas",
                replicas.follower_throttled_bytes,
            ),
        ):
            yield CounterMetricFamily(f"quorate_broker_{name}", documentation, value=value)
        if self._broker.parts.queue is not None:
            yield CounterMetricFamily(
                "quorate_broker_queue_strangers",
                "entries of this broker's queue that no holder of the peer secret signed, deleted",
                value=self._broker.parts.queue.strangers,
            )
        yield from _listener_metrics(self._broker.listeners.each(), self._broker.config.limits)
        yield from self._group_metrics()
        yield from self._controller_metrics()

    def _loop_metrics(self) -> Iterable[Metric]:
        watch = self._broker.loop_watch
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

    def _controller_metrics(self) -> Iterable[Metric]:
        controller = self._broker.controller
        active = controller is not None and controller.active
        yield GaugeMetricFamily("quorate_controller_active", "1 in the controller", value=float(active))
        if controller is None:
            return
        found = controller.status()
        for name, documentation, value in (
            (
                "unclean_elections",
                "leaders from outside the ISR: records may be lost",
                found.counters.unclean_elections,
            ),
            (
                "leaders_rebalanced",
                "leaderships that went back by themselves",
                found.counters.leaders_rebalanced,
            ),
            (
                "requests",
                "control requests sent, or entries written to queues of brokers",
                found.counters.requests_sent,
            ),
            (
                "disks_replaced",
                "brokers that came with another disk, and lost their places in every ISR",
                found.counters.disks_replaced,
            ),
            (
                "queues_overrun",
                "brokers that count as dead because they left too many entries in their queue",
                found.counters.queues_overrun,
            ),
        ):
            yield CounterMetricFamily(f"quorate_controller_{name}", documentation, value=value)
        if active:
            cluster = GaugeMetricFamily(
                "quorate_controller_partitions",
                "partitions of the cluster that are in trouble or on the move",
                labels=["state"],
            )
            cluster.add_metric(["offline"], len(found.offline))
            cluster.add_metric(["under_replicated"], len(found.under_replicated))
            cluster.add_metric(["reassigned"], sum(1 for _ in controller.reassignments() or ()))
            yield cluster
            step = GaugeMetricFamily(
                "quorate_controller_step", "the step of its work that the controller is at", labels=["step"]
            )
            step.add_metric([found.step_under_way or "none"], 1)
            yield step
            for name, documentation, number in (
                ("topics_left_alone", "topics that cannot be read or written", len(found.left_alone)),
                ("partition_count", "partitions of all topics", found.partition_count),
                (
                    "partition_count_max",
                    "partitions that all topics may have",
                    self._broker.config.limits.partitions_max,
                ),
            ):
                yield GaugeMetricFamily(f"quorate_controller_{name}", documentation, value=number)
            yield GaugeMetricFamily(
                "quorate_controller_strangers",
                "registrations of brokers that no holder of the peer secret wrote, or that are malformed",
                value=len(found.strangers),
            )

    def _coordinator(self) -> Mapping[str, object] | None:
        coordinator = self._broker.coordinator
        found = None if coordinator is None else coordinator.status()
        if coordinator is None or found is None:
            return None
        return {
            "coordinator_epoch": coordinator.coordinator_epoch,
            "groups": dict(found.groups),
            "members": found.members,
            "left_alone": list(found.left_alone),
            "unwritten": dict(found.unwritten),
        }

    def _group_metrics(self) -> Iterable[Metric]:
        coordinator = self._broker.coordinator
        found = None if coordinator is None else coordinator.status()
        yield GaugeMetricFamily(
            "quorate_coordinator_active", "1 in the coordinator of groups", value=float(found is not None)
        )
        if found is None:
            return
        groups = GaugeMetricFamily("quorate_groups", "consumer groups by state", labels=["state"])
        for state, number in sorted(found.groups.items()):
            groups.add_metric([state], number)
        yield groups
        yield GaugeMetricFamily("quorate_group_members", "members of consumer groups", value=found.members)
        yield GaugeMetricFamily(
            "quorate_groups_unwritten",
            "groups whose last write was given up",
            value=len(found.unwritten),
        )
        yield GaugeMetricFamily(
            "quorate_groups_bytes",
            "bytes that groups hold on each node of the quorum, roughly",
            value=found.held_bytes,
        )
        yield GaugeMetricFamily(
            "quorate_groups_bytes_max",
            "bytes that groups may hold",
            value=self._broker.config.groups.groups_bytes_max,
        )
        for name, documentation, value in (
            ("requests_refused", "requests refused because groups hold all they may", found.refused),
            ("rebalances", "generations of groups that have begun", found.counters.rebalances),
            ("deadlines", "deadlines of members and rebalances that have passed", found.counters.deadlines),
            ("writes_failed", "writes of groups that were given up", found.counters.writes_failed),
        ):
            yield CounterMetricFamily(f"quorate_group_{name}", documentation, value=value)

    def _controller(self) -> Mapping[str, object] | None:
        controller = self._broker.controller
        if controller is None or not controller.active:
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


def _listener_metrics(listeners: Sequence[Listener], limits: LimitsSection) -> Iterable[Metric]:
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
        "quorate_broker_held_bytes_max", "bytes of these that may be held", labels=["listener", "kind"]
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
        shed.add_metric([listener.name], listener.shed_count)
        for kind, size in listener.held_bytes().items():
            held.add_metric([listener.name, kind], size)
            held_max.add_metric([listener.name, kind], totals_max[kind])
        for api, histogram in listener.times().items():
            times.add_metric([listener.name, api], histogram.buckets(), histogram.sum_s)
    yield from (connections, connections_max, refused, shed, held, held_max, times)
