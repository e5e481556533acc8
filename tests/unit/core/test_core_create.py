"""create and create2: what a new node looks like, and which error comes first."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core import queries
from quorum.core.codes import (
    BAD_ARGUMENTS,
    INVALID_ACL,
    NO_AUTH,
    NO_CHILDREN_FOR_EPHEMERALS,
    NO_NODE,
    NODE_EXISTS,
)
from tests.unit.core.driver import Driver, data_at, decode_stat, paths, stat_at


def test_a_new_node_has_the_zxid_and_the_stamp_of_its_entry() -> None:
    driver = Driver()
    result = driver.connect().one(15, "/a", b"abc", None, 0)
    value: Any = result.value
    path, stat = value
    assert (result.err, path) == (0, "/a")
    zxid = driver.zxid
    assert decode_stat(stat) == (zxid, zxid, driver.stamp_ms, driver.stamp_ms, 0, 0, 0, 0, 3, 0, zxid)
    assert decode_stat(stat) == stat_at(driver.machine, "/a")
    assert data_at(driver.machine, "/a") == b"abc"
    assert result.zxid == zxid
    assert result.events == [(1, "/a"), (4, "/")]


def test_create_returns_the_path_alone() -> None:
    assert Driver().connect().one(1, "/a", None, None, 0).value == "/a"


def test_null_and_empty_data_differ() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/null", None)
    client.make("/empty", b"")
    assert data_at(driver.machine, "/null") is None
    assert data_at(driver.machine, "/empty") == b""
    assert stat_at(driver.machine, "/null").data_length == 0


def test_the_parent_counts_its_children() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    for name in ("x", "y", "z"):
        client.make(f"/a/{name}")
    client.remove("/a/y")
    stat = stat_at(driver.machine, "/a")
    assert (stat.children, stat.cversion, stat.pzxid) == (2, 2 * 3 - 2, driver.zxid)
    assert stat.mzxid == stat.czxid
    assert queries.get_children(driver.machine, "/a") == ["x", "z"]


def test_a_deep_path_fires_at_the_parent() -> None:
    client = Driver().connect()
    client.make("/a")
    assert client.one(1, "/a/b", b"", None, 0).events == [(1, "/a/b"), (4, "/a")]


def test_sequential_names_count_all_creations_of_the_parent() -> None:
    client = Driver().connect()
    client.make("/s")
    client.make("/s/plain")
    assert client.make("/s/n-", flags=2) == "/s/n-0000000001"
    client.remove("/s/n-0000000001")
    assert client.make("/s/n-", flags=2) == "/s/n-0000000002"
    assert client.make("/s/", flags=2) == "/s/0000000003"
    assert client.make("/s/.", flags=3) == "/s/.0000000004"
    assert client.make("/", flags=2) == "/0000000001"


def test_the_suffix_widens_beyond_ten_digits() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/s")
    client.make("/s/first")
    directory: Any = driver.machine.tree.get("/s")
    directory.creates = 2**31 - 1
    assert client.make("/s/n", flags=2) == "/s/n2147483647"
    assert client.make("/s/n", flags=2) == "/s/n2147483648"
    directory.creates = 10**10
    assert client.make("/s/n", flags=2) == "/s/n10000000000"
    # 2 * creates - children wraps as an int32 of Java
    assert stat_at(driver.machine, "/s").cversion == (2 * (10**10 + 1) - 4 + 2**31) % 2**32 - 2**31


def test_an_ephemeral_belongs_to_its_session_and_has_no_children() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/e", flags=1)
    assert stat_at(driver.machine, "/e").ephemeral_owner == client.session_id
    assert list(driver.machine.sessions[client.session_id].ephemerals) == ["/e"]
    assert client.one(1, "/e/x", b"", None, 0).err == NO_CHILDREN_FOR_EPHEMERALS
    assert stat_at(driver.machine, "/e").children == 0
    driver.machine.check_invariants()


def test_the_open_acl_may_be_spelled_out() -> None:
    driver = Driver()
    client = driver.connect()
    stored = len(driver.machine.tree.acls)
    client.make("/a", acl=[[31, "world", "anyone"]])
    client.make("/b", acl=[[31, "world", "anyone"], [31, "world", "anyone"]])
    assert len(driver.machine.tree.acls) == stored


@pytest.mark.parametrize(
    ("path", "flags", "err"),
    [
        ("/a", 0, NODE_EXISTS),
        ("/", 0, NODE_EXISTS),
        ("/zookeeper", 0, NODE_EXISTS),
        ("/missing/x", 0, NO_NODE),
        ("/a/x/y", 0, NO_NODE),
        ("/eph/x", 0, NO_CHILDREN_FOR_EPHEMERALS),
        ("/eph/x/y", 0, NO_NODE),
        ("", 0, BAD_ARGUMENTS),
        ("a", 0, BAD_ARGUMENTS),
        ("a/b", 0, NO_NODE),
        ("//a", 0, BAD_ARGUMENTS),
        ("/a//b", 0, NO_NODE),
        ("/a/", 0, BAD_ARGUMENTS),
        ("/missing/", 0, NO_NODE),
        ("/a/.", 0, BAD_ARGUMENTS),
        ("/a/..", 0, BAD_ARGUMENTS),
        ("/a/../b", 0, NO_NODE),
        ("/a/...", 0, 0),
        ("/a/\u00e4\u4e2d", 0, 0),
        ("/a/ b c", 0, 0),
        ("/a/\0", 0, BAD_ARGUMENTS),
        ("/missing/\0", 0, BAD_ARGUMENTS),
        ("/a/\x1f", 0, BAD_ARGUMENTS),
        ("/a/\x7f", 0, BAD_ARGUMENTS),
        ("/a/\x9f", 0, BAD_ARGUMENTS),
        ("/a/\xa0", 0, 0),
        ("/a/\ud7ff", 0, 0),
        ("/a/\ue000", 0, BAD_ARGUMENTS),
        ("/a/\uf8ff", 0, BAD_ARGUMENTS),
        ("/a/\uf900", 0, 0),
        ("/a/\uffef", 0, 0),
        ("/a/\ufff0", 0, BAD_ARGUMENTS),
        ("/a/\U0001f600", 0, BAD_ARGUMENTS),
        ("/new", 4, 0),
        ("/new", 5, BAD_ARGUMENTS),
        ("/new", 6, BAD_ARGUMENTS),
        ("/new", -1, BAD_ARGUMENTS),
        ("/new", 7, BAD_ARGUMENTS),
    ],
)
def test_the_first_error_is_zookeepers(path: str, flags: int, err: int) -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    client.make("/eph", flags=1)
    before, zxid = paths(driver.machine), driver.zxid
    result = client.one(1, path, b"", None, flags)
    assert result.err == err
    assert result.zxid == driver.zxid == zxid + 1, "a failed write takes a zxid"
    if err:
        assert (result.value, result.events) == (None, None)
        assert paths(driver.machine) == before
    driver.machine.check_invariants()


@pytest.mark.parametrize(
    ("path", "acl", "err"),
    [
        ("/closed/x", None, NO_AUTH),
        ("/closed/x", [], INVALID_ACL),
        ("/missing/x", [], INVALID_ACL),
        ("/closed/\x01", None, NO_AUTH),
        ("/closed/known", None, NO_AUTH),
        ("no slash", [], BAD_ARGUMENTS),
    ],
)
def test_acls_come_between_the_parent_and_the_name(path: str, acl: Any, err: int) -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/closed")
    client.make("/closed/known")
    client.remove("/closed/known")
    client.remove("/closed")
    client.make("/closed", acl=[[31 - 4, "world", "anyone"]])
    assert client.one(1, path, b"", acl, 0).err == err
