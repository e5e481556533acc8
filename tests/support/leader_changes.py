"""Leaders that go, and clients of the other nodes that must not notice more than a pause.

A `SteadyWriter` is one client on one node: it sets one path to 1, 2, 3, … with a fixed number of writes in
flight, checks that each reply carries exactly the version that its place in the session demands, and keeps
when replies came. So a lost, repeated or reordered write is an error at once, and every gap can be read
from its times. `ENDINGS` are the ways in which a leader stops leading; `change_leader` carries one out
under writers and waits until the cluster got over it. Knows the nodes only through their ports and process
ids. Source: ARCHITECTURE.md, "Life of a write"; docs/internals/consensus.md, "Rules of the core".
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Self

from tests.support.nodes import QuorateNodes, eventually
from tests.support.recorded_writes import replies_of
from tests.support.wire_load import (
    GET_DATA,
    SET_DATA,
    Connection,
    LoadError,
    decode_get,
    decode_stat,
    frame,
    read_body,
    set_body,
)

DEADLINE_S = 30.0
#: how long a reply may take: longer than a batch may stay without an outcome (5 s)
REPLY_TIMEOUT_S = 15.0
#: acknowledgements that a writer must get before and after a change, so that both sides of it are seen
WRITES_AROUND = 100


class SteadyWriter:
    """One client that writes in a thread of its own until it is told to stop or something is wrong."""

    def __init__(
        self,
        host: str,
        path: str,
        *,
        window: int = 1,
        value_bytes: int = 100,
        session_timeout_ms: int = 20_000,
    ) -> None:
        """Connect, create the path and begin.

        Args:
            host: "address:port" of the one node that is used.
            path: a node that does not exist yet.
            window: writes in flight.
            value_bytes: size of each value, which is its number padded with blanks.
            session_timeout_ms: what is asked for.
        """
        self.path = path
        self.sent = 0
        self.acknowledged = 0
        #: why it ended by itself; empty while all is well
        self.error = ""
        #: [(monotonic seconds, acknowledged so far)], one per chunk of replies
        self.times: list[tuple[float, int]] = []
        self._window = window
        self._value_bytes = value_bytes
        self._stopping = False
        self._connection = Connection(host, session_timeout_ms=session_timeout_ms, timeout_s=REPLY_TIMEOUT_S)
        self._connection.ensure(path)
        self._thread = threading.Thread(target=self._run, name=f"writer of {path}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let what is in flight be answered, and end the session; a second stop does nothing."""
        self._stopping = True
        self._thread.join(REPLY_TIMEOUT_S + DEADLINE_S)
        assert not self._thread.is_alive(), f"the writer of {self.path} does not end"
        self._connection.close()

    def gap_s(self, since_s: float) -> float:
        """Longest time between two acknowledgements, the second of which came after `since_s`."""
        pairs = itertools.pairwise(when for when, _ in list(self.times))
        return max((later - earlier for earlier, later in pairs if later > since_s), default=0.0)

    def check(self, host: str) -> None:
        """Compare what a node holds with what was acknowledged.

        Raises:
            AssertionError: an acknowledged write is not there, or something that was never sent is.
        """
        with Connection(host, timeout_s=REPLY_TIMEOUT_S) as connection:
            connection.sync()
            error, _zxid, body = connection.call(GET_DATA, read_body(self.path))
        assert error == 0, f"{self.path} on {host}: error {error}"
        value, stat = decode_get(body)
        held = f"{self.path} on {host}: version {stat.version}, value {value[:20]!r}"
        assert self.acknowledged <= stat.version <= self.sent, (
            f"{held}; acknowledged up to {self.acknowledged}, sent up to {self.sent}"
        )
        assert stat.version == 0 or int(value) == stat.version, f"{held}: written out of order"

    def _run(self) -> None:
        try:
            self._write()
        except (OSError, LoadError) as error:
            self.error = f"{type(error).__name__}: {error}"

    def _write(self) -> None:
        replies = replies_of(self._connection)
        while True:
            room = 0 if self._stopping else self._window - (self.sent - self.acknowledged)
            if room:
                numbers = range(self.sent + 1, self.sent + room + 1)
                self.sent += room
                self._connection.socket.sendall(b"".join(self._frame(number) for number in numbers))
            elif self.sent == self.acknowledged:
                return
            for error, body in next(replies):
                if error:
                    raise LoadError(f"{self.path}: write {self.acknowledged + 1} got error {error}")
                version = decode_stat(body).version
                if version != self.acknowledged + 1:
                    raise LoadError(f"{self.path}: write {self.acknowledged + 1} got version {version}")
                self.acknowledged += 1
            self.times.append((time.monotonic(), self.acknowledged))

    def _frame(self, number: int) -> bytes:
        return frame(number, SET_DATA, set_body(self.path, str(number).encode().ljust(self._value_bytes)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()


def ask_transfer(nodes: QuorateNodes, asked: int, target: int) -> tuple[int, bytes]:
    """POST /v1/leader to a node: let `target` lead; returns (status code, body)."""
    connection = http.client.HTTPConnection("127.0.0.1", nodes.nodes[asked].admin_port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request(
            "POST", "/v1/leader", json.dumps({"node_id": target}), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        return response.status, response.read()


def _transfer(nodes: QuorateNodes, leader: int) -> None:
    ids = list(nodes.node_ids)
    target = ids[(ids.index(leader) + 1) % len(ids)]
    code, body = ask_transfer(nodes, leader, target)
    assert code in (200, 202), f"POST /v1/leader on node {leader} answered {code}: {body[:300]!r}"


def _terminate(nodes: QuorateNodes, leader: int) -> None:
    os.kill(nodes.pid(leader), signal.SIGTERM)


#: {name: what makes a leader stop leading}; none of them waits until another one leads
ENDINGS: Mapping[str, Callable[[QuorateNodes, int], None]] = {
    "killed": QuorateNodes.kill,
    "stopped": QuorateNodes.pause,
    "terminated": _terminate,
    "transferred": _transfer,
}


def change_leader(nodes: QuorateNodes, ending: str, leader: int, writers: Sequence[SteadyWriter]) -> float:
    """End a leadership while writers write, and wait until another node leads and all of them go on.

    A writer that met an error is not waited for. The old leader stays as the ending left it.

    Returns:
        Monotonic seconds of the moment before the ending.
    """
    _go_on(writers)
    status = nodes.status(leader)
    # A busy machine may have had an election meanwhile; then the change is that one.
    term = int(status["term"]) - (status["leader_id"] != leader)
    others = [node_id for node_id in nodes.node_ids if node_id != leader]
    struck_s = time.monotonic()
    ENDINGS[ending](nodes, leader)

    def succeeded() -> bool:
        found = [nodes.status(node_id) for node_id in others]
        return all(one["term"] > term and one["leader_id"] not in (None, 0, leader) for one in found)

    eventually(succeeded, DEADLINE_S, f"another node leads after node {leader} was {ending}")
    _go_on(writers)
    return struck_s


def _go_on(writers: Sequence[SteadyWriter]) -> None:
    """Wait until every writer got more acknowledgements, or an error."""
    before = [writer.acknowledged for writer in writers]

    def advanced() -> bool:
        return all(
            writer.error or writer.acknowledged >= count + WRITES_AROUND
            for writer, count in zip(writers, before, strict=True)
        )

    eventually(advanced, DEADLINE_S, "every writer goes on")


def bring_back(nodes: QuorateNodes, ending: str, node_id: int) -> None:
    """Undo an ending: afterwards all nodes run and are ready."""
    if ending == "stopped":
        nodes.resume(node_id)
    elif ending == "terminated":
        nodes.stop(node_id)
    if not nodes.running(node_id):
        nodes.start_node(node_id)
    nodes.wait_ready()
