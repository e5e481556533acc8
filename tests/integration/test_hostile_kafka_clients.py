"""One Kafka client must not fill, blind or shut a broker: attacks with plain sockets and no credentials.

Beside each attack a well-behaved client produces and reads at every broker; it must not notice. No broker
ends, and what the attack may cost in memory is bounded by the budgets of its listener.
Source: broker.toml (limits); tests/integration/test_hostile_clients.py does the same to nodes.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.wire.codec import encode_request
from controller.wire.apis import ApiKey
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, record_batch
from tests.support.frames import pack_request
from tests.support.nodes import eventually

DEADLINE_S = 60.0
MIB = 1 << 20
BUDGET_BYTES = 128 * MIB
#: what an attack may add to a broker's memory: a budget, what is read at the same time, and what Python keeps
GROWTH_BYTES_MAX = 3 * BUDGET_BYTES
ATTACKERS = 40
CONNECTIONS_MAX = 1000
#: no request of a neighbour takes longer, whatever the attack and however busy the machine
ROUND_S_MAX = 5.0
WIDE, LARGE, NEIGHBOURS = "wide", "large", "neighbours"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    limits = {
        "connections_max": CONNECTIONS_MAX,
        "received_bytes_total_max": BUDGET_BYTES,
        "unread_bytes_total_max": BUDGET_BYTES,
    }
    with BrokerCluster(brokers=2, settings={"limits": limits}) as running, running.shown():
        admin = AdminClient(quiet(running.bootstrap))
        topics = [
            NewTopic(WIDE, 200, replica_assignment=[[1]] * 200),
            NewTopic(LARGE, 1, replica_assignment=[[1]]),
            NewTopic(NEIGHBOURS, 2, replica_assignment=[[1, 2], [2, 1]]),
        ]
        for made in admin.create_topics(topics, operation_timeout=30).values():
            made.result(30)
        with BrokerLink(running.address(1)) as link:
            large = record_batch([bytes(MIB - 1024)])
            # On a busy machine a topic is created before its broker leads it.
            eventually(lambda: produced(link, LARGE, 0, large) == 0, 30.0, "the large topic is led")
            for _ in range(63):
                assert produced(link, LARGE, 0, large) == 0
        yield running


def produced(link: BrokerLink, topic: str, partition: int, records: bytes) -> int:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    values = {"transactional_id": None, "acks": -1, "timeout": 30_000, "topic_data": data}
    return int(link.ask(ApiKey.PRODUCE, 9, values).responses[0].partition_responses[0].error_code)


class Neighbours:
    """A client at every broker that produces and looks at the end all the time and must not notice."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self.errors: list[str] = []
        self.rounds = dict.fromkeys(cluster.brokers, 0)
        self.longest_s = 0.0
        self._threads = [
            threading.Thread(target=self._work, args=(broker_id,), daemon=True)
            for broker_id in cluster.brokers
        ]
        for thread in self._threads:
            thread.start()
        self.wait_for_rounds()

    def _work(self, broker_id: int) -> None:
        partition = broker_id - 1
        asked = [{"name": NEIGHBOURS, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        try:
            with BrokerLink(self._cluster.address(broker_id), timeout_s=30.0) as link:
                while not self._stop.is_set():
                    begun = time.monotonic()
                    assert produced(link, NEIGHBOURS, partition, record_batch([b"mine"])) == 0
                    link.ask(
                        ApiKey.LIST_OFFSETS, 4, {"replica_id": -1, "isolation_level": 0, "topics": asked}
                    )
                    self.longest_s = max(self.longest_s, time.monotonic() - begun)
                    self.rounds[broker_id] += 1
        except (OSError, AssertionError) as problem:
            self.errors.append(f"client at broker {broker_id}: {problem!r}")

    def wait_for_rounds(self, count: int = 5) -> None:
        """Wait until every one of them went round a few more times."""
        before = dict(self.rounds)
        eventually(
            lambda: self.errors or all(self.rounds[each] >= before[each] + count for each in self.rounds),
            DEADLINE_S,
            "the neighbours are served",
        )
        assert self.errors == []

    def finish(self) -> None:
        """End their connections; raises what they noticed."""
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        assert self.errors == []
        assert self.longest_s < ROUND_S_MAX


@contextlib.contextmanager
def unharmed(cluster: BrokerCluster) -> Iterator[Neighbours]:
    """What is attacked within: afterwards the same processes are ready, and the neighbours went on."""
    pids = {broker_id: cluster.pid(broker_id) for broker_id in cluster.brokers}
    neighbours = Neighbours(cluster)
    yield neighbours
    neighbours.wait_for_rounds()
    neighbours.finish()
    assert {each: cluster.pid(each) for each in cluster.brokers if cluster.running(each)} == pids
    cluster.wait_ready()
    for broker in cluster.brokers.values():
        assert "Traceback" not in broker.output_path.read_text(errors="replace")


class Attackers(contextlib.ExitStack):
    """Sockets to a port that all end with the test."""

    def connect(self, port: int) -> socket.socket:
        """Open one more connection; it may be closed or left waiting."""
        made = self.enter_context(socket.socket())
        # What its peer holds for it is then in the process, not in the system.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        made.settimeout(DEADLINE_S)
        made.connect(("127.0.0.1", port))
        return made


def send_until_closed(attacker: socket.socket, *parts: bytes) -> None:
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for part in parts:
            attacker.sendall(part)


def memory(cluster: BrokerCluster, field: str) -> int:
    """Bytes of broker 1: VmRSS now, or VmHWM, the most since `forget_peak`."""
    text = Path(f"/proc/{cluster.pid(1)}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


@contextlib.contextmanager
def growth_below(cluster: BrokerCluster, bytes_max: int) -> Iterator[None]:
    """The memory of broker 1 grows by no more within this block, at any time."""
    Path(f"/proc/{cluster.pid(1)}/clear_refs").write_text("5")
    before = memory(cluster, "VmRSS")
    yield
    grown = memory(cluster, "VmHWM") - before
    assert grown <= bytes_max, f"{grown / 1e6:.0f} MB"


# -- bytes ---------------------------------------------------------------------------------------------------


def unfinished_frames(cluster: BrokerCluster, attackers: Attackers) -> None:
    head = struct.pack(">ihhi", 100 * MIB, ApiKey.PRODUCE, 9, 1)
    for _ in range(ATTACKERS):
        attacker = attackers.connect(cluster.brokers[1].client_port)
        send_until_closed(attacker, head, bytes(8 * MIB))


def unread_answers(cluster: BrokerCluster, attackers: Attackers) -> None:
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2**31 - 1}
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 2**31 - 1,
        "topics": [{"topic": LARGE, "partitions": [row]}],
        "forgotten_topics_data": (),
    }
    body = encode_request(ApiKey.FETCH, 12, values)
    for _ in range(ATTACKERS):
        attacker = attackers.connect(cluster.brokers[1].client_port)
        # The system takes a few MiB for each of them before the broker holds anything.
        frames = [pack_request(ApiKey.FETCH, 12, number, "", body, flexible=True) for number in range(16)]
        send_until_closed(attacker, *frames)


@pytest.mark.parametrize(
    ("attack", "setting"),
    [
        (unfinished_frames, "limits.received_bytes_total_max"),
        # The more is unread, the smaller an answer is: nobody need go for it.
        (unread_answers, None),
    ],
)
def test_forty_clients_cannot_fill_the_memory_of_a_broker(
    cluster: BrokerCluster, attack: Callable[[BrokerCluster, Attackers], None], setting: str | None
) -> None:
    shed = cluster.metric(1, "quorate_broker_connections_shed_total")
    with (
        unharmed(cluster) as neighbours,
        growth_below(cluster, GROWTH_BYTES_MAX),
        Attackers() as attackers,
    ):
        attack(cluster, attackers)
        neighbours.wait_for_rounds()
        eventually(lambda: cluster.metric(1, "quorate_broker_held_bytes") > BUDGET_BYTES / 16, DEADLINE_S)
        if setting is not None:
            eventually(lambda: cluster.metric(1, "quorate_broker_connections_shed_total") > shed, DEADLINE_S)
    if setting is not None:
        output = cluster.brokers[1].output_path
        # One line a second tells of them.
        eventually(lambda: f"({setting} = " in output.read_text(errors="replace"), DEADLINE_S)
    eventually(lambda: cluster.metric(1, "quorate_broker_held_bytes") < MIB, DEADLINE_S)


def test_one_name_repeated_is_answered_once(cluster: BrokerCluster) -> None:
    rows = [{"name": WIDE}] * 4000
    with unharmed(cluster), growth_below(cluster, 64 * MIB), BrokerLink(cluster.address(1)) as link:
        found = link.ask(ApiKey.METADATA, 1, {"topics": rows})
        assert [(topic.name, len(topic.partitions)) for topic in found.topics] == [(WIDE, 200)]


def test_strangers_cannot_make_the_broker_listener_hold_a_large_frame(cluster: BrokerCluster) -> None:
    with unharmed(cluster), growth_below(cluster, 64 * MIB), Attackers() as attackers:
        for _ in range(ATTACKERS):
            attacker = attackers.connect(cluster.brokers[1].broker_port)
            send_until_closed(attacker, struct.pack(">ihhi", 100 * MIB, ApiKey.FETCH, 12, 1), bytes(8 * MIB))


# -- connections ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("listener", ["client", "broker"])
def test_a_flood_of_connections_shuts_nobody_out(cluster: BrokerCluster, listener: str) -> None:
    port = getattr(cluster.brokers[1], f"{listener}_port")
    room = CONNECTIONS_MAX if listener == "client" else CONNECTIONS_MAX // 2
    with Attackers() as attackers:
        crowd = [attackers.connect(port) for _ in range(room + 200)]
        eventually(lambda: len(ended(crowd)) >= 200, DEADLINE_S, "those that were idle the longest go")
        if listener == "broker":
            # A follower that comes back finds room.
            cluster.kill(2)
            cluster.start_broker(2)
            cluster.wait_ready(2)
            cluster.wait_in_sync(NEIGHBOURS)
        producer = Producer({**quiet(cluster.bootstrap), "acks": "all"})
        failed: list[object] = []
        for partition in (0, 1):
            producer.produce(
                NEIGHBOURS,
                b"late",
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
        assert producer.flush(DEADLINE_S) == 0
        assert failed == []


def ended(sockets: list[socket.socket]) -> list[socket.socket]:
    """Return those that the other side has closed."""
    poll = select.poll()
    for each in sockets:
        poll.register(each, select.POLLIN | select.POLLRDHUP)
    return [each for each, _ in poll.poll(0)]  # type: ignore[misc]
