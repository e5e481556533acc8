"""A controller's machine over a small tree of znodes, both stepped by a test.

The tree does what effects ask for at once, or not before the test says so. It knows versions, czxid, mzxid
and the fence, no sessions; own writes cause their events first, as the quorum sends them.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from controller.core.effects import (
    Answer,
    Check,
    CreateNode,
    DeleteNode,
    Effect,
    GiveWay,
    Operation,
    ReadChildren,
    ReadNodes,
    Resign,
    Send,
    SetData,
    Trace,
    Write,
)
from controller.core.inputs import (
    ChildrenRead,
    Continued,
    Done,
    Elected,
    Input,
    MultiDone,
    NodesRead,
    PathsChanged,
    Rejected,
    Request,
    Requested,
    Tick,
    Unreadable,
    Why,
    Znode,
)
from controller.core.machine import ControllerMachine
from controller.core.options import ControllerOptions, Counters
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.numbers import ControllerEpoch, next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    BrokerRecord,
    PartitionStateRecord,
    TopicRecord,
)
from quorum.metadata.topic_settings import TopicSettings

EPOCH_VERSION = 4
ELECTED = Elected(1, ControllerEpoch(5), EPOCH_VERSION, seed=7)

E = TypeVar("E")


class _FailedError(Exception):
    """An operation of a multi does not fit."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class SteppedTree:
    """The znodes."""

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self.zxid = 100
        self.changed: list[str] = []
        for path in ("/", *paths.BASE_PATHS):
            self.nodes[path] = Znode(b"", 0, 0, 0, 0)
        self.nodes[paths.CONTROLLER_EPOCH] = Znode(b"5", EPOCH_VERSION, 0, 50, 0)

    def put(self, path: str, value: bytes, owner: int = 0) -> None:
        """Create or change a node, as somebody else."""
        self.zxid += 1
        before = self.nodes.get(path)
        if before is None:
            self.nodes[path] = Znode(value, 0, self.zxid, self.zxid, owner)
            self._note_children(path)
        else:
            self.nodes[path] = before._replace(
                data=value, version=next_version(before.version), mzxid=self.zxid
            )
        self.changed.append(path)

    def remove(self, path: str) -> None:
        """Delete a node, as somebody else."""
        del self.nodes[path]
        self._note_children(path)
        self.changed.append(path)

    def _note_children(self, path: str) -> None:
        """A watch on a node sees its children come and go; the recursive one on the topics does not."""
        parent = path.rpartition("/")[0]
        if not parent.startswith(f"{paths.BROKER_TOPICS}/"):
            self.changed.append(parent)

    def taken_changes(self) -> list[str]:
        """Paths of what has changed since it was asked last."""
        changed, self.changed = self.changed, []
        return changed

    def children(self, path: str) -> tuple[str, ...]:
        """Names below a node, sorted."""
        below = f"{path.rstrip('/')}/"
        names = [each.removeprefix(below) for each in self.nodes if each.startswith(below) and each != "/"]
        return tuple(sorted(name for name in names if "/" not in name))

    def multi(self, operations: tuple[Operation, ...]) -> Done | Rejected:
        """Do all of it, or nothing."""
        before: dict[str, Znode | None] = {}
        self.zxid += 1
        for index, operation in enumerate(operations):
            before.setdefault(operation.path, self.nodes.get(operation.path))
            try:
                self._do(operation)
            except _FailedError as error:
                self._restore(before)
                return Rejected(
                    index, error.why, f"multi: {error}", ErrorCode.UNKNOWN_SERVER_ERROR, "look again"
                )
        for operation in operations:
            if not isinstance(operation, Check):
                self.changed.append(operation.path)
                if not isinstance(operation, SetData):
                    self._note_children(operation.path)
        return Done()

    def _restore(self, before: dict[str, Znode | None]) -> None:
        for path, node in before.items():
            if node is not None:
                self.nodes[path] = node
            else:
                self.nodes.pop(path, None)

    def _do(self, operation: Operation) -> None:
        node = self.nodes.get(operation.path)
        match operation:
            case CreateNode(path, value):
                if node is not None:
                    raise _FailedError(Why.NODE_EXISTS)
                if path.rpartition("/")[0] not in self.nodes and path.count("/") > 1:
                    raise _FailedError(Why.NO_NODE)
                self.nodes[path] = Znode(value, 0, self.zxid, self.zxid, 0)
                return
            case Check(_, version) | SetData(_, _, version) | DeleteNode(_, version):
                if node is None:
                    raise _FailedError(Why.NO_NODE)
                if version not in (-1, node.version):
                    raise _FailedError(Why.BAD_VERSION)
        if isinstance(operation, SetData):
            self.nodes[operation.path] = node._replace(
                data=operation.value, version=next_version(node.version), mzxid=self.zxid
            )
        elif isinstance(operation, DeleteNode):
            if self.children(operation.path):
                raise _FailedError(Why.NOT_EMPTY)
            del self.nodes[operation.path]


