"""The first entry, configurations and what /zookeeper/config says of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from quorum.core import queries
from quorum.core.machine import FORCED_SESSION_ID_JUMP, FORCED_ZXID_JUMP, StateMachine
from quorum.core.members import describe_members
from tests.unit.core.driver import CONFIGURATION, SESSION_KEY, Driver, data_at, dump_nodes, stat_at

LINES = (
    b"server.1=127.0.0.1:2281:0:participant\n"
    b"server.2=127.0.0.1:2282:0:participant\n"
    b"server.10=[::1]:2283:0:participant\n"
)


def test_the_first_entry_gives_identity_and_the_first_nodes() -> None:
    machine = Driver().machine
    assert (machine.cluster_id, machine.session_key, machine.configuration) == (
        "c1",
        SESSION_KEY,
        CONFIGURATION,
    )
    assert data_at(machine, "/zookeeper/config") == LINES + b"version=0"
    assert dump_nodes(machine)["/zookeeper/config"][2] == ((1, "world", "anyone"),)
    assert not isinstance(queries.get_data(machine, "/zookeeper/config"), int), "anyone may read it"


def test_a_second_founding_changes_nothing() -> None:
    driver = Driver()
    digest = driver.machine.state_digest
    driver.apply("found", "c2", b"other", b"{}")
    assert (driver.machine.cluster_id, driver.machine.session_key) == ("c1", SESSION_KEY)
    assert driver.machine.state_digest == digest


def changed(**voters: str) -> bytes:
    members = {node_id[1:]: {"address": address, "incarnation": ""} for node_id, address in voters.items()}
    return json.dumps({"voters": members, "learners": {"4": {"address": "h:9"}}}).encode()


def test_an_incarnation_changes_the_payload_alone() -> None:
    driver = Driver()
    digest = driver.machine.state_digest
    payload = CONFIGURATION.replace(b'"ab"', b'"cd"')
    result = driver.apply("configuration", payload)
    assert (result.err, result.zxid, result.events) == (0, 0, None)
    assert driver.machine.configuration == payload
    assert driver.machine.state_digest == digest


def test_a_change_of_members_is_a_transaction_on_the_config_node() -> None:
    driver = Driver()
    result = driver.apply("configuration", changed(n1="a:1", n3="b:2"))
    assert (result.err, result.zxid, driver.zxid) == (0, 1, 1)
    assert result.events == [(3, "/zookeeper/config")]
    assert data_at(driver.machine, "/zookeeper/config") == (
        b"server.1=a:1:0:participant\nserver.3=b:2:0:participant\nserver.4=h:9:0:observer\nversion=1"
    )
    stat = stat_at(driver.machine, "/zookeeper/config")
    # As measured on ZooKeeper 3.9.5: both versions stay -1, and the node was never created.
    assert (stat.version, stat.aversion, stat.cversion, stat.czxid) == (-1, -1, 0, 0)
    assert (stat.mzxid, stat.pzxid, stat.ctime, stat.mtime) == (1, 0, 0, driver.machine.last_stamp_ms)
    driver.machine.check_invariants()
    assert driver.apply("configuration", changed(n1="a:1", n3="b:2")).events is None


def test_a_forced_start_gives_another_cluster_id_and_lets_the_zxid_and_the_session_ids_jump() -> None:
    driver = Driver()
    driver.apply("configuration", changed(n1="a:1"))
    before, given = driver.zxid, driver.machine.session_counter
    forced = json.dumps({"cluster_id": "c2", "voters": {"1": {"address": "a:1"}}, "learners": {}}).encode()
    result = driver.apply("configuration", forced)
    assert driver.machine.cluster_id == "c2"
    assert driver.machine.session_key == SESSION_KEY, "sessions outlive a forced start"
    assert result.zxid == driver.zxid == before + FORCED_ZXID_JUMP + 1
    assert driver.machine.session_counter == given + FORCED_SESSION_ID_JUMP, "no session gets another's id"
    assert (data_at(driver.machine, "/zookeeper/config") or b"").endswith(b"version=%x" % driver.zxid)
    again = driver.apply("configuration", forced)
    assert (again.zxid, again.events) == (before + FORCED_ZXID_JUMP + 1, None), "the proof changes nothing"
    assert driver.machine.session_counter == given + FORCED_SESSION_ID_JUMP


def test_a_configuration_before_the_first_entry_is_kept() -> None:
    machine = StateMachine()
    assert machine.apply_configuration(1, 1, 1, CONFIGURATION).events is None
    assert machine.configuration == CONFIGURATION
    assert machine.zxid == 0


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff",
        b"null",
        b"[1]",
        b"[" * 100_000,
        b'{"voters": [1], "learners": 3}',
        b'{"voters": {"1": null, "2": {}, "x": {"address": "a:1"}, "3": {"address": 4}, "4": {}}}',
        '{"voters": {"²": {"address": "a:1"}}}'.encode(),
        b'{"voters": {"%s": {"address": "a:1"}}}' % (b"9" * 5000),
    ],
)
def test_what_is_malformed_is_left_out(payload: Any) -> None:
    assert describe_members(payload, 255) == b"version=ff"
