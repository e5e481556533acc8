"""reconfig and auth on the client port: what is asked for, who may, in which order replies leave.

The codes and their order are those of ZooKeeper 3.9.5, measured on its own server with and without the super
user.
"""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from quorum.errors import (
    ChangeBusyError,
    ChangeRefusedError,
    NoLeaderError,
    OutcomeUnknownError,
    QuorateError,
    StaleConfigurationError,
    UnknownMemberError,
)
from quorum.server.auth import IDENTITIES_BYTES_MAX, IDENTITIES_MAX, authenticate
from quorum.server.requests import HELD_BACK_BYTES_MAX
from quorum.wire.protocol import XID_PING, OpCode
from quorum.wire.replies import REPLY_HEADER_BYTES, decode_data
from quorum.wire.requests import PING_FRAME, Reconfig, encode_auth, encode_command, encode_read
from tests.support.zookeeper_frames import encode_reconfig, unpack_stat
from tests.unit.server.memory import MemoryClient, MemoryNode, Reply

PASSWORD = b"super:pw"
SUPER = "super:" + base64.b64encode(hashlib.sha1(PASSWORD, usedforsecurity=False).digest()).decode()
FOUR = "server.4=h:4:4:participant;2181"
CONFIG = "/zookeeper/config"


def members(*node_ids: int, learners: tuple[int, ...] = ()) -> bytes:
    def rows(ids: tuple[int, ...]) -> dict[str, object]:
        return {str(node_id): {"address": f"h:{node_id}", "incarnation": ""} for node_id in ids}

    return json.dumps({"voters": rows(node_ids), "learners": rows(learners)}).encode()


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(super_digest=SUPER)
    node.replica.apply_configuration(members(1, 2, 3))
    return node


def super_client(node: MemoryNode) -> MemoryClient:
    client = node.greeted()
    client.send(encode_auth("digest", PASSWORD))
    (reply,) = client.replies()
    assert (reply.xid, reply.zxid, reply.err) == (-4, 0, 0)
    return client


def asked(client: MemoryClient, request: Reconfig) -> list[Reply]:
    client.send(encode_reconfig(7, request))
    return client.replies()


def joining(text: str, version: int = -1) -> Reconfig:
    return Reconfig(text, None, None, version)


def leaving(text: str, version: int = -1) -> Reconfig:
    return Reconfig(None, text, None, version)


NEW_THREE = ",".join(f"server.{n}=h:{n}:{n};2181" for n in (1, 2, 3))


@pytest.mark.parametrize(
    ("request_", "change"),
    [
        (joining(FOUR), (4, "h:4", None)),
        (joining(f" {FOUR} , "), (4, "h:4", None)),
        (joining("server.4=[::1]:4:4;[::1]:2181", 1), (4, "[::1]:4", 1)),
        (joining(f"{FOUR},server.1=h:1:1;2181"), (4, "h:4", None)),
        (leaving("3"), (3, None, None)),
        (leaving("3,9"), (3, None, None)),
        (Reconfig(None, None, f"{NEW_THREE},{FOUR}", -1), (4, "h:4", None)),
        (Reconfig(None, None, NEW_THREE.rpartition(",")[0].replace(",", "\n"), -1), (3, None, None)),
    ],
)
def test_one_node_joins_or_goes(
    node: MemoryNode, request_: Reconfig, change: tuple[int, str | None, int | None]
) -> None:
    client = super_client(node)
    assert asked(client, request_) == [], "nothing is answered before it is applied"
    ((*found, _),) = node.replica.changes
    assert tuple(found) == change


