"""Messages between members over real sockets: who connects, who is refused, what overtakes, what is lost."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from typing import Any

import pytest
from pysyncobj.transport import TransportNotReadyError

from quorum.errors import AddressInUseError
from quorum.platform.os_runtime import AsyncioRuntime
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import Append, Heartbeat, SnapshotChunk, TimeoutNow
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.codec import Codec
from quorum.raft.peers.hello import NONCE_BYTES, Dialler, PeerIdentity
from quorum.raft.peers.peers import PeerNode, TransportOptions, split_address
from quorum.raft.peers.transport import PeerTransport
from tests.support.peer_network import (
    CLUSTER_ID,
    SECRET,
    Member,
    Network,
    ended,
    on_both_loops,
    read_frame,
)


def append(sender: int, receiver: int, payload: bytes, index: int = 1) -> Append:
    entries = (Entry(index, 1, EntryKind.BATCH, 5, payload),)
    return Append(
        term=1,
        sender=sender,
        receiver=receiver,
        prev_index=index - 1,
        prev_term=1,
        commit_index=0,
        probe=False,
        entries=entries,
    )


def chunk(sender: int, receiver: int, data: bytes, offset: int = 0) -> SnapshotChunk:
    return SnapshotChunk(
        term=1,
        sender=sender,
        receiver=receiver,
        transfer=1,
        snapshot_index=1,
        snapshot_term=1,
        offset=offset,
        total_bytes=2**40,
        data=data,
    )


def frame(message: Any) -> bytes:
    return b"".join(Codec().encode(message))


async def start_pair(network: Network, **changed: Any) -> tuple[Member, Member]:
    network.reserve(1, 2)
    one, two = await network.start(1, **changed), await network.start(2, **changed)
    await network.until(lambda: one.up(2) and two.up(1))
    return one, two


@on_both_loops
async def test_three_members_connect_and_exchange_messages(network: Network) -> None:
    network.reserve(1, 2, 3)
    members = {node_id: await network.start(node_id) for node_id in (1, 2, 3)}
    await network.until(lambda: all(members[node].up(*{1, 2, 3} - {node}) for node in members))
    for sender in members.values():
        assert sorted(sender.events) == [
            ("up", n, members[n].identity.incarnation) for n in {1, 2, 3} - {sender.node_id}
        ]
        for receiver in {1, 2, 3} - {sender.node_id}:
            assert sender.send(append(sender.node_id, receiver, b"from %d" % sender.node_id))
    await network.until(lambda: all(len(member.received) == 2 for member in members.values()))
    for member in members.values():
        assert sorted(member.received) == [
            (n, members[n].identity.incarnation, append(n, member.node_id, b"from %d" % n))
            for n in sorted({1, 2, 3} - {member.node_id})
        ]


@on_both_loops
async def test_messages_of_any_size_arrive_whole_and_in_order(network: Network) -> None:
    one, two = await start_pair(network)
    sizes = [0, 1, 100_000, 262_144, 8 * 1024 * 1024, 10, 3_000_000, 255, 262_140, 5]
    sent = [append(1, 2, random.randbytes(size), index) for index, size in enumerate(sizes, 1)]
    for message in sent:
        assert one.send(message)
    await network.until(lambda: len(two.received) == len(sent))
    assert [message for _, _, message in two.received] == sent
    many = [append(1, 2, b"x" * (index % 97), index) for index in range(1, 5001)]
    for message in many:
        assert one.send(message)
    await network.until(lambda: len(two.received) == len(sent) + len(many))
    assert [message for _, _, message in two.received[len(sent) :]] == many
    assert (
        one.transport.counters.messages_sent
        == two.transport.counters.messages_received
        == len(sent) + len(many)
    )


@on_both_loops
async def test_it_says_when_a_member_was_heard_last(network: Network) -> None:
    one, two = await start_pair(network)
    before_ms = two.transport.links()[1].heard_ms
    assert one.heartbeat(2)
    await network.until(lambda: two.received)
    assert two.transport.links()[1].heard_ms > before_ms
    await one.transport.stop()
    await network.until(lambda: not two.up(1))
    assert two.transport.links()[1].heard_ms < before_ms


@on_both_loops
async def test_what_was_sent_before_stop_arrives(network: Network) -> None:
    one, two = await start_pair(network)
    for index in range(1, 21):
        assert one.send(append(1, 2, bytes(100_000), index))
    assert one.send(TimeoutNow(term=1, sender=1, receiver=2))
    await one.transport.stop()
    await network.until(lambda: len(two.received) == 21)
    assert ("down", 2, two.identity.incarnation) not in one.events
    assert not one.transport.ready
    assert not one.heartbeat(2)


@on_both_loops
async def test_a_member_that_ends_is_noticed_and_its_next_life_is_another_incarnation(
    network: Network,
) -> None:
    one, two = await start_pair(network)
    two.transport.destroy()
    await network.until(lambda: one.events[-1] == ("down", 2, two.identity.incarnation))
    assert not one.heartbeat(2)
    assert one.transport.counters.messages_unsent == 1
    host, port = split_address(network.addresses[2])
    again = await network.start(2, listen=(host, port), incarnation="f" * 32)
    await network.until(lambda: one.up(2) and again.up(1))
    assert [event for event in one.events if event[0] == "up"] == [
        ("up", 2, two.identity.incarnation),
        ("up", 2, "f" * 32),
    ]
    again.heartbeat(1)
    await network.until(lambda: one.received)
    assert one.received[0][:2] == (2, "f" * 32)


@on_both_loops
async def test_an_inbound_connection_ends_a_long_wait(network: Network) -> None:
    network.reserve(1, 2)
    options = TransportOptions(backoff_min_ms=3_600_000, backoff_max_ms=3_600_000)
    network.sockets.pop(2).close()
    one = await network.start(1, options=options)
    await network.until(lambda: network.log.having("node 2 cannot be reached"))
    two = await network.start(2, listen=split_address(network.addresses[2]))
    await network.until(lambda: one.up(2) and two.up(1))


class Proxy:
    """Forwards connections of one directed link."""

    def __init__(self, target: str) -> None:
        self._target = split_address(target)
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def cut(self) -> None:
        """End all connections and take no new ones."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, onward_writer]
        for source, sink in ((reader, onward_writer), (onward_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)

    @staticmethod
    async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while received := await source.read(65536):
                sink.write(received)
        sink.transport.abort()


@on_both_loops
async def test_each_direction_has_a_connection_of_its_own(network: Network) -> None:
    """With the link from 1 to 2 cut, 2 still reaches 1; both notice the cut."""
    network.reserve(1, 2)
    proxy = Proxy(network.addresses[2])
    one = await network.start(1, members={2: await proxy.start()})
    two = await network.start(2)
    await network.until(lambda: one.up(2) and two.up(1))
    await proxy.cut()
    await network.until(lambda: ("down", 2, two.identity.incarnation) in one.events)
    await network.until(lambda: two.events[-1][0] == "up" and len(two.events) == 3)
    assert [event[0] for event in two.events] == ["up", "down", "up"]
    assert one.events[-1][0] == "down"
    assert two.heartbeat(1)
    await network.until(lambda: one.received)
    assert not one.heartbeat(2)


REFUSED = [
    (
        {"cluster": "other"},
        "cluster name: 'other' there, 'local' here",
        "cluster name: 'local' there, 'other' here",
    ),
    ({"cluster_id": "d" * 32}, "cluster id: dddd", "cluster id: cccc"),
    ({"secrets": ["wrong"]}, "authentication failed", "authentication failed"),
]


@pytest.mark.parametrize(
    ("changed", "said_by_one", "said_by_two"), REFUSED, ids=["cluster", "cluster id", "secret"]
)
@on_both_loops
async def test_strangers_are_refused_and_both_logs_say_why(
    network: Network, changed: dict[str, Any], said_by_one: str, said_by_two: str
) -> None:
    network.reserve(1, 2)
    one = await network.start(1, members={})
    one.transport.addNode(PeerNode(2, "127.0.0.1:1"))
    two = await network.start(2, **changed)
    await network.until(lambda: network.log.having("127.0.0.1:", "this node refused the peer", said_by_one))
    await network.until(
        lambda: network.log.having(network.addresses[1], "the peer refused this node", said_by_two)
    )
    for line in network.log.having("refused", "node: "):
        assert line.endswith(")"), "no remedy"
    assert one.events == two.events == []
    assert one.transport.counters.hellos_refused >= 1


@on_both_loops
async def test_wrong_addresses_are_named(network: Network) -> None:
    """Node 1 believes node 3 at node 2's address, and node 4 at its own."""
    network.reserve(1, 2)
    members = {2: network.addresses[2], 3: network.addresses[2], 4: network.addresses[1]}
    await network.start(1, members=members)
    await network.start(2)
    await network.until(
        lambda: network.log.having(network.addresses[2], "node id at this address: 2 there, 3 here")
    )
    await network.until(lambda: network.log.having(network.addresses[1], "connected to itself", "[members]"))


@on_both_loops
async def test_a_stranger_of_the_cluster_becomes_a_peer_while_strangers_are_admitted(
    network: Network,
) -> None:
    """A node that comes back with an old log must be reachable for members that joined meanwhile."""
    network.reserve(1, 9)
    admitted = [True]
    one = await network.start(1, members={}, admits_strangers=lambda: admitted[0])
    nine = await network.start(9, address=network.addresses[9])
    await network.until(lambda: 9 in one.transport.links() and one.up(9) and nine.up(1))
    admitted[0] = False
    one.transport.dropNode(PeerNode(9))
    await network.until(lambda: network.log.having("node id: 9 there, not a member here"))
    admitted[0] = True
    await network.until(lambda: 9 in one.transport.links() and one.up(9))
    assert nine.heartbeat(1)
    await network.until(lambda: one.received)


@on_both_loops
async def test_who_is_no_member_is_refused(network: Network) -> None:
    network.reserve(1, 9)
    one = await network.start(1, members={})
    nine = await network.start(9)
    await network.until(lambda: network.log.having("node id: 9 there, not a member here", "members add"))
    assert nine.events == one.events == []


@on_both_loops
async def test_refusals_do_not_flood_the_log(network: Network) -> None:
    network.reserve(1, 2)
    one = await network.start(1)
    for _ in range(20):
        reader, writer = await network.connect(one.address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await ended(reader) == b""
    assert one.transport.counters.hellos_refused == 20
    assert len(network.log.having("only nodes may connect")) == 1


@on_both_loops
async def test_a_half_open_hello_is_closed_in_time(network: Network) -> None:
    network.reserve(1)
    one = await network.start(1, options=TransportOptions(handshake_timeout_ms=50))
    silent, _ = await network.connect(one.address)
    assert await ended(silent) == b""
    slow, writer = await network.connect(one.address)
    writer.write(b"QRTM")
    assert await ended(slow) == b""
    assert network.log.having("closed before its hello was done")


@on_both_loops
async def test_the_oldest_connection_without_a_hello_makes_room(network: Network) -> None:
    network.reserve(1, 2)
    one = await network.start(
        1, options=TransportOptions(pending_handshakes_max=2, handshake_timeout_ms=60_000)
    )
    first, _ = await network.connect(one.address)
    second, writer = await network.connect(one.address)
    # The server knows the second one, too, once it answers it.
    hello = Dialler(PeerIdentity("local", "", 2, "2" * 32), 1, SECRET, random.randbytes(NONCE_BYTES))
    writer.write(hello.begin())
    challenge = await second.readexactly(8 + NONCE_BYTES)
    third, _ = await network.connect(one.address)
    assert await ended(first) == b""
    writer.write(hello.feed(challenge))
    assert (await second.readexactly(8))[:4] == b"QRTM"
    assert network.log.having("pending_handshakes_max = 2")
    # It has proven the secret, and is older than the third.
    await network.connect(one.address)
    assert await ended(third) == b""


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (frame(Heartbeat(1, 3, 1, 0, 1.0)), "Heartbeat says from 3 to 1 on a link from 2 to 1"),
        (frame(Heartbeat(1, 2, 3, 0, 1.0)), "Heartbeat says from 2 to 3 on a link from 2 to 1"),
        (frame(Heartbeat(1, 2, 1, 0, 1.0))[:-1] + b"\xff", "CRC"),
        (struct.pack(">I", 2**31), "frame length 2147483648"),
        (b"GET / HTTP/1.1\r\n", "frame length"),
    ],
    ids=["forged sender", "for another", "damaged", "huge", "garbage"],
)
@on_both_loops
async def test_a_member_that_breaks_the_protocol_is_cut_off(network: Network, bad: bytes, said: str) -> None:
    network.reserve(1, 2)
    one = await network.start(1)
    good = Heartbeat(1, 2, 1, 0, 1.0)
    reader, writer, seal = await network.dial_as(PeerIdentity("local", CLUSTER_ID, 2, "2" * 32), one)
    writer.writelines(seal.seal([frame(good)]) + seal.seal([bad]) + seal.seal([frame(good)]))
    assert await ended(reader) == b""
    assert [message for _, _, message in one.received] == [good]
    assert one.events == [("down", 2, "2" * 32)]
    assert one.transport.counters.protocol_errors == 1
    assert network.log.having(said)


