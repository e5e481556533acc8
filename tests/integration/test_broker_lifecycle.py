"""A broker's life around its replicas: settings of topics, producer ids, its HTTP port, its sessions."""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import pytest

from broker.client import BrokerClient
from broker.lifecycle.peer_secret import ForeignBrokersError, WrongPeerSecretError, check_peer_secret
from broker.local import EmbeddedBrokers, brokers
from broker.stores.producer_ids import BLOCK_SIZE, ProducerIds
from broker.stores.settings import broker_configs, topic_configs
from controller.core.requests import NewTopic
from controller.election.store import ensure_base_paths
from quorum.client import Client, CreateMode
from quorum.errors import QuorateError
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.broker_settings import (
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    BrokerSettings,
)
from quorum.metadata.errors import (
    InvalidBrokerSettingError,
    InvalidTopicSettingError,
    NoSuchTopicError,
    NotAListError,
)
from quorum.metadata.records import BrokerConfigRecord, BrokerRecord, TopicConfigRecord, TopicRecord
from quorum.metadata.rotation import write_check_value
from quorum.metadata.setting_changes import SettingChanges
from quorum.metadata.topic_settings import TopicSettings
from quorum.metadata.trust import Trust
from tests.support.broker_sessions import generation_of, thief_of
from tests.support.written_states import create_topic

WAIT_S = 20.0
EVEN = {"led": 1, "followed": 1, "offline": 0, "under_replicated": 0}
#: of broker 2, which comes back after broker 1 took its partition over
IN_SYNC = {"led": 0, "followed": 2, "offline": 0, "under_replicated": 0}


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with ensemble(1, {"limits": {"tick_ms": 200}}) as quorum, Client(quorum.hosts) as connected:
        await ensure_base_paths(connected)
        yield connected


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - what a broker knows changes without an event
            await asyncio.sleep(0)


# -- settings of topics --------------------------------------------------------------------------------------


async def test_settings_follow_the_quorum(client: Client) -> None:
    changed: list[str] = []
    configs = topic_configs(TopicSettings(min_insync_replicas=2), changed.append)
    await client.create(paths.config_topic_path("a"), TopicConfigRecord({"retention.ms": "5"}).encode())
    await configs.attach(client)
    assert configs.settings_of("a") == TopicSettings(retention_ms=5, min_insync_replicas=2)
    await client.create(paths.config_topic_path("b"), TopicConfigRecord({"retention.ms": "6"}).encode())
    await until(lambda: configs.settings_of("b").retention_ms == 6)
    await client.delete(paths.config_topic_path("a"))
    await until(lambda: configs.overrides("a") == {})
    assert configs.settings_of("a") == TopicSettings(min_insync_replicas=2)
    assert changed == ["a", "b", "a"]


