"""Drives a state machine in tests: numbers entries and batches, makes sessions, reads whole states."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import msgpack

from quorum.core import queries
from quorum.core.machine import StateMachine
from quorum.core.quotas import QuotaRule
from quorum.core.results import Result, RunOutcome
from quorum.core.snapshot import SnapshotLoader, SnapshotWalk
from quorum.core.tree import Directory, freeze

NODE_ID = 1
INCARNATION = 2**64 - 5
SESSION_KEY = bytes(range(32))
CONFIGURATION = (
    b'{"cluster_id":"c1","learners":{},"retired":[],"session_key":"00","voters":'
    b'{"1":{"address":"127.0.0.1:2281","incarnation":""},"10":{"address":"[::1]:2283","incarnation":""},'
    b'"2":{"address":"127.0.0.1:2282","incarnation":"ab"}}}'
)
OPEN_ACL = [[31, "world", "anyone"]]


class Stat(NamedTuple):
    """A decoded Stat."""

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    children: int
    pzxid: int


def decode_stat(stat: Any) -> Stat:
    return Stat._make(struct.unpack(">qqqqiiiqiiq", stat))


class Driver:
    """One machine and what it has been given; every entry can be given again."""

    def __init__(self, machine: StateMachine | None = None, *, nodes: tuple[int, ...] = (NODE_ID,)) -> None:
        self.machine = StateMachine() if machine is None else machine
        self.entries: list[tuple[str, tuple[Any, ...]]] = []
        self.batches: dict[int, int] = {}
        self.nonces = 0
        self.stamp_ms = 1_000
        #: of the batches to come
        self.quota_rule = QuotaRule.KEPT
        if machine is None:
            self.apply("found", "c1", SESSION_KEY, CONFIGURATION)
            for node_id in nodes:
                self.register(node_id)

    def apply(self, kind: str, *arguments: Any) -> Any:
        """Apply the next entry, whatever it is."""
        self.stamp_ms += 10
        self.entries.append((kind, (self.machine.applied_index + 1, 3, self.stamp_ms, *arguments)))
        return replay(self.machine, self.entries[-1])

    def register(self, node_id: int = NODE_ID, incarnation: int = INCARNATION) -> bool:
        effective: bool = self.apply("register", node_id, incarnation)
        if effective:
            self.batches[node_id] = 0
        return effective

    def batch(self, *runs: Any, node_id: int = NODE_ID) -> list[RunOutcome]:
        """Apply runs as the next batch of a node."""
        self.batches[node_id] += 1
        outcomes: list[RunOutcome] = self.apply(
            "batch", node_id, INCARNATION, self.batches[node_id], list(runs), self.quota_rule
        )
        return outcomes

    def connect(self, timeout_ms: int = 30_000, node_id: int = NODE_ID) -> Client:
        """Make a session."""
        self.nonces += 1
        [outcome] = self.batch([0, self.nonces, None, [[-10, timeout_ms]]], node_id=node_id)
        value: Any = outcome.results[0].value
        return Client(self, value[0], node_id, self.nonces)

    def import_step(self, *step: Any, node_id: int = NODE_ID) -> Result:
        """Apply one step of an import."""
        self.batches[node_id] += 1
        head = (node_id, INCARNATION, self.batches[node_id])
        [outcome] = self.apply("import", *head, [through_msgpack(list(step))])
        [result] = outcome.results
        return cast("Result", result)

    def control(self, *proposals: Any) -> list[Result]:
        results: list[Result] = self.apply("control", list(proposals))
        return results

    @property
    def zxid(self) -> int:
        return self.machine.zxid


class Client:
    """A connection of a session."""

    def __init__(self, driver: Driver, session_id: int, node_id: int, nonce: int) -> None:
        self.driver = driver
        self.session_id = session_id
        self.node_id = node_id
        self.nonce = nonce
        self.identities: Any = None

    def run(self, *commands: Any) -> list[Result]:
        """Apply commands as one run, alone in its batch."""
        run = [self.session_id, self.nonce, self.identities, list(commands)]
        [outcome] = self.driver.batch(run, node_id=self.node_id)
        assert (outcome.session_id, outcome.nonce) == (self.session_id, self.nonce)
        assert len(outcome.results) == len(commands)
        return outcome.results

    def one(self, *command: Any) -> Result:
        return self.run(list(command))[0]

    def make(self, path: str, data: bytes | None = b"", flags: int = 0, acl: Any = None) -> str:
        """Create a node that must succeed; returns its path."""
        result = self.one(1, path, data, acl, flags)
        assert result.err == 0, result
        assert isinstance(result.value, str)
        return result.value

    def put(self, path: str, data: bytes | None, version: int = -1) -> Stat:
        result = self.one(5, path, data, version)
        assert result.err == 0, result
        return decode_stat(result.value)

    def remove(self, path: str, version: int = -1) -> None:
        result = self.one(2, path, version)
        assert result.err == 0, result

    def multi(self, *operations: Any) -> Result:
        return self.one(14, list(operations))

    def elsewhere(self, node_id: int, nonce: int) -> Client:
        """The same session on another connection, not attached yet."""
        return Client(self.driver, self.session_id, node_id, nonce)


def replay(machine: StateMachine, entry: tuple[str, tuple[Any, ...]]) -> Any:
    """Apply one recorded entry."""
    kind, arguments = entry
    if kind == "batch":
        return list(machine.apply_batch(*arguments))
    if kind == "import":
        return list(machine.apply_batch(*arguments, imports=True))
    appliers: dict[str, Callable[..., Any]] = {
        "found": machine.apply_found,
        "configuration": machine.apply_configuration,
        "register": machine.apply_register,
        "control": machine.apply_control,
        "noop": machine.apply_noop,
    }
    return appliers[kind](*arguments)


def stat_at(machine: StateMachine, path: str) -> Stat:
    found = queries.exists(machine, path, [["super", ""]])
    assert not isinstance(found, int), (path, found)
    return decode_stat(found)


def data_at(machine: StateMachine, path: str) -> bytes | None:
    found = queries.get_data(machine, path, [["super", ""]])
    assert not isinstance(found, int), (path, found)
    return found[0]


def paths(machine: StateMachine) -> list[str]:
    """All paths, sorted; a directory's children follow it."""
    return sorted(dump_nodes(machine))


