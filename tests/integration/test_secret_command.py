"""`quorate secret`: what it refuses with which sentence, and what it rewrites where the tree is open."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from broker.lifecycle.peer_secret import check_peer_secret
from controller.election.store import ensure_base_paths, ensure_cluster_id
from quorum.cli.main import main
from quorum.client import AccessEntry, Client, CreateMode, NoAuthError
from quorum.config.node import read_peer_secrets
from quorum.local import ensemble_in_thread
from quorum.metadata import paths
from quorum.metadata.protection import keep_users, prove_secrets
from quorum.metadata.trust import Trust
from quorum.metadata.user_records import user_path

T = TypeVar("T")
OLD, NEW, OTHER = ("the old secret, random", "the new secret, random", "a secret of somebody else")
ALICE = user_path("alice")


@pytest.fixture
def hosts() -> Iterator[str]:
    with ensemble_in_thread(1) as running:
        yield running.hosts


def do(hosts: str, work: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        async with Client(hosts) as client:
            return await work(client)

    return asyncio.run(run())


async def trust_of(client: Client, *secrets: str) -> Trust:
    return Trust(secrets, await ensure_cluster_id(client, "proposed"))


async def begin(client: Client) -> None:
    """Leave what a broker with the old secret leaves in an open tree, and a user."""
    trust = await trust_of(client, OLD)
    await prove_secrets(client, trust)
    await check_peer_secret(client, trust)
    await ensure_base_paths(client)
    await keep_users(client, trust, is_protected=False)
    await client.create(ALICE, b"{}", acl=trust.own_access())


def rotate(hosts: str, folder: Path, content: str, *, mode: int = 0o600) -> int:
    file = folder / "peer.secret"
    file.touch(mode=0o600)
    file.write_text(content)
    file.chmod(mode)
    return main(["secret", "rotate", "--hosts", hosts, "--peer-secret", str(file)])


def test_users_follow_the_secret_also_in_an_open_tree(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    do(hosts, begin)
    others = [AccessEntry(1, "world", "anyone"), AccessEntry(31, "digest", "quorate:somebody")]

    async def plant(client: Client) -> None:
        await client.create(f"{paths.CONFIG_TOPICS}/theirs", acl=others)

    do(hosts, plant)

    async def seen(client: Client) -> list[list[AccessEntry]]:
        await prove_secrets(client, await trust_of(client, NEW))
        # A broker with both lines, in whichever order, leaves what it finds.
        await keep_users(client, await trust_of(client, NEW, OLD), is_protected=False)
        nodes = (paths.CONFIG_USERS, ALICE, paths.CONFIG_TOPICS, f"{paths.CONFIG_TOPICS}/theirs")
        return [(await client.get_acl(path))[0] for path in nodes]

    assert rotate(hosts, tmp_path, f"{NEW}\n{OLD}\n") == 0
    said = capsys.readouterr().out
    assert "rewrote the access lists of 2 of" in said
    assert "and the check value" in said
    assert f"left alone, for others protect them: {paths.CONFIG_TOPICS}/theirs" in said
    users, alice, topics, theirs = do(hosts, seen)
    own = Trust([NEW], "proposed").own_access()
    assert (users[1:], alice, topics) == (own, own, [AccessEntry(31, "world", "anyone")])
    assert [each.scheme for each in theirs] == ["world", "digest"]
    assert rotate(hosts, tmp_path, f"{NEW}\n{OLD}\n") == 0
    said = capsys.readouterr().out
    assert "nothing to rewrite" in said
    assert "next: cut every line but the first" in said
    assert rotate(hosts, tmp_path, f"{NEW}\n") == 0
    assert "next: nothing" in capsys.readouterr().out

    async def former(client: Client) -> None:
        await prove_secrets(client, await trust_of(client, OLD))
        with pytest.raises(NoAuthError):
            await client.get(ALICE)

    do(hosts, former)


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("", 0o600, "holds 0 bytes"),
        (f"{NEW}\nshort\n", 0o600, "has a secret of 5 bytes; each has at least 16"),
        (5000 * "x", 0o600, "holds 4097 bytes"),
        ("\n".join(f"{OLD}{each}" for each in range(5)), 0o600, "has 5 secrets; there are at most 4"),
        (f"{NEW}\n{NEW}", 0o600, "has one secret twice"),
        (f"{NEW}\n{OLD}", 0o644, "is open to every user of the machine"),
        (f"{NEW}\n{OTHER}", 0o600, "--peer-secret: none of its secrets is that of the brokers"),
    ],
)
def test_a_wrong_file_is_refused_and_changes_nothing(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, mode: int, said: str
) -> None:
    do(hosts, begin)
    assert rotate(hosts, tmp_path, content, mode=mode) != 0
    error = capsys.readouterr().err
    assert said in error
    assert "remedy:" in error
    assert not any(each in error for each in (OLD, NEW, OTHER))

    async def kept(client: Client) -> None:
        await check_peer_secret(client, await trust_of(client, OLD))

    do(hosts, kept)


@pytest.mark.parametrize(
    ("signs", "said"),
    [
        (OLD, "broker 7 has not the first secret of --peer-secret first"),
        (OTHER, "broker 7 has none of the secrets of --peer-secret, by their registrations"),
    ],
)
def test_a_broker_that_is_behind_is_named(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], signs: str, said: str
) -> None:
    do(hosts, begin)

    async def behind(client: Client) -> None:
        path = paths.broker_id_path(7)
        signed = (await trust_of(client, signs)).sign(path, b"{}", client.session_id)
        await client.create(path, signed, CreateMode.EPHEMERAL)
        assert await asyncio.to_thread(rotate, hosts, tmp_path, f"{NEW}\n{OLD}\n") == 1
        await check_peer_secret(client, await trust_of(client, OLD))

    do(hosts, behind)
    assert said in capsys.readouterr().err


def test_nothing_hangs_on_a_secret_where_no_broker_was(
    hosts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rotate(hosts, tmp_path, f"{NEW}\n") == 0
    assert "no broker was ever here" in capsys.readouterr().out


def test_a_new_secret_is_a_line_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["secret", "new"]) == 0
    assert main(["secret", "new"]) == 0
    lines = capsys.readouterr().out
    file = tmp_path / "peer.secret"
    file.touch(mode=0o600)
    file.write_text(lines)
    found = read_peer_secrets(file)
    assert [len(each) for each in found] == [64, 64]
