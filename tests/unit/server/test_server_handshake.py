"""What becomes of a handshake, from the first byte to the session."""

from __future__ import annotations

import asyncio
import struct

import pytest

from quorum.server.handshake import password_of
from quorum.wire.replies import ConnectResponse
from quorum.wire.requests import PING_FRAME, ConnectRequest, encode_command, encode_connect
from tests.unit.server.memory import GREETING, MemoryNode

REFUSAL = ConnectResponse(0, 0, 0, bytes(16), False)


def resume(answer: ConnectResponse, *, password: bytes | None = None, last_zxid: int = 0) -> ConnectRequest:
    secret = answer.password if password is None else password
    return ConnectRequest(0, last_zxid, 10_000, answer.session_id, secret, False)


def test_a_new_session_gets_an_id_a_password_and_the_timeout_that_it_asked_for() -> None:
    node = MemoryNode()
    first, second = node.client().greet(), node.client().greet()
    assert first.session_timeout_ms == 10_000
    assert first.session_id != second.session_id
    assert first.session_id >> 56 != 0xFF
    assert len(first.password) == 16
    assert first.password != second.password
    assert node.replica.machine.sessions[first.session_id].timeout_ms == 10_000


@pytest.mark.parametrize(
    ("requested_ms", "granted_ms"), [(-5, 4000), (0, 4000), (3999, 4000), (40_001, 40_000), (9000, 9000)]
)
def test_the_timeout_is_clamped(requested_ms: int, granted_ms: int) -> None:
    client = MemoryNode().client()
    answer = client.greet(GREETING._replace(session_timeout_ms=requested_ms))
    assert answer.session_timeout_ms == granted_ms


@pytest.mark.parametrize(("sent", "returned"), [(None, None), (True, False), (False, False)])
def test_who_did_not_send_the_read_only_byte_does_not_get_it(
    sent: bool | None, returned: bool | None
) -> None:
    node = MemoryNode()
    assert node.client().greet(GREETING._replace(read_only=sent)).read_only is returned
    refused = node.client().greet(GREETING._replace(read_only=sent, session_id=99))
    assert refused == REFUSAL._replace(read_only=returned)


@pytest.mark.parametrize("password", [b"", bytes(3), bytes(40)])
def test_a_new_session_may_bring_a_password_of_any_length(password: bytes) -> None:
    assert MemoryNode().client().greet(GREETING._replace(password=password)).session_id


def test_a_session_is_resumed_with_its_password_and_the_old_connection_is_closed() -> None:
    node = MemoryNode()
    old = node.client()
    answer = old.greet()
    new = node.client()
    assert new.greet(resume(answer)) == answer
    assert old.has_ended()
    assert not new.has_ended()
    new.send(encode_command(1, [1, "/a", b"", None, 1]))
    assert new.replies()[0].err == 0


@pytest.mark.parametrize("asked_ms", [4000, 20_000])
def test_a_resumed_session_keeps_its_timeout_and_says_so(asked_ms: int) -> None:
    node = MemoryNode()
    answer = node.client().greet()
    request = resume(answer)._replace(session_timeout_ms=asked_ms)
    assert node.client().greet(request).session_timeout_ms == answer.session_timeout_ms != asked_ms


def test_a_resumption_may_arrive_after_the_old_connection_broke() -> None:
    node = MemoryNode()
    old = node.client()
    answer = old.greet()
    old.vanish()
    assert node.client().greet(resume(answer)) == answer


def test_a_late_request_of_the_old_connection_takes_no_effect_and_is_not_answered() -> None:
    node = MemoryNode()
    old = node.client()
    answer = old.greet()
    node.replica.holding = True
    new = node.client()
    new.send(encode_connect(resume(answer)))
    old.send(encode_command(1, [1, "/late", b"", None, 0]), encode_command(2, [9, "/"]))
    node.replica.release()
    assert new.greeted() == answer
    assert old.has_ended()
    assert old.received() == b""
    assert node.replica.machine.tree.get("/late") is None


@pytest.mark.parametrize("same_nonce", [False, True])
def test_an_attachment_on_another_node_closes_the_connection(same_nonce: bool) -> None:
    node = MemoryNode()
    client = node.client()
    session_id = client.greet().session_id
    nonce = node.replica.machine.sessions[session_id].nonce
    node.replica.apply_elsewhere([[session_id, nonce if same_nonce else nonce + 77, None, [[-100]]]])
    assert client.has_ended()
    assert session_id in node.replica.machine.sessions


def test_a_wrong_password_is_refused_and_the_session_stays_where_it_is() -> None:
    node = MemoryNode()
    owner = node.client()
    answer = owner.greet()
    for wrong in (bytes(16), b"", answer.password[:15], answer.password + b"\0"):
        thief = node.client()
        assert thief.greet(resume(answer, password=wrong)) == REFUSAL
        assert thief.has_ended()
    assert not owner.has_ended()


def test_a_session_that_is_over_is_refused_by_the_log_and_never_replaced_by_a_new_one() -> None:
    node = MemoryNode()
    client = node.client()
    answer = client.greet()
    client.vanish()
    node.replica.expire(answer.session_id)
    sessions = len(node.replica.machine.sessions)
    late = node.client()
    assert late.greet(resume(answer)) == REFUSAL
    assert late.has_ended()
    assert len(node.replica.machine.sessions) == sessions


