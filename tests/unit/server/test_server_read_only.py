"""A node without a quorum: who is served, with what, and how it ends."""

from __future__ import annotations

import pytest

from quorum.server.handshake import is_local, password_of
from quorum.wire.lookups import encode_looked_at, encode_watch_request
from quorum.wire.protocol import OpCode
from quorum.wire.requests import (
    PING_FRAME,
    ConnectRequest,
    Reconfig,
    SetWatches,
    encode_command,
    encode_connect,
    encode_read,
    encode_set_watches,
)
from tests.support.zookeeper_frames import encode_reconfig
from tests.unit.server.memory import GREETING, MemoryClient, MemoryNode

CONTENT = GREETING._replace(read_only=True)
NOT_READ_ONLY = -119
WRITES = [
    [1, "/b", b"", None, 0],
    [15, "/b", b"", None, 0],
    [19, "/b", b"", None, 4],
    [21, "/b", b"", None, 5, 1000],
    [2, "/a", -1],
    [5, "/a", b"", -1],
    [7, "/a", None, -1],
    [14, []],
    [9, "/a"],
]


def alone(**limits: object) -> tuple[MemoryNode, MemoryClient]:
    """A node that lost its quorum, and the client that had written to it."""
    node = MemoryNode(read_only_mode=True, **limits)
    writer = node.greeted()
    writer.send(encode_command(1, [1, "/a", b"data", None, 0]))
    writer.received()
    node.replica.silence_ms = float("inf")
    node.advance(10_000)
    assert writer.has_ended()
    return node, writer


def test_a_client_that_allows_it_reads_and_is_told() -> None:
    node, _ = alone()
    client = node.client()
    answer = client.greet(CONTENT)
    assert answer.read_only is True
    assert is_local(answer.session_id)
    assert answer.session_timeout_ms == 10_000
    reads = [
        encode_read(1, OpCode.GET_DATA, "/a", True),
        encode_looked_at(2, OpCode.GET_ACL, "/a"),
        encode_watch_request(3, OpCode.ADD_WATCH, "/a", 0),
        encode_set_watches(SetWatches(0, [], [], [])),
        PING_FRAME,
    ]
    client.send(*reads)
    assert [(reply.xid, reply.err) for reply in client.replies()] == [
        (1, 0),
        (2, 0),
        (3, 0),
        (-8, 0),
        (-2, 0),
    ]
    assert node.replica.runs_submitted[2:] == []


def test_a_node_that_never_heard_a_leader_serves_reads_too() -> None:
    node = MemoryNode(read_only_mode=True)
    node.replica.silence_ms = float("inf")
    client = node.client()
    assert client.greet(CONTENT).read_only is True
    client.send(encode_read(1, OpCode.EXISTS, "/", False))
    assert [reply.err for reply in client.replies()] == [0]
    assert not client.has_ended()


@pytest.mark.parametrize("request_", [GREETING, GREETING._replace(read_only=None)])
def test_a_client_that_does_not_allow_it_is_sent_away_without_an_answer(request_: ConnectRequest) -> None:
    node, _ = alone()
    client = node.client()
    client.send(encode_connect(request_))
    assert client.has_ended()
    assert client.received() == b""


def test_without_the_mode_nobody_is_served() -> None:
    node = MemoryNode()
    node.replica.silence_ms = float("inf")
    node.advance(10_000)
    client = node.client()
    client.send(encode_connect(CONTENT))
    assert client.has_ended()
    assert client.received() == b""


@pytest.mark.parametrize("command", WRITES)
def test_a_write_is_refused_and_the_connection_goes_on(command: list[object]) -> None:
    node, _ = alone()
    client = node.client()
    client.greet(CONTENT)
    submitted = len(node.replica.runs_submitted)
    client.send(encode_command(1, command), encode_read(2, OpCode.EXISTS, "/a", False))
    replies = client.replies()
    zxid = node.replica.machine.zxid
    assert [(reply.xid, reply.zxid, reply.err) for reply in replies] == [
        (1, zxid, NOT_READ_ONLY),
        (2, zxid, 0),
    ]
    assert len(node.replica.runs_submitted) == submitted


def test_a_change_of_members_is_refused() -> None:
    node, _ = alone()
    client = node.client()
    client.greet(CONTENT)
    client.send(encode_reconfig(1, Reconfig(None, "3", None, -1)))
    assert [reply.err for reply in client.replies()] == [NOT_READ_ONLY]


def test_a_session_of_the_log_reads_under_its_own_id_and_cannot_be_closed_here() -> None:
    node = MemoryNode(read_only_mode=True)
    writer = node.client()
    session = writer.greet()
    node.replica.silence_ms = float("inf")
    node.advance(10_000)
    resume = CONTENT._replace(session_id=session.session_id, password=session.password)
    client = node.client()
    answer = client.greet(resume)
    assert (answer.session_id, answer.password, answer.read_only) == (
        session.session_id,
        session.password,
        True,
    )
    client.send(encode_command(1, [-11]))
    assert [reply.err for reply in client.replies()] == [NOT_READ_ONLY]
    assert not client.has_ended()
    wrong = node.client()
    assert wrong.greet(resume._replace(password=bytes(16))).session_id == 0


def test_a_session_that_is_not_known_here_is_not_called_dead() -> None:
    node, _ = alone()
    password = password_of(node.replica.machine.session_key, 77)
    client = node.client()
    client.send(encode_connect(CONTENT._replace(session_id=77, password=password)))
    assert client.has_ended()
    assert client.received() == b""


def test_an_own_session_is_resumed_with_its_password_alone() -> None:
    node, _ = alone()
    known = node.client().greet(CONTENT)
    resume = CONTENT._replace(session_id=known.session_id, password=known.password)
    assert node.client().greet(resume) == known
    assert node.client().greet(resume._replace(password=bytes(16))).session_timeout_ms == 0


def test_an_own_session_ends_with_its_closing() -> None:
    node, _ = alone()
    client = node.client()
    client.greet(CONTENT)
    client.send(encode_command(1, [-11]), encode_read(2, OpCode.EXISTS, "/a", False))
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(1, 0)]
    assert client.has_ended()


def test_when_the_quorum_is_back_the_connection_ends_and_the_log_does_not_know_the_session() -> None:
    node, _ = alone()
    client = node.client()
    local = client.greet(CONTENT)
    node.advance(60_000)
    assert not client.has_ended(), "nothing expires it here"
    node.replica.silence_ms = 0.0
    node.advance(100)
    assert client.has_ended()
    again = node.client()
    refused = again.greet(CONTENT._replace(session_id=local.session_id, password=local.password))
    assert (refused.session_id, refused.session_timeout_ms) == (0, 0)
    fresh = node.client().greet(CONTENT)
    assert (fresh.read_only, is_local(fresh.session_id)) == (False, False)


def test_what_comes_with_the_handshake_is_read_and_answered() -> None:
    node, _ = alone()
    client = node.client()
    client.send(encode_connect(CONTENT), encode_read(1, OpCode.EXISTS, "/a", False))
    data = client.received()
    length = int.from_bytes(data[:4], "big")
    assert int.from_bytes(data[4 + length + 4 :][:4], "big") == 1