@on_both_loops
async def test_bytes_from_a_side_that_only_receives_end_the_connection(network: Network) -> None:
    network.reserve(1, 2)
    greeted = await network.listen_as(2)
    one = await network.start(1)
    reader, writer = await greeted.get()
    writer.write(b"?")
    assert await ended(reader) == b""
    await network.until(lambda: one.events and one.events[-1][0] == "down")


@on_both_loops
async def test_a_newer_connection_of_a_member_replaces_the_older(network: Network) -> None:
    network.reserve(1, 2)
    one = await network.start(1)
    identity = PeerIdentity("local", CLUSTER_ID, 2, "2" * 32)
    older, *_ = await network.dial_as(identity, one)
    newer, writer, seal = await network.dial_as(identity._replace(incarnation="f" * 32), one)
    assert await ended(older) == b""
    writer.writelines(seal.seal([frame(Heartbeat(1, 2, 1, 0, 1.0))]))
    await network.until(lambda: one.received)
    assert one.received[0][:2] == (2, "f" * 32)
    assert one.events == [("down", 2, "2" * 32)]
    assert not newer.at_eof()


@on_both_loops
async def test_small_messages_overtake_bulk_that_waits(network: Network) -> None:
    network.reserve(1, 2)
    greeted = await network.listen_as(2)
    one = await network.start(1)
    await network.until(lambda: one.events)
    reader, _ = await greeted.get()
    chunks = 100
    for number in range(chunks):
        assert one.send(chunk(1, 2, bytes(256 * 1024), offset=number))
    # Until the socket takes no more: from here on everything waits in the queue.
    waiting = -1
    while waiting != (waiting := one.transport.links()[2].queued_bytes):
        for _ in range(100):
            await asyncio.sleep(0)
    assert waiting > 15 * 1024 * 1024
    for term in (1, 2, 3):
        assert one.heartbeat(2, term)
    order = [await read_frame(reader) for _ in range(chunks + 3)]
    beats = [place for place, message in enumerate(order) if isinstance(message, Heartbeat)]
    assert [message.term for message in order if isinstance(message, Heartbeat)] == [1, 2, 3]
    assert [message.offset for message in order if isinstance(message, SnapshotChunk)] == list(range(chunks))
    assert beats == list(range(beats[0], beats[0] + 3))
    assert beats[0] < chunks // 2


