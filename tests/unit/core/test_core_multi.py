"""multi: all or nothing, one zxid, later operations see earlier ones."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core.codes import BAD_ARGUMENTS, BAD_VERSION, MARSHALLING_ERROR, NO_NODE, NODE_EXISTS, NOT_EMPTY
from tests.unit.core.driver import Client, Driver, data_at, decode_stat, dump, stat_at


def started() -> tuple[Driver, Client]:
    driver = Driver()
    client = driver.connect()
    client.make("/a", b"one")
    client.make("/a/eph", flags=1)
    client.make("/leaf", b"leaf")
    client.make("/secret", acl=[[31, "ip", "10.0.0.0/8"], [31, "world", "anyone"]])
    return driver, client


def test_every_operation_has_its_item() -> None:
    driver, client = started()
    zxid = driver.zxid
    result = client.multi(
        [13, "/a", 0],
        [1, "/a/x", b"x", None, 0],
        [5, "/a/x", b"xx", 0],
        [15, "/a/s", None, None, 2],
        [2, "/leaf", 0],
        [13, "/a/x", 1],
    )
    assert (result.err, result.zxid, driver.zxid) == (0, zxid + 1, zxid + 1)
    items: Any = result.value
    assert [(op, err) for op, err, _ in items] == [(13, 0), (1, 0), (5, 0), (15, 0), (2, 0), (13, 0)]
    assert [items[0][2], items[1][2], items[4][2], items[5][2]] == [None, "/a/x", None, None]
    assert decode_stat(items[2][2]).version == 1
    path, stat = items[3][2]
    assert path == "/a/s0000000002", "both creations before it were counted"
    assert decode_stat(stat).czxid == zxid + 1
    assert result.events == [
        (1, "/a/x"),
        (4, "/a"),
        (3, "/a/x"),
        (1, "/a/s0000000002"),
        (4, "/a"),
        (2, "/leaf"),
        (4, "/"),
    ]
    driver.machine.check_invariants()


def test_two_sequential_creations_of_a_multi_are_counted() -> None:
    _, client = started()
    items: Any = client.multi([1, "/a/n", b"", None, 2], [1, "/a/n", b"", None, 2]).value
    assert [value for _, _, value in items] == ["/a/n0000000001", "/a/n0000000002"]


def test_the_czxid_in_the_stat_of_a_later_operation_is_that_of_the_multi() -> None:
    driver, client = started()
    items: Any = client.multi([1, "/b", b"", None, 1], [5, "/b", b"x", -1]).value
    stat = decode_stat(items[1][2])
    assert (stat.czxid, stat.mzxid, stat.version) == (driver.zxid, driver.zxid, 1)


def test_an_empty_multi_takes_a_zxid() -> None:
    driver, client = started()
    zxid = driver.zxid
    result = client.multi()
    assert (result.err, result.value, result.events, result.zxid) == (0, [], None, zxid + 1)


FAILURES: list[tuple[list[Any], int]] = [
    ([13, "/a", 7], BAD_VERSION),
    ([13, "/missing", -1], NO_NODE),
    ([13, "", -1], BAD_ARGUMENTS),
    ([1, "/a", b"", None, 0], NODE_EXISTS),
    ([2, "/a", -1], NOT_EMPTY),
    ([5, "/missing", b"", -1], NO_NODE),
    ([21, "/new", b"", None, 5, 0], BAD_ARGUMENTS),
    ([5, "/a"], BAD_ARGUMENTS),
    ([2, None, None], BAD_ARGUMENTS),
]


@pytest.mark.parametrize(("operation", "err"), FAILURES)
def test_a_failed_multi_says_where_and_leaves_no_trace(operation: list[Any], err: int) -> None:
    driver, client = started()
    client.identities = [["ip", "1.2.3.4"]]
    before = dump(driver.machine)
    result = client.multi(
        [5, "/a", b"changed", -1],
        [1, "/a/kept", b"", None, 0],
        [1, "/a/new", b"", [[31, "ip", "1.2.3.4"]], 0],
        [1, "/leaf/child", b"", None, 1],
        [5, "/leaf", b"directory now", -1],
        [2, "/a/eph", -1],
        [2, "/secret", -1],
        [1, "/secret", b"another", None, 3],
        [5, "/a/new", None, 0],
        [2, "/a/new", -1],
        operation,
        [2, "/leaf", -1],
    )
    assert result.err == 0, "the reply's header tells no error"
    assert result.value == [(-1, 0, None)] * 10 + [(-1, err, None), (-1, -2, None)]
    assert result.events is None
    after = dump(driver.machine)
    driver.machine.check_invariants()
    assert after["applied"][3] == before["applied"][3] + 1
    assert after["digests"][0] == before["digests"][0]
    assert after["sessions"][client.session_id][4] == ["/a/eph"]
    for part in ("nodes", "counts", "acls", "identity"):
        assert after[part] == before[part], part


def test_a_multi_that_failed_does_not_disturb_the_next() -> None:
    _, client = started()
    client.multi([1, "/leaf/x", b"", None, 2], [13, "/missing", 0])
    assert client.make("/leaf/x", flags=2) == "/leaf/x0000000000"
    result = client.one(5, "/leaf", b"", -1)
    assert result.events == [(3, "/leaf")]


def test_a_deleted_directory_comes_back_whole() -> None:
    driver, client = started()
    client.make("/d")
    client.make("/d/x")
    client.remove("/d/x")
    result = client.multi([2, "/d", -1], [1, "/d", b"", None, 0], [1, "/d/y", b"", None, 0], [13, "/d", 9])
    assert result.value == [(-1, 0, None)] * 3 + [(-1, BAD_VERSION, None)]
    assert client.make("/d/n", flags=2) == "/d/n0000000001"
    assert stat_at(driver.machine, "/d").cversion == 3


def test_an_acl_that_only_a_rolled_back_deletion_released_is_still_enforced() -> None:
    driver, client = started()
    client.make("/closed", acl=[[1, "world", "anyone"]])
    client.multi([2, "/closed", -1], [1, "/other", b"", [[3, "world", "anyone"]], 0], [13, "/missing", -1])
    assert client.one(5, "/closed", b"", -1).err == -102
    driver.machine.check_invariants()


@pytest.mark.parametrize("command", [[14], [14, None], [14, {}], [14, [], []], [14, "[]"]])
def test_a_malformed_multi_is_refused_as_a_whole(command: list[Any]) -> None:
    driver, client = started()
    zxid = driver.zxid
    result = client.one(*command)
    assert (result.err, result.value, result.zxid) == (BAD_ARGUMENTS, None, zxid + 1)


@pytest.mark.parametrize(
    "operation",
    [
        [14, []],
        [-11],
        [9, "/"],
        [999],
        "5",
        [],
        None,
        [[]],
        [1, "/new", b"", None, 5],
        [1, "/new", b"", None, 7],
        [19, "/new", b"", None, 6],
        [15, "/new", b"", None, -1],
    ],
)
def test_an_unreadable_operation_fails_the_request(operation: Any) -> None:
    driver, client = started()
    before = dump(driver.machine)
    for operations in ([[5, "/a", b"x", -1], operation], [[13, "/missing", 0], operation]):
        result = client.multi(*operations)
        assert (result.err, result.value, result.events) == (MARSHALLING_ERROR, None, None)
    assert dump(driver.machine)["nodes"] == before["nodes"]
    assert driver.zxid == before["applied"][3] + 2
    assert data_at(driver.machine, "/a") == b"one"
