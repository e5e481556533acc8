"""The brokers' znodes with access lists: strangers read, brokers and operators with the secret write.

Source: ZooKeeper programmer's guide (access control).
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from broker.client import BrokerClient
from broker.local.embedded import EmbeddedBrokers, brokers
from controller.core.requests import NewTopic
from controller.election.store import ensure_base_paths, ensure_cluster_id
from quorum.client import AccessEntry, Client, NoAuthError, NotEmptyError
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from quorum.metadata.protection import protect_znodes, prove_secrets
from quorum.metadata.rotation import rewrite_access
from quorum.metadata.trust import Trust
from tests.support.broker_sessions import generation_of, thief_of
from tests.support.broker_wire import record_batch
from tests.support.nodes import clean_environment

OPEN = [AccessEntry(31, "world", "anyone")]
TOPIC = "orders"
KEY = PartitionKey(TOPIC, 0)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedBrokers]:
    async with brokers(2, settings={"security": {"protect_znodes": True}}) as running:
        yield running


async def znodes(client: Client, *roots: str) -> list[str]:
    """Every path at and below some roots that exist, but for the users, which brokers alone may read."""
    found: list[str] = []
    for root in roots:
        if root != paths.CONFIG_USERS and await client.exists(root) is not None:
            below = [f"{root}/{name}" for name in await client.get_children(root)]
            found += [root, *await znodes(client, *below)]
    return found


async def test_a_stranger_reads_and_changes_nothing(cluster: EmbeddedBrokers) -> None:
    async with BrokerClient(cluster.bootstrap) as kafka, Client(cluster.hosts) as stranger:
        assert (await kafka.create_topics([NewTopic(TOPIC, 2, 2)]))[TOPIC].error_code == 0
        await kafka.alter_topic_configs(TOPIC, {"retention.ms": "1"}, [])
        assert (await kafka.produce({KEY: record_batch([b"x"])}))[KEY].error_code == 0
        await kafka.commit_offsets("group", {KEY: 1})
        await kafka.init_producer_id()
        with pytest.raises(NoAuthError):
            await stranger.get_children(paths.CONFIG_USERS)
        every = await znodes(stranger, *paths.TREE_ROOTS)
        for path in (
            *(paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.LATEST_PRODUCER_ID_BLOCK, paths.COORDINATOR),
            *(paths.broker_id_path(1), paths.broker_generation_path(2), paths.PEER_CHECK_VALUE),
            *(paths.partition_state_path(KEY), paths.config_topic_path(TOPIC)),
            paths.group_offset_path("group", KEY),
        ):
            assert path in every
        for path in every:
            data, stat = await stranger.get(path)
            for attempt in (
                stranger.set(path, data, stat.version),
                stranger.set_acl(path, OPEN),
                stranger.create(f"{path}/more"),
            ):
                with pytest.raises(NoAuthError):
                    await attempt
        # The root is everybody's. What brokers cannot make again has a child that only they may delete.
        for path in every:
            if path.rpartition("/")[0]:
                with pytest.raises(NoAuthError):
                    await stranger.delete(path)
            elif path != paths.CONTROLLER:
                with pytest.raises(NotEmptyError):
                    await stranger.delete(path)


async def test_a_broker_comes_back_to_a_protected_tree(cluster: EmbeddedBrokers) -> None:
    await cluster.stop(2)
    await cluster.start(2)
    async with BrokerClient(cluster.bootstrap) as kafka:
        assert (await kafka.create_topics([NewTopic("after", 2, 2)]))["after"].error_code == 0
    # A session that ends is followed by one that may write, too.
    broker = cluster._running[2]
    before = generation_of(broker)
    async with thief_of(broker, cluster.hosts):
        pass
    async with Client(cluster.hosts) as client:
        async with asyncio.timeout(30):
            while generation_of(broker) in (None, before):
                await client.exists(paths.broker_id_path(2))
        acl, _ = await client.get_acl(paths.broker_id_path(2))
    assert [each.scheme for each in acl] == ["world", "digest"]


async def test_an_operator_with_the_secret_writes_by_the_shell(cluster: EmbeddedBrokers) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "quorum", "shell", "--hosts", cluster.hosts, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())

    async def shell(*words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(run, *words)

    path = f"{paths.CONFIG_TOPICS}/by-hand"
    refused = await shell("create", path, "x")
    assert refused.returncode != 0
    assert path in refused.stderr
    assert "--peer-secret" in refused.stderr
    secret = str(cluster._secret)
    assert (await shell("--peer-secret", secret, "create", path, "x")).returncode == 0
    assert (await shell("--peer-secret", secret, "delete", path)).returncode == 0
    missing = await shell("--peer-secret", f"{secret}.none", "delete", path)
    assert missing.returncode != 0
    assert "cannot be read" in missing.stderr


# -- the access lists themselves -----------------------------------------------------------------------------


@pytest.fixture
async def hosts() -> AsyncIterator[str]:
    async with ensemble(1) as quorum:
        yield quorum.hosts


async def make_tree(hosts: str, secrets: list[str], *, wanted: bool) -> list[list[AccessEntry]]:
    """Do what a broker with these secrets does at its start; returns the access lists that there are."""
    async with Client(hosts) as client:
        trust = Trust(secrets, await ensure_cluster_id(client, "proposed"))
        await prove_secrets(client, trust)
        await protect_znodes(client, trust, wanted=wanted)
        await ensure_base_paths(client)
        paths_there = await znodes(client, *paths.TREE_ROOTS)
        found = [(await client.get_acl(path))[0] for path in paths_there]
        return [each for number, each in enumerate(found) if each not in found[:number]]


def access(*secrets: str) -> list[AccessEntry]:
    return Trust(secrets, "proposed").access()


async def test_a_tree_is_open_until_it_is_protected_and_stays_so(hosts: str) -> None:
    assert await make_tree(hosts, ["one"], wanted=False) == [OPEN]
    async with Client(hosts) as client:
        _, before = await client.get(paths.CONTROLLER_EPOCH)
    assert await make_tree(hosts, ["one"], wanted=True) == [access("one")]
    assert await make_tree(hosts, ["one"], wanted=False) == [access("one")]
    # No version that fences anything has moved.
    async with Client(hosts) as client:
        _, after = await client.get(paths.CONTROLLER_EPOCH)
    assert (after.version, after.mzxid) == (before.version, before.mzxid)


async def test_a_secret_is_replaced_in_steps(hosts: str) -> None:
    assert await make_tree(hosts, ["old"], wanted=True) == [access("old")]
    # A start rewrites nothing: what hangs on the old secret does so until all brokers have the new one first.
    for secrets in (["old", "new"], ["new", "old"]):
        assert await make_tree(hosts, secrets, wanted=True) == [access("old")]
    async with Client(hosts) as client:
        trust = Trust(["new", "old"], "proposed")
        await prove_secrets(client, trust)
        _, before = await client.get(paths.CONTROLLER_EPOCH)
        done = await rewrite_access(client, trust)
        assert done.changed == done.seen > 10
        again = await rewrite_access(client, trust)
        assert (again.changed, again.seen) == (0, done.seen)
        # No version that fences anything has moved.
        _, after = await client.get(paths.CONTROLLER_EPOCH)
        assert (after.version, after.mzxid) == (before.version, before.mzxid)
    assert await make_tree(hosts, ["new"], wanted=True) == [access("new")]
    async with Client(hosts) as client:
        await prove_secrets(client, Trust(["old"], "proposed"))
        with pytest.raises(NoAuthError):
            await client.set(paths.CONTROLLER_EPOCH, b"1")


async def test_a_node_of_somebody_else_keeps_its_list(hosts: str) -> None:
    await make_tree(hosts, ["one"], wanted=False)
    theirs = [AccessEntry(1, "world", "anyone")]
    async with Client(hosts) as stranger:
        await stranger.create(f"{paths.CONFIG_TOPICS}/theirs")
        await stranger.set_acl(f"{paths.CONFIG_TOPICS}/theirs", theirs)
    assert await make_tree(hosts, ["one"], wanted=True) == [access("one"), theirs]


@pytest.mark.parametrize(
    ("security", "warns"),
    [
        ({"authorizer_class_name": "AclAuthorizer"}, True),
        ({"authorizer_class_name": "AclAuthorizer", "protect_znodes": True}, False),
        ({}, False),
    ],
)
async def test_an_open_tree_is_warned_of_where_clients_have_rights(
    caplog: pytest.LogCaptureFixture, security: dict[str, object], warns: bool
) -> None:
    async with brokers(1, settings={"security": security}):
        told = [each.getMessage() for each in caplog.records if "protect_znodes" in each.getMessage()]
    assert len(told) == warns
    assert all("become a super user; set protect_znodes = true at every broker" in each for each in told)
