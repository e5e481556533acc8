"""`quorate raise-epochs`: what it raises, what it leaves, and what it refuses with which sentence."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from controller.election.store import ensure_base_paths, ensure_cluster_id
from quorum.cli.main import main
from quorum.client import Client, CreateMode
from quorum.local import ensemble_in_thread
from quorum.metadata import paths
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.protection import prove_secrets
from quorum.metadata.records import PartitionStateRecord
from quorum.metadata.trust import Trust

T = TypeVar("T")
SECRET = "the secret of brokers, random"
#: {partition: its leader epoch}; the name of the second topic ends as a partition's does
EPOCHS = {PartitionKey("orders", 0): 5, PartitionKey("orders", 1): 6, PartitionKey("a-1", 0): 0}


@pytest.fixture(scope="module")
def hosts() -> Iterator[str]:
    with ensemble_in_thread(1) as running:
        do(running.hosts, begin)
        yield running.hosts


@pytest.fixture(autouse=True)
def forgotten(hosts: str) -> None:
    do(hosts, write_states)


def do(hosts: str, work: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Client(hosts) as client:
            return await work(client)

    return asyncio.run(run())


async def prove(client: Client) -> None:
    trust = Trust([SECRET], await ensure_cluster_id(client, "proposed"))
    await prove_secrets(client, trust)
    client.default_acl = trust.access()


async def begin(client: Client) -> None:
    await ensure_base_paths(client)
    await prove(client)
    for key in EPOCHS:
        for path in (paths.topic_path(key.topic), paths.topic_partitions_path(key.topic)):
            if await client.exists(path) is None:
                await client.create(path, b"")
        await client.create(paths.partition_path(key), b"")
        await client.create(paths.partition_state_path(key), b"")


async def write_states(client: Client) -> None:
    await prove(client)
    for key, epoch in EPOCHS.items():
        await client.set(paths.partition_state_path(key), state(epoch).encode())


def state(epoch: int) -> PartitionStateRecord:
    return PartitionStateRecord(ControllerEpoch(12), 1, LeaderEpoch(epoch), (1, 2))


async def states(client: Client) -> list[PartitionStateRecord]:
    return [
        PartitionStateRecord.decode(key, (await client.get(paths.partition_state_path(key)))[0])
        for key in EPOCHS
    ]


def raise_epochs(hosts: str, folder: Path, content: str, *, proven: bool = True) -> int:
    file, secret = folder / "epochs.txt", folder / "peer.secret"
    file.write_text(content)
    secret.touch(mode=0o600)
    secret.write_text(SECRET)
    proof = ["--peer-secret", str(secret)] if proven else []
    return main(["raise-epochs", "--hosts", hosts, *proof, str(file)])


def test_the_highest_epoch_of_a_partition_counts_and_none_is_lowered(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "orders-0 6\norders-0 9\n\norders-0 7\norders-1 3\na-1-0 1\n"
    assert raise_epochs(hosts, tmp_path, lines) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "a-1-0: leader epoch 0 → 1",
        "orders-0: leader epoch 5 → 9",
        "orders-1: leader epoch 6 stays",
        "raised the leader epochs of 2 of 3 partitions",
    ]
    after = [state(9), state(6), state(1)]
    assert do(hosts, states) == after
    assert raise_epochs(hosts, tmp_path, lines) == 0
    assert "raised the leader epochs of 0 of 3 partitions" in capsys.readouterr().out
    assert do(hosts, states) == after


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "names no partition"),
        ("orders-0 9\norders 9\n", "line 2: 'orders 9' is no partition and epoch"),
        ("orders-0 2147483647\n", "line 1: 'orders-0 2147483647' is no partition and epoch"),
        ("..-0 9\n", "line 1: '..-0 9' is no partition and epoch"),
        ("orders-0 9\norders-2 9\nnone-0 1\n", "no state of 2 partitions: none-0, orders-2"),
    ],
)
def test_a_wrong_line_or_partition_is_refused_and_nothing_is_raised(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    assert raise_epochs(hosts, tmp_path, content) == 2
    assert said in capsys.readouterr().err
    assert do(hosts, states) == [state(epoch) for epoch in EPOCHS.values()]


def test_protected_states_need_the_peer_secret(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raise_epochs(hosts, tmp_path, "orders-0 9\n", proven=False) == 2
    assert "give --peer-secret FILE" in capsys.readouterr().err
    assert do(hosts, states) == [state(epoch) for epoch in EPOCHS.values()]


def test_nothing_is_raised_while_a_broker_is_registered(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refused(client: Client) -> int:
        await client.create(paths.broker_id_path(3), b"{}", CreateMode.EPHEMERAL)
        return await asyncio.to_thread(raise_epochs, hosts, tmp_path, "orders-0 9\n")

    assert do(hosts, refused) == 1
    assert "brokers are registered in /brokers/ids: 3" in capsys.readouterr().err
    assert do(hosts, states) == [state(epoch) for epoch in EPOCHS.values()]
