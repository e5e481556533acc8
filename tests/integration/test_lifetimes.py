"""Containers, TTL nodes and nodes without a quorum, with real processes and over a change of leaders.

The unit tests hold the rules; here the leader looks by itself, proposes through the log, and every member has
the same state afterwards.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Self

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NotReadOnlyCallError
from kazoo.protocol.states import KeeperState

from quorum.wire.lookups import encode_watch_request
from quorum.wire.protocol import OpCode
from quorum.wire.replies import decode_header, decode_watch_event
from quorum.wire.requests import ConnectRequest, encode_command, encode_connect
from tests.support.nodes import QuorateNodes, eventually

DEADLINE_S = 30.0
SETTINGS = {"limits": {"container_check_interval_ms": 100, "read_only_mode": True}}


class Client:
    """A client that blocks, speaks frames, and keeps the events that it heard."""

    def __init__(self, host: str) -> None:
        name, port = host.split(":")
        self._socket = socket.create_connection((name, int(port)), timeout=DEADLINE_S)
        self.events: list[tuple[int, str]] = []
        self._socket.sendall(encode_connect(ConnectRequest(0, 0, 20_000, 0, bytes(16), False)))
        self._frame()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            assert part, "the server closed the connection"
            data += part
        return data

    def _frame(self) -> bytes:
        return self._read(struct.unpack(">i", self._read(4))[0])

    def ask(self, frame: bytes) -> int:
        """Send a request; returns the error code of its reply."""
        self._socket.sendall(frame)
        while (header := decode_header(reply := self._frame())).xid == -1:
            event = decode_watch_event(reply)
            self.events.append((event.event_type, event.path))
        return header.err

    def hear(self, event: tuple[int, str]) -> None:
        """Wait until an event was told."""
        while event not in self.events:
            told = decode_watch_event(self._frame())
            self.events.append((told.event_type, told.path))


@pytest.fixture(scope="module")
def shared_nodes() -> Iterator[QuorateNodes]:
    """The nodes that `nodes` repairs, with settings of this module."""
    with QuorateNodes(settings=SETTINGS) as started:
        yield started


def test_what_is_past_its_lifetime_goes_on_every_member_and_watchers_hear_of_it(nodes: QuorateNodes) -> None:
    follower = next(node_id for node_id in nodes.node_ids if node_id != nodes.leader())
    with Client(nodes.host(follower)) as client:
        assert client.ask(encode_watch_request(1, OpCode.ADD_WATCH, "/", 1)) == 0
        assert client.ask(encode_command(2, [19, "/jobs", b"", None, 4])) == 0
        assert client.ask(encode_command(3, [1, "/jobs/one", b"", None, 0])) == 0
        assert client.ask(encode_command(4, [21, "/short", b"", None, 5, 300])) == 0
        assert client.ask(encode_command(5, [21, "/long", b"", None, 5, 3_600_000])) == 0
        assert client.ask(encode_command(6, [19, "/unused", b"", None, 4])) == 0
        client.hear((2, "/short"))
        assert (2, "/jobs") not in client.events
        assert client.ask(encode_command(7, [2, "/jobs/one", -1])) == 0
        client.hear((2, "/jobs"))
        deletions = [path for event_type, path in client.events if event_type == 2]
        assert deletions == ["/short", "/jobs/one", "/jobs"]
        assert client.ask(encode_command(8, [2, "/long", -1])) == 0
        assert client.ask(encode_command(9, [2, "/unused", -1])) == 0
    nodes.one_digest()


def test_a_new_leader_goes_on_deleting(nodes: QuorateNodes) -> None:
    leader = nodes.leader()
    others = [node_id for node_id in nodes.node_ids if node_id != leader]
    with Client(nodes.host(others[0])) as client:
        assert client.ask(encode_watch_request(1, OpCode.ADD_WATCH, "/", 1)) == 0
        assert client.ask(encode_command(2, [21, "/t", b"", None, 5, 4_000])) == 0
        nodes.kill(leader)
        client.hear((2, "/t"))
    nodes.start_node(leader)
    nodes.wait_ready()
    nodes.one_digest()


def test_a_node_that_is_left_alone_serves_reads_to_those_who_allow_it(nodes: QuorateNodes) -> None:
    alone, *others = nodes.node_ids
    writer = KazooClient(nodes.host(alone), timeout=20)
    writer.start(DEADLINE_S)
    writer.create("/kept", b"value")
    for node_id in others:
        nodes.kill(node_id)
    writer.stop()
    writer.close()
    reader = KazooClient(nodes.host(alone), timeout=20, read_only=True)
    states: list[str] = []
    reader.add_listener(states.append)
    reader.start(DEADLINE_S)
    assert reader.client_state == KeeperState.CONNECTED_RO
    assert reader.get("/kept")[0] == b"value"
    with pytest.raises(NotReadOnlyCallError):
        reader.set("/kept", b"other")
    assert reader.command(b"isro") == "ro"
    for node_id in others:
        nodes.start_node(node_id)
    nodes.wait_ready()
    eventually(lambda: reader.client_state == KeeperState.CONNECTED, DEADLINE_S, "a client that may write")
    assert KazooState.SUSPENDED in states
    reader.set("/kept", b"other")
    assert reader.get("/kept")[0] == b"other"
    reader.stop()
    reader.close()