def dump_nodes(machine: StateMachine) -> dict[str, Any]:
    """Every node as a snapshot would keep it, with the content of its ACL instead of the number."""
    nodes: dict[str, Any] = {}
    pending: list[tuple[str, Any]] = [("/", machine.tree.root)]
    while pending:
        path, node = pending.pop()
        frozen = freeze(node)
        record = frozen if isinstance(frozen, bytes) else frozen[0]
        field = int.from_bytes(record[68:72], "big")
        acl = machine.tree.acls[field & 0x7FFFFFFF]
        nodes[path] = (
            record[:68],
            field >> 31,
            acl,
            record[72:],
            None if isinstance(frozen, bytes) else frozen[1],
        )
        if isinstance(node, Directory):
            pending += [(f"{path.rstrip('/')}/{name}", child) for name, child in node.children.items()]
    return nodes


def dump(machine: StateMachine) -> dict[str, Any]:
    """Everything that two machines with the same history have in common."""
    return {
        "nodes": dump_nodes(machine),
        "counts": (machine.tree.node_count, machine.tree.data_bytes, machine.tree.acls.next_number),
        "acls": sorted(machine.tree.acls.stored()),
        "lifetimes": (dict(machine.tree.acls.lifetimes), sorted(machine.tree.expirable)),
        "applied": (machine.applied_index, machine.applied_term, machine.last_stamp_ms, machine.zxid),
        "identity": (machine.cluster_id, machine.session_key, machine.configuration, machine.session_counter),
        "import": machine.transaction.import_source,
        "digests": (machine.state_digest, machine.apply_digest),
        "origins": dict(machine.origins),
        "feature_level": machine.feature_level,
        "sessions": {
            number: (each.timeout_ms, each.node_id, each.nonce, each.last_index, sorted(each.ephemerals))
            for number, each in machine.sessions.items()
        },
    }


def through_msgpack(chunk: Any) -> Any:
    return msgpack.unpackb(msgpack.packb(chunk, use_bin_type=True), raw=False, strict_map_key=False)


def chunks_of(walk: SnapshotWalk, records_max: int = 100) -> list[Any]:
    chunks = []
    while (chunk := walk.next_chunk(records_max)) is not None:
        chunks.append(through_msgpack(chunk))
    return chunks


def load(chunks: list[Any]) -> StateMachine:
    loader = SnapshotLoader()
    for chunk in chunks:
        loader.feed(chunk)
    return loader.finish()
