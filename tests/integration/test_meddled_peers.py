"""Peers with somebody between them who changes, repeats, swaps or loses what passes: the seal tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from quorum.config.tls import TlsSection, read_material
from quorum.platform.tls import TlsPort
from quorum.raft.peers import links
from quorum.raft.peers.peers import PeerTls, split_address
from quorum.raft.peers.sealing import CHECK_BYTES, TAG_BYTES
from tests.support.certificates import Authority
from tests.support.peer_network import Changes, Network, on_both_loops

SEALED = "of frame {} is not what the peer sealed"
#: frames that pass before the meddling
PASSED = 3
Meddling = Callable[[list[bytes]], list[bytes]]


class Meddler:
    """Passes a hello and frames on, and changes a run of frames once, when that many are there."""

    def __init__(self, target: str, changes: Changes, meddling: Meddling, count: int) -> None:
        self._target = split_address(target)
        self._changes = changes
        self._meddling = meddling
        self._count = count
        self.meddled = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, onward = await asyncio.open_connection(*self._target)
        back = asyncio.ensure_future(self._copy(answers, writer))
        try:
            await self._pass_on(reader, onward)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # an end, of either side
        finally:
            onward.transport.abort()
            writer.transport.abort()
            await asyncio.wait([back])

    async def _pass_on(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> None:
        for _ in ("hello", "proof", "confirm"):
            head = await reader.readexactly(8)
            onward.write(head + await reader.readexactly(int.from_bytes(head[6:], "big")))
        for _ in range(PASSED):
            onward.write(await self._frame(reader))
        if not self.meddled:
            run = [await self._frame(reader) for _ in range(self._count)]
            self.meddled = True
            onward.writelines(self._meddling(run))
            self._changes.note()
        while chunk := await reader.read(1 << 16):
            onward.write(chunk)

    @staticmethod
    async def _frame(reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(CHECK_BYTES + 4)
        size = int.from_bytes(head[CHECK_BYTES:], "big")
        return head + await reader.readexactly(size + TAG_BYTES)

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
        except ConnectionError:
            pass  # as above
        writer.transport.abort()


def flipped(at: int) -> Meddling:
    """Return what changes one bit of a frame."""

    def meddle(run: list[bytes]) -> list[bytes]:
        changed = bytearray(run[0])
        changed[at] ^= 0x10
        return [bytes(changed)]

    return meddle


@pytest.mark.parametrize(
    ("meddling", "count", "said"),
    [
        (flipped(-TAG_BYTES - 1), 1, "the MAC"),
        (flipped(-1), 1, "the MAC"),
        # 4,096 bytes more: without a check of the length the connection would be mute until they came.
        (flipped(CHECK_BYTES + 2), 1, "the length"),
        (lambda run: run * 2, 1, "the MAC"),
        (lambda run: run[::-1], 2, "the MAC"),
        (lambda run: run[1:], 2, "the MAC"),
    ],
    ids=["a bit of the message", "a bit of the tag", "a bit of the length", "twice", "swapped", "lost"],
)
@on_both_loops
async def test_what_is_meddled_with_ends_the_connection_and_the_log_says_why(
    network: Network, meddling: Meddling, count: int, said: str
) -> None:
    network.reserve(1, 2)
    meddler = Meddler(network.addresses[1], network.changes, meddling, count)
    server = await asyncio.start_server(meddler.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        one = await network.start(1)
        two = await network.start(2, members={**network.addresses, 1: f"{host}:{port}"})
        await network.until(lambda: one.up(2) and two.up(1))
        sent = PASSED + count
        for term in range(sent):
            assert two.heartbeat(1, term + 1)
        await network.until(lambda: ("down", 2, "2" * 32) in one.events)
        assert network.log.having(said, "is not what the peer sealed", "lost, repeated or swapped")
        assert one.transport.counters.protocol_errors == 1
        terms = [message.term for _, _, message in one.received]
        # What came before the meddling, and never anything that was not sent, twice or out of turn.
        assert terms[:PASSED] == [1, 2, 3]
        assert terms in ([1, 2, 3], [1, 2, 3, 4])
        # The next connection is another one, and whole.
        await network.until(lambda: one.up(2) and two.up(1))
        assert two.heartbeat(1, 99)
        await network.until(lambda: one.received[-1][2].term == 99)


@on_both_loops
async def test_within_tls_frames_carry_no_mac(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_key: bytes) -> None:
        raise AssertionError("a frame within TLS is sealed")

    monkeypatch.setattr(links, "FrameSeal", refuse)
    files = Authority(tmp_path / "pki").settings("node")
    material = read_material(TlsSection(**{key: Path(str(each)) for key, each in files.items()}), "peer")  # type: ignore[arg-type]
    network.reserve(1, 2)
    one, two = [
        await network.start(each, tls=PeerTls(TlsPort("peer", material.accepting), material.dialling))
        for each in (1, 2)
    ]
    await network.until(lambda: one.up(2) and two.up(1))
    assert two.heartbeat(1)
    await network.until(lambda: one.received)