class SteppedController:
    """A machine, the tree, and all effects so far."""

    def __init__(self, **options: object) -> None:
        self.tree = SteppedTree()
        self.counters = Counters()
        self.machine = ControllerMachine(
            ELECTED,
            options=ControllerOptions(**options),  # type: ignore[arg-type]
            default_settings=TopicSettings(),
            counters=self.counters,
            check_signed=lambda _path, _data, _owner: None,
        )
        self.now_ms = 1_000
        self.effects: list[Effect] = []
        #: What is to be done before an effect is carried out; it may return the input in place of that.
        self.before: Callable[[Effect], Input | None] = lambda _effect: None
        #: Called after every step.
        self.watch: Callable[[], object] = lambda: None
        self._last_id = 0

    # -- what tests prepare --------------------------------------------------------------------------------

    def register(self, broker_id: int, **fields: object) -> None:
        """Register a broker, or another life of it."""
        path = paths.broker_id_path(broker_id)
        self.tree.nodes.pop(path, None)
        incarnation = fields.pop("incarnation", uuid.UUID(int=broker_id).hex)
        endpoints = (f"BROKER://127.0.0.1:{9_000 + broker_id}",)
        protocols = {"BROKER": "SASL_PLAINTEXT"}
        record = BrokerRecord(None, -1, endpoints, protocols, 0, incarnation=incarnation, **fields)  # type: ignore[arg-type]
        self.tree.put(path, record.encode(), owner=100 + broker_id)

    def create(self, topic: str, replicas: Mapping[int, tuple[int, ...]]) -> None:
        """Create a topic by its znode."""
        number = sum(map(ord, topic))
        self.tree.put(paths.topic_path(topic), TopicRecord(uuid.UUID(int=number), dict(replicas)).encode())

    def state(self, key: PartitionKey) -> PartitionStateRecord:
        """What the tree holds of a partition."""
        return PartitionStateRecord.decode(key, self.tree.nodes[paths.partition_state_path(key)].data)

    # -- steps ---------------------------------------------------------------------------------------------

    def elect(self) -> list[Effect]:
        """Begin the term and let it settle."""
        self.tree.changed.clear()
        return self.settle(ELECTED)

    def ask(self, request: Request) -> object:
        """Ask for something and let it settle; returns the outcome."""
        self._last_id += 1
        effects = self.settle(Requested(self._last_id, request))
        (outcome,) = [each.outcome for each in effects if isinstance(each, Answer)]
        return outcome

    def wait(self, milliseconds: int) -> list[Effect]:
        """Let time pass, and what it causes settle."""
        self.now_ms += milliseconds
        return self.settle(Tick())

    def settle(self, *events: Input) -> list[Effect]:
        """Step with inputs and carry out effects until nothing is left; returns all effects."""
        found: list[Effect] = []
        inputs = deque(events)
        while inputs or self.tree.changed:
            if self.tree.changed:
                inputs.appendleft(PathsChanged(self.tree.taken_changes()))
            effects = self.machine.step(inputs.popleft(), self.now_ms)
            self.watch()
            found += effects
            for effect in effects:
                # Events of what is written come before the reply.
                answer = self.before(effect) or self._carry_out(effect)
                if self.tree.changed:
                    inputs.append(PathsChanged(self.tree.taken_changes()))
                if answer is not None:
                    inputs.append(answer)
        self.effects += found
        return found

    def _carry_out(self, effect: Effect) -> Input | None:
        tree = self.tree
        match effect:
            case ReadNodes(number, wanted):
                found: list[Znode | Unreadable | None] = [tree.nodes.get(path) for path in wanted]
                return NodesRead(number, tuple(found))
            case ReadChildren(number, path):
                return ChildrenRead(number, tree.children(path) if path in tree.nodes else None)
            case Write(number, operations):
                return MultiDone(number, tree.multi(operations))
            case GiveWay():
                return Continued()
            case _:
                return None


def of_kind(effects: list[Effect], kind: type[E]) -> list[E]:
    """Effects of one kind, in order."""
    return [each for each in effects if isinstance(each, kind)]


def traced(effects: list[Effect]) -> list[str]:
    """Lines for the log."""
    return [each.text for each in of_kind(effects, Trace)]


def sent(effects: list[Effect], broker_id: int) -> list[Send]:
    """Requests to one broker."""
    return [each for each in of_kind(effects, Send) if each.broker_id == broker_id]


def resigned(effects: list[Effect]) -> Resign | None:
    """The end of the term, if it came."""
    return next(iter(of_kind(effects, Resign)), None)
