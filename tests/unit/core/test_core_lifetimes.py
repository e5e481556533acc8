"""Containers and TTL nodes: what they are created as, when they go, and that snapshots keep them."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core.codes import BAD_ARGUMENTS, BAD_VERSION, MARSHALLING_ERROR, NO_NODE
from quorum.core.machine import StateMachine
from quorum.core.reaping import NODES_PER_LOOK_MAX, Rounds
from quorum.core.records import czxid_of
from quorum.core.snapshot import SnapshotWalk
from quorum.core.tree import record_of
from tests.unit.core.driver import Client, Driver, chunks_of, dump, load, paths, stat_at

OPEN = [[31, "world", "anyone"]]
CONTAINER, TTL = 19, 21
#: a bound that is not reached
MANY = 10_000


def ask(client: Client, *command: Any) -> Any:
    return client.one(*command)


def ask_multi(client: Client, *operations: Any) -> Any:
    return client.multi(*operations)


def started() -> tuple[Driver, Client]:
    driver = Driver()
    return driver, driver.connect()


def czxid_at(machine: StateMachine, path: str) -> int:
    node = machine.tree.get(path)
    assert node is not None
    return czxid_of(record_of(node))


def reap(driver: Driver, path: str, czxid: int | None = None) -> Any:
    [result] = driver.control(["reap", path, czxid_at(driver.machine, path) if czxid is None else czxid])
    return result


def test_a_container_is_answered_like_create2_and_shows_no_owner() -> None:
    driver, client = started()
    result = ask(client, CONTAINER, "/c", b"x", None, 4)
    path, _stat = result.value
    assert (result.err, path) == (0, "/c")
    assert stat_at(driver.machine, "/c").ephemeral_owner == 0
    assert driver.machine.tree.expirable == {"/c": None}


@pytest.mark.parametrize(("flags", "path"), [(0, "/c"), (1, "/c"), (2, "/c0000000000"), (3, "/c0000000000")])
def test_whatever_its_flags_a_container_is_no_ephemeral(flags: int, path: str) -> None:
    driver, client = started()
    assert ask(client, CONTAINER, "/c", b"", None, flags).value[0] == path
    client.one(-11)
    assert path in paths(driver.machine)


@pytest.mark.parametrize("flags", [5, 6, 7, -1])
def test_a_container_with_the_flags_of_a_ttl_is_a_bad_argument(flags: int) -> None:
    _, client = started()
    assert client.one(CONTAINER, "/c", b"", None, flags).err == BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("flags", "ttl", "err"),
    [
        (5, 1, 0),
        (6, 1, 0),
        (5, 2**40 - 1, 0),
        (5, 2**40, BAD_ARGUMENTS),
        (5, 0, BAD_ARGUMENTS),
        (5, -1, BAD_ARGUMENTS),
        (0, 100, BAD_ARGUMENTS),
        (0, -1, BAD_ARGUMENTS),
        (4, 100, BAD_ARGUMENTS),
    ],
)
def test_a_ttl_must_be_positive_fit_into_40_bits_and_have_its_flags(flags: int, ttl: int, err: int) -> None:
    _, client = started()
    assert client.one(TTL, "/t", b"", None, flags, ttl).err == err


def test_a_container_goes_when_it_had_children_and_has_none() -> None:
    driver, client = started()
    client.one(CONTAINER, "/c", b"", None, 4)
    assert reap(driver, "/c").err == BAD_VERSION, "never used"
    client.make("/c/a")
    assert reap(driver, "/c").err == BAD_VERSION, "not empty"
    client.remove("/c/a")
    zxid = driver.zxid
    result = reap(driver, "/c")
    assert (result.err, result.zxid, result.events) == (0, zxid + 1, [(2, "/c"), (4, "/")])
    assert "/c" not in paths(driver.machine)
    assert driver.machine.tree.expirable == {}
    driver.machine.check_invariants()


def test_a_ttl_node_goes_when_its_data_is_older_than_its_ttl_and_it_is_empty() -> None:
    driver, client = started()
    client.one(TTL, "/t", b"", None, 5, 35)
    client.put("/t", b"again")
    mtime = driver.stamp_ms
    client.make("/t/child")
    while driver.stamp_ms + 10 < mtime + 35:
        assert reap(driver, "/t").err == BAD_VERSION
    assert reap(driver, "/t").err == BAD_VERSION, "it has a child"
    client.remove("/t/child")
    assert reap(driver, "/t").err == 0
    assert "/t" not in paths(driver.machine)


def test_a_void_proposal_changes_nothing_and_takes_no_zxid() -> None:
    driver, client = started()
    client.make("/plain")
    client.one(CONTAINER, "/c", b"", None, 4)
    client.make("/c/a")
    client.remove("/c/a")
    old = czxid_at(driver.machine, "/c")
    client.remove("/c")
    client.one(CONTAINER, "/c", b"", None, 4)
    client.make("/c/a")
    client.remove("/c/a")
    before, zxid = dump(driver.machine)["nodes"], driver.zxid
    assert reap(driver, "/c", old).err == NO_NODE, "another node of that name"
    assert reap(driver, "/missing", 1).err == NO_NODE
    assert reap(driver, "/plain").err == BAD_VERSION
    assert reap(driver, "/", 0).err == BAD_VERSION
    for malformed in (
        ["reap"],
        ["reap", "/c"],
        ["reap", b"/c", old],
        ["reap", "/c", "1"],
        ["reap", "/c", 1, 2],
    ):
        [result] = driver.control(malformed)
        assert result.err == BAD_ARGUMENTS
    assert (dump(driver.machine)["nodes"], driver.zxid) == (before, zxid)


def test_in_a_multi_they_answer_as_create2_and_a_failed_one_leaves_no_trace() -> None:
    driver, client = started()
    result = ask_multi(client, [CONTAINER, "/c", b"", None, 4], [TTL, "/t", b"", None, 5, 1000])
    assert [(op, err, value[0]) for op, err, value in result.value] == [(15, 0, "/c"), (15, 0, "/t")]
    before = dump(driver.machine)
    result = ask_multi(
        client,
        [TTL, "/u", b"", None, 6, 77],
        [2, "/t", -1],
        [CONTAINER, "/d", b"", None, 4],
        [2, "/missing", -1],
    )
    assert [err for _, err, _ in result.value] == [0, 0, 0, NO_NODE]
    after = dump(driver.machine)
    assert [after[part] for part in ("nodes", "acls", "lifetimes")] == [
        before[part] for part in ("nodes", "acls", "lifetimes")
    ]
    driver.machine.check_invariants()
    assert client.multi([1, "/x", b"", None, 5]).err == MARSHALLING_ERROR
    assert client.multi([CONTAINER, "/x", b"", None, 6]).err == MARSHALLING_ERROR


def test_nodes_with_different_ttls_have_different_digests_and_share_nothing() -> None:
    digests = set()
    for ttl in (1000, 2000):
        driver, client = started()
        client.one(TTL, "/t", b"", None, 5, ttl)
        digests.add(driver.machine.state_digest)
    driver, client = started()
    client.make("/t")
    digests.add(driver.machine.state_digest)
    assert len(digests) == 3


def test_a_change_of_the_acl_keeps_the_lifetime() -> None:
    driver, client = started()
    client.one(TTL, "/t", b"", None, 5, 10)
    assert client.one(7, "/t", [[31, "digest", "a:b"]], -1).err == 0
    driver.machine.check_invariants()
    assert reap(driver, "/t").err == 0


def test_a_snapshot_keeps_lifetimes_and_one_from_before_them_is_still_read() -> None:
    driver, client = started()
    client.make("/private", acl=[[31, "digest", "a:b"]])
    old = chunks_of(SnapshotWalk(driver.machine))
    plain = dump(driver.machine)
    old[0][1] = 1
    acls = old[0][15]
    assert [len(row) for row in acls] == [3] * len(acls)
    for row in acls:
        del row[2]
    assert dump(load(old)) == plain
    client.one(CONTAINER, "/c", b"", None, 4)
    client.one(TTL, "/c/t", b"", [[31, "digest", "a:b"]], 5, 10)
    restored = load(chunks_of(SnapshotWalk(driver.machine)))
    assert dump(restored) == dump(driver.machine)
    restored.check_invariants()


def test_the_leader_looks_in_rounds_at_an_interval_a_bounded_piece_at_a_time() -> None:
    driver, client = started()
    tree = driver.machine.tree
    for number in range(5):
        client.one(TTL, f"/t{number}", b"", None, 5, 1)
    client.one(TTL, "/later", b"", None, 5, 10_000)
    rounds = Rounds(1000.0)
    stamp_ms = driver.stamp_ms + 1
    first = rounds.look(tree, 0.0, stamp_ms, 3, MANY)
    second = rounds.look(tree, 1.0, stamp_ms, 3, MANY)
    assert len(first) == 3
    assert sorted(first + second) == [(f"/t{n}", czxid_at(driver.machine, f"/t{n}")) for n in range(5)]
    assert rounds.look(tree, 999.0, stamp_ms, 3, MANY) == []
    assert len(rounds.look(tree, 1000.0, stamp_ms, 9, MANY)) == 5, "nobody deleted them: named again"
    rounds.restart(1500.0)
    assert rounds.look(tree, 2400.0, stamp_ms, 9, MANY) == []
    assert NODES_PER_LOOK_MAX >= 1000
