"""Frames on real sockets: order, bounds, garbage, and who may ask what; each costs its connection only."""

import asyncio
import contextlib
import dataclasses
import logging
import re
import select
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from broker.server.connection import WRITE_BUFFER_BYTES_MAX
from broker.server.shedding import ListenerLimits
from broker.server.table import FOR_BROKERS, FOR_CLIENTS
from broker.wire.codec import Values, decode_response, encode_request, is_flexible
from controller.messages.entities import decode_response as decode_control_response
from controller.messages.entities import encode_request as encode_control_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerAuthenticationError, BrokerConnection, BrokerConnectionLostError
from controller.wire.frames import response_body_offset
from quorum.metadata.paths import PartitionKey
from tests.support.broker_services import CLUSTER_ID
from tests.support.frames import pack_request
from tests.support.memory_broker import (
    PATIENCE_S,
    SECRET,
    MemoryBroker,
    config,
    partition_state,
    update_metadata,
)
from tests.support.nodes import eventually

LIMITS = ListenerLimits(
    connections_max=4,
    frame_bytes_max=8 * 1024 * 1024,
    requests_in_flight_max=3,
    authentication_timeout_ms=500,
)
MIB = 1024 * 1024
METADATA: Values = {"topics": ()}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MemoryBroker]:
    with MemoryBroker(config(tmp_path), {"t": 1}, LIMITS) as started:
        yield started


class Peer:
    """A blocking connection that speaks frames."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=PATIENCE_S)
        self.correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, body: bytes, *, flexible: bool | None = None) -> int:
        self.correlation_id += 1
        tagged = is_flexible(api_key, version) if flexible is None else flexible
        frame = pack_request(api_key, version, self.correlation_id, "test", body, flexible=tagged)
        self.socket.sendall(frame)
        return self.correlation_id

    def ask(self, api_key: ApiKey, version: int, values: Values) -> Any:
        sent = self.send(api_key, version, encode_request(api_key, version, values))
        correlation_id, frame = self.receive()
        assert correlation_id == sent
        flexible = is_flexible(api_key, version) and api_key != ApiKey.API_VERSIONS
        return decode_response(api_key, version, frame[response_body_offset(frame, flexible=flexible) :])

    def receive(self) -> tuple[int, bytes]:
        size = struct.unpack(">i", self._exactly(4))[0]
        frame = self._exactly(size)
        return struct.unpack_from(">i", frame)[0], frame

    def is_closed(self) -> bool:
        """Whether the broker closes the connection, without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            data = self.socket.recv(min(size - len(found), 1 << 20))
            assert data, "the broker closed the connection"
            found += data
        return bytes(found)


def batch(size: int = 34) -> bytes:
    return struct.pack(">qiibIhi", 0, 15 + size, 0, 2, 0, 0, 0) + bytes(size)


def produce_body(records: bytes, acks: int = 1, topic: str = "t") -> bytes:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    values = {"transactional_id": None, "acks": acks, "timeout": 1000, "topic_data": data}
    return encode_request(ApiKey.PRODUCE, 9, values)


def fetch_body(max_wait_ms: int = 0, min_bytes: int = 0) -> bytes:
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 30}
    topics = [{"topic": "t", "partitions": [row]}]
    values = {"max_wait": max_wait_ms, "min_bytes": min_bytes, "topics": topics, "replica_id": -1}
    return encode_request(ApiKey.FETCH, 12, {**values, "forgotten_topics_data": ()})


def hold(broker: MemoryBroker) -> asyncio.Event:
    async def make() -> asyncio.Event:
        broker.parts.replicas.hold = asyncio.Event()
        return broker.parts.replicas.hold

    return broker.run(make())


def release(broker: MemoryBroker, held: asyncio.Event) -> None:
    async def go() -> None:
        held.set()

    broker.run(go())


# -- order and bounds ---------------------------------------------------------------------------------


