"""Producers with transactions: each stream's inputs are processed once, whoever crashes or comes back.

A stream is one transactional id, with a group that holds which input comes next. Whoever works for it reads
that, sends a record of output for each of some inputs, and commits the records together with the next input.
Another one takes its place at any time; the one before may be gone, or go on as if nothing had happened.
What was asked of a coordinator and had no answer may arrive late; only a new epoch keeps that from counting
in the next transaction (which KIP-890's second part would do), so a producer takes one then.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from broker.core.transactions import inputs
from broker.core.transactions.inputs import Outcome, Producer
from broker.groups.errors import GroupRefusedError
from broker.log.batches import TRANSACTIONAL
from controller.wire.codes import ErrorCode
from quorum.core.codes import OP_SET_DATA
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey, transaction_path
from tests.simulation.control_plane.group_invariants import OF_TRANSACTIONS
from tests.simulation.control_plane.network import OUTSIDE
from tests.simulation.control_plane.process import Process
from tests.simulation.control_plane.stories import Stories
from tests.simulation.control_plane.transaction_invariants import AT_REST, Transaction
from tests.support.broker_wire import record_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.world import World

T = TypeVar("T")
#: a topic that nobody deletes; the inputs are its partition 0
TOPIC: Final = "t"
INPUT: Final = PartitionKey(TOPIC, 0)
PARTITIONS: Final = 2
STREAMS: Final = 3
ANSWER_MS: Final = 900
PRODUCE_MS: Final = 1200
TRIES: Final = 8
LIFE_MS: Final = (600.0, 4000.0)
SLEEP_MS: Final = (300.0, 3000.0)
TROUBLE_MS: Final = (1000.0, 6000.0)
CONSUME_MS: Final = (30.0, 150.0)
#: how long after the healing transactions are begun
LAST_MS: Final = 4000.0
#: values of records here; others have smaller ones
FIRST_VALUE: Final = 1_000_000
_FENCED: Final = (
    *(ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
)
_PASSING: Final = (
    *(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    *(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS),
    *(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT),
    *(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNSTABLE_OFFSET_COMMIT),
)


class _FencedError(Exception):
    """Another producer has the id."""


class _AbortedError(Exception):
    """The transaction cannot be committed."""


class Worker:
    """Who works for a stream, for a while."""

    def __init__(self, transactions: Transactions, stream: str) -> None:
        self._transactions = transactions
        self._world = transactions.world
        self._rng = transactions.rng
        self._stream = stream
        self._timeout_ms = self._rng.randint(800, 2000)
        self.is_over = False
        self._coordinator: int | None = None
        #: whether a request to a coordinator was not answered in this epoch
        self._is_doubtful = False
        #: {partition: its next sequence number}
        self._sequences: dict[PartitionKey, int] = {}

    async def live(self) -> None:
        """Take the id, and process inputs until it is over or fenced."""
        counts = self._transactions.counts
        try:
            while not self.is_over:
                producer = await self._take_id()
                while producer is not None and not self._must_renew():
                    try:
                        await self._process(producer)
                    except _AbortedError:
                        counts["transactions given up"] += 1
                        if self._rng.random() < 0.5:
                            await self._insist(inputs.EndTransaction(self._stream, producer, commits=False))
                        break
        except _AbortedError:
            self._transactions.retired(self)
        except _FencedError:
            counts["producers fenced"] += 1
            self._transactions.retired(self)

    def _must_renew(self) -> bool:
        return self.is_over or self._is_doubtful

    async def _take_id(self) -> Producer | None:
        self._is_doubtful = False
        self._sequences.clear()
        outcome = await self._ask(inputs.InitProducer(self._stream, self._timeout_ms))
        if isinstance(outcome, Producer):
            self._is_doubtful = False
            return outcome
        await self._rest(30, 150)
        return None

    async def _process(self, producer: Producer) -> None:
        """Process some inputs in one transaction."""
        first = await self._next_input()
        if first is None or self.is_over:
            await self._rest(30, 150)
            return
        rng, transactions = self._rng, self._transactions
        transaction = transactions.begin(self._stream, producer, first, rng.randint(1, 3))
        keys = [PartitionKey(TOPIC, rng.randrange(PARTITIONS))]
        if rng.random() < 0.3:
            # It may be one that lacks a leader, or replicas, for long.
            keys.append(rng.choice(transactions.partitions()))
        added: set[PartitionKey] = set()
        for _ in range(transaction.inputs_count):
            key = rng.choice(keys)
            if key not in added:
                await self._insist(inputs.AddPartitions(self._stream, producer, frozenset([key])))
                added.add(key)
            await self._produce(transaction, key)
            await self._sleep_a_while()
        if rng.random() < 0.15:
            await self._end(transaction, commits=False)
            return
        group = OF_TRANSACTIONS + self._stream
        await self._insist(inputs.AddGroup(self._stream, producer, group))
        offset = OffsetRecord(transaction.end_input, -1, str(transaction.number), self._world.now_ms)
        await self._insist(inputs.StoreOffsets(self._stream, producer, group, {INPUT: offset}))
        await self._sleep_a_while()
        await self._end(transaction, commits=True)
        await self._rest(5, 60)

    async def _end(self, transaction: Transaction, *, commits: bool) -> None:
        await self._insist(inputs.EndTransaction(self._stream, transaction.producer, commits))
        self._world.transaction_judge.ended(transaction, commits=commits)
        self._transactions.counts["transactions committed" if commits else "transactions aborted"] += 1

    async def _rest(self, low_ms: float, high_ms: float) -> None:
        await self._transactions.process.rest(self._rng.uniform(low_ms, high_ms))

    async def _sleep_a_while(self) -> None:
        """As a process that is stopped, and may be replaced meanwhile."""
        if self._transactions.is_changing and self._rng.random() < 0.06:
            await self._rest(*SLEEP_MS)

    # -- requests --------------------------------------------------------------------------------------------

    async def _next_input(self) -> int | None:
        """Return the input that comes next, once that is stable; None: nobody says."""

        async def look(broker: SimBroker) -> int | ErrorCode:
            candidate = broker.coordinator
            term = None if candidate is None else candidate.term
            if term is None:
                return ErrorCode.NOT_COORDINATOR
            await term.ready()
            group = OF_TRANSACTIONS + self._stream
            if INPUT in term.transactions.machine.unstable(group):
                return ErrorCode.UNSTABLE_OFFSET_COMMIT
            slot = term.group(group)
            found = None if slot is None else slot.stored.offsets.get(INPUT)
            return 0 if found is None else found.offset

        is_doubtful = self._is_doubtful
        found = await self._call(look)
        # A question changes nothing, however late it comes.
        self._is_doubtful = is_doubtful
        return None if found is None or isinstance(found, ErrorCode) else found

    async def _insist(self, request: inputs.TransactionRequest) -> None:
        """Ask until it has happened."""
        for _ in range(TRIES):
            outcome = await self._ask(request)
            if outcome is ErrorCode.NONE:
                return
            if outcome in _FENCED:
                raise _FencedError
            if outcome is not None and outcome not in _PASSING:
                raise _AbortedError
            await self._rest(20, 120)
        raise _AbortedError

    async def _ask(self, request: inputs.TransactionRequest) -> Outcome | None:
        latest = self._world.transaction_judge.latest.get(self._stream)

        async def serve(broker: SimBroker) -> Outcome:
            candidate = broker.coordinator
            term = None if candidate is None else candidate.term
            if term is None:
                return ErrorCode.NOT_COORDINATOR
            await term.ready()
            if isinstance(request, inputs.StoreOffsets):
                outcome = await term.store_offsets(None, request)
            else:
                outcome = await term.transactions.ask(request)
            self._world.transaction_judge.answered(request, outcome, latest)
            return outcome

        return await self._call(serve)

    async def _call(self, work: Callable[[SimBroker], Coroutine[object, object, T]]) -> T | ErrorCode | None:
        """Ask whom a broker believes to be the coordinator; None: no answer came."""
        if self._coordinator is None:
            self._coordinator = self._transactions.find_coordinator()
        if self._coordinator is None:
            await self._rest(50, 150)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        outcome = await self._transactions.call(self, self._coordinator, work, ANSWER_MS)
        if outcome is None:
            self._is_doubtful = True
        if outcome is None or outcome is ErrorCode.NOT_COORDINATOR:
            self._coordinator = None
        return outcome

    async def _produce(self, transaction: Transaction, key: PartitionKey) -> None:
        """Send one record until its leader has it."""
        transactions, judge = self._transactions, self._world.transaction_judge
        value = transactions.next_value()
        judge.sent(transaction, value)
        sequence = self._sequences.get(key, 0)
        batch = record_batch(
            [value.to_bytes(8, "big")], attributes=TRANSACTIONAL, producer=(*transaction.producer, sequence)
        )

        async def append(broker: SimBroker) -> ErrorCode:
            replica = broker.replicas.get(key)
            outcomes = await broker.listener.producing.produce(
                {key: batch}, acks=-1, timeout_ms=PRODUCE_MS, transactional_id=self._stream
            )
            outcome = outcomes[key]
            if outcome.error_code is ErrorCode.NONE and replica is not None:
                judge.acknowledged(transaction, replica, outcome.base_offset, value)
            return outcome.error_code

        for _ in range(TRIES):
            leader = transactions.find_leader(key)
            code: ErrorCode | None = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if leader is not None:
                code = await transactions.call(None, leader, append, PRODUCE_MS + 200)
            if code is ErrorCode.NONE:
                self._sequences[key] = sequence + 1
                return
            if code in _FENCED:
                raise _FencedError
            if code is not None and code not in _PASSING:
                raise _AbortedError
            await self._rest(20, 200)
        raise _AbortedError


class Transactions:
    """All streams, outside of the brokers."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.rng: random.Random = world.scheduler.rng("transactions")
        self.counts: Counter[str] = world.workload.counts
        #: whether workers come, sleep and go
        self.is_changing = True
        #: whether transactions are begun
        self._is_working = True
        self._producer_ids = itertools.count(1000)
        self._values = itertools.count(FIRST_VALUE)
        self._numbers = itertools.count(1)
        #: {stream: who works for it}
        self._workers: dict[str, Worker] = {}
        self._tasks: dict[Worker, asyncio.Task[None]] = {}

    def start(self) -> None:
        """Begin."""
        for number in range(STREAMS):
            self.world.scheduler.at(self.rng.uniform(1500, 3000), self._begin, f"stream-{number}")
        self.world.scheduler.at(2000, self._consume_again)
        self._stories = Stories(self.world, self.world.nemeses, self.rng)
        self.world.scheduler.at(3000, self._trouble_again)

    def calm_down(self) -> None:
        """Let nobody come, sleep or go from now on, and begin no transaction after a while."""
        self.is_changing = False
        self.world.scheduler.at(LAST_MS, self._stop)

    def _stop(self) -> None:
        self._is_working = False
        for worker in self._tasks:
            worker.is_over = True

    # -- workers ---------------------------------------------------------------------------------------------

    def _begin(self, stream: str) -> None:
        if not self._is_working:
            return
        if TOPIC not in self.world.invariants.topics:
            self.world.scheduler.at(200, self._begin, stream)
            return
        worker = self._workers[stream] = Worker(self, stream)
        self.process.post(0, self._spawn, worker)
        self.world.scheduler.at(self.rng.uniform(*LIFE_MS), self._replace, stream, worker)

    def _spawn(self, worker: Worker) -> None:
        self._tasks[worker] = self.process.spawn(worker.live())

    def _replace(self, stream: str, worker: Worker) -> None:
        """Let another worker take the place of one, which is gone, or does not know."""
        if not self.is_changing or self._workers.get(stream) is not worker:
            return
        kind = self.rng.random()
        if kind < 0.4:
            self.counts["producers crashed"] += 1
            self.process.post(0, self._tasks.pop(worker).cancel)
        elif kind < 0.6:
            worker.is_over = True
        else:
            self.counts["zombies"] += 1
        self.world.scheduler.at(self.rng.uniform(5, 800), self._begin, stream)

    def retired(self, worker: Worker) -> None:
        """A worker has ended by itself; its stream needs another one, unless it has one."""
        stream = next((each for each, found in self._workers.items() if found is worker), None)
        if stream is not None:
            self.world.scheduler.at(self.rng.uniform(5, 400), self._begin, stream)

    def begin(self, stream: str, producer: Producer, first_input: int, inputs_count: int) -> Transaction:
        """Return a new transaction."""
        self.counts["transactions begun"] += 1
        made = Transaction(next(self._numbers), stream, producer, first_input, inputs_count)
        self.world.transaction_judge.begun(made)
        return made

    def next_producer_id(self) -> int:
        """Return an id that nobody has."""
        return next(self._producer_ids)

    def next_value(self) -> int:
        """Return a value that no record has."""
        return next(self._values)

    # -- what goes wrong with their coordinator alone --------------------------------------------------------

    def _trouble_again(self) -> None:
        if self.is_changing:
            work = self.rng.choice([self._stories.depose_late_coordinator, self._write_one])
            self.world.nemeses.bit[work.__name__.lstrip("_")] += work()
            self.world.scheduler.at(self.rng.uniform(*TROUBLE_MS), self._trouble_again)

    def _write_one(self) -> bool:
        """Write a transactional id's znode, as an operator may who keeps its producer out."""
        records = self.world.transaction_judge.records
        at_rest = [each for each, record in sorted(records.items()) if record.state in AT_REST]
        if not at_rest:
            return False
        stream = self.rng.choice(at_rest)
        raised = replace(records[stream], producer_epoch=records[stream].producer_epoch + 3)
        self.world.note(0, f"{stream} is written by an operator")
        self.world.quorum.write(OP_SET_DATA, transaction_path(stream), raised.encode(), -1)
        return True

    # -- the way to brokers ----------------------------------------------------------------------------------

    def _any(self) -> SimBroker | None:
        brokers = sorted(self.world.brokers)
        return self.world.brokers[self.rng.choice(brokers)] if brokers else None

    def find_coordinator(self) -> int | None:
        """Return whom a broker that is asked believes to be the coordinator."""
        asked = self._any()
        candidate = None if asked is None else asked.coordinator
        return None if candidate is None else candidate.holder_id

    def find_leader(self, key: PartitionKey) -> int | None:
        """Return whom a broker that is asked believes to lead a partition."""
        asked = self._any()
        view = None if asked is None else asked.view.partition(*key)
        return None if view is None or view.leader < 0 else view.leader

    def partitions(self) -> list[PartitionKey]:
        """Return the partitions that exist."""
        return self.world.workload.partitions()

    async def call(
        self,
        stream: object,
        target: int,
        work: Callable[[SimBroker], Coroutine[object, object, T]],
        patience_ms: float,
    ) -> T | ErrorCode | None:
        """Have a broker do something; a code is a refusal, None: no answer came.

        Args:
            stream: whose order the request keeps; None: it may come late and twice.
            target: the broker's id.
            work: at the broker.
            patience_ms: how long the answer is waited for.
        """
        network, here = self.world.network, self.process
        answered: asyncio.Future[T | ErrorCode] = here.loop.create_future()

        def take(outcome: T | ErrorCode) -> None:
            if not answered.done():
                answered.set_result(outcome)

        async def serve(broker: SimBroker) -> None:
            outcome: T | ErrorCode
            try:
                outcome = await work(broker)
            except GroupRefusedError as error:
                outcome = error.error_code
            network.send(target, OUTSIDE, lambda: here.post(0, take, outcome))

        def arrive() -> None:
            broker = self.world.brokers.get(target)
            if broker is not None:
                broker.process.spawn(serve(broker))

        if stream is None:
            network.send(OUTSIDE, target, arrive)
        else:
            network.send_in_order(stream, OUTSIDE, target, arrive)
        try:
            async with asyncio.timeout(patience_ms / 1000):
                return await answered
        except TimeoutError:
            return None

    # -- readers ---------------------------------------------------------------------------------------------

    def _consume_again(self) -> None:
        keys, brokers = self.partitions(), sorted(self.world.brokers)
        if keys and brokers:
            key, broker_id = self.rng.choice(keys), self.rng.choice(brokers)
            self.world.network.send(OUTSIDE, broker_id, lambda: self._consume(key, broker_id))
        self.world.scheduler.at(self.rng.uniform(*CONSUME_MS), self._consume_again)

    def _consume(self, key: PartitionKey, broker_id: int) -> None:
        broker = self.world.brokers.get(broker_id)
        replica = None if broker is None else broker.replicas.get(key)
        if replica is not None:
            offset = max(0, replica.log.log_end_offset - self.rng.randint(1, 40))
            self.counts["read committed"] += self.world.transaction_judge.read(replica, offset)