@on_both_loops
async def test_a_full_queue_drops_the_message_and_the_connection(network: Network) -> None:
    network.reserve(1, 2)
    greeted = await network.listen_as(2)
    limit = 20 * 1024 * 1024
    options = TransportOptions(peer_queue_bytes_max=limit, backoff_min_ms=60_000, backoff_max_ms=60_000)
    one = await network.start(1, options=options)
    await network.until(lambda: one.events)
    await greeted.get()
    sent = 0
    while one.send(chunk(1, 2, bytes(256 * 1024))):
        sent += 1
        assert sent * 256 * 1024 <= limit
        assert one.transport.links()[2].queued_bytes <= limit
    assert [event[0] for event in one.events] == ["up"], "told of a disconnection while it sends"
    await network.until(lambda: one.events[-1][0] == "down")
    assert one.transport.counters.queue_overflows == 1
    assert network.log.having("peer_queue_bytes_max = 20971520")
    assert not one.transport.links()[2].outbound


@on_both_loops
async def test_misdirected_messages_are_programming_errors(network: Network) -> None:
    one, _ = await start_pair(network)
    for sender, receiver, node in ((1, 1, 1), (2, 1, 1), (1, 2, 3), (3, 2, 2)):
        message = Heartbeat(term=1, sender=sender, receiver=receiver, commit_index=0, sent_ms=1.0)
        with pytest.raises(ValueError, match="cannot send a message"):
            one.transport.send(PeerNode(node), message)
    with pytest.raises(ValueError, match="SnapshotChunk packs to"):
        one.send(chunk(1, 2, bytes(20 * 1024 * 1024)))


