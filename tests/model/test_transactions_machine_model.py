"""Coordinators one after the other over one quorum, with lost replies, failed readings and late requests.

Whatever happens: no two producers are answered the same id and epoch, only an open transaction has pending
offsets, a decision is carried out, each request has an answer when all is heard again; and the offsets of a
group are those of the last transaction that was committed.
"""

from __future__ import annotations

import random

import pytest

from broker.core.transactions import inputs, transaction_fences
from broker.core.transactions.inputs import Producer
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.transaction_records import TransactionState
from tests.support.transactions_world import P0, P1, TIMEOUT_MS, TransactionsWorld, new_tree, stored_in

SEEDS = 60
STEPS = 150
NAMES = ("x", "y")
COMPLETE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tree = new_tree()
        self.worlds = [TransactionsWorld(self.tree)]
        #: {id: the producer that was answered last}
        self.producers: dict[str, Producer] = {}
        self.given: set[Producer] = set()
        #: {(coordinator, request): what was asked}
        self.asked: dict[tuple[int, int], inputs.TransactionRequest] = {}
        self.number = 0

    def run(self) -> None:
        """Let much happen, then everything that is under way."""
        for _ in range(STEPS):
            self.step()
            self.check()
        last = self.worlds[-1]
        last.finish()
        self.check()
        if last.resigned is None and last.groups.resigned is None:
            mine = [number for index, number in self.asked if index == len(self.worlds) - 1]
            assert set(mine) <= last.answers.keys(), "a request has no answer"
            for each in last.machine.all():
                assert each.record is not None
                assert each.record.state in (*COMPLETE, TransactionState.ONGOING), "a decision stays undone"

    def step(self) -> None:
        """Let one thing happen to one coordinator, most often to the present one."""
        rng = self.rng
        index = len(self.worlds) - 1
        if index and rng.random() < 0.15:
            index -= 1
        world = self.worlds[index]
        now_ms = max(each.now_ms for each in self.worlds)
        world.now_ms = world.groups.now_ms = now_ms
        match rng.randrange(14):
            case 0:
                if rng.random() < 0.3 or self.worlds[-1].resigned or self.worlds[-1].groups.resigned:
                    self.worlds[-1].groups.elect_another()
                    self.worlds.append(TransactionsWorld(self.tree, now_ms))
            case 1:
                world.tick(rng.randrange(TIMEOUT_MS // 4))
            case 2:
                self.ask(index, inputs.InitProducer(rng.choice(NAMES), TIMEOUT_MS))
            case 3:
                name = rng.choice(NAMES)
                producer = self.producers.get(name)
                if producer is not None:
                    self.ask(index, inputs.InitProducer(name, TIMEOUT_MS, producer))
            case 4 | 5 | 6:
                self.work(index)
            case 7:
                world.groups.ask(world.groups.committing("h", {0: 1}))
            case _:
                ahead = world.ahead()
                if ahead:
                    world.happen(rng.choice(ahead), rng.random())

    def work(self, index: int) -> None:
        """Let the present producer of an id do something of its transaction."""
        name = self.rng.choice(NAMES)
        producer = self.producers.get(name)
        if producer is None:
            return
        match self.rng.randrange(5):
            case 0:
                self.ask(index, inputs.AddPartitions(name, producer, frozenset((P0, P1))))
            case 1:
                self.ask(index, inputs.AddGroup(name, producer, "g"))
            case 2:
                self.number += 1
                rows = {P0: OffsetRecord(self.number, -1, "", 0)}
                self.ask(index, inputs.StoreOffsets(name, producer, "g", rows))
            case lot:
                commits = lot == 3 or self.rng.random() < 0.5
                self.ask(index, inputs.EndTransaction(name, producer, commits))

    def ask(self, index: int, request: inputs.TransactionRequest) -> None:
        number = self.worlds[index].ask(request)
        self.asked[index, number] = request

    def check(self) -> None:
        """See that nothing that was promised is gone, and nothing came that nobody committed."""
        for (index, number), request in list(self.asked.items()):
            if number not in self.worlds[index].answers:
                continue
            outcome = self.worlds[index].answers[number]
            del self.asked[index, number]
            if isinstance(outcome, Producer):
                known = isinstance(request, inputs.InitProducer) and request.expected is not None
                assert known or outcome not in self.given, "two producers have the same id and epoch"
                self.given.add(outcome)
                self.producers[request.transactional_id] = outcome
        for name in NAMES:
            found = stored_in(self.tree, name)
            if found is None or found.record is None:
                continue
            is_open = found.record.state is TransactionState.ONGOING
            assert is_open or not found.offsets, "offsets are left behind"


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_no_promise_is_broken(first: int) -> None:
    run_all(range(first, first + 20))


def run_all(seeds: range) -> None:
    for seed in seeds:
        Run(seed).run()


def test_offsets_come_with_acknowledged_commits_alone() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        world = TransactionsWorld()
        expected: int | None = None
        for number in range(1, 12):
            producer = world.init()
            while not isinstance(producer, Producer):
                producer = world.init()
            if world.store(producer, "g", {0: number}) is not ErrorCode.NONE:
                continue
            commits = rng.random() < 0.5
            asked = world.ask(inputs.EndTransaction("x", producer, commits))
            while ahead := world.ahead():
                world.happen(ahead[0], rng.random())
                if world.resigned is not None:
                    break
            shown = world.groups.offsets("g").get(0)
            if world.resigned is not None:
                world.groups.elect_another()
                world = TransactionsWorld(world.tree, world.now_ms)
                assert shown in (expected, number if commits else expected)
                expected = shown
                world.finish()
                continue
            if world.answers[asked] is ErrorCode.NONE and commits:
                expected = number
            assert shown == expected, seed


def test_fences_that_are_off_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for fence in ("coordinator_epoch", "transaction_version"):
        monkeypatch.setattr(transaction_fences, fence, lambda _: -1)
    with pytest.raises(AssertionError, match="same id and epoch"):
        run_all(range(SEEDS))
