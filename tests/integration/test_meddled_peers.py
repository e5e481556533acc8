"""Peers with somebody between them who changes, repeats, swaps or loses what passes: the seal tells."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError

from quorum.config.tls import TlsSection, read_material
from quorum.platform.tls import TlsPort
from quorum.raft.peers import links
from quorum.raft.peers.peers import PeerTls, split_address
from quorum.raft.peers.sealing import CHECK_BYTES, TAG_BYTES
from tests.support.certificates import Authority
from tests.support.nodes import Node, QuorateNodes, eventually
from tests.support.peer_network import Network, on_both_loops

#: frames that pass before the meddling
PASSED = 3
WAIT_S = 60.0


class Meddling(NamedTuple):
    """What is done to a run of so many frames."""

    frames: int
    change: Callable[[list[bytes]], list[bytes]]


def flipped(at: int) -> Meddling:
    """Return what changes one bit of a frame."""

    def change(run: list[bytes]) -> list[bytes]:
        changed = bytearray(run[0])
        changed[at] ^= 0x10
        return [bytes(changed)]

    return Meddling(1, change)


#: {what: (how, what the log says of it)}
MEDDLINGS = {
    "a bit of the message": (flipped(-TAG_BYTES - 1), "the MAC"),
    "a bit of the tag": (flipped(-1), "the MAC"),
    # 4,096 bytes more: without a check of the length the connection would be mute until they came.
    "a bit of the length": (flipped(CHECK_BYTES + 2), "the length"),
    "twice": (Meddling(1, lambda run: run * 2), "the MAC"),
    "swapped": (Meddling(2, lambda run: run[::-1]), "the MAC"),
    "lost": (Meddling(2, lambda run: run[1:]), "the MAC"),
}


class Meddler:
    """Passes hellos and frames on, and meddles with each connection once, while there are meddlings."""

    def __init__(self, target: str, meddlings: Iterator[Meddling], passed: int = PASSED) -> None:
        """Serve nobody yet.

        Args:
            target: host:port of a node.
            meddlings: one a connection.
            passed: frames of each connection that pass before.
        """
        self._target = split_address(target)
        self._meddlings = meddlings
        self._passed = passed
        self.meddled = 0

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
        for _ in range(self._passed):
            onward.write(await self._frame(reader))
        meddling = next(self._meddlings, None)
        if meddling is not None:
            run = [await self._frame(reader) for _ in range(meddling.frames)]
            onward.writelines(meddling.change(run))
            self.meddled += 1
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


@pytest.mark.parametrize(("meddling", "said"), MEDDLINGS.values(), ids=MEDDLINGS)
@on_both_loops
async def test_what_is_meddled_with_ends_the_connection_and_the_log_says_why(
    network: Network, meddling: Meddling, said: str
) -> None:
    network.reserve(1, 2)
    meddler = Meddler(network.addresses[1], iter([meddling]))
    server = await asyncio.start_server(meddler.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    async with server:
        one = await network.start(1)
        two = await network.start(2, members={**network.addresses, 1: f"{host}:{port}"})
        await network.until(lambda: one.up(2) and two.up(1))
        for term in range(PASSED + meddling.frames):
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


class MeddledNodes(QuorateNodes):
    """Nodes as processes; whoever dials node 1, and whomever it dials, has a meddler between."""

    def __init__(self, meddlings: Iterator[Meddling]) -> None:
        """Choose ports."""
        self.meddlers: dict[int, Meddler] = {}
        self._meddlings = meddlings
        #: {node id: port before it}
        self._ports: dict[int, int] = {}
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="meddlers", daemon=True)
        self._thread.start()
        super().__init__(nodes=3)

    def config(self, node: Node) -> dict[str, dict[str, object]]:
        """Sections of one node's node.toml."""
        sections = super().config(node)
        for node_id in (1,) if node.node_id != 1 else (2, 3):
            if node_id not in self._ports:
                serving = asyncio.run_coroutine_threadsafe(self._meddle(node_id), self._loop)
                self._ports[node_id] = serving.result(WAIT_S)
            sections["members"][str(node_id)] = f"127.0.0.1:{self._ports[node_id]}"
        return sections

    async def _meddle(self, node_id: int) -> int:
        meddler = self.meddlers[node_id] = Meddler(self.peer_address(node_id), self._meddlings, 50)
        server = await asyncio.start_server(meddler.serve, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        asyncio.run_coroutine_threadsafe(self._end_meddling(), self._loop).result(WAIT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()

    async def _end_meddling(self) -> None:
        for server in self._servers:
            server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def test_no_write_is_lost_while_somebody_meddles_between_nodes() -> None:
    with MeddledNodes(itertools.cycle(meddling for meddling, _ in MEDDLINGS.values())) as nodes:
        client = KazooClient(nodes.hosts)
        client.start(WAIT_S)
        written = 0

        def write() -> bool:
            nonlocal written
            try:
                client.retry(client.create, f"/n{written}", b"%d" % written)
            except NodeExistsError:
                pass  # an attempt whose answer was lost
            written += 1
            return sum(each.meddled for each in nodes.meddlers.values()) >= 2 * len(MEDDLINGS)

        eventually(write, WAIT_S, "every meddling has come twice")
        assert all(client.get(f"/n{number}")[0] == b"%d" % number for number in range(written))
        client.stop()
        client.close()
        metrics = "".join(nodes.get(node_id, "/metrics")[1].decode() for node_id in nodes.node_ids)
        counts = re.findall(r"^quorate_peer_protocol_errors_total (\S+)", metrics, re.MULTILINE)
        assert sum(map(float, counts)) >= len(MEDDLINGS)
        outputs = "".join(node.output_path.read_text() for node in nodes.nodes.values())
        assert "the MAC of frame" in outputs
        assert "the length of frame" in outputs
        assert "damaged on the way" not in outputs