@on_both_loops
async def test_members_are_added_and_dropped(network: Network) -> None:
    network.reserve(1, 2)
    one = await network.start(1, members={})
    two = await network.start(2, members={})
    assert not one.heartbeat(2)
    one.transport.addNode(PeerNode(2, network.addresses[2]))
    two.transport.addNode(PeerNode(1, network.addresses[1]))
    await network.until(lambda: one.up(2) and two.up(1))
    one.transport.addNode(PeerNode(2))
    assert one.up(2), "adding a known member again changes nothing"
    assert one.heartbeat(2)
    one.transport.addNode(PeerNode(2, "127.0.0.1:1"))
    assert [event[0] for event in one.events] == ["up"], "nothing is told within the call"
    await network.until(lambda: [event[0] for event in one.events] == ["up", "down"])
    one.transport.addNode(PeerNode(2, network.addresses[2]))
    await network.until(lambda: one.up(2) and two.up(1))
    assert one.heartbeat(2)
    one.transport.dropNode(PeerNode(2))
    one.transport.dropNode(PeerNode(7))
    await network.until(lambda: two.received and two.events[-1][0] == "down")
    assert [event[0] for event in one.events] == ["up", "down", "up"]
    assert one.transport.links() == {}
    await network.until(lambda: network.log.having("node id: 2 there, not a member here"))
    with pytest.raises(ValueError, match="node 3 at '' cannot be added"):
        one.transport.addNode(PeerNode(3))
    with pytest.raises(ValueError, match="cannot be added"):
        one.transport.addNode(PeerNode(1, network.addresses[1]))


