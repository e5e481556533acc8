"""What running controllers and replicas decided is on file, and plays again to the same effects."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.local import brokers_in_thread
from tests.support.replaying import replay_controller, replay_replica

WAIT_S = 30.0


def produce(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(40):
        producer.produce("orders", b"x", partition=number % 4)
    assert producer.flush(WAIT_S) == 0


def test_recorded_machines_play_again_to_the_same_effects(tmp_path: Path) -> None:
    settings = {"broker": {"record_dir": str(tmp_path)}}
    with brokers_in_thread(3, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("orders", 4, 3)])["orders"].result(WAIT_S)
        produce(running.bootstrap)
        running.kill(1)
        produce(running.bootstrap)
    controllers = sorted(tmp_path.glob("controller-*.steps"))
    replicas = sorted(tmp_path.glob("replica-orders-*.steps"))
    assert controllers
    assert len(replicas) >= 12
    assert sum(map(replay_controller, controllers)) > 20
    assert sum(map(replay_replica, replicas)) > 100
