"""The client port of a real node, over real sockets: what ZooKeeper's clients rely on.

One node on a loop of its own in this process, a client that speaks frames through plain streams. The unit
tests of the server hold the fine points; here the same promises must hold through log, timers and kernel
buffers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, NodeExistsError

from quorum.local import ensemble_in_thread
from quorum.wire.replies import (
    ConnectResponse,
    decode_connect_response,
    decode_data,
    decode_header,
    decode_multi,
    decode_watch_event,
)
from quorum.wire.requests import (
    PING_FRAME,
    ConnectRequest,
    SetWatches,
    encode_command,
    encode_connect,
    encode_read,
    encode_set_watches,
)

DEADLINE_S = 20.0
TIMEOUT_MIN_MS = 400
SETTINGS: dict[str, dict[str, object]] = {
    "limits": {
        "tick_ms": 200,
        "session_timeout_min_ms": TIMEOUT_MIN_MS,
        "session_timeout_max_ms": 20_000,
        "handshake_timeout_ms": 500,
        "frame_bytes_max": 2 << 20,
        "outstanding_requests_max": 100,
    },
    "security": {"four_letter_words": ["ruok", "srvr", "wchp", "dirs", "conf"]},
}
EXISTS, GET_DATA, GET_CHILDREN = 3, 4, 8
GREETING = ConnectRequest(0, 0, 10_000, 0, bytes(16), False)


class Reply(NamedTuple):
    """One frame of the server."""

    xid: int
    zxid: int
    err: int
    frame: bytes

    @property
    def event(self) -> tuple[int, str]:
        assert self.xid == -1
        return decode_watch_event(self.frame)[0], decode_watch_event(self.frame)[2]


class Wire:
    """A client that sends and takes frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def greet(self, request: ConnectRequest = GREETING) -> ConnectResponse:
        self.send(encode_connect(request))
        return decode_connect_response(await self._frame())

    def send(self, *frames: bytes) -> None:
        self._writer.write(b"".join(frames))

    def say_no_more(self) -> None:
        """End this side of the connection; the other one is still read."""
        self._writer.write_eof()

    async def _frame(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            (length,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(length)

    async def reply(self) -> Reply:
        frame = await self._frame()
        return Reply(*decode_header(frame), frame)

    async def replies(self, count: int) -> list[Reply]:
        return [await self.reply() for _ in range(count)]

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self._reader.read()
            except ConnectionResetError:
                return b""

    async def leave(self) -> None:
        self._writer.transport.abort()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Node:
    """A running node and the clients that a test has."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self._wires: list[Wire] = []

    async def connect(self) -> Wire:
        host, port = self.hosts.split(":")
        wire = Wire(*await asyncio.open_connection(host, int(port), limit=1 << 26))
        self._wires.append(wire)
        return wire

    async def greeted(self, timeout_ms: int = 10_000) -> Wire:
        wire = await self.connect()
        assert (await wire.greet(GREETING._replace(session_timeout_ms=timeout_ms))).session_id
        return wire

    async def leave(self) -> None:
        for wire in self._wires:
            await wire.leave()


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    with ensemble_in_thread(1, SETTINGS) as running:
        node = Node(running.hosts)
        yield node
        await node.leave()


def create(xid: int, path: str, data: bytes | None = b"", flags: int = 0) -> bytes:
    return encode_command(xid, [1, path, data, None, flags])


async def test_a_pipeline_of_writes_and_reads_is_answered_in_order_with_dense_zxids(node: Node) -> None:
    wire = await node.greeted()
    frames = [create(0, "/p")]
    for number in range(1, 500):
        frames.append(encode_command(2 * number, [5, "/p", b"%d" % number, number - 1]))
        frames.append(encode_read(2 * number + 1, GET_DATA, "/p", False))
    wire.send(*frames)
    replies = await wire.replies(len(frames))
    assert [reply.xid for reply in replies] == [0, *range(2, 1000)]
    assert {reply.err for reply in replies} == {0}
    first = replies[0].zxid
    assert [reply.zxid for reply in replies[1::2]] == list(range(first + 1, first + 500))
    for number, reply in enumerate(replies[2::2], start=1):
        data, stat = decode_data(reply.frame)
        assert (data, stat.version, stat.mzxid) == (b"%d" % number, number, first + number)


async def test_a_watch_fires_on_another_connection_before_it_can_see_the_change(node: Node) -> None:
    watcher, writer = await node.greeted(), await node.greeted()
    watcher.send(encode_read(1, EXISTS, "/w", True))
    assert (await watcher.reply()).err == -101
    writer.send(create(1, "/w"))
    written = await writer.reply()
    watcher.send(encode_read(2, EXISTS, "/w", False))
    event, seen = await watcher.replies(2)
    assert event.event == (1, "/w")
    assert event.zxid == written.zxid
    assert (seen.xid, seen.err) == (2, 0)


async def test_a_session_moves_to_a_new_connection_with_its_ephemerals(node: Node) -> None:
    old = await node.connect()
    answer = await old.greet()
    old.send(create(1, "/e", flags=1), encode_read(2, EXISTS, "/e", True))
    seen = (await old.replies(2))[-1].zxid
    thief = await node.connect()
    refused = await thief.greet(GREETING._replace(session_id=answer.session_id))
    assert (refused.session_id, refused.session_timeout_ms, refused.password) == (0, 0, bytes(16))
    assert await thief.rest() == b""
    new = await node.connect()
    again = GREETING._replace(session_id=answer.session_id, password=answer.password, last_zxid_seen=seen)
    assert await new.greet(again) == answer
    assert await old.rest() == b""
    new.send(encode_set_watches(SetWatches(seen, ["/e"], [], [])), encode_command(3, [2, "/e", -1]))
    assert [reply.xid for reply in await new.replies(3)] == [-8, -1, 3]


async def test_a_session_that_moves_to_another_node_ends_its_connection_at_the_first() -> None:
    with ensemble_in_thread(3, SETTINGS) as running:
        # The first connection of each: nodes count theirs alike.
        first, second, _ = [Node(hosts) for hosts in running.hosts.split(",")]
        try:
            old, new = await first.connect(), await second.connect()
            answer = await old.greet()
            again = GREETING._replace(session_id=answer.session_id, password=answer.password)
            assert await new.greet(again) == answer
            # Pings would keep it for ever; who only waits is dropped with its session's timeout.
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
                async with asyncio.timeout(DEADLINE_S):
                    while True:
                        old.send(PING_FRAME)
                        await old.reply()
        finally:
            await first.leave()
            await second.leave()


async def test_a_silent_session_expires_soon_after_its_timeout_and_takes_its_ephemerals_along(
    node: Node,
) -> None:
    watcher = await node.greeted()
    silent = await node.connect()
    answer = await silent.greet(GREETING._replace(session_timeout_ms=TIMEOUT_MIN_MS))
    silent.send(create(1, "/e1", flags=1), create(2, "/e2", flags=1))
    await silent.replies(2)
    written_s = time.monotonic()
    watcher.send(encode_read(1, EXISTS, "/e1", True), encode_read(2, EXISTS, "/e2", True))
    await watcher.replies(2)
    events = await watcher.replies(2)
    assert time.monotonic() - written_s >= TIMEOUT_MIN_MS / 1000 * 0.99
    assert sorted(reply.event for reply in events) == [(2, "/e1"), (2, "/e2")]
    assert events[0].zxid == events[1].zxid
    assert await silent.rest() == b""
    late = await node.connect()
    again = GREETING._replace(session_id=answer.session_id, password=answer.password)
    assert (await late.greet(again)).session_id == 0


async def test_pings_alone_keep_a_session_while_silent_ones_expire(node: Node) -> None:
    watcher, pinger = await node.greeted(), await node.greeted(TIMEOUT_MIN_MS)
    pinger.send(create(1, "/alive", flags=1))
    await pinger.reply()
    for _ in range(3):
        silent = await node.greeted(TIMEOUT_MIN_MS)
        silent.send(create(1, "/silent", flags=1))
        await silent.reply()
        watcher.send(encode_read(1, EXISTS, "/silent", True))
        assert (await watcher.reply()).err == 0
        expiry = asyncio.ensure_future(watcher.reply())
        while not expiry.done():
            pinger.send(PING_FRAME)
            assert (await pinger.reply()).xid == -2
        assert (await expiry).event == (2, "/silent")
    pinger.send(encode_read(2, EXISTS, "/alive", False))
    assert (await pinger.reply()).err == 0


async def test_a_closed_session_is_gone_and_nothing_behind_the_close_is_applied(node: Node) -> None:
    wire, other = await node.greeted(), await node.greeted()
    wire.send(create(1, "/e", flags=1), encode_command(2, [-11]), create(3, "/late"))
    assert [reply.xid for reply in await wire.replies(2)] == [1, 2]
    assert await wire.rest() == b""
    other.send(encode_read(1, EXISTS, "/e", False), encode_read(2, EXISTS, "/late", False))
    assert [reply.err for reply in await other.replies(2)] == [-101, -101]


async def test_a_large_multi_passes_through_many_pieces(node: Node) -> None:
    wire = await node.greeted()
    parts = [[1, f"/m{number}", bytes(500), None, 0] for number in range(2000)]
    wire.send(encode_command(1, [14, parts]), encode_read(2, GET_CHILDREN, "/", False))
    multi, children = await wire.replies(2)
    assert [result.path for result in decode_multi(multi.frame)] == [part[1] for part in parts]
    assert children.zxid == multi.zxid


async def test_a_client_that_does_not_read_gets_everything_once_it_does_and_disturbs_nobody(
    node: Node,
) -> None:
    lazy, busy = await node.greeted(), await node.greeted()
    lazy.send(create(0, "/big", bytes(1 << 20)))
    await lazy.reply()
    # The stream takes up to 2 x 64 MiB by itself; behind that the server must stop reading.
    lazy.send(*(encode_read(number, GET_DATA, "/big", False) for number in range(1, 301)))
    for number in range(50):
        busy.send(encode_command(number, [5, "/big", b"small", -1]) if number == 25 else PING_FRAME)
        assert (await busy.reply()).err == 0
    replies = await lazy.replies(300)
    assert [reply.xid for reply in replies] == list(range(1, 301))
    assert {reply.err for reply in replies} == {0}


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 27) + bytes(27),
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        encode_connect(GREETING) + struct.pack(">i", 7),
        encode_connect(GREETING) + struct.pack(">iii", 8, -4, 100),
        encode_connect(GREETING) + struct.pack(">iii", 8, 1, 999),
    ],
)
async def test_garbage_ends_its_own_connection_and_no_other(node: Node, garbage: bytes) -> None:
    neighbour, wire = await node.greeted(), await node.connect()
    wire.send(garbage)
    await wire.rest()
    neighbour.send(create(1, "/fine"))
    assert (await neighbour.reply()).err == 0


async def test_a_connection_that_says_nothing_is_closed_in_time(node: Node) -> None:
    silent, slow = await node.connect(), await node.connect()
    slow.send(encode_connect(GREETING)[:10])
    assert await silent.rest() == b""
    assert await slow.rest() == b""


async def test_words_are_answered_and_the_connection_ends(node: Node) -> None:
    for word, beginning in (
        (b"ruok", b"imok"),
        (b"srvr", b"Zookeeper version: 3.9"),
        (b"dump", b"dump is not"),
    ):
        wire = await node.connect()
        wire.send(word)
        assert (await wire.rest()).startswith(beginning)


async def test_a_word_that_lists_much_is_written_whole_while_others_are_served(node: Node) -> None:
    watcher = await node.connect()
    await watcher.greet()
    paths = [f"/{number:05}{'x' * 100}" for number in range(30_000)]
    for first in range(0, len(paths), 10_000):
        watcher.send(encode_set_watches(SetWatches(0, [], paths[first : first + 10_000], [])))
        assert (await watcher.reply()).err == 0
    asker = await node.connect()
    asker.send(b"wchp")
    watcher.send(encode_read(1, EXISTS, "/", False))
    assert (await watcher.reply()).xid == 1
    listed = [line for line in (await asker.rest()).decode().splitlines() if line.startswith("/")]
    assert listed == paths


async def test_the_size_on_the_disk_is_measured_and_told(node: Node) -> None:
    for word, pattern in ((b"dirs", rb"datadir_size: ([0-9]+)\n"), (b"conf", rb"dataDirSize=([0-9]+)\n")):
        wire = await node.connect()
        wire.send(word)
        found = re.search(pattern, await wire.rest())
        assert found is not None
        assert int(found[1]) > 0


@pytest.mark.parametrize(("word", "end"), [(b"ruok", b"imok"), (b"conf", b"\n"), (b"wchp", b"\n\n")])
async def test_who_says_a_word_and_nothing_more_gets_the_whole_answer(
    node: Node, word: bytes, end: bytes
) -> None:
    """As netcat does, which ends its side behind what it has read."""
    watcher = await node.connect()
    await watcher.greet()
    paths = [f"/{number:05}{'x' * 100}" for number in range(10_000)]
    watcher.send(encode_set_watches(SetWatches(0, [], paths, [])))
    assert (await watcher.reply()).err == 0
    asker = await node.connect()
    asker.send(word)
    asker.say_no_more()
    answer = await asker.rest()
    assert answer.endswith(end)
    assert answer.count(b"x" * 100) == (len(paths) if word == b"wchp" else 0)


async def _in_thread(work: Callable[[], None]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.to_thread(work)


async def test_kazoo_works_unchanged(node: Node) -> None:
    def story() -> None:
        first, second = KazooClient(node.hosts, timeout=5.0), KazooClient(node.hosts, timeout=5.0)
        first.start()
        second.start()
        try:
            seen: list[list[str]] = []
            second.ensure_path("/app")
            second.ChildrenWatch("/app", seen.append)
            path = first.create("/app/n-", b"v", ephemeral=True, sequence=True)
            assert path == "/app/n-0000000000"
            with pytest.raises(NodeExistsError):
                second.create("/app")
            with pytest.raises(BadVersionError):
                second.set("/app", b"x", version=7)
            transaction = second.transaction()
            transaction.check("/app", 0)
            transaction.set_data("/app", b"y")
            transaction.create("/app/t")
            assert len(transaction.commit()) == 3
            second.sync("/app")
            assert second.get("/app")[0] == b"y"
            first.stop()
            end_s = time.monotonic() + DEADLINE_S
            while seen[-1] != ["t"] and time.monotonic() < end_s:
                second.sync("/app")
            assert seen[-1] == ["t"]
        finally:
            for client in (first, second):
                with contextlib.suppress(Exception):
                    client.stop()
                client.close()

    await _in_thread(story)


async def test_many_clients_at_once_each_get_their_own_answers(node: Node) -> None:
    async def talk(number: int, wire: Wire) -> None:
        wire.send(create(0, f"/c{number}"))
        wire.send(*(encode_command(xid, [5, f"/c{number}", b"%d" % xid, xid - 1]) for xid in range(1, 101)))
        replies = await wire.replies(101)
        assert [reply.xid for reply in replies] == list(range(101))
        assert {reply.err for reply in replies} == {0}
        assert [reply.zxid for reply in replies] == sorted({reply.zxid for reply in replies})

    # One after the other: a greeting that waits behind 50 clients' work is late for the handshake.
    wires = [await node.greeted() for _ in range(50)]
    await asyncio.gather(*(talk(number, wire) for number, wire in enumerate(wires)))