@on_both_loops
async def test_dial_addresses_of_the_settings_win(network: Network) -> None:
    network.reserve(1, 2)
    one, two = await network.start(1), await network.start(2)
    one.transport.dropNode(PeerNode(2))
    one.transport.addNode(PeerNode(2, "127.0.0.1:1"))
    assert one.transport.links()[2].address == network.addresses[2]
    await network.until(lambda: one.up(2) and two.up(1))


@on_both_loops
async def test_a_member_of_another_cluster_is_dropped_once_the_cluster_id_is_known(network: Network) -> None:
    network.reserve(1, 2)
    known = {"cluster_id": ""}
    runtime = AsyncioRuntime(asyncio.get_running_loop(), random.Random())
    transport = PeerTransport(
        runtime,
        lambda: PeerIdentity("local", known["cluster_id"], 1, "1" * 32),
        [SECRET.decode()],
        codec=Codec(),
        listen=network.sockets.pop(1),
        members=network.addresses,
    )
    one = Member(network.changes, transport, PeerIdentity("local", "", 1, "1" * 32))
    await transport.start()
    try:
        two = await network.start(2)
        await network.until(lambda: one.up(2) and two.up(1))
        known["cluster_id"] = CLUSTER_ID
        transport.recheck_identities()
        known["cluster_id"] = "d" * 32
        transport.recheck_identities()
        await network.until(lambda: one.events[-1][0] == "down")
        await network.until(lambda: network.log.having("cluster id: cccc"))
        assert not one.up(2)
    finally:
        await transport.stop()