def test_the_answer_is_the_new_configuration_after_its_event(node: MemoryNode) -> None:
    client = super_client(node)
    client.send(encode_read(1, OpCode.GET_DATA, CONFIG, True))
    client.replies()
    asked(client, joining(FOUR))
    node.replica.apply_configuration(members(1, 2, 3, learners=(4,)))
    node.replica.changes[0][3](None)
    node.turn()
    event, reply = client.replies()
    assert event.event == (3, CONFIG)
    assert (reply.xid, reply.err) == (7, 0)
    data, stat = decode_data(bytes(REPLY_HEADER_BYTES) + reply.body)
    assert data is not None
    assert b"server.4=h:4:0:observer\nversion=" in data
    assert (stat.version, stat.mzxid, stat.czxid) == (-1, reply.zxid, 0)
    assert data.endswith(b"version=%x" % reply.zxid)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (leaving("3", 77), -103),
        (leaving("x"), -5),
        (leaving("9," * 40_000), -8),
        (Reconfig("9," * 15_000, "9," * 15_000, "9," * 15_000, -1), -8),
        (leaving("99999999999999999999"), -5),
        (joining("server.x=h:1:2:participant;3"), -5),
        (joining("server.4"), -8),
        (joining("server.4=h"), -8),
        (joining("server.4=h:4:4"), -8),
        (joining("server.4=h:4:4:boss;1"), -8),
        (joining("server.4=h:4:4:observer;1"), -8),
        (joining("server.4=h:0:4;1"), -8),
        (joining("server.4=h:4:4;70000"), -8),
        (joining("server.0=h:4:4;1"), -8),
        (joining("server.256=h:4:4;1"), -8),
        (joining("server.4=h\u0000:4:4;1"), -8),
        (joining("server.4=0.0.0.0:4:4;1"), -8),
        (joining("server.4=[::]:4:4;1"), -8),
        (joining("server.4=999.1.1.1:4:4;1"), -8),
        (joining("server.4=a..b:4:4;1"), -8),
        (joining(f"server.4={'h' * 400}:4:4;1"), -8),
        (joining("server.4=h:1:4;1"), -8),
        (joining("server.3=h:33:4;1"), -8),
        (joining(f"{FOUR},server.5=h:5:5;1"), -8),
        (Reconfig(FOUR, "3", None, -1), -8),
        (leaving("1,2,3"), -8),
        (leaving("2,3"), -8),
        (Reconfig(None, None, "version=3", -1), -8),
        (Reconfig(None, None, "", -1), -8),
        (Reconfig(None, None, FOUR, -1), -8),
        (joining(FOUR), -102),
        (leaving("3"), -102),
        (Reconfig(None, None, None, -1), -102),
    ],
)
def test_refusals_come_in_zookeepers_order_version_arguments_access(
    node: MemoryNode, request_: Reconfig, code: int
) -> None:
    client = node.greeted()
    (reply,) = asked(client, request_)
    assert (reply.xid, reply.err, reply.body) == (7, code, b"")
    assert node.replica.changes == []
    assert not client.has_ended()
    if code != -102:
        (reply,) = asked(super_client(node), request_)
        assert reply.err == code


@pytest.mark.parametrize(
    "request_", [Reconfig(None, None, None, -1), leaving("9"), Reconfig(None, None, NEW_THREE, 1)]
)
def test_what_is_so_already_is_for_the_leader_to_confirm(node: MemoryNode, request_: Reconfig) -> None:
    """This node may lag behind: the leader refuses it for another version than the one applied here."""
    client = super_client(node)
    assert asked(client, request_) == []
    ((*found, told),) = node.replica.changes
    assert tuple(found) == (1, "h:1", 1)
    told(None)
    node.turn()
    (reply,) = client.replies()
    assert reply.err == 0
    data, _ = decode_data(bytes(REPLY_HEADER_BYTES) + reply.body)
    assert data is not None
    assert data.endswith(b"version=1")