def test_a_session_that_only_the_other_nodes_know_yet_is_not_refused_too_early() -> None:
    node = MemoryNode()
    node.replica.holding = True
    session_id = node.replica.machine.session_counter + 1
    password = password_of(node.replica.machine.session_key, session_id)
    client = node.client()
    client.send(encode_connect(ConnectRequest(0, 0, 10_000, session_id, password, False)))
    assert not client.has_ended()
    node.replica.apply_elsewhere([[0, 5, None, [[-10, 8000]]]])
    node.replica.release()
    assert client.greeted() == ConnectResponse(0, 8000, session_id, password, False)


def test_a_client_that_has_seen_more_than_this_node_is_sent_away_without_an_answer() -> None:
    node = MemoryNode()
    zxid = node.replica.machine.zxid
    ahead = node.client()
    ahead.send(encode_connect(GREETING._replace(last_zxid_seen=zxid + 1)))
    assert ahead.has_ended()
    assert ahead.received() == b""
    assert node.client().greet(GREETING._replace(last_zxid_seen=zxid)).session_id


def test_a_node_without_a_leader_closes_handshakes_at_once() -> None:
    node = MemoryNode()
    node.replica.silence_ms = float("inf")
    client = node.client()
    client.send(encode_connect(GREETING))
    assert client.has_ended()
    assert client.received() == b""
    assert node.replica.runs_submitted == []


@pytest.mark.parametrize("length", [-1, 0, 27, 4_194_305, 2**31 - 1])
def test_a_first_packet_of_an_impossible_length_is_not_waited_for(length: int) -> None:
    client = MemoryNode().client()
    client.send(struct.pack(">i", length))
    assert client.has_ended()


def test_a_handshake_whose_password_does_not_fit_is_refused() -> None:
    client = MemoryNode().client()
    frame = encode_connect(GREETING._replace(read_only=None))
    client.send(struct.pack(">i", len(frame) - 5) + frame[4:-1])
    assert client.has_ended()


def test_a_handshake_may_arrive_byte_by_byte() -> None:
    client = MemoryNode().client()
    for byte in encode_connect(GREETING):
        client.send(bytes((byte,)))
    assert client.greeted().session_id


def test_what_follows_the_handshake_in_the_same_packet_is_answered_after_it() -> None:
    node = MemoryNode()
    client = node.client()
    create = encode_command(1, [1, "/a", b"", None, 0])
    client.send(encode_connect(GREETING) + create + PING_FRAME[:5])
    client.send(PING_FRAME[5:])
    data = client.received()
    assert struct.unpack_from(">i", data)[0] == 37
    client.transport.writes.append(data[41:])
    assert [reply.xid for reply in client.replies()] == [1, -2]


def test_reading_stops_until_the_session_is_there() -> None:
    node = MemoryNode()
    node.replica.holding = True
    client = node.client()
    client.send(encode_connect(GREETING))
    assert client.is_paused()
    node.replica.release()
    assert not client.is_paused()


def test_a_connection_without_a_handshake_is_closed_after_its_time() -> None:
    node = MemoryNode(handshake_timeout_ms=500)
    silent, slow, fine = node.client(), node.client(), node.greeted()
    node.advance(300)
    slow.send(encode_connect(GREETING)[:20])
    node.advance(199)
    assert not silent.has_ended()
    node.advance(1)
    assert silent.has_ended()
    assert slow.has_ended()
    assert not fine.has_ended()


def test_an_address_may_have_only_so_many_connections() -> None:
    node = MemoryNode(connections_per_address_max=2)
    first = node.client()
    assert not node.client().has_ended()
    assert node.client().has_ended()
    assert not node.client("10.0.0.2").has_ended()
    first.vanish()
    assert not node.client().has_ended()
    assert node.client().has_ended()
    assert node.frontend.counters.connections_rejected == 2


def test_a_client_that_gave_up_before_its_session_leaves_no_trace_but_the_session() -> None:
    node = MemoryNode()
    node.replica.holding = True
    client = node.client()
    client.send(encode_connect(GREETING))
    client.vanish()
    node.replica.release()
    assert client.received() == b""
    assert len(node.replica.machine.sessions) == 1
    assert not node.frontend.connections


def test_a_handshake_whose_outcome_is_unknown_ends_without_an_answer() -> None:
    node = MemoryNode()
    node.replica.holding = True
    client = node.client()
    client.send(encode_connect(GREETING))
    node.frontend.lost(client.connection)
    node.frontend.end_of_turn()
    assert client.has_ended()
    node.replica.release()
    assert client.received() == b""


async def test_a_node_that_stops_closes_its_connections_and_accepts_nobody() -> None:
    node = MemoryNode()
    client = node.greeted()
    stopping = asyncio.ensure_future(node.frontend.stop())
    await asyncio.sleep(0)
    assert client.has_ended()
    assert not client.was_dropped()
    assert node.client().has_ended()
    client.vanish()
    await stopping
    assert not client.was_dropped()


async def test_a_node_that_stops_does_not_wait_long_for_those_who_do_not_read() -> None:
    node = MemoryNode()
    client = node.greeted()
    await node.frontend.stop()
    assert client.was_dropped()
