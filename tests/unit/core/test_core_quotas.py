"""Quotas: what counts in them, what their stats say, and what a hard limit refuses."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core.quotas import Limits, QuotaRule, read_limits
from quorum.core.snapshot import SnapshotWalk
from tests.unit.core.driver import Client, Driver, chunks_of, data_at, dump, load, replay, stat_at

QUOTA = "/zookeeper/quota"


def limit(client: Client, path: str, text: str) -> None:
    """Set a quota as zkCli does: limits first, then empty stats."""
    above = ""
    for segment in path.split("/")[1:]:
        above += f"/{segment}"
        client.one(1, QUOTA + above, None, None, 0)
    client.make(f"{QUOTA}{path}/zookeeper_limits", text.encode())
    client.make(f"{QUOTA}{path}/zookeeper_stats", b"count=0,bytes=0")


def stats(driver: Driver, path: str) -> bytes | None:
    return data_at(driver.machine, f"{QUOTA}{path}/zookeeper_stats")


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def client(driver: Driver) -> Client:
    return driver.connect()


def test_what_is_there_already_counts_with_the_node_itself(driver: Driver, client: Client) -> None:
    client.make("/a", b"123")
    client.make("/a/b", b"45")
    client.make("/a/b/c", None)
    client.make("/ab", b"6789")
    limit(client, "/a", "count=5,bytes=100")
    assert stats(driver, "/a") == b"count=3,bytes=5"
    driver.machine.check_invariants()


HARD = "count=-1,bytes=-1=;byteHardLimit={};countHardLimit={}"


def test_every_kind_of_change_is_counted(driver: Driver, client: Client) -> None:
    client.make("/a")
    limit(client, "/a", "count=100,bytes=100")
    seen = [stats(driver, "/a")]
    for command in (
        [1, "/a/data", b"12", None, 0],
        [15, "/a/null", None, None, 0],
        [1, "/a/seq-", b"3", None, 2],
        [1, "/a/ephemeral", b"4567", None, 1],
        [19, "/a/container", b"8", None, 4],
        [21, "/a/ttl", b"9", None, 5, 1000],
        [5, "/a/null", b"ab", -1],
        [5, "/a/data", None, -1],
        [2, "/a/container", -1],
        [7, "/a/ttl", None, -1],
        [13, "/a", -1],
        [1, "/elsewhere", b"x", None, 0],
    ):
        client.one(*command)
        seen.append(stats(driver, "/a"))
    assert seen == [
        b"count=%d,bytes=%d" % pair
        for pair in (
            *((1, 0), (2, 2), (3, 2), (4, 3), (5, 7), (6, 8), (7, 9)),
            *((7, 11), (7, 9), (6, 8), (6, 8), (6, 8), (6, 8)),
        )
    ]
    driver.machine.check_invariants()


def test_what_ends_by_itself_is_counted(driver: Driver, client: Client) -> None:
    client.make("/a")
    limit(client, "/a", "count=1")
    for name in ("one", "two"):
        client.make(f"/a/{name}", b"12", 1)
    assert client.one(21, "/a/ttl", b"3", None, 5, 1).err == 0
    ttl = stat_at(driver.machine, "/a/ttl")
    driver.control(["reap", "/a/ttl", ttl.czxid])
    assert stats(driver, "/a") == b"count=3,bytes=4"
    driver.control(["expire", client.session_id, client.nonce, driver.machine.applied_index])
    assert stats(driver, "/a") == b"count=1,bytes=0"
    driver.machine.check_invariants()


def test_stats_change_without_a_version_a_time_or_an_event(driver: Driver, client: Client) -> None:
    client.make("/a")
    limit(client, "/a", "count=1")
    path = f"{QUOTA}/a/zookeeper_stats"
    before = stat_at(driver.machine, path)
    result = client.one(1, "/a/b", b"0123456789", None, 0)
    after = stat_at(driver.machine, path)
    assert stats(driver, "/a") == b"count=2,bytes=10"
    assert after == before._replace(data_length=len(b"count=2,bytes=10"))
    assert [event[1] for event in result.events or ()] == ["/a/b", "/a"]


def test_what_a_client_writes_into_stats_is_replaced_by_what_is_used(driver: Driver, client: Client) -> None:
    client.make("/a", b"123")
    limit(client, "/a", "count=1")
    written = client.put(f"{QUOTA}/a/zookeeper_stats", b"count=77")
    assert written.version == 1
    assert stats(driver, "/a") == b"count=1,bytes=3"
    assert stat_at(driver.machine, f"{QUOTA}/a/zookeeper_stats").version == 1


def test_the_nearest_quota_counts_and_what_ends_goes_to_the_one_above(driver: Driver, client: Client) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/a/d"):
        client.make(path, b"1")
    limit(client, "/a", "count=9")
    limit(client, "/a/b", "count=9")
    assert (stats(driver, "/a"), stats(driver, "/a/b")) == (b"count=2,bytes=2", b"count=2,bytes=2")
    client.make("/a/b/e", b"23")
    assert (stats(driver, "/a"), stats(driver, "/a/b")) == (b"count=2,bytes=2", b"count=3,bytes=4")
    client.remove(f"{QUOTA}/a/b/zookeeper_limits")
    assert stats(driver, "/a") == b"count=5,bytes=6"


@pytest.mark.parametrize("path", ["", "/zookeeper", "/zookeeper/config"])
def test_neither_the_root_nor_what_is_zookeepers_own_has_a_quota(
    driver: Driver, client: Client, path: str
) -> None:
    limit(client, path, HARD.format(0, 0))
    driver.quota_rule = QuotaRule.ENFORCED
    assert driver.machine.tree.quotas == {}
    client.make("/a", b"1")
    assert stats(driver, path) == b"count=0,bytes=0"


def test_hard_limits_refuse_creates_and_longer_data(driver: Driver, client: Client) -> None:
    client.make("/a", b"12")
    client.make("/a/b", b"34")
    limit(client, "/a", HARD.format(6, 3))
    driver.quota_rule = QuotaRule.ENFORCED
    creates: list[list[Any]] = [
        [1, "/a/c", b"567", None, 0],
        [15, "/a/c", b"567", None, 1],
        [19, "/a/c", b"567", None, 4],
        [21, "/a/c", b"567", None, 5, 1000],
    ]
    assert [client.one(*create).err for create in creates] == [-125] * 4
    assert client.one(1, "/a/c", None, None, 0).err == 0
    assert client.one(1, "/a/d", None, None, 0).err == -125
    assert client.one(5, "/a/b", b"34567", -1).err == -125
    assert client.one(5, "/a/b", b"3456", -1).err == 0
    assert stats(driver, "/a") == b"count=3,bytes=6"
    assert driver.machine.transaction.quota_refusals == 6


def test_refusals_come_in_zookeepers_order(driver: Driver, client: Client) -> None:
    client.make("/a")
    client.make("/a/mine", flags=1)
    limit(client, "/a", HARD.format(0, 0))
    driver.quota_rule = QuotaRule.ENFORCED
    assert client.one(1, "/a/mine", b"x", None, 0).err == -110
    assert client.one(1, "/a/mine/x", b"x", None, 0).err == -108
    assert client.one(5, "/a", b"x", 9).err == -125
    assert client.one(5, "/a", b"", 9).err == -103


def test_deletes_are_allowed_above_every_limit(driver: Driver, client: Client) -> None:
    for path in ("/a", "/a/b", "/a/c"):
        client.make(path, b"123")
    limit(client, "/a", HARD.format(0, 0))
    driver.quota_rule = QuotaRule.ENFORCED
    client.remove("/a/b")
    assert client.one(5, "/a/c", b"1", -1).err == -125, "as in ZooKeeper: still above the limit"
    assert client.one(5, "/a/c", b"321", -1).err == 0, "no byte more"
    assert stats(driver, "/a") == b"count=2,bytes=6"


def test_soft_limits_refuse_nothing(driver: Driver, client: Client) -> None:
    client.make("/a")
    limit(client, "/a", "count=1,bytes=1")
    driver.quota_rule = QuotaRule.ENFORCED
    assert not driver.machine.tree.quotas["/a"].is_above_soft_limit()
    client.make("/a/b", b"12")
    assert driver.machine.tree.quotas["/a"].is_above_soft_limit()


def test_a_multi_is_judged_operation_by_operation(driver: Driver, client: Client) -> None:
    client.make("/a")
    limit(client, "/a", HARD.format(-1, 3))
    before = dump(driver.machine)["nodes"]
    driver.quota_rule = QuotaRule.ENFORCED
    result = client.multi(*([1, f"/a/{name}", b"1", None, 0] for name in "bcde"))
    assert (result.err, result.value) == (
        0,
        [(-1, 0, None), (-1, 0, None), (-1, -125, None), (-1, -2, None)],
    )
    assert dump(driver.machine)["nodes"] == before
    room: Any = client.multi([1, "/a/b", b"", None, 0], [1, "/a/c", b"", None, 0], [2, "/a/b", -1]).value
    assert [err for _, err, _ in room] == [0, 0, 0]
    assert client.multi([2, "/a/c", -1], [1, "/a/d", b"", None, 0]).err == 0
    assert stats(driver, "/a") == b"count=2,bytes=0"
    driver.machine.check_invariants()


def test_a_failed_multi_leaves_quotas_as_they_were(driver: Driver, client: Client) -> None:
    client.make("/a")
    limit(client, "/a", "count=5")
    before = dump(driver.machine)["nodes"], dict(driver.machine.tree.quotas)
    items: Any = client.multi(
        [1, "/a/b", b"123", None, 0],
        [5, f"{QUOTA}/a/zookeeper_limits", b"count=6", -1],
        [1, f"{QUOTA}/a/b", b"", None, 0],
        [1, f"{QUOTA}/a/b/zookeeper_limits", b"count=7", None, 0],
        [2, f"{QUOTA}/a/zookeeper_limits", -1],
        [13, "/nowhere", -1],
    ).value
    assert items[-1] == (-1, -101, None)
    assert (dump(driver.machine)["nodes"], driver.machine.tree.quotas) == before
    driver.machine.check_invariants()


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        (b"count=5,bytes=100", Limits(5, 100)),
        (b"count=5,bytes=100=", Limits(5, 100)),
        (b"count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3", Limits(nodes_hard=3)),
        (b"count=1,bytes=2=;byteHardLimit=3;countHardLimit=4", Limits(1, 2, 4, 3)),
        (b"bytes=;count=", Limits()),
        (b"count=1;count=2", Limits(2)),
        (b"", Limits()),
        (b"\xff\xfe,count=9", Limits(9)),
        (b"count=1e3,bytes=0x10,countHardLimit=" + b"9" * 20, Limits()),
        (b"count=1," + b"x" * 1024, Limits()),
    ],
)
def test_limits_are_read_as_zookeeper_writes_them_and_never_fail(text: bytes, limits: Limits) -> None:
    assert read_limits(text) == limits


def test_an_access_list_keeps_quotas(driver: Driver, client: Client) -> None:
    client.make("/a")
    limit(client, "/a", HARD.format(-1, 1))
    client.identities = [["digest", "ops:x"]]
    for path in ("", "/a", "/a/zookeeper_limits"):
        assert client.one(7, QUOTA + path, [[31, "digest", "ops:x"]], -1).err == 0
    other = driver.connect()
    assert other.one(2, f"{QUOTA}/a/zookeeper_limits", -1).err == -102
    assert other.one(5, f"{QUOTA}/a/zookeeper_limits", b"", -1).err == -102
    assert other.one(1, f"{QUOTA}/b", b"", None, 0).err == -102
    driver.quota_rule = QuotaRule.ENFORCED
    assert other.one(1, "/a/b", b"", None, 0).err == -125
    other.make("/free")


def test_a_loaded_snapshot_has_the_same_quotas(driver: Driver, client: Client) -> None:
    for path in ("/a", "/a/b", "/a/b/c", "/d"):
        client.make(path, path.encode())
    for path in ("/a/b", "/a", "/nowhere"):
        limit(client, path, HARD.format(30, 4))
    restored = load(chunks_of(SnapshotWalk(driver.machine)))
    restored.check_invariants()
    assert restored.tree.quotas == driver.machine.tree.quotas
    for path in ("/a/b/c/e", "/a/f", "/nowhere"):
        client.make(path, b"more")
    for entry in driver.entries[restored.applied_index :]:
        replay(restored, entry)
    assert dump(restored) == dump(driver.machine)
    assert restored.tree.quotas == driver.machine.tree.quotas


def test_entries_from_before_quotas_leave_stats_alone_and_the_next_sets_them_right(
    driver: Driver, client: Client
) -> None:
    driver.quota_rule = QuotaRule.IGNORED
    client.make("/a", b"1")
    limit(client, "/a", HARD.format(0, 0))
    client.make("/a/b", b"2")
    assert stats(driver, "/a") == b"count=0,bytes=0"
    restored = load(chunks_of(SnapshotWalk(driver.machine)))
    driver.quota_rule = QuotaRule.KEPT
    client.make("/a/c", b"3")
    assert stats(driver, "/a") == b"count=3,bytes=3"
    replay(restored, driver.entries[-1])
    assert dump(restored) == dump(driver.machine)