@pytest.mark.parametrize(
    ("request_", "code"),
    [(leaving("9"), -14), (Reconfig(None, None, NEW_THREE, -1), -14), (leaving("9", 1), -103)],
)
def test_who_names_no_version_is_not_told_that_it_is_the_wrong_one(
    node: MemoryNode, request_: Reconfig, code: int
) -> None:
    client = super_client(node)
    asked(client, request_)
    node.replica.changes[0][3](StaleConfigurationError("it has another version"))
    node.turn()
    assert [reply.err for reply in client.replies()] == [code]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ChangeRefusedError("no majority would be left"), -13),
        (ChangeBusyError("another change is under way"), -14),
        (UnknownMemberError("no member"), -14),
    ],
)
def test_a_refusal_of_the_leader_has_zookeepers_code(
    node: MemoryNode, error: QuorateError, code: int
) -> None:
    client = super_client(node)
    asked(client, leaving("3"))
    node.replica.changes[0][3](error)
    node.turn()
    (reply,) = client.replies()
    assert (reply.xid, reply.err) == (7, code)


@pytest.mark.parametrize("error", [OutcomeUnknownError("nobody knows"), NoLeaderError("nobody leads")])
def test_an_outcome_that_is_not_known_ends_the_connection(node: MemoryNode, error: QuorateError) -> None:
    client = super_client(node)
    asked(client, leaving("3"))
    node.replica.changes[0][3](error)
    node.advance(10)
    assert client.replies() == []
    assert client.has_ended()


def test_nothing_behind_it_is_done_before_it_is_answered(node: MemoryNode) -> None:
    client = super_client(node)
    node.replica.holding = True
    client.send(
        encode_command(1, [1, "/before", b"", None, 0]),
        encode_reconfig(2, leaving("3")),
        encode_command(3, [1, "/behind", b"", None, 0]),
        encode_read(4, OpCode.EXISTS, "/behind", False),
    )
    assert node.replica.changes == [], "it waits for the write before it"
    node.replica.release()
    node.turn()
    assert [reply.xid for reply in client.replies()] == [1]
    client.send(encode_read(5, OpCode.EXISTS, "/", False))
    node.advance(10)
    assert client.replies() == []
    assert node.replica.machine.tree.get("/behind") is None
    node.replica.changes[0][3](None)
    node.turn()
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(2, 0), (3, 0), (4, 0), (5, 0)]


def test_pings_behind_it_are_answered_at_once_and_keep_the_session(node: MemoryNode) -> None:
    client = super_client(node)
    read = encode_read(5, OpCode.EXISTS, "/", False)
    sessions = node.replica.sessions
    sessions.take_report(10, node.time_ms, 0)
    client.send(encode_reconfig(2, leaving("3")), read, PING_FRAME)
    assert [reply.xid for reply in client.replies()] == [XID_PING], "also one behind a request that waits"
    assert sessions.take_report(10, node.time_ms, 0) == [client.connection.session_id]
    for _ in range(3):
        node.advance(1000)
        client.send(PING_FRAME[:7])
        assert client.replies() == []
        client.send(PING_FRAME[7:] + PING_FRAME + read[:2])
        client.send(read[2:])
        assert [reply.xid for reply in client.replies()] == [XID_PING, XID_PING]
        assert sessions.take_report(10, node.time_ms, 0) == [client.connection.session_id]
    client.send(read[:-1])
    node.replica.changes[0][3](None)
    node.turn()
    assert [reply.xid for reply in client.replies()] == [2, 5, 5, 5, 5]
    client.send(read[-1:], PING_FRAME)
    assert [reply.xid for reply in client.replies()] == [5, XID_PING]


def test_a_ping_behind_it_waits_while_no_leader_is_heard(node: MemoryNode) -> None:
    client = super_client(node)
    asked(client, leaving("3"))
    client.connection.silence_limit_ms = float("inf")
    node.replica.silence_ms = 2000.0
    node.advance(2000)
    client.send(PING_FRAME)
    assert client.replies() == []
    node.replica.silence_ms = 0.0
    node.advance(10)
    assert [reply.xid for reply in client.replies()] == [XID_PING]
    node.replica.changes[0][3](None)
    node.turn()
    assert [reply.xid for reply in client.replies()] == [7]


