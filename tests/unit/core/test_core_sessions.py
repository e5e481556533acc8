"""Sessions, attachments, batches: whose commands take effect."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core.codes import BAD_ARGUMENTS, SESSION_EXPIRED, SESSION_MOVED
from quorum.core.machine import StateMachine
from tests.unit.core.driver import INCARNATION, NODE_ID, Driver, dump, paths, stat_at


def test_a_session_is_created_with_an_id_of_its_own() -> None:
    driver = Driver()
    [outcome] = driver.batch([0, 77, None, [[-10, 4000]]])
    [result] = outcome.results
    assert result.value == (1, 4000)
    assert (result.err, result.zxid, driver.zxid) == (0, 1, 1)
    assert result.events == [(-2, 1, NODE_ID, 77)]
    session = driver.machine.sessions[1]
    assert (session.timeout_ms, session.node_id, session.nonce) == (4000, NODE_ID, 77)
    assert session.last_index == driver.machine.applied_index
    assert driver.connect().session_id == 2


def test_ids_are_never_used_again() -> None:
    driver = Driver()
    first = driver.connect()
    first.one(-11)
    assert driver.connect().session_id == first.session_id + 1


@pytest.mark.parametrize("command", [[-10], [-10, 0], [-10, -1], [-10, 2**31], [-10, "4000"], [-10, 4000, 1]])
def test_a_bad_timeout_makes_no_session(command: list[Any]) -> None:
    driver = Driver()
    [outcome] = driver.batch([0, 1, None, [command]])
    assert (outcome.results[0].err, outcome.results[0].zxid) == (BAD_ARGUMENTS, 1)
    assert not driver.machine.sessions


def test_closing_removes_all_ephemerals_in_one_transaction() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/p")
    for path in ("/p/z", "/p/a", "/m"):
        client.make(path, flags=1)
    zxid = driver.zxid
    result = client.one(-11)
    assert (result.err, result.value, result.zxid, driver.zxid) == (0, None, zxid + 1, zxid + 1)
    assert result.events == [
        (2, "/m"),
        (4, "/"),
        (2, "/p/a"),
        (4, "/p"),
        (2, "/p/z"),
        (4, "/p"),
        (-1, client.session_id),
    ]
    assert client.session_id not in driver.machine.sessions
    assert stat_at(driver.machine, "/p").pzxid == zxid + 1
    driver.machine.check_invariants()


def test_nothing_behind_a_close_takes_effect() -> None:
    driver = Driver()
    client = driver.connect()
    results = client.run([1, "/a", b"", None, 0], [-11], [1, "/b", b"", None, 0], [-11], [9, "/"])
    assert [result.err for result in results] == [0, 0, SESSION_EXPIRED, SESSION_EXPIRED, SESSION_EXPIRED]
    assert {result.zxid for result in results[1:]} == {driver.zxid}
    assert "/b" not in paths(driver.machine)
    assert client.one(1, "/c", b"", None, 0).err == SESSION_EXPIRED


def test_a_session_that_never_was_is_expired() -> None:
    driver = Driver()
    for session_id in (99, -1, 2**63):
        [outcome] = driver.batch([session_id, 1, None, [[1, "/a", b"", None, 0], [-100], [-10, 4000]]])
        assert [result.err for result in outcome.results] == [SESSION_EXPIRED] * 3
    assert driver.zxid == 0


def test_a_run_without_a_session_can_only_make_one() -> None:
    driver = Driver()
    [outcome] = driver.batch([0, 1, None, [[1, "/a", b"", None, 0], [-10, 4000], [1, "/a", b"", None, 0]]])
    assert [result.err for result in outcome.results] == [SESSION_EXPIRED, 0, SESSION_EXPIRED]


def test_an_attach_moves_the_session() -> None:
    driver = Driver(nodes=(1, 2))
    old = driver.connect()
    zxid = driver.zxid
    new = old.elsewhere(2, old.nonce)
    attached, created = new.run([-100], [1, "/new", b"", None, 1])
    assert (attached.err, attached.value, attached.zxid) == (0, 30_000, zxid)
    assert attached.events == [(-2, old.session_id, 2, old.nonce)]
    assert (created.err, created.zxid) == (0, zxid + 1)
    late = old.run([1, "/late", b"", None, 0], [9, "/"], [-11])
    assert [(each.err, each.zxid, each.events) for each in late] == [(SESSION_MOVED, zxid + 1, None)] * 3
    assert "/late" not in paths(driver.machine)
    assert old.session_id in driver.machine.sessions


def test_a_connection_is_one_nonce_on_one_node() -> None:
    driver = Driver(nodes=(1, 2))
    client = driver.connect()
    assert client.elsewhere(1, client.nonce + 1).one(1, "/a", b"", None, 0).err == SESSION_MOVED
    assert client.elsewhere(2, client.nonce).one(1, "/a", b"", None, 0).err == SESSION_MOVED
    assert client.one(1, "/a", b"", None, 0).err == 0


def test_commands_ahead_of_an_attach_are_fenced() -> None:
    driver = Driver()
    client = driver.connect().elsewhere(1, 500)
    results = client.run([1, "/a", b"", None, 0], [-100], [1, "/b", b"", None, 0])
    assert [result.err for result in results] == [SESSION_MOVED, 0, 0]
    assert paths(driver.machine)[1:2] == ["/b"]


def test_an_attached_session_may_attach_again_but_not_be_created() -> None:
    driver = Driver()
    client = driver.connect()
    zxid = driver.zxid
    results = client.run([-100], [-100, 1], [-10, 4000])
    assert [result.err for result in results] == [0, BAD_ARGUMENTS, BAD_ARGUMENTS]
    assert [result.zxid for result in results] == [zxid, zxid, zxid + 1]


def test_sync_passes_through_without_a_zxid() -> None:
    driver = Driver()
    client = driver.connect()
    zxid = driver.zxid
    result = client.one(9, "/whatever")
    assert (result.err, result.value, result.events, result.zxid, driver.zxid) == (0, None, None, zxid, zxid)


# Expiry


def expirable(driver: Driver) -> tuple[int, int, int]:
    client = driver.connect()
    client.make("/e", flags=1)
    return client.session_id, client.nonce, driver.machine.applied_index


def test_an_expiry_ends_the_session() -> None:
    driver = Driver()
    session_id, nonce, judged = expirable(driver)
    zxid = driver.zxid
    [result] = driver.control(["expire", session_id, nonce, judged])
    assert (result.err, result.zxid) == (0, zxid + 1)
    assert result.events == [(2, "/e"), (4, "/"), (-1, session_id)]
    assert not driver.machine.sessions
    driver.machine.check_invariants()


def test_an_expiry_is_void_when_the_session_was_heard_of_since() -> None:
    driver = Driver(nodes=(1, 2))
    client = driver.connect()
    judged = driver.machine.applied_index
    client.one(9, "/")
    assert [each.err for each in driver.control(["expire", client.session_id, client.nonce, judged])] == [
        SESSION_MOVED
    ]
    judged = driver.machine.applied_index
    moved = client.elsewhere(2, 8)
    moved.one(-100)
    for nonce, index in ((client.nonce, driver.machine.applied_index), (moved.nonce, judged)):
        assert driver.control(["expire", client.session_id, nonce, index])[0].err == SESSION_MOVED
    zxid = driver.zxid
    assert driver.control(["expire", 99, 1, 10**6])[0].err == SESSION_EXPIRED
    assert driver.zxid == zxid
    assert client.session_id in driver.machine.sessions


def test_a_fenced_command_does_not_keep_a_session_alive() -> None:
    driver = Driver()
    client = driver.connect()
    judged = driver.machine.applied_index
    client.elsewhere(1, 999).one(1, "/a", b"", None, 0)
    [result] = driver.control(["expire", client.session_id, client.nonce, judged])
    assert result.err == 0


def test_an_entry_may_expire_many_and_name_garbage() -> None:
    driver = Driver()
    clients = [driver.connect() for _ in range(3)]
    judged = driver.machine.applied_index
    proposals: list[Any] = [["expire", client.session_id, client.nonce, judged] for client in clients]
    garbage: list[Any] = [
        None,
        [],
        ["expire"],
        ["revive", 1, 1, 1],
        ["expire", "1", 1, 1],
        ["expire", 1, 1, None],
    ]
    zxid = driver.zxid
    results = driver.control(*proposals, *garbage, proposals[0])
    assert [each.err for each in results] == [0, 0, 0, *([BAD_ARGUMENTS] * 6), SESSION_EXPIRED]
    assert driver.zxid == zxid + 3
    assert driver.apply("control", "garbage") == []


# Batches


def test_a_batch_is_applied_only_if_it_is_the_next_of_its_incarnation() -> None:
    driver = Driver()
    client = driver.connect()

    def attempt(incarnation: Any, number: Any, path: str) -> bool:
        runs = [[client.session_id, client.nonce, None, [[1, path, b"", None, 0]]]]
        outcomes = driver.apply("batch", NODE_ID, incarnation, number, runs)
        assert driver.machine.applied_index == driver.entries[-1][1][0], "a void entry is applied too"
        return bool(outcomes)

    assert driver.batches[NODE_ID] == 1
    assert not attempt(INCARNATION, 1, "/repeated")
    assert not attempt(INCARNATION, 3, "/gap")
    assert not attempt(INCARNATION - 1, 2, "/old")
    assert not attempt(INCARNATION + 1, 2, "/unregistered")
    assert not attempt(INCARNATION, "2", "/text")
    assert attempt(INCARNATION, 2, "/next")
    assert [path for path in paths(driver.machine) if "zoo" not in path] == ["/", "/next"]
    assert driver.machine.origins == {NODE_ID: (INCARNATION, 2)}


def test_a_batch_of_an_unknown_node_is_void() -> None:
    driver = Driver()
    for node_id in (2, "1", None, [1]):
        assert driver.apply("batch", node_id, 0, 1, [[0, 1, None, [[-10, 4000]]]]) == []
    assert driver.apply("batch", NODE_ID, INCARNATION, 1, None) == []
    assert not driver.machine.sessions


def test_only_a_larger_incarnation_registers_and_counts_from_one() -> None:
    driver = Driver(nodes=())
    assert driver.register(1, 5)
    assert driver.apply("batch", 1, 5, 1, []) == []
    assert driver.machine.origins == {1: (5, 1)}
    assert not driver.register(1, 5)
    assert not driver.register(1, 4)
    assert not driver.register(1, 2**64)
    assert not driver.register(-1, 9)
    assert driver.machine.origins == {1: (5, 1)}
    assert driver.register(1, 6)
    assert driver.machine.origins == {1: (6, 0)}
    assert driver.zxid == 0


def test_runs_of_a_batch_are_applied_one_by_one() -> None:
    driver = Driver()
    client = driver.connect()
    run = [client.session_id, client.nonce, None]
    runs = [[*run, [[1, f"/{name}", b"", None, 0]]] for name in "ab"]
    machine = driver.machine
    outcomes = machine.apply_batch(machine.applied_index + 1, 3, 9_999, NODE_ID, INCARNATION, 2, runs)
    assert next(outcomes).results[0].value == "/a"
    assert ("/a" in paths(machine), "/b" in paths(machine)) == (True, False)
    assert machine.entry_is_open
    assert next(outcomes).results[0].value == "/b"
    applied = machine.applied_index
    assert list(outcomes) == []
    assert (machine.applied_index, machine.entry_is_open) == (applied + 1, False)


def test_entries_come_in_order_and_whole() -> None:
    machine = StateMachine()
    machine.apply_noop(1, 1, 5)
    for index in (1, 3):
        with pytest.raises(ValueError, match=f"entry {index} cannot be applied after entry 1"):
            machine.apply_noop(index, 1, 5)
    machine.apply_register(2, 1, 5, 1, 1)
    outcomes = machine.apply_batch(3, 1, 5, 1, 1, 1, [[0, 1, None, []], [0, 1, None, []]])
    next(outcomes)
    with pytest.raises(ValueError, match="while entry 3 is half applied"):
        machine.apply_noop(4, 1, 5)


def test_stamps_never_go_back() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    first = stat_at(driver.machine, "/a").ctime
    driver.stamp_ms = 5
    client.make("/b")
    assert stat_at(driver.machine, "/b").ctime == first
    driver.stamp_ms = 2**63
    client.make("/c")
    assert stat_at(driver.machine, "/c").ctime == first
    assert dump(driver.machine)["applied"][2] == first