@on_both_loops
async def test_what_becomes_known_while_a_hello_is_under_way_counts(network: Network) -> None:
    network.reserve(1, 2)
    known = {"cluster_id": ""}

    def admission() -> Admission:
        known["cluster_id"] = "d" * 32
        return Admission()

    transport = PeerTransport(
        AsyncioRuntime(asyncio.get_running_loop(), random.Random()),
        lambda: PeerIdentity("local", known["cluster_id"], 1, "1" * 32),
        [SECRET.decode()],
        codec=Codec(),
        listen=network.sockets.pop(1),
        members=network.addresses,
        admission=admission,
    )
    one = Member(network.changes, transport, PeerIdentity("local", "", 1, "1" * 32))
    await transport.start()
    try:
        await network.start(2)
        await network.until(lambda: network.log.having("cluster id: cccc"))
        assert one.events == []
        assert not transport.links()[2].inbound
    finally:
        await transport.stop()


@on_both_loops
async def test_the_contract_before_start_and_after_the_end(network: Network) -> None:
    network.reserve(1, 2)
    identity = PeerIdentity("local", CLUSTER_ID, 1, "1" * 32)
    runtime = AsyncioRuntime(asyncio.get_running_loop(), random.Random())
    listen = network.sockets.pop(1)
    transport = PeerTransport(
        runtime, lambda: identity, [SECRET.decode()], codec=Codec(), listen=listen, members=network.addresses
    )
    assert not transport.ready
    with pytest.raises(TransportNotReadyError):
        assert transport.address
    assert not transport.send(PeerNode(2), Heartbeat(1, 1, 2, 0, 1.0))
    await transport.start()
    transport.destroy()
    assert not transport.ready
    await transport.stop()


@on_both_loops
async def test_a_taken_address_is_named(network: Network) -> None:
    network.reserve(1)
    one = await network.start(1)
    with pytest.raises(
        AddressInUseError, match=rf"listen\.peer = {one.address}: another process listens there"
    ):
        await network.start(2, listen=split_address(one.address))


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "host:x", "host:70000", "host:-1"])
@on_both_loops
async def test_odd_addresses_are_refused(network: Network, address: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        await network.start(1, members={2: address})


def test_addresses_are_split() -> None:
    assert split_address("localhost:2281") == ("localhost", 2281)
    assert split_address("[::1]:2281") == ("::1", 2281)


def test_unfit_options_are_refused() -> None:
    with pytest.raises(ValueError, match="backoff_min_ms = 600"):
        TransportOptions(backoff_min_ms=600)


@on_both_loops
async def test_a_queue_must_hold_the_largest_frame(network: Network) -> None:
    with pytest.raises(ValueError, match="peer_queue_bytes_max = 1000 does not hold a frame of 1000 bytes"):
        await network.start(
            1, codec=Codec(frame_bytes_max=1000), options=TransportOptions(peer_queue_bytes_max=1000)
        )


@on_both_loops
async def test_a_transport_that_never_started_lets_its_socket_go(network: Network) -> None:
    network.reserve(1)
    listen, identity = network.sockets.pop(1), PeerIdentity("local", CLUSTER_ID, 1, "1" * 32)
    runtime = AsyncioRuntime(asyncio.get_running_loop(), random.Random())
    transport = PeerTransport(
        runtime, lambda: identity, [SECRET.decode()], codec=Codec(), listen=listen, members={}
    )
    await transport.stop()
    assert listen.fileno() == -1