async def test_a_topic_that_is_created_again_during_a_reload_keeps_its_settings(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = topic_configs(TopicSettings(), lambda _topic: None)
    for topic in ("a", "b"):
        await client.create(paths.config_topic_path(topic), TopicConfigRecord({"retention.ms": "5"}).encode())
    await configs.attach(client)
    read_all = client.read_all

    async def names_without_b(_path: str) -> list[str]:
        return ["a"]

    async def read_before_b_returns(wanted: Sequence[str]) -> object:
        found = await read_all(wanted)
        if len(wanted) == 2:
            changed = TopicConfigRecord({"retention.ms": "9"}).encode()
            await client.set(paths.config_topic_path("b"), changed)
        return found

    monkeypatch.setattr(client, "get_children", names_without_b)
    monkeypatch.setattr(client, "read_all", read_before_b_returns)
    await configs.reload()
    assert configs.settings_of("b").retention_ms == 9


async def test_two_brokers_change_different_settings_and_both_stay(client: Client) -> None:
    await create_topic(client, "t", TopicRecord(None, {0: (1,)}))
    one, two = (topic_configs(TopicSettings(), lambda _topic: None) for _ in range(2))
    await one.attach(client)
    await two.attach(client)
    await asyncio.gather(
        one.alter("t", SettingChanges({"retention.ms": "5"})),
        two.alter("t", SettingChanges({"min.insync.replicas": "2"})),
    )
    expected = {"retention.ms": "5", "min.insync.replicas": "2"}
    await until(lambda: one.overrides("t") == expected == two.overrides("t"))
    await one.alter("t", SettingChanges(removed=["retention.ms"]))
    await until(lambda: two.overrides("t") == {"min.insync.replicas": "2"})


async def test_a_refused_setting_changes_nothing(client: Client) -> None:
    await create_topic(client, "t", TopicRecord(None, {0: (1,)}))
    configs = topic_configs(TopicSettings(), lambda _topic: None)
    await configs.attach(client)
    with pytest.raises(InvalidTopicSettingError, match=r"retention\.ms"):
        await configs.alter("t", SettingChanges({"segment.bytes": "2000000", "retention.ms": "soon"}))
    with pytest.raises(InvalidTopicSettingError, match="is below 1048576"):
        await configs.alter("t", SettingChanges({"segment.bytes": "1048575"}))
    with pytest.raises(NoSuchTopicError, match="'u' does not exist"):
        await configs.alter("u", SettingChanges({"retention.ms": "5"}))
    lags = SettingChanges({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidTopicSettingError, match="conflict topic config setting"):
        await configs.alter("t", lags)
    await configs.alter("t", SettingChanges({"retention.ms": "5"}), validate_only=True)
    with pytest.raises(NotAListError):
        await configs.alter("t", SettingChanges(appended={"retention.ms": "5"}), validate_only=True)
    assert await client.get_children(paths.CONFIG_TOPICS) == []


async def test_a_malformed_record_leaves_the_settings_as_they_were(client: Client) -> None:
    path = paths.config_topic_path("t")
    await client.create(path, TopicConfigRecord({"retention.ms": "5"}).encode())
    configs = topic_configs(TopicSettings(), lambda _topic: None)
    await configs.attach(client)
    await client.set(path, b"{")
    await client.create(paths.config_topic_path("u"), TopicConfigRecord({"retention.ms": "6"}).encode())
    await until(lambda: configs.settings_of("u").retention_ms == 6)
    assert configs.settings_of("t").retention_ms == 5


async def test_rates_of_a_broker_follow_the_quorum(client: Client) -> None:
    changed: list[BrokerSettings] = []
    one = broker_configs(1, BrokerSettings(), lambda name: changed.append(one.settings_of(name)))
    other = broker_configs(1, BrokerSettings(), lambda _: None)
    path, given = paths.config_broker_path(1), {LEADER_THROTTLED_RATE: "5", "written.by": "another"}
    await client.create(path, BrokerConfigRecord(given).encode())
    await one.attach(client)
    await other.attach(client)
    await asyncio.gather(
        one.alter("1", SettingChanges({LEADER_THROTTLED_RATE: "6"})),
        other.alter("1", SettingChanges({FOLLOWER_THROTTLED_RATE: "7"})),
    )
    await until(lambda: len(one.overrides("1")) == len(other.overrides("1")) == 3)
    assert changed[0] == BrokerSettings(5)
    assert changed[-1] == BrokerSettings(6, 7)
    with pytest.raises(InvalidBrokerSettingError, match=r"log\.retention\.ms"):
        await one.alter("1", SettingChanges({LEADER_THROTTLED_RATE: "8", "log.retention.ms": "5"}))
    await client.set(path, b"{")
    await client.delete(path)
    await until(lambda: one.overrides("1") == {})
    assert changed[-1] == BrokerSettings()
    await one.alter("1", SettingChanges(removed=[LEADER_THROTTLED_RATE]))
    assert not one.overrides("1")


# -- producer ids --------------------------------------------------------------------------------------------


async def test_no_two_brokers_give_out_one_producer_id(client: Client) -> None:
    sources = [ProducerIds(broker_id) for broker_id in (1, 2, 3)]
    for source in sources:
        source.attach(client)
    given = await asyncio.gather(*(source.next() for source in sources for _ in range(BLOCK_SIZE + 1)))
    assert len(set(given)) == len(given) == 3 * (BLOCK_SIZE + 1)
    assert max(given) < 6 * BLOCK_SIZE


async def test_a_broker_learns_which_producer_ids_others_gave_out(client: Client) -> None:
    one, other = ProducerIds(1), ProducerIds(2)
    with pytest.raises(QuorateError, match="no session"):
        await one.was_given(0)
    for source in (one, other):
        source.attach(client)
    given = await other.next()
    assert one.given_end < other.given_end
    assert await one.was_given(given)
    answers = await asyncio.gather(*(one.was_given(one.given_end) for _ in range(5)))
    assert answers == [False] * 5
    assert one.given_end == other.given_end


# -- a whole broker ------------------------------------------------------------------------------------------


async def get(url: str) -> dict[str, object]:
    def ask() -> bytes:
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            found: bytes = answer.read()
            return found

    found: dict[str, object] = json.loads(await asyncio.to_thread(ask))
    return found


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedBrokers]:
    async with brokers(2) as running:
        yield running


async def test_the_http_port_shows_the_broker_and_its_controller(cluster: EmbeddedBrokers) -> None:
    async with BrokerClient(cluster.bootstrap) as kafka:
        results = await kafka.create_topics([NewTopic("t", 2, 2)])
        assert results["t"].error_code == 0
    first, second = [await get(f"{url}/v1/status") for url in cluster.admin_urls]
    for status in (first, second):
        assert status["ready"] is True
        assert status["partitions"] == EVEN
        assert status["controller_epoch"] == 1
    controllers = [status["controller"] for status in (first, second) if status["controller"] is not None]
    assert len(controllers) == 1
    expected = {"1": first["generation"], "2": second["generation"]}
    assert controllers == [
        {
            "controller_epoch": 1,
            "brokers": expected,
            "strangers": {},
            "step": None,
            "under_replicated": [],
            "offline": [],
        }
    ]
    assert await get(f"{cluster.admin_urls[0]}/readyz") == {
        "ready": True,
        "reason": "registered, and the state of the cluster is known",
    }
    metrics = await asyncio.to_thread(
        lambda: urllib.request.urlopen(f"{cluster.admin_urls[0]}/metrics", timeout=WAIT_S).read().decode()
    )
    assert 'quorate_broker_partitions{role="led"} 1.0' in metrics
    for name in ("requests_repeated", "rounds_repeated", "stale_generations"):
        assert f"quorate_controller_{name}_total 0.0" in metrics


async def test_a_session_that_is_over_is_followed_by_another_generation(cluster: EmbeddedBrokers) -> None:
    async with BrokerClient(cluster.bootstrap) as kafka, Client(cluster.hosts) as client:
        await kafka.create_topics([NewTopic("t", 2, 2)])
        broker = cluster._running[2]
        before = generation_of(broker)
        thief = thief_of(broker, cluster.hosts)
        await thief.start()
        await thief.close()
        await until(lambda: generation_of(broker) not in (None, before))
        _, stat = await client.get(paths.broker_id_path(2))
        assert stat.czxid == generation_of(broker)
        status = f"{cluster.admin_urls[1]}/v1/status"
        async with asyncio.timeout(WAIT_S):
            while (await get(status))["partitions"] != IN_SYNC:
                pass


# -- what a start refuses ------------------------------------------------------------------------------------


async def test_a_broker_with_another_secret_does_not_register(cluster: EmbeddedBrokers) -> None:
    await cluster.stop(2)
    cluster._secret.write_text("another secret of the wrong cluster")
    with pytest.raises(WrongPeerSecretError, match="is not that of the cluster"):
        await cluster.start(2)
    async with Client(cluster.hosts) as client:
        assert await client.exists(paths.broker_id_path(2)) is None


async def test_the_check_value_is_the_former_secrets_until_it_is_moved(client: Client) -> None:
    for secrets in (["old"], ["old", "new"], ["new", "old"]):
        await check_peer_secret(client, Trust(secrets, "cluster"))
    with pytest.raises(WrongPeerSecretError):
        await check_peer_secret(client, Trust(["new"], "cluster"))
    assert await write_check_value(client, Trust(["new", "old"], "cluster"))
    assert not await write_check_value(client, Trust(["new", "old"], "cluster"))
    for secrets in (["new", "old"], ["new"]):
        await check_peer_secret(client, Trust(secrets, "cluster"))
    with pytest.raises(WrongPeerSecretError):
        await check_peer_secret(client, Trust(["old"], "cluster"))
    data, _ = await client.get(paths.PEER_CHECK_VALUE)
    assert data is not None
    assert b"new" not in data


async def test_a_quorum_of_apache_kafkas_brokers_is_left_alone(client: Client) -> None:
    kafka = BrokerRecord("127.0.0.1", 9092, ("PLAINTEXT://127.0.0.1:9092",), {"PLAINTEXT": "PLAINTEXT"}, 1)
    await client.create(paths.broker_id_path(7), kafka.encode(), CreateMode.EPHEMERAL)
    with pytest.raises(ForeignBrokersError, match="broker 7 of Apache Kafka"):
        await check_peer_secret(client, Trust(["secret"], "cluster"))
    assert await client.exists(paths.PEER_CHECK_VALUE) is None


async def test_a_broker_starts_although_its_connections_break(tmp_path: Path) -> None:
    allowed = itertools.count(2, 3)

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(*quorum.hosts.split(":"))
        passing = asyncio.ensure_future(pass_on(answers, writer))
        try:
            for _ in range(next(allowed)):
                head = await reader.readexactly(4)
                requests.write(head + await reader.readexactly(int.from_bytes(head, "big")))
        except asyncio.IncompleteReadError:
            pass  # the broker's end
        finally:
            # The answer to the last request may be lost, as the outcome of any request may.
            passing.cancel()
            requests.close()
            writer.close()

    async def pass_on(answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await answers.read(1 << 16):
            writer.write(chunk)

    async with ensemble(1, {"limits": {"tick_ms": 200}}) as quorum:
        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        running = EmbeddedBrokers(f"{host}:{port}", tmp_path, 1, {})
        try:
            await running.start_all()
            assert next(allowed) > 20, "several connections broke"
        finally:
            server.close()
            await running.close()
