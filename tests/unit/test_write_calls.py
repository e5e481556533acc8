"""How many Python calls a lone write and a read cost: a budget, so that no layer comes back unseen.

Three members with their shipped transports, journals and client ports run in one process on a loop that does
the same each time. Counted is what one setData causes until all nodes rest: on the leader, which serves the
client, and on a follower. The change log is not part of a member and not counted. Reads are those of a
client of a follower: one alone, and many in one chunk.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

from quorum.config.node import NodeConfig, node_config
from quorum.core.codes import OP_CREATE, OP_SET_DATA
from quorum.node.member import QuorumMember
from quorum.node.node import MESSAGE_TYPES
from quorum.platform import os_runtime
from quorum.raft.datadir.identity import Start
from quorum.raft.peers import transport
from quorum.raft.peers.codec import Codec
from quorum.raft.peers.transport import PeerTransport
from quorum.wire.protocol import OpCode
from quorum.wire.requests import encode_command, encode_connect, encode_read
from tests.support.memory_disk import MemoryDisk
from tests.support.still_loop import NODE, StillLoop, StillRuntime, StillTransport
from tests.unit.server.memory import GREETING

NODES = (1, 2, 3)
#: a change may lower these, and then writes the lower ones here
LEADER_CALLS = 300
FOLLOWER_CALLS = 181
#: of a getData alone, and of each one more in its chunk
LONE_READ_CALLS = 32
NEXT_READ_CALLS = 15
READS = 100
#: writes before the counted one: the journal has seen by then that the disk is quick
WARM_WRITES = 16
#: of the loop's own time
ELECTED_S = 5.0
#: what calls a function without being part of the write
UNCOUNTED = ("/tests/", "/asyncio/")


class Calls:
    """Counts calls of Python functions by node while it is entered."""

    def __init__(self) -> None:
        self.by_node: dict[int, Counter[str]] = {node_id: Counter() for node_id in (0, *NODES)}

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code, caller = frame.f_code, frame.f_back
        # What makes a NamedTuple has no file of its own.
        made = code.co_filename == "<string>" and caller is not None
        where = caller.f_code.co_filename if made and caller is not None else code.co_filename
        if event == "call" and not any(part in where for part in UNCOUNTED):
            self.by_node[NODE.get()][f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"] += 1


class Client(asyncio.Protocol):
    """Counts what it is sent."""

    def __init__(self) -> None:
        self.answers = 0

    def data_received(self, _: bytes) -> None:
        self.answers += 1


def config_of(node_id: int, folder: Path) -> NodeConfig:
    secret = folder / "peer.secret"
    secret.touch(mode=0o600)
    secret.write_text(32 * "s")
    sections: dict[str, dict[str, object]] = {
        "node": {"id": node_id, "cluster": "still", "data_dir": "/data"},
        "members": {str(member): f"10.0.0.{member}:2281" for member in NODES},
        "security": {"peer_secret_file": str(secret)},
    }
    return node_config(sections, folder)


def followers_of(leader: int) -> list[int]:
    return [node_id for node_id in NODES if node_id != leader]


def context_of(node_id: int) -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(NODE.set, node_id)
    return context


async def start(loop: StillLoop, config: NodeConfig) -> QuorumMember:
    """Start a member as `quorate serve` does; to be run in its context."""
    node_id = config.node.id
    runtime = StillRuntime(loop, node_id)
    failures: list[BaseException] = []
    disk = MemoryDisk(random.Random(node_id))
    member = QuorumMember(config, runtime, disk, start=Start.BOOTSTRAP, on_failure=failures.append)
    peers = PeerTransport(
        runtime,
        member.identity,
        ["secret"],
        codec=Codec(MESSAGE_TYPES),
        listen=("127.0.0.1", 0),
        members={peer: str(address) for peer, address in config.members.items()},
        admits_strangers=member.hears_nobody,
        admission=member.admission,
        on_proven=member.peer_proved,
    )
    await peers.start()
    member.attach(peers)
    member.start()
    return member


class Played(NamedTuple):
    """The leader, and what was called."""

    leader: int
    write: Calls
    lone_read: Calls
    #: of READS of them in one chunk
    reads: Calls


async def greeted(loop: StillLoop, member: QuorumMember, node_id: int) -> tuple[Client, StillTransport]:
    """Let a client connect to a member and open a session."""
    client = Client()
    stream = context_of(node_id).run(member.frontend.new_connection).stream
    link = loop.connect(client, stream, (0, node_id))
    link.write(encode_connect(GREETING))
    await loop.rest()
    return client, link


async def play(loop: StillLoop, folder: Path) -> Played:
    """Write alone until all is warm, and once more; then read."""
    members: dict[int, QuorumMember] = {}
    for node_id in NODES:
        starting = start(loop, config_of(node_id, folder))
        members[node_id] = await loop.create_task(starting, context=context_of(node_id))
    await loop.passes(ELECTED_S)
    leader, *_ = [node_id for node_id in NODES if members[node_id].engine.accepts_proposals]
    client, link = await greeted(loop, members[leader], leader)

    async def caused(connection: StillTransport, request: bytes) -> Calls:
        calls = Calls()
        with calls:
            connection.write(request)
            await loop.rest()
        assert not calls.by_node[0], "every call is a node's"
        return calls

    link.write(encode_command(1, [OP_CREATE, "/a", b"", None, 0]))
    await loop.rest()
    for xid in range(2, WARM_WRITES):
        link.write(encode_command(xid, [OP_SET_DATA, "/a", b"x" * 100, -1]))
        await loop.rest()
    assert client.answers == WARM_WRITES, "the greeting and each write is answered"
    write = await caused(link, encode_command(WARM_WRITES, [OP_SET_DATA, "/a", b"x" * 100, -1]))
    assert client.answers == WARM_WRITES + 1
    follower = followers_of(leader)[0]
    reader, link = await greeted(loop, members[follower], follower)
    lone = await caused(link, encode_read(1, OpCode.GET_DATA, "/a", False))
    many = await caused(link, encode_read(1, OpCode.GET_DATA, "/a", False) * READS)
    assert reader.answers == 3, "the greeting, the read and the chunk are answered"
    return Played(leader, write, lone, many)


def counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Played:
    loop = StillLoop()
    monkeypatch.setattr(os_runtime, "time", loop)
    monkeypatch.setattr(transport, "Acceptor", loop.acceptor)
    try:
        return loop.run_until_complete(play(loop, folder))
    finally:
        loop.close()


def test_a_lone_write_stays_within_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, calls, *_ = counted(tmp_path, monkeypatch)
    sums = {node_id: sum(counts.values()) for node_id, counts in calls.by_node.items()}
    followers = followers_of(leader)
    most = max(sums[node_id] for node_id in followers)
    listed = {node_id: sorted(calls.by_node[node_id].items()) for node_id in (leader, followers[0])}
    assert (sums[leader], most) == (LEADER_CALLS, FOLLOWER_CALLS), listed


def test_reads_stay_within_their_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = counted(tmp_path, monkeypatch)
    lone, many = (sum(each.by_node.values(), Counter()) for each in (played.lone_read, played.reads))
    more, rest = divmod(many.total() - lone.total(), READS - 1)
    assert (lone.total(), more, rest) == (LONE_READ_CALLS, NEXT_READ_CALLS, 0), sorted(many.items())


def test_the_calls_are_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ([each.by_node for each in counted(tmp_path, monkeypatch)[1:]] for _ in range(2))
    assert first == second
