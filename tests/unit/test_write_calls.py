"""How many Python calls a lone write costs each node: a budget, so that no layer comes back unseen.

Three members with their shipped transports, journals and client ports run in one process on a loop that does
the same each time. Counted is what one setData causes until all nodes rest: on the leader, which serves the
client, and on a follower. The change log is not part of a member and not counted.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import pytest

from quorum.config.node import NodeConfig, node_config
from quorum.core.codes import OP_CREATE, OP_SET_DATA
from quorum.node.member import QuorumMember
from quorum.node.node import MESSAGE_TYPES
from quorum.platform import os_runtime
from quorum.raft.datadir.identity import Start
from quorum.raft.peers.codec import Codec
from quorum.raft.peers.transport import PeerTransport
from quorum.wire.requests import encode_command, encode_connect
from tests.support.memory_disk import MemoryDisk
from tests.support.still_loop import NODE, StillLoop, StillRuntime
from tests.unit.server.memory import GREETING

NODES = (1, 2, 3)
#: A change may lower these, and then writes the lower ones here.
LEADER_CALLS = 296
FOLLOWER_CALLS = 180
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
    transport = PeerTransport(
        runtime,
        member.identity,
        b"secret",
        codec=Codec(MESSAGE_TYPES),
        listen=("127.0.0.1", 0),
        members={peer: str(address) for peer, address in config.members.items()},
        admits_strangers=member.hears_nobody,
        admission=member.admission,
        on_proven=member.peer_proved,
    )
    await transport.start()
    member.attach(transport)
    member.start()
    return member


async def play(loop: StillLoop, folder: Path) -> tuple[int, Calls]:
    """Write alone until all is warm, and once more; return the leader and that write's calls."""
    members: dict[int, QuorumMember] = {}
    for node_id in NODES:
        starting = start(loop, config_of(node_id, folder))
        members[node_id] = await loop.create_task(starting, context=context_of(node_id))
    await loop.passes(ELECTED_S)
    led = [node_id for node_id in NODES if members[node_id].engine.accepts_proposals]
    client = Client()
    stream = context_of(led[0]).run(members[led[0]].frontend.new_connection).stream
    link = loop.connect(client, stream, (0, led[0]))
    link.write(encode_connect(GREETING))
    await loop.rest()
    link.write(encode_command(1, [OP_CREATE, "/a", b"", None, 0]))
    await loop.rest()
    for xid in range(2, WARM_WRITES):
        link.write(encode_command(xid, [OP_SET_DATA, "/a", b"x" * 100, -1]))
        await loop.rest()
    assert client.answers == WARM_WRITES, "the greeting and each write is answered"
    calls, request = Calls(), encode_command(WARM_WRITES, [OP_SET_DATA, "/a", b"x" * 100, -1])
    with calls:
        link.write(request)
        await loop.rest()
    assert client.answers == WARM_WRITES + 1
    assert not calls.by_node[0], "every call is a node's"
    return led[0], calls


def counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, Calls]:
    loop = StillLoop()
    monkeypatch.setattr(os_runtime, "time", loop)
    try:
        return loop.run_until_complete(play(loop, folder))
    finally:
        loop.close()


def test_a_lone_write_stays_within_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, calls = counted(tmp_path, monkeypatch)
    sums = {node_id: sum(counts.values()) for node_id, counts in calls.by_node.items()}
    followers = [node_id for node_id in NODES if node_id != leader]
    most = max(sums[node_id] for node_id in followers)
    listed = {node_id: sorted(calls.by_node[node_id].items()) for node_id in (leader, followers[0])}
    assert (sums[leader], most) == (LEADER_CALLS, FOLLOWER_CALLS), listed


def test_the_calls_of_a_write_are_always_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = counted(tmp_path, monkeypatch), counted(tmp_path, monkeypatch)
    assert (first[0], first[1].by_node) == (second[0], second[1].by_node)
