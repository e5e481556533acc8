"""What all clients of a node may hold together, and whose connection goes when it is more."""

from __future__ import annotations

import pytest

from quorum.core.watches import watch_bytes
from quorum.platform.accepting import FEWER_S, SHED_CONNECTIONS
from quorum.server.greeting import CONNECT_BYTES_MAX
from quorum.wire.lookups import encode_multi_read
from tests.unit.server.frames import EXISTS, GET_DATA, create, read
from tests.unit.server.memory import MemoryClient, MemoryNode

KIB = 1024


def unfinished(size: int) -> bytes:
    """The beginning of a longer request."""
    return create(1, "/a", bytes(1 << 19))[:size]


def test_the_connection_with_the_most_unfinished_bytes_goes() -> None:
    node = MemoryNode(received_bytes_total_max=100 * KIB)
    small, fat, last = (node.greeted() for _ in range(3))
    small.send(unfinished(20 * KIB))
    for _ in range(5):
        fat.send(
            bytes(10 * KIB) if node.frontend.shedder.received.held.get(fat.stream) else unfinished(10 * KIB)
        )
    last.send(unfinished(30 * KIB))
    assert not fat.has_ended()
    last.send(bytes(KIB))
    assert fat.was_dropped()
    assert not small.has_ended()
    assert not last.has_ended()
    assert node.frontend.shedder.received.total_bytes == 51 * KIB
    assert node.frontend.counters.connections_shed == 1


def test_what_is_taken_apart_or_gone_is_counted_no_more() -> None:
    node = MemoryNode()
    received = node.frontend.shedder.received
    whole, gone = node.greeted(), node.greeted()
    request = create(1, "/a", bytes(10 * KIB))
    whole.send(request[:5000])
    gone.send(unfinished(7000))
    assert received.total_bytes == 12_000
    whole.send(request[5000:])
    assert [reply.err for reply in whole.replies()] == [0]
    gone.vanish()
    assert (received.total_bytes, received.held) == (0, {})


def with_unread(node: MemoryNode, size: int) -> MemoryClient:
    """A client that has left so many bytes of replies unread."""
    client = node.greeted()
    client.transport.unsent_bytes = size
    client.send(read(1, EXISTS, "/"))
    return client


def test_the_connection_with_the_most_unread_bytes_goes() -> None:
    node = MemoryNode(unread_bytes_total_max=100 * KIB)
    small = with_unread(node, 30 * KIB)
    fat = with_unread(node, 60 * KIB)
    assert not fat.has_ended()
    last = with_unread(node, 20 * KIB)
    assert fat.was_dropped()
    assert not small.has_ended()
    assert not last.has_ended()


def test_what_was_read_since_it_was_noted_costs_nobody_the_connection() -> None:
    node = MemoryNode(unread_bytes_total_max=100 * KIB)
    reader = with_unread(node, 90 * KIB)
    reader.transport.unsent_bytes = 0
    other = with_unread(node, 90 * KIB)
    assert not reader.has_ended()
    assert not other.has_ended()
    other.transport.unsent_bytes = 0
    node.advance(10.0)
    assert node.frontend.shedder.unread.total_bytes == 0


def test_a_large_reply_without_room_never_reaches_its_transport() -> None:
    node = MemoryNode(unread_bytes_total_max=6 << 20, frame_bytes_max=2 << 20)
    writer = node.greeted()
    writer.send(create(1, "/a", bytes(1 << 20)))
    hoarder = with_unread(node, 5 << 20)
    asker = node.greeted()
    asker.send(encode_multi_read(1, [(GET_DATA, "/a")] * 4))
    assert asker.was_dropped()
    assert asker.received() == b""
    assert not hoarder.has_ended()
    modest = node.greeted()
    modest.send(encode_multi_read(1, [(GET_DATA, "/a")] * 2))
    assert hoarder.was_dropped()
    assert [reply.err for reply in modest.replies()] == [0]


def test_the_connection_whose_watches_cost_most_goes() -> None:
    one = watch_bytes("/a-1")
    node = MemoryNode(watch_bytes_total_max=10 * one)
    small, fat = node.greeted(), node.greeted()
    small.send(read(1, EXISTS, "/a-0", watch=True))
    fat.send(*(read(1, EXISTS, f"/b-{number}", watch=True) for number in range(9)))
    small.send(read(1, EXISTS, "/a-1", watch=True))
    assert fat.was_dropped()
    assert [reply.err for reply in small.replies()] == [-101, -101]
    assert node.replica.watches.paths() == ["/a-0", "/a-1"]


def test_who_asks_for_more_watches_than_all_may_have_goes_itself() -> None:
    node = MemoryNode(watch_bytes_total_max=10_000)
    small, fat = node.greeted(), node.greeted()
    small.send(read(1, EXISTS, "/a", watch=True))
    for number in range(3):
        fat.send(read(1, EXISTS, f"/{number}" + "x" * 4000, watch=True))
    assert fat.was_dropped()
    assert not small.has_ended()
    assert node.replica.watches.paths() == ["/a"]


def test_without_files_the_silent_go_first_and_no_others_come_for_a_while() -> None:
    node = MemoryNode(handshake_timeout_ms=600_000)
    sessions = [node.greeted() for _ in range(SHED_CONNECTIONS)]
    strangers = [node.client() for _ in range(SHED_CONNECTIONS - 1)]
    node.advance(10.0)
    for client in sessions[1:]:
        client.send(read(1, EXISTS, "/"))
    frontend = node.frontend
    assert frontend.has_room(10_000)
    frontend.no_files()
    assert all(client.was_dropped() for client in [*strangers, sessions[0]])
    assert not any(client.has_ended() for client in sessions[1:])
    for client in [*strangers, sessions[0]]:
        client.vanish()
    assert not frontend.has_room(0)
    node.time_ms += FEWER_S * 1000
    assert frontend.has_room(0)


def test_a_number_of_connections_is_the_most_that_there_may_be() -> None:
    node = MemoryNode(connections_max=3)
    clients = [node.client() for _ in range(2)]
    assert node.frontend.has_room(0)
    assert not node.frontend.has_room(1)
    clients[0].vanish()
    assert node.frontend.has_room(1)


@pytest.mark.parametrize(("size", "refused"), [(CONNECT_BYTES_MAX, False), (CONNECT_BYTES_MAX + 1, True)])
def test_a_handshake_is_bounded_before_it_is_whole(size: int, refused: bool) -> None:
    node = MemoryNode()
    client = node.client()
    client.send(size.to_bytes(4, "big") + bytes(10))
    assert client.has_ended() is refused
