"""Both machines of a coordinator's term over a quorum in memory: the test decides when something happens."""

from __future__ import annotations

import copy
import itertools
from typing import Any

from broker.core.groups.inputs import BorrowGroup, ClockTick, GroupLent, ReadGroup, ReturnGroup
from broker.core.transactions import inputs
from broker.core.transactions.deciding import TransactionOptions
from broker.core.transactions.inputs import Producer, StoredTransaction
from broker.core.transactions.machine import TransactionsMachine
from controller.core.effects import Answer, Resign, Write
from controller.core.inputs import MultiDone, ReadFailed, Unknown
from quorum.metadata import paths
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import TransactionRecord, decode_pending_offsets
from tests.support.groups_world import WALL_MS, GroupsWorld, TreeOfGroups

TIMEOUT_MS = 10_000
OPTIONS = TransactionOptions(transactional_id_expiration_ms=3_600_000, retries_max=2)
P0, P1 = PartitionKey("t", 0), PartitionKey("t", 1)


def new_tree() -> TreeOfGroups:
    """Return a quorum without transactions."""
    tree = TreeOfGroups()
    tree.nodes[paths.TRANSACTIONS] = (b"", 0)
    return tree


def stored_in(tree: TreeOfGroups, name: str) -> StoredTransaction | None:
    """Read a transactional id."""
    path = paths.transaction_path(name)
    if path not in tree.nodes:
        return None
    value, version = tree.nodes[path]
    stored = StoredTransaction(name, TransactionRecord.decode(name, value), version)
    for child in tree.children(path):
        group_id = paths.group_id_of(child)
        assert group_id is not None
        value, _ = tree.nodes[f"{path}/{child}"]
        stored.offsets[group_id] = decode_pending_offsets(path, value)
    return stored


class TransactionsWorld:
    """One term; multis, readings and markers wait until the test lets them happen."""

    def __init__(self, tree: TreeOfGroups | None = None, now_ms: int = 0) -> None:
        self.tree = tree or new_tree()
        self.groups = GroupsWorld(self.tree, now_ms=now_ms)
        self.now_ms = now_ms
        version = self.tree.nodes[paths.COORDINATOR_EPOCH][1]
        self.machine = TransactionsMachine(version, OPTIONS, self.groups.machine.room)
        self.effects: list[Any] = []
        self.answers: dict[int, Any] = {}
        self.resigned: Resign | None = None
        self._ids = itertools.count(1)
        self._producer_ids = itertools.count(now_ms * 1_000 + id(self) % 1_000)
        self.tick()
        names = (paths.group_id_of(each) for each in self.tree.children(paths.TRANSACTIONS))
        found = (stored_in(self.tree, each) for each in names if each is not None)
        self.step(inputs.TransactionsLoaded([each for each in found if each is not None], {}))

    def step(self, happened: inputs.TransactionInput) -> None:
        """Let something happen; loans go to the groups and back at once."""
        for effect in self.machine.step(happened, self.now_ms):
            if isinstance(effect, Answer):
                assert effect.id not in self.answers, "a request is answered once"
                self.answers[effect.id] = effect.outcome
            elif isinstance(effect, Resign):
                self.resigned = effect
            elif isinstance(effect, BorrowGroup | ReturnGroup):
                self.groups.step(effect)
                self.take_loans()
            else:
                self.effects.append(effect)

    def take_loans(self) -> None:
        """Give what the groups lend to the transactions."""
        lent = [each for each in self.groups.effects if isinstance(each, GroupLent)]
        for each in lent:
            self.groups.effects.remove(each)
            self.step(each)

    def ask(self, request: inputs.TransactionRequest) -> int:
        """Ask; returns the number of the request."""
        number = next(self._ids)
        if isinstance(request, inputs.InitProducer):
            request = request._replace(new_producer_id=next(self._producer_ids))
        self.step(inputs.TransactionAsked(number, request))
        return number

    def tick(self, pass_ms: int = 0) -> None:
        """Let time pass."""
        self.now_ms += pass_ms
        self.groups.now_ms = self.now_ms
        self.step(ClockTick(WALL_MS, is_believed=True))

    def ahead(self) -> list[Any]:
        """What waits, of both machines."""
        kinds = (Write, ReadGroup, inputs.ReadTransaction, inputs.SendMarkers)
        return [each for each in (*self.effects, *self.groups.effects) if isinstance(each, kinds)]

    def happen(self, effect: Any, lot: float = 1.0) -> None:
        """Let something happen, fail (lot below 0.1), or lose its reply (below 0.25)."""
        of_groups = effect in self.groups.effects
        world: Any = self.groups if of_groups else self
        world.effects.remove(effect)
        if isinstance(effect, Write):
            if lot < 0.1:
                world.step(MultiDone(effect.id, Unknown("the request was lost")))
            else:
                outcome = self.tree.multi(effect.operations)
                world.step(MultiDone(effect.id, Unknown("the reply was lost") if lot < 0.25 else outcome))
        elif isinstance(effect, inputs.SendMarkers):
            self.step(inputs.MarkersWritten(effect.id))
        elif lot < 0.1:
            world.step(ReadFailed(effect.id, "no connection"))
        elif isinstance(effect, ReadGroup):
            self.groups.read(effect)
        else:
            found = copy.deepcopy(stored_in(self.tree, effect.transactional_id))
            self.step(inputs.TransactionRead(effect.id, found))
        self.take_loans()

    def finish(self) -> None:
        """Let everything happen that waits."""
        while ahead := self.ahead():
            self.happen(ahead[0])

    def done(self, request: inputs.TransactionRequest) -> Any:
        """Ask, let everything happen, and return the outcome."""
        number = self.ask(request)
        self.finish()
        return self.answers[number]

    # -- requests --------------------------------------------------------------------------------------------

    def init(self, name: str = "x", expected: Producer | None = None) -> Any:
        """Take an id."""
        return self.done(inputs.InitProducer(name, TIMEOUT_MS, expected))

    def add(self, producer: Producer, *keys: PartitionKey, name: str = "x") -> Any:
        """Let partitions belong to the transaction."""
        return self.done(inputs.AddPartitions(name, producer, frozenset(keys)))

    def end(self, producer: Producer, *, commits: bool = True, name: str = "x") -> Any:
        """Commit or abort."""
        return self.done(inputs.EndTransaction(name, producer, commits))

    def store(self, producer: Producer, group_id: str, offsets: dict[int, int], name: str = "x") -> Any:
        """Keep offsets until the transaction ends."""
        rows = {PartitionKey("t", each): OffsetRecord(at, -1, "", 0) for each, at in offsets.items()}
        self.done(inputs.AddGroup(name, producer, group_id))
        return self.done(inputs.StoreOffsets(name, producer, group_id, rows))