def test_what_waits_behind_it_is_bounded(node: MemoryNode) -> None:
    client = super_client(node)
    asked(client, leaving("3"))
    write = encode_command(9, [5, "/", bytes(HELD_BACK_BYTES_MAX // 2), -1])
    client.send(write)
    assert not client.is_paused()
    client.send(write)
    assert client.is_paused()
    client.send(write, PING_FRAME)
    assert client.replies() == []
    node.replica.changes[0][3](None)
    node.turn()
    assert [reply.xid for reply in client.replies()] == [7, 9, 9, 9, XID_PING]
    assert not client.is_paused()


def test_a_broken_frame_behind_it_ends_the_connection_in_its_turn(node: MemoryNode) -> None:
    client = super_client(node)
    asked(client, leaving("3"))
    client.send(encode_read(8, OpCode.EXISTS, "/", False), b"\0\0\0\1", PING_FRAME)
    assert client.replies() == []
    assert not client.has_ended()
    node.replica.changes[0][3](None)
    node.turn()
    assert [reply.xid for reply in client.replies()] == [7, 8]
    assert client.has_ended()


def test_an_answer_to_a_client_that_went_is_dropped(node: MemoryNode) -> None:
    client = super_client(node)
    asked(client, leaving("3"))
    client.vanish()
    node.replica.changes[0][3](None)
    node.turn()
    assert client.received() == b""


# -- auth --


def test_what_is_proven_counts_for_what_comes_behind_it(node: MemoryNode) -> None:
    client = node.greeted()
    private = [[31, "auth", ""]]
    client.send(
        encode_command(1, [1, "/early", b"", private, 0]),
        encode_auth("digest", b"me:pw"),
        encode_command(2, [1, "/mine", b"secret", private, 0]),
        encode_read(3, OpCode.GET_DATA, "/mine", False),
    )
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(1, -114), (-4, 0), (2, 0), (3, 0)]
    stranger = node.greeted()
    stranger.send(encode_read(1, OpCode.GET_DATA, "/mine", False))
    assert [reply.err for reply in stranger.replies()] == [-102]
    boss = super_client(node)
    boss.send(encode_read(1, OpCode.GET_DATA, "/mine", False))
    assert [reply.err for reply in boss.replies()] == [0]


def test_an_unknown_scheme_is_refused_and_ends_the_connection(node: MemoryNode) -> None:
    client = node.greeted()
    client.send(encode_auth("kerberos", b"x"), encode_command(2, [1, "/behind", b"", None, 0]))
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(-4, -115)]
    assert client.has_ended()
    assert node.replica.machine.tree.get("/behind") is None


def test_the_super_user_writes_the_configuration_by_hand(node: MemoryNode) -> None:
    for client, err in ((node.greeted(), -102), (super_client(node), 0)):
        client.send(encode_command(1, [5, CONFIG, b"note", -1]))
        (reply,) = client.replies()
        assert reply.err == err
    assert unpack_stat(reply.body).version == 0, "as ZooKeeper counts it"


def test_without_a_super_digest_nobody_is_the_super_user() -> None:
    node = MemoryNode()
    client = super_client(node)
    assert client.connection.identities == [["ip", "10.0.0.1"], ["digest", SUPER]]


def test_a_connection_proves_a_bounded_number_of_identities_once_each() -> None:
    known, _ = authenticate(None, "digest", b"a:b", "")
    assert authenticate(known, "digest", b"a:b", "") == (known, 0)
    for number in range(IDENTITIES_MAX - 1):
        known, err = authenticate(known, "digest", b"u%d:p" % number, "")
        assert err == 0
    assert len(known or []) == IDENTITIES_MAX
    assert authenticate(known, "digest", b"one:more", "") == (known, -115)


def test_what_a_connection_proves_has_a_bounded_size() -> None:
    """It travels with each of its runs."""
    name = b"u" * (IDENTITIES_BYTES_MAX - len(b":") - 28)
    known, err = authenticate(None, "digest", name + b":" + b"p" * 100_000, "")
    assert err == 0
    assert authenticate(known, "digest", b"a:b", "") == (known, -115)
    assert authenticate(None, "digest", name + b"u:p", "") == (None, -115)
