"""Thirty connections list a large znode all the time: others keep a share of their rate, and the leader."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Self

import pytest

from tests.support.nodes import QuorateNodes, eventually
from tests.support.wire_load import Connection, create_body, frame, multi_body, read_body

pytestmark = pytest.mark.alone

CREATE, GET_DATA, GET_CHILDREN = 1, 4, 8
CHILDREN, PART = 100_000, 1000
LISTERS = 30
MEASURED_S = 4.0
#: of a client's rate, while others list
SHARE_MIN = 0.25
DEADLINE_S = 60.0


class Listers:
    """Connections that each ask for the children again when they have them all."""

    def __init__(self, host: str) -> None:
        self.listed = [0] * LISTERS
        self._ending = threading.Event()
        self._stack = ExitStack()
        self._connections = [self._stack.enter_context(Connection(host)) for _ in range(LISTERS)]
        self._threads = [threading.Thread(target=self._list, args=(each,)) for each in range(LISTERS)]

    def _list(self, number: int) -> None:
        link, room = self._connections[number].socket, bytearray(1 << 20)
        while not self._ending.is_set():
            link.sendall(frame(1, GET_CHILDREN, read_body("/many")))
            (left,) = struct.unpack(">i", link.recv(4))
            while left:
                # Only counted: what a client makes of the names is its own affair.
                left -= link.recv_into(room, min(left, len(room)))
            self.listed[number] += 1

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)
        self._stack.close()


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes() as running:
        with Connection(running.host(running.leader())) as client:
            client.call(CREATE, create_body("/many", b""))
            for start in range(0, CHILDREN, PART):
                names = range(start, start + PART)
                parts = [(CREATE, create_body(f"/many/member-{each:012d}", b"")) for each in names]
                assert client.call(14, multi_body(parts))[0] == 0
        yield running


def rate(client: Connection) -> float:
    """Count the reads of one client a second."""
    began, reads = time.monotonic(), 0
    while (took_s := time.monotonic() - began) < MEASURED_S:
        assert client.call(GET_DATA, read_body("/"))[0] == 0
        reads += 1
    return reads / took_s


def test_others_keep_their_share_while_thirty_list(nodes: QuorateNodes) -> None:
    leader = nodes.leader()
    term = nodes.status(leader)["term"]
    with Connection(nodes.host(leader)) as client:
        alone = rate(client)
        with Listers(nodes.host(leader)) as listers:
            eventually(lambda: all(listers.listed), DEADLINE_S, "everybody has a first list")
            beside = rate(client)
            eventually(lambda: min(listers.listed) > 1, DEADLINE_S, "everybody has a second one")
            listed = list(listers.listed)
    assert beside > SHARE_MIN * alone, f"{alone:.0f} reads a second alone, {beside:.0f} beside {LISTERS}"
    # A thread of this test that is slow to ask again misses a round.
    assert max(listed) <= 2 * min(listed), f"lists of each: {listed}"
    assert nodes.status(leader)["term"] == term
