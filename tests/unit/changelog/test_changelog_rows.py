"""What records say of each kind of transaction."""

from __future__ import annotations

import json
import random

import msgpack
import pytest

from quorum.changelog.rows import ENCODERS, JSON_LINES, MSGPACK, as_json_line, render
from quorum.core.machine import FORCED_ZXID_JUMP
from tests.support.memory_disk import MemoryDisk
from tests.unit.changelog.recording import Recorded
from tests.unit.core.driver import CONFIGURATION


def test_the_founding_is_the_record_of_zxid_0() -> None:
    rows = Recorded().rows()
    assert [row["zxid"] for row in rows] == [0, 1]
    assert [change["path"] for change in rows[0]["changes"]] == [
        "/zookeeper",
        "/zookeeper/quota",
        "/zookeeper/config",
    ]
    assert rows[1]["session_id"] == 1
    assert rows[1]["changes"] == []


def test_images_and_versions_of_each_kind_of_change() -> None:
    driver = Recorded()
    client = driver.client
    client.make("/a", b"1")
    client.put("/a", None)
    client.one(7, "/a", [[1, "world", "anyone"]], -1)
    client.remove("/a")
    changes = [tuple(change.values()) for row in driver.rows(2) for change in row["changes"]]
    assert changes == [
        ("c", "/a", None, b"1", 0),
        ("u", "/a", b"1", None, 1),
        ("u", "/a", None, None, 1),
        ("d", "/a", None, None, 1),
    ]


def test_failed_writes_and_failed_multis_are_records_without_changes() -> None:
    driver = Recorded()
    driver.client.run([2, "/none", -1], [1, "/a", b"", None, 0])
    driver.client.multi([5, "/a", b"x", -1], [2, "/none", -1])
    driver.client.multi([5, "/a", b"y", -1], [13, "/a", 1])
    assert [len(row["changes"]) for row in driver.rows(2)] == [0, 1, 0, 1]
    assert driver.rows(5)[0]["changes"][0]["before"] == b""


def test_users_are_left_out() -> None:
    driver = Recorded()
    for path in ("/config", "/config/users", "/config/users/alice"):
        driver.client.make(path, b"x")
    changes = [[each["path"] for each in row["changes"]] for row in driver.rows(2)]
    assert changes == [["/config"], ["/config/users"], []]


def test_states_of_transactions_are_left_out() -> None:
    driver = Recorded()
    client = driver.client
    client.make("/transactions")
    client.make("/transactions/id", b"Ongoing")
    client.multi([5, "/transactions/id", b"PrepareCommit", -1], [1, "/a", b"", None, 0])
    client.remove("/transactions/id")
    changes = [[each["path"] for each in row["changes"]] for row in driver.rows(2)]
    assert changes == [["/transactions"], [], ["/a"], []]


def test_an_expiry_names_its_session_and_no_node() -> None:
    driver = Recorded()
    driver.client.make("/e", b"x", 1)
    session = driver.machine.sessions[1]
    driver.control(["expire", 1, session.nonce, session.last_index])
    created, expired = driver.rows(2)
    assert (created["session_id"], created["node_id"]) == (1, 1)
    assert (expired["session_id"], expired["node_id"]) == (1, 0)
    assert expired["changes"][0]["op"] == "d"


def test_the_controller_epoch_is_that_after_the_transaction() -> None:
    driver = Recorded()
    client = driver.client
    client.run(
        [1, "/controller_epoch", b"3", None, 0], [5, "/controller_epoch", b"4", -1], [1, "/a", b"", None, 0]
    )
    client.put("/controller_epoch", b"none")
    client.remove("/controller_epoch")
    assert [row["controller_epoch"] for row in driver.rows(1)] == [0, 3, 4, 4, 0, 0]


def test_zxids_jump_with_a_forced_start_and_go_on_behind_it() -> None:
    driver = Recorded()
    driver.apply("configuration", CONFIGURATION.replace(b"c1", b"c2"))
    driver.client.make("/a")
    rows = driver.rows()
    assert [row["zxid"] for row in rows] == [0, 1, FORCED_ZXID_JUMP + 2]
    assert [row["cluster_id"] for row in rows] == ["c1", "c1", "c2"]
    driver.restart(driver.machine, len(driver.entries))
    assert driver.rows() == rows


def test_a_change_of_members_is_one_of_the_cluster_itself() -> None:
    driver = Recorded()
    driver.apply("configuration", CONFIGURATION.replace(b'"1":{', b'"7":{'))
    (row,) = driver.rows(2)
    assert (row["session_id"], row["node_id"]) == (0, 0)
    assert row["changes"][0]["path"] == "/zookeeper/config"


def test_what_was_not_asked_for_is_not_traced() -> None:
    driver = Recorded()
    driver.recorder.stop()
    driver.client.make("/a")
    assert driver.machine.tree.trace is None
    assert driver.failures == []


@pytest.mark.parametrize("content_type", [MSGPACK, JSON_LINES])
def test_a_page_ends_at_a_transaction_and_holds_one_at_least(content_type: str) -> None:
    driver = Recorded()
    driver.client.run(*[[1, f"/n{number}", bytes(100), None, 0] for number in range(20)])
    driver.settle()
    encode = ENCODERS[content_type]
    one = render(driver.files.blocks_from(5), 5, 1, encode)
    assert read(one, content_type) == [5]
    some = render(driver.files.blocks_from(5), 5, 4 * len(one), encode)
    assert read(some, content_type) in ([5, 6, 7], [5, 6, 7, 8])
    assert render(driver.files.blocks_from(22), 22, 1000, encode) == b""


def read(page: bytes, content_type: str) -> list[int]:
    if content_type == JSON_LINES:
        return [json.loads(line)["zxid"] for line in page.splitlines()]
    unpacker = msgpack.Unpacker(raw=False)
    unpacker.feed(page)
    return [row["zxid"] for row in unpacker]


def test_two_histories_of_the_same_entries_are_the_same_bytes() -> None:
    first, second = Recorded(), Recorded(MemoryDisk(random.Random(2)))
    for driver in (first, second):
        driver.client.make("/a", b"\xff")
        driver.settle()
    assert [as_json_line(row) for row in first.rows()] == [as_json_line(row) for row in second.rows()]
    assert [*first.files.blocks_from(0)] == [*second.files.blocks_from(0)]