def test_responses_leave_in_the_order_of_the_requests(broker: MemoryBroker) -> None:
    held = hold(broker)
    replicas = broker.parts.replicas
    with Peer(broker.client_address) as peer, Peer(broker.client_address) as other:
        sent = [peer.send(ApiKey.PRODUCE, 9, produce_body(batch())) for _ in range(2)]
        sent.append(peer.send(ApiKey.FETCH, 12, fetch_body()))
        # Both produce requests run; the fetch behind them waits for its turn.
        eventually(lambda: len(replicas.produced) == 2, PATIENCE_S)
        other.ask(ApiKey.METADATA, 1, METADATA)
        assert replicas.fetches == []
        release(broker, held)
        assert [peer.receive()[0] for _ in range(3)] == sent


def test_produce_requests_append_in_their_order(broker: MemoryBroker) -> None:
    with Peer(broker.client_address) as peer:
        for size in range(34, 134):
            peer.send(ApiKey.PRODUCE, 9, produce_body(batch(size)))
        for _ in range(100):
            peer.receive()
    sizes = [len(records) for _, _, records in broker.parts.replicas.batches[PartitionKey("t", 0)]]
    assert sizes == sorted(sizes)
    assert len(sizes) == 100


def test_a_request_with_unknown_tags_is_answered(broker: MemoryBroker) -> None:
    with Peer(broker.client_address) as peer:
        flags = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        plain = peer.ask(ApiKey.METADATA, 12, {"topics": [{"name": "t", "topic_id": None}], **flags})
        topic = bytes(16) + b"\2t" + b"\1\x5a\2xx"
        body = b"\2" + topic + b"\0\0" + b"\2\x5a\1x\x87\1\0"
        # The first tagged field stands in the header.
        sent = peer.send(ApiKey.METADATA, 12, b"\1\x5a\3new" + body, flexible=False)
        correlation_id, frame = peer.receive()
        assert correlation_id == sent
        found = decode_response(ApiKey.METADATA, 12, frame[response_body_offset(frame, flexible=True) :])
    assert found == plain
    assert found.topics[0].error_code == ErrorCode.NONE


def test_requests_in_flight_are_bounded_and_none_is_lost(broker: MemoryBroker) -> None:
    held = hold(broker)
    replicas = broker.parts.replicas
    with Peer(broker.client_address) as peer, Peer(broker.client_address) as other:
        sent = [peer.send(ApiKey.PRODUCE, 9, produce_body(batch())) for _ in range(20)]
        eventually(lambda: len(replicas.produced) == 3, PATIENCE_S)
        # A whole round of another connection later there are still three.
        other.ask(ApiKey.METADATA, 1, METADATA)
        assert len(replicas.produced) == 3
        release(broker, held)
        assert [peer.receive()[0] for _ in range(20)] == sent


def test_a_peer_that_does_not_read_holds_up_only_itself(broker: MemoryBroker) -> None:
    with Peer(broker.client_address) as peer, Peer(broker.client_address) as other:
        peer.send(ApiKey.PRODUCE, 9, produce_body(batch(4 * WRITE_BUFFER_BYTES_MAX)))
        peer.receive()
        sent = [peer.send(ApiKey.FETCH, 12, fetch_body()) for _ in range(40)]
        fetches = broker.parts.replicas.fetches
        eventually(lambda: fetches, PATIENCE_S)
        settled, rounds = 0, 0
        while settled != len(fetches) or rounds < 50:
            rounds = rounds + 1 if settled == len(fetches) else 0
            settled = len(fetches)
            other.ask(ApiKey.METADATA, 1, METADATA)
        # What the system's buffers take, and one response more.
        assert settled < 20
        assert [peer.receive()[0] for _ in range(40)] == sent


def test_a_fetch_that_waits_ends_with_its_connection(broker: MemoryBroker) -> None:
    with Peer(broker.client_address) as peer:
        peer.send(ApiKey.FETCH, 12, fetch_body(max_wait_ms=600_000, min_bytes=1))
        eventually(lambda: broker.parts.replicas.fetches, PATIENCE_S)

    async def tasks() -> int:
        return len(asyncio.all_tasks())

    eventually(lambda: broker.run(tasks()) == 1, PATIENCE_S, "only the question itself runs")


