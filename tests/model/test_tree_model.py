"""The state machine against a naive model: one dict of full paths, every rule written down once more.

After every step the invariants of the machine hold. Snapshots are walked as entries go on being applied: each
restores the state of its start and, after the entries since, the state of the machine that was walked.
"""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorum.core import queries
from quorum.core.acl import Grants
from quorum.core.machine import StateMachine
from quorum.core.snapshot import SnapshotOverflowError, SnapshotWalk
from tests.unit.core.driver import Client, Driver, decode_stat, dump, load, replay, through_msgpack

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
OPEN = [[31, "world", "anyone"]]
SEGMENTS = ["a", "b", "c", "."]
#: what a deletion cannot reach
KEPT = ("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config")


class ModelError(Exception):
    """An operation failed with a code."""


class Model:
    """Nodes by full path, sessions by id. Slow and obvious."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.sessions: dict[int, list[str]] = {}
        self.zxid = 0
        self.stamp_ms = 0
        self.events: list[Any] = []
        for path in KEPT:
            self.nodes[path] = self.node(b"", [[1, "world", "anyone"]] if path == KEPT[3] else OPEN, 0)
        # As in ZooKeeper: the node that describes the members is never at a version that a client could name.
        self.nodes[KEPT[3]].update(version=-1, aversion=-1)

    def node(self, data: bytes | None, acl: Any, owner: int) -> dict[str, Any]:
        return {
            "data": data,
            "acl": acl,
            "owner": owner,
            "czxid": self.zxid,
            "mzxid": self.zxid,
            "pzxid": self.zxid,
            "ctime": self.stamp_ms,
            "mtime": self.stamp_ms,
            "version": 0,
            "creates": 0,
            "aversion": 0,
            #: 0, a TTL in milliseconds, or -1 for a container
            "lifetime": 0,
        }

    def tell(self, event_type: int, path: str) -> None:
        """Add an event; the ACL goes along if not everyone may read."""
        acl = self.nodes[path]["acl"]
        if any(perms & READ and scheme == "world" for perms, scheme, _ in acl):
            self.events.append((event_type, path))
        else:
            self.events.append((event_type, path, Grants(tuple(map(tuple, acl)))))

    def children(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        return [
            each
            for each in self.nodes
            if each != "/" and each.startswith(prefix) and "/" not in each[len(prefix) :]
        ]

    def stat(self, path: str) -> tuple[int, ...]:
        node = self.nodes[path]
        count = len(self.children(path))
        return (
            *(node[name] for name in ("czxid", "mzxid", "ctime", "mtime", "version")),
            2 * node["creates"] - count,
            node["aversion"],
            node["owner"],
            len(node["data"] or b""),
            count,
            node["pzxid"],
        )

    def demand(self, path: str, permission: int, identities: Any) -> None:
        for perms, scheme, name in self.nodes[path]["acl"]:
            if perms & permission and (
                (scheme, name) == ("world", "anyone") or [scheme, name] in (identities or [])
            ):
                return
        raise ModelError(-102)

    @staticmethod
    def parent(path: str) -> str:
        return path[: path.rindex("/")] or "/"

    @staticmethod
    def validate(path: str) -> None:
        segments = path.split("/")[1:]
        if path != "/" and (path[:1] != "/" or any(segment in ("", ".", "..") for segment in segments)):
            raise ModelError(-8)

    def create(
        self,
        path: str,
        data: bytes | None,
        acl: Any,
        flags: int,
        session_id: int,
        identities: Any,
        lifetime: int = 0,
    ) -> str:
        if "/" not in path or not 0 <= flags <= 4:
            raise ModelError(-8)
        if acl == []:
            raise ModelError(-114)
        parent = self.parent(path)
        if parent not in self.nodes:
            raise ModelError(-101)
        self.demand(parent, CREATE, identities)
        if flags & 2:
            path += str(self.nodes[parent]["creates"]).zfill(10)
        self.validate(path)
        if path in self.nodes:
            raise ModelError(-110)
        if self.nodes[parent]["owner"]:
            raise ModelError(-108)
        if lifetime:
            flags &= ~1
        self.nodes[path] = self.node(data, acl or OPEN, session_id if flags & 1 else 0)
        self.nodes[path]["lifetime"] = lifetime
        self.nodes[parent]["creates"] += 1
        self.nodes[parent]["pzxid"] = self.zxid
        if flags & 1:
            self.sessions[session_id].append(path)
        self.tell(1, path)
        self.tell(4, parent)
        return path

    def delete(self, path: str, version: int, identities: Any) -> None:
        if "/" not in path or path in KEPT:
            raise ModelError(-8)
        parent = self.parent(path)
        if parent not in self.nodes:
            raise ModelError(-101)
        self.demand(parent, DELETE, identities)
        if path not in self.nodes:
            raise ModelError(-101)
        if version not in (-1, self.nodes[path]["version"]):
            raise ModelError(-103)
        if self.children(path):
            raise ModelError(-111)
        self.drop(path)

    def drop(self, path: str) -> None:
        self.tell(2, path)
        owner = self.nodes.pop(path)["owner"]
        if owner:
            self.sessions[owner].remove(path)
        self.nodes[self.parent(path)]["pzxid"] = self.zxid
        self.tell(4, self.parent(path))

    def look(self, path: str, version: int, permission: int, identities: Any) -> dict[str, Any]:
        self.validate(path)
        if path not in self.nodes:
            raise ModelError(-101)
        self.demand(path, permission, identities)
        if version not in (-1, self.nodes[path]["version"]):
            raise ModelError(-103)
        return self.nodes[path]

    def set_acl(self, path: str, acl: Any, version: int, identities: Any) -> tuple[int, ...]:
        self.validate(path)
        if not path:
            raise ModelError(-8)
        if acl == []:
            raise ModelError(-114)
        if path not in self.nodes:
            raise ModelError(-101)
        self.demand(path, ADMIN, identities)
        node = self.nodes[path]
        if version not in (-1, node["aversion"]):
            raise ModelError(-103)
        node.update(acl=acl or OPEN, aversion=node["aversion"] + 1)
        return self.stat(path)

    def is_due(self, path: str) -> bool:
        node = self.nodes[path]
        if self.children(path):
            return False
        if node["lifetime"] < 0:
            return bool(node["creates"])
        return bool(node["lifetime"]) and node["mtime"] + node["lifetime"] <= self.stamp_ms

    def write(self, command: Any, session_id: int, identities: Any) -> Any:
        """Apply one operation; returns its value with Stats as tuples."""
        match command:
            case [1, path, data, acl, flags]:
                return self.create(path, data, acl, flags, session_id, identities)
            case [15, path, data, acl, flags]:
                path = self.create(path, data, acl, flags, session_id, identities)
                return path, self.stat(path)
            case [2, path, version]:
                return self.delete(path, version, identities)
            case [5, path, data, version]:
                node = self.look(path, version, WRITE, identities)
                node.update(data=data, mzxid=self.zxid, mtime=self.stamp_ms, version=node["version"] + 1)
                self.tell(3, path)
                return self.stat(path)
            case [19, path, data, acl, flags]:
                path = self.create(path, data, acl, flags, session_id, identities, -1)
                return path, self.stat(path)
            case [21, path, data, acl, flags, ttl]:
                if flags not in (5, 6) or not 0 < ttl < 2**40:
                    raise ModelError(-8)
                flags = 2 if flags == 6 else 0
                path = self.create(path, data, acl, flags, session_id, identities, ttl)
                return path, self.stat(path)
            case [7, path, acl, version]:
                return self.set_acl(path, acl, version, identities)
            case [13, path, version]:
                self.look(path, version, READ, identities)
                return None
        raise AssertionError(command)

    def multi(self, operations: Any, session_id: int, identities: Any) -> Any:
        before = copy.deepcopy((self.nodes, self.sessions))
        items: list[Any] = []
        for operation in operations:
            try:
                op = 15 if operation[0] in (19, 21) else operation[0]
                items.append((op, 0, self.write(operation, session_id, identities)))
            except ModelError as error:
                self.nodes, self.sessions = before
                self.events = []
                behind = len(operations) - len(items) - 1
                return [(-1, 0, None)] * len(items) + [(-1, error.args[0], None)] + [(-1, -2, None)] * behind
        return items

    def apply(self, command: Any, session_id: int, identities: Any) -> tuple[int, Any, Any]:
        """Apply one command of a session; returns (err, value, events)."""
        if session_id not in self.sessions:
            return -112, None, None
        self.events = []
        if command[0] == 9:
            return 0, None, None
        self.zxid += 1
        if command[0] == -11:
            for path in sorted(self.sessions[session_id]):
                self.drop(path)
            del self.sessions[session_id]
            return 0, None, [*self.events, (-1, session_id)]
        try:
            if command[0] == 14:
                value = self.multi(command[1], session_id, identities)
            else:
                value = self.write(command, session_id, identities)
        except ModelError as error:
            return error.args[0], None, None
        return 0, value, self.events or None


def decoded(value: Any) -> Any:
    """A value with its Stats as tuples."""
    match value:
        case bytes():
            return tuple(decode_stat(value))
        case (str() as path, bytes() as stat):
            return path, tuple(decode_stat(stat))
        case list():
            return [(op, err, decoded(item)) for op, err, item in value]
    return value


TIDY = st.sampled_from(
    [
        "/a",
        "/b",
        "/a/a",
        "/a/b",
        "/b/a",
        "/a/a/a",
        "/a/a/b",
        "/a/b/c",
        "/b/a/a",
        "/c",
        "/c/a",
        "/c/b",
        "/b/e/x",
    ]
)
STRANGE = st.one_of(
    st.lists(st.sampled_from(SEGMENTS), max_size=3).map(lambda names: "/" + "/".join(names)),
    st.sampled_from(["", "a", "/a/", "//a", "/a//b", *KEPT]),
)
PATHS = st.integers(0, 7).flatmap(lambda kind: STRANGE if kind == 0 else TIDY)
DATA = st.none() | st.binary(max_size=4)
VERSIONS = st.sampled_from([-1, -1, -1, 0, 1, 2])
ACLS = st.sampled_from(
    [
        None,
        None,
        None,
        OPEN,
        [],
        [[31, "digest", "u:p"]],
        [[READ | CREATE, "world", "anyone"], [31, "digest", "u:p"]],
    ]
)
FLAGS = st.sampled_from([0, 0, 0, 1, 2, 3, 4])
TTLS_MS = st.sampled_from([10, 10, 200, 2**40 - 1, 0, -1, 2**40])
CREATES = st.one_of(
    st.tuples(st.sampled_from([1, 15]), PATHS, DATA, ACLS, FLAGS).map(list),
    st.tuples(st.just(19), PATHS, DATA, ACLS, FLAGS).map(list),
    st.tuples(st.just(21), PATHS, DATA, ACLS, st.sampled_from([5, 5, 6, 0]), TTLS_MS).map(list),
)
OPERATIONS = st.one_of(
    CREATES,
    CREATES,
    CREATES,
    st.tuples(st.just(5), PATHS, DATA, VERSIONS).map(list),
    st.tuples(st.just(2), PATHS, VERSIONS).map(list),
)
CHECKS = st.tuples(st.just(13), PATHS, VERSIONS).map(list)
MULTIS = st.lists(OPERATIONS | CHECKS, max_size=4).map(lambda operations: [14, operations])
SET_ACLS = st.tuples(st.just(7), PATHS, ACLS, VERSIONS).map(list)
COMMANDS = st.one_of(OPERATIONS, OPERATIONS, OPERATIONS, MULTIS, SET_ACLS, st.just([9, "/"]))
IDENTITIES = st.sampled_from([None, [["digest", "u:p"]], [["ip", "10.0.0.1"], ["digest", "u:q"]]])


class TreeMachine(RuleBasedStateMachine):
    """Random writes on both, with a snapshot now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(nodes=(1, 2))
        self.model = Model()
        self.clients: list[Client] = []
        self.walk: SnapshotWalk | None = None
        self.chunks: list[Any] = []
        self.at_start: Any = None

    @initialize()
    def first_nodes(self) -> None:
        for _ in range(2):
            self.connect()
        paths = ["/a", "/b", "/a/a", "/a/b", "/b/a", "/a/a/a", "/b/e"]
        self.write(0, None, [[1, path, b"old", None, 0 if path != "/b/e" else 1] for path in paths])
        owned = [[31, "digest", "u:p"], [READ, "world", "anyone"]]
        self.write(1, [["digest", "u:p"]], [[1, path, None, owned, 0] for path in ("/c", "/c/a")])

    def connect(self) -> None:
        """Make a session; the oldest connection is forgotten, not closed."""
        client = self.driver.connect(node_id=1 + self.driver.nonces % 2)
        self.model.zxid += 1
        self.model.sessions[client.session_id] = []
        self.clients = [*self.clients[-2:], client]

    @rule(which=st.integers(0, 2), identities=IDENTITIES, commands=st.lists(COMMANDS, min_size=1, max_size=6))
    def write(self, which: int, identities: Any, commands: list[Any]) -> None:
        client = self.clients[which % len(self.clients)]
        client.identities = identities
        self.model.stamp_ms = self.driver.stamp_ms + 10
        for command, result in zip(commands, client.run(*commands), strict=True):
            err, value, events = self.model.apply(command, client.session_id, identities)
            assert (result.err, decoded(result.value), result.events) == (err, value, events), command
            assert result.zxid == self.model.zxid

    @rule(which=st.integers(0, 2), identities=IDENTITIES, command=MULTIS)
    def write_multi(self, which: int, identities: Any, command: Any) -> None:
        self.write(which, identities, [command])

    @rule(which=st.integers(0, 2), expire=st.booleans())
    def close(self, which: int, expire: bool) -> None:
        client = self.clients[which % len(self.clients)]
        if client.session_id not in self.model.sessions:
            return
        if expire:
            judged = self.driver.machine.applied_index
            [result] = self.driver.control(["expire", client.session_id, client.nonce, judged])
        else:
            result = client.one(-11)
        err, value, events = self.model.apply([-11], client.session_id, None)
        assert (result.err, result.value, result.events, result.zxid) == (err, value, events, self.model.zxid)
        self.connect()

    @rule(path=PATHS, shift=st.sampled_from([0, 0, 0, 1]))
    def reap(self, path: str, shift: int) -> None:
        """The leader proposes a path, rightly or not; it goes only if it is due by the entry's stamp."""
        self.model.stamp_ms = self.driver.stamp_ms + 10
        known = self.model.nodes.get(path)
        czxid = 0 if known is None else known["czxid"]
        [result] = self.driver.control(["reap", path, czxid + shift])
        if path == "":
            assert result.err != 0
        elif known is None or shift:
            assert (result.err, result.zxid) == (-101, self.model.zxid)
        elif not self.model.is_due(path):
            assert (result.err, result.zxid) == (-103, self.model.zxid)
        else:
            self.model.zxid += 1
            self.model.events = []
            self.model.drop(path)
            assert (result.err, result.zxid, result.events) == (0, self.model.zxid, self.model.events)

    @rule(which=st.integers(0, 2))
    def move(self, which: int) -> None:
        index = which % len(self.clients)
        old = self.clients[index]
        if old.session_id in self.model.sessions:
            self.driver.nonces += 1
            new = old.elsewhere(3 - old.node_id, self.driver.nonces)
            assert new.one(-100).err == 0
            assert old.one(1, "/late", b"", None, 0).err == -118
            self.clients[index] = new

    @precondition(lambda self: self.walk is None)
    @rule()
    def begin_snapshot(self) -> None:
        self.walk = SnapshotWalk(self.driver.machine)
        self.chunks = []
        self.at_start = dump(self.driver.machine)

    @precondition(lambda self: self.walk is not None)
    @rule(records_max=st.integers(1, 4), steps=st.integers(1, 4))
    def continue_snapshot(self, records_max: int, steps: int) -> None:
        self.advance(records_max, steps)

    def advance(self, records_max: int, steps: int) -> None:
        assert self.walk is not None
        for _ in range(steps):
            chunk = self.walk.next_chunk(records_max)
            if chunk is None:
                self.walk = None
                self.restore()
                return
            self.chunks.append(through_msgpack(chunk))

    def restore(self) -> None:
        """Load the snapshot that was walked, compare it, let it catch up and go on with it."""
        restored = load(self.chunks)
        restored.check_invariants()
        assert dump(restored) == self.at_start
        for entry in self.driver.entries[restored.applied_index :]:
            replay(restored, entry)
        assert dump(restored) == dump(self.driver.machine)
        self.driver.machine = restored

    @invariant()
    def states_are_equal(self) -> None:
        machine = self.driver.machine
        machine.check_invariants()
        assert machine.zxid == self.model.zxid
        assert {number: sorted(each.ephemerals) for number, each in machine.sessions.items()} == {
            number: sorted(each) for number, each in self.model.sessions.items()
        }
        assert dump(machine)["nodes"].keys() == self.model.nodes.keys()
        for path, node in self.model.nodes.items():
            if path == "/zookeeper/config":
                continue
            data, stat = queries.get_data(machine, path, [["super", ""]])  # type: ignore[misc]
            assert (data, decode_stat(stat)) == (node["data"], self.model.stat(path)), path
            acl, _ = queries.get_acl(machine, path, [["super", ""]])  # type: ignore[misc]
            assert list(map(list, acl)) == list(map(list, node["acl"])), path
            names = queries.get_children(machine, path, [["super", ""]])
            assert isinstance(names, list)
            assert sorted(f"{path.rstrip('/')}/{name}" for name in names) == sorted(self.model.children(path))

    def teardown(self) -> None:
        """A second machine that is given the same entries is equal in everything."""
        other = StateMachine()
        for entry in self.driver.entries:
            replay(other, entry)
        assert dump(other) == dump(self.driver.machine)


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)


class OverflowingTreeMachine(TreeMachine):
    """The same with an overlay so small that walks fail; the writes must not notice."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(StateMachine(1_500))
        self.driver.apply("found", "c1", b"", b"{}")
        self.driver.register(1)
        self.driver.register(2)

    def advance(self, records_max: int, steps: int) -> None:
        try:
            super().advance(records_max, steps)
        except SnapshotOverflowError:
            assert self.driver.machine.tree.overlay is None
            self.walk = None


TestOverflowingTree = OverflowingTreeMachine.TestCase
TestOverflowingTree.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)
