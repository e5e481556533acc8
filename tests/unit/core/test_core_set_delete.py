"""setData, delete, and the nodes that are there from the start."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core import queries
from quorum.core.codes import BAD_ARGUMENTS, BAD_VERSION, NO_AUTH, NO_NODE, NOT_EMPTY
from quorum.core.records import HEADER
from tests.unit.core.driver import Driver, data_at, decode_stat, paths, stat_at


def test_set_data_changes_data_version_and_modification_alone() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a", b"one")
    before = stat_at(driver.machine, "/a")
    result = client.one(5, "/a", b"longer", 0)
    after = decode_stat(result.value)
    assert after == before._replace(mzxid=driver.zxid, mtime=driver.stamp_ms, version=1, data_length=6)
    assert after == stat_at(driver.machine, "/a")
    assert data_at(driver.machine, "/a") == b"longer"
    assert result.events == [(3, "/a")]


def test_set_data_of_a_node_with_children_keeps_their_counters() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a", b"one")
    client.make("/a/b")
    before = stat_at(driver.machine, "/a")
    after = client.put("/a", b"two!")
    assert after == before._replace(mzxid=driver.zxid, mtime=driver.stamp_ms, version=1, data_length=4)
    assert after == stat_at(driver.machine, "/a")
    assert data_at(driver.machine, "/a") == b"two!"


def test_the_root_has_data_too() -> None:
    driver = Driver()
    client = driver.connect()
    stat = client.put("/", b"root")
    assert (stat.version, stat.children, stat.data_length) == (1, 1, 4)
    assert data_at(driver.machine, "/") == data_at(driver.machine, "") == b"root"
    driver.machine.check_invariants()


def test_null_data_comes_and_goes() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a", b"x")
    client.put("/a", None)
    assert data_at(driver.machine, "/a") is None
    client.put("/a", b"")
    assert data_at(driver.machine, "/a") == b""
    driver.machine.check_invariants()


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, 1), (2**31 - 2, 2**31 - 1), (2**31 - 1, -(2**31)), (-(2**31), -(2**31) + 1), (-3, -2), (-2, 0)],
)
def test_versions_wrap_and_skip_the_one_that_means_any(version: int, expected: int) -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    record: Any = driver.machine.tree.get("/a")
    fields = list(HEADER.unpack_from(record))
    fields[4] = version
    driver.machine.tree.root.children["a"] = HEADER.pack(*fields)
    assert client.put("/a", b"", version).version == expected


@pytest.mark.parametrize(
    ("path", "version", "err"),
    [
        ("/a", 1, BAD_VERSION),
        ("/a", -2, BAD_VERSION),
        ("/a", 2**40, BAD_VERSION),
        ("/missing", -1, NO_NODE),
        ("/a/b/c", -1, NO_NODE),
        ("a", -1, BAD_ARGUMENTS),
        ("", -1, BAD_ARGUMENTS),
        ("//", -1, BAD_ARGUMENTS),
        ("/a/", -1, BAD_ARGUMENTS),
        ("/missing/../a", -1, BAD_ARGUMENTS),
        ("/\0", -1, BAD_ARGUMENTS),
        ("/readable", 5, NO_AUTH),
        ("/zookeeper/config", -1, NO_AUTH),
    ],
)
def test_set_data_errors(path: str, version: int, err: int) -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    client.make("/readable", acl=[[1, "world", "anyone"]])
    digest, zxid = driver.machine.state_digest, driver.zxid
    result = client.one(5, path, b"new", version)
    assert (result.err, result.value, result.events, result.zxid) == (err, None, None, zxid + 1)
    assert driver.machine.state_digest == digest


def test_delete_tells_the_node_and_the_parent() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    client.make("/a/b", b"data")
    result = client.one(2, "/a/b", 0)
    assert (result.err, result.value) == (0, None)
    assert result.events == [(2, "/a/b"), (4, "/a")]
    assert queries.exists(driver.machine, "/a/b") == NO_NODE
    stat = stat_at(driver.machine, "/a")
    assert (stat.children, stat.cversion, stat.pzxid) == (0, 2, driver.zxid)
    driver.machine.check_invariants()


def test_a_parent_without_children_left_can_be_deleted_and_forgets_its_counter() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    client.make("/a/b")
    client.remove("/a/b")
    client.remove("/a")
    client.make("/a")
    assert client.make("/a/", flags=2) == "/a/0000000000"


def test_deleting_an_ephemeral_takes_it_from_its_session() -> None:
    driver = Driver()
    owner, other = driver.connect(), driver.connect()
    owner.make("/e", flags=1)
    other.remove("/e")
    assert not driver.machine.sessions[owner.session_id].ephemerals
    driver.machine.check_invariants()


@pytest.mark.parametrize(
    ("path", "version", "err"),
    [
        ("/a", 0, NOT_EMPTY),
        ("/a", 1, BAD_VERSION),
        ("/a/b", 1, BAD_VERSION),
        ("/a/c", -1, NO_NODE),
        ("/x/y", -1, NO_NODE),
        ("/", -1, BAD_ARGUMENTS),
        ("/zookeeper", -1, BAD_ARGUMENTS),
        ("/zookeeper/quota", -1, BAD_ARGUMENTS),
        ("/zookeeper/config", -1, BAD_ARGUMENTS),
        ("", -1, BAD_ARGUMENTS),
        ("a", -1, BAD_ARGUMENTS),
        ("/a/\0", -1, BAD_ARGUMENTS),
        ("/a/b/", -1, NO_NODE),
        ("//a", -1, NO_NODE),
        ("/kept/x", -1, NO_AUTH),
        ("/kept/missing", -1, NO_AUTH),
    ],
)
def test_delete_errors(path: str, version: int, err: int) -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    client.make("/a/b")
    client.make("/kept", acl=[[31 - 8, "world", "anyone"]])
    client.make("/kept/x")
    before, zxid = paths(driver.machine), driver.zxid
    result = client.one(2, path, version)
    assert (result.err, result.events, result.zxid) == (err, None, zxid + 1)
    assert paths(driver.machine) == before


def test_the_first_nodes_are_those_of_zookeeper() -> None:
    machine = Driver().machine
    assert paths(machine) == ["/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"]
    assert stat_at(machine, "/") == (0, 0, 0, 0, 0, -1, 0, 0, 0, 1, 0)
    assert stat_at(machine, "/zookeeper") == (0, 0, 0, 0, 0, -2, 0, 0, 0, 2, 0)
    assert data_at(machine, "/zookeeper/quota") == b""
    assert machine.zxid == 0
    machine.check_invariants()


def test_nodes_below_quota_are_ordinary() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/zookeeper/quota/a")
    client.remove("/zookeeper/quota/a")
    client.make("/zookeeper/more")
    assert client.make("/n", flags=2) == "/n0000000000", "what was there from the start was not counted"