def test_at_the_limit_the_connection_goes_that_is_idle_the_longest(broker: MemoryBroker) -> None:
    held = hold(broker)
    with contextlib.ExitStack() as stack:
        busy, first, second, third = (
            stack.enter_context(Peer(broker.client_address)) for _ in range(LIMITS.connections_max)
        )
        sent = busy.send(ApiKey.PRODUCE, 9, produce_body(batch()))
        eventually(lambda: broker.parts.replicas.produced, PATIENCE_S)
        for peer in (second, first, third):
            peer.ask(ApiKey.METADATA, 1, METADATA)
        fourth = stack.enter_context(Peer(broker.client_address))
        fourth.ask(ApiKey.METADATA, 1, METADATA)
        assert second.is_closed()
        release(broker, held)
        assert busy.receive()[0] == sent
        for peer in (first, third, fourth):
            peer.ask(ApiKey.METADATA, 1, METADATA)


async def test_peers_without_a_proof_hold_half_of_the_room(broker: MemoryBroker) -> None:
    host, port = broker.broker_address
    async with contextlib.AsyncExitStack() as stack:
        proven = [await authenticated(broker) for _ in range(LIMITS.connections_max // 2)]
        for connection in proven:
            stack.callback(connection.close)
        strangers = [stack.enter_context(Peer((host, port))) for _ in range(20)]
        late = await authenticated(broker)
        stack.callback(late.close)
        assert sum(peer.is_closed() for peer in strangers[:18]) == 18
        for connection in (*proven, late):
            body = await connection.request(ApiKey.FETCH, 12, fetch_body(), flexible=True, timeout_ms=5000)
            assert decode_response(ApiKey.FETCH, 12, body).error_code == 0


def test_an_idle_connection_goes_and_a_broker_that_is_idle_stays(tmp_path: Path) -> None:
    limits = dataclasses.replace(LIMITS, connections_max_idle_ms=300)
    with MemoryBroker(config(tmp_path), {"t": 1}, limits) as broker, Peer(broker.client_address) as idle:
        held = hold(broker)
        with Peer(broker.client_address) as busy:
            sent = busy.send(ApiKey.PRODUCE, 9, produce_body(batch()))
            follower = broker.run(authenticated(broker))
            assert idle.is_closed()
            release(broker, held)
            assert busy.receive()[0] == sent
        fetch = follower.request(ApiKey.FETCH, 12, fetch_body(), flexible=True, timeout_ms=5000)
        assert decode_response(ApiKey.FETCH, 12, broker.run(fetch)).error_code == 0


async def authenticated(broker: MemoryBroker) -> BrokerConnection:
    return await BrokerConnection.open(
        *broker.broker_address, secrets=[SECRET], cluster_id=CLUSTER_ID, client_id="test", timeout_ms=5000
    )


def test_a_large_frame_arrives_in_pieces(broker: MemoryBroker) -> None:
    with Peer(broker.client_address) as peer:
        frame = pack_request(0, 9, 7, "test", produce_body(batch(3 * 1024 * 1024)), flexible=True)
        for start in range(0, len(frame), 100_003):
            peer.socket.sendall(frame[start : start + 100_003])
        assert peer.receive()[0] == 7


# -- garbage ------------------------------------------------------------------------------------------

GARBAGE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "negative length": struct.pack(">i", -1) + bytes(20),
    "too short": struct.pack(">i", 3) + bytes(3),
    "oversized": struct.pack(">i", 8 * 1024 * 1024 + 1),
    "no header": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "a client id that is no text": struct.pack(">ihhih", 12, 3, 1, 1, 2) + b"\xff\xfe",
    "an array of two billion": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "an array beyond all memory": struct.pack(">ihhih", 16, 3, 9, 1, -1) + b"\0\xff\xff\xff\xff\x7f",
    "an unknown key": struct.pack(">ihhih", 10, 500, 0, 1, -1),
    "a version of old": struct.pack(">ihhih", 10, 0, 2, 1, -1),
    "a version to come": struct.pack(">ihhih", 10, 3, 99, 1, -1),
    **{f"key {key}": struct.pack(">ihhih", 10, key, 6, 1, -1) for key in (4, 5, 6, 7, 17, 36)},
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_costs_its_own_connection_only(
    broker: MemoryBroker, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with Peer(broker.client_address) as good, Peer(broker.client_address) as bad:
        good.ask(ApiKey.METADATA, 1, METADATA)
        bad.socket.sendall(garbage)
        assert bad.is_closed()
        good.ask(ApiKey.METADATA, 1, METADATA)
    lines = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 1
    assert "closed the connection of 127.0.0.1:" in lines[0].getMessage()


def test_a_bug_in_a_handler_costs_its_connection_only(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.parts.view.topics.clear()
    broker.parts.view.brokers = None  # type: ignore[assignment]  # the bug
    with Peer(broker.client_address) as peer:
        peer.send(ApiKey.METADATA, 1, encode_request(ApiKey.METADATA, 1, METADATA))
        assert peer.is_closed()
    assert [record.exc_info is not None for record in caplog.records] == [True]
    with Peer(broker.client_address) as other:
        other.ask(ApiKey.LIST_OFFSETS, 1, {"replica_id": -1, "topics": ()})


def test_many_faults_cost_a_stack_a_second(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker.parts.view.brokers = None  # type: ignore[assignment]  # the bug
    for _ in range(50):
        with Peer(broker.client_address) as peer:
            peer.send(ApiKey.METADATA, 1, encode_request(ApiKey.METADATA, 1, METADATA))
            assert peer.is_closed()
    stacks = [record for record in caplog.records if record.exc_info]
    assert len(stacks) <= 2 + stacks[-1].created - stacks[0].created


@pytest.mark.parametrize(
    ("listener", "api_key", "bytes_max"),
    [
        ("client", ApiKey.PRODUCE, 8 * MIB),
        ("client", ApiKey.METADATA, 8 * MIB),
        ("client", ApiKey.HEARTBEAT, MIB),
        ("broker", ApiKey.FETCH, 8 * 1024),
        ("broker", ApiKey.SASL_AUTHENTICATE, 8 * 1024),
    ],
)
def test_a_frame_larger_than_its_request_may_be_is_refused_at_its_head(
    broker: MemoryBroker, listener: str, api_key: ApiKey, bytes_max: int
) -> None:
    address = broker.client_address if listener == "client" else broker.broker_address
    version = (FOR_CLIENTS if listener == "client" else FOR_BROKERS)[api_key].versions.high
    with Peer(address) as fits, Peer(address) as larger:
        fits.socket.sendall(struct.pack(">ihhi", bytes_max, api_key, version, 1))
        larger.socket.sendall(struct.pack(">ihhi", bytes_max + 1, api_key, version, 1))
        assert larger.is_closed()
        assert select.select([fits.socket], [], [], 0)[0] == []


def test_an_error_without_acknowledgement_closes_the_connection(broker: MemoryBroker) -> None:
    with Peer(broker.client_address) as peer:
        peer.send(ApiKey.PRODUCE, 9, produce_body(batch(), acks=0))
        peer.ask(ApiKey.METADATA, 1, METADATA)
        peer.send(ApiKey.PRODUCE, 9, produce_body(batch(), acks=0, topic="other"))
        assert peer.is_closed()


# -- versions and listeners ---------------------------------------------------------------------------


@pytest.mark.parametrize("version", [5, 99])
def test_a_newer_api_versions_is_answered_in_version_0(broker: MemoryBroker, version: int) -> None:
    with Peer(broker.client_address) as peer:
        peer.send(ApiKey.API_VERSIONS, version, b"\2x\2y\0", flexible=True)
        _, frame = peer.receive()
        found = decode_response(ApiKey.API_VERSIONS, 0, frame[4:])
        assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
        rows = {row.api_key: (row.min_version, row.max_version) for row in found.api_keys}
        assert rows[ApiKey.API_VERSIONS] == (0, 4)
        # The client goes on, on the same connection.
        names = {"client_software_name": "a", "client_software_version": "b"}
        peer.ask(ApiKey.API_VERSIONS, 3, names)


def test_what_is_advertised_depends_on_the_listener(broker: MemoryBroker) -> None:
    with Peer(broker.client_address) as client, Peer(broker.broker_address) as follower:
        for_clients = {row.api_key for row in client.ask(ApiKey.API_VERSIONS, 0, {}).api_keys}
        for_brokers = {row.api_key for row in follower.ask(ApiKey.API_VERSIONS, 0, {}).api_keys}
    assert not {4, 5, 6, 7, 27} & for_clients
    assert for_brokers == {1, 2, 4, 5, 6, 7, 17, 18, 19, 23, 24, 27, 36}


@pytest.mark.parametrize("api_key", [ApiKey.FETCH, ApiKey.UPDATE_METADATA])
def test_nothing_is_answered_before_authentication(broker: MemoryBroker, api_key: ApiKey) -> None:
    with Peer(broker.broker_address) as peer:
        body = fetch_body() if api_key == ApiKey.FETCH else encode_control_request(update_metadata({}))
        peer.send(api_key, 12 if api_key == ApiKey.FETCH else 7, body)
        assert peer.is_closed()
    assert broker.parts.replicas.fetches == []


def test_a_peer_that_never_authenticates_is_cut_off(broker: MemoryBroker) -> None:
    with Peer(broker.broker_address) as peer:
        assert peer.is_closed()


async def test_an_authenticated_peer_controls_and_fetches(broker: MemoryBroker) -> None:
    host, port = broker.broker_address
    connection = await BrokerConnection.open(
        host, port, secrets=[SECRET], cluster_id=CLUSTER_ID, client_id="test", timeout_ms=5000
    )
    request = encode_control_request(update_metadata({"new": [partition_state(0)]}))
    body = await connection.request(ApiKey.UPDATE_METADATA, 7, request, flexible=True, timeout_ms=5000)
    assert decode_control_response(ApiKey.UPDATE_METADATA, 7, body).error_code == 0
    assert "new" in broker.parts.view.topics
    body = await connection.request(ApiKey.FETCH, 12, fetch_body(), flexible=True, timeout_ms=5000)
    assert decode_response(ApiKey.FETCH, 12, body).error_code == 0
    connection.close()


async def test_a_controller_is_heard_by_its_newest_connection_only(broker: MemoryBroker) -> None:
    host, port = broker.broker_address
    older, newer = [
        await BrokerConnection.open(
            host, port, secrets=[SECRET], cluster_id=CLUSTER_ID, client_id="test", timeout_ms=5000
        )
        for _ in range(2)
    ]
    for connection, topic in ((older, "first"), (newer, "second")):
        request = encode_control_request(update_metadata({topic: [partition_state(0)]}))
        await connection.request(ApiKey.UPDATE_METADATA, 7, request, flexible=True, timeout_ms=5000)
    late = encode_control_request(update_metadata({"third": [partition_state(0)]}))
    with pytest.raises(BrokerConnectionLostError):
        await older.request(ApiKey.UPDATE_METADATA, 7, late, flexible=True, timeout_ms=5000)
    assert {"first", "second"} <= broker.parts.view.topics.keys()
    assert "third" not in broker.parts.view.topics
    newer.close()


async def test_a_wrong_secret_is_refused(broker: MemoryBroker, caplog: pytest.LogCaptureFixture) -> None:
    host, port = broker.broker_address
    with pytest.raises(BrokerAuthenticationError):
        await BrokerConnection.open(
            host, port, secrets=["another"], cluster_id=CLUSTER_ID, client_id="test", timeout_ms=5000
        )
    eventually(lambda: "authentication failed" in caplog.text, PATIENCE_S)


def test_many_refusals_are_counted_and_cost_a_line_a_second(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(50):
        with Peer(broker.client_address) as bad:
            bad.socket.sendall(b"\xff" * 8)
            assert bad.is_closed()

    def lines() -> list[logging.LogRecord]:
        return [record for record in caplog.records if "closed" in record.getMessage()]

    def told() -> int:
        counts = [re.search(r"closed (\d+) more", record.getMessage()) for record in lines()]
        return sum(int(found[1]) if found else 1 for found in counts)

    eventually(lambda: told() == 50, PATIENCE_S, "all are counted in the log")
    said = lines()
    assert len(said) <= 2 + said[-1].created - said[0].created
