"""What must hold of transactions: all of one or nothing, each input once, and no former producer writes.

Looks at what the quorum commits, at the answers that leave a coordinator, and at what readers of committed
records get; what those must get is worked out anew from the records that are committed. A partition that lost
records by an unclean election keeps no promise about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.core import reading
from broker.core.fetched import FetchPosition
from broker.core.transactions import inputs
from broker.core.transactions.inputs import Producer
from broker.log.batches import TRANSACTIONAL
from controller.wire.codes import ErrorCode
from quorum.core.codes import OP_CREATE, OP_CREATE2, OP_SET_DATA
from quorum.core.results import Result
from quorum.metadata import paths
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER
from quorum.metadata.transaction_records import TransactionRecord, TransactionState
from tests.simulation.control_plane.group_invariants import OF_TRANSACTIONS
from tests.simulation.control_plane.invariants import Identity, InvariantBrokenError, operations_of
from tests.simulation.control_plane.log import Record
from tests.simulation.control_plane.reading_committed import for_users

if TYPE_CHECKING:
    from tests.simulation.control_plane.replica import SimReplica
    from tests.simulation.control_plane.world import World

_WRITES = (OP_SET_DATA, OP_CREATE, OP_CREATE2)
#: with no transaction
AT_REST = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(slots=True)
class Transaction:
    """One transaction as its producer sees it: some inputs of a stream, each with one record of output."""

    number: int
    stream: str
    producer: Producer
    first_input: int
    inputs_count: int
    #: {value: the partition that has acknowledged it}
    records: dict[int, Identity] = field(default_factory=dict)

    @property
    def end_input(self) -> int:
        """Exclusive."""
        return self.first_input + self.inputs_count


class Scanned(NamedTuple):
    """What committed records say of transactions."""

    last_stable_offset: int
    #: {offset: value} of the records of transactions that have ended with a commit
    visible: dict[int, int]


class TransactionInvariants:
    """The judge of the transactions of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        #: {transactional id: its record in the quorum}
        self.records: dict[str, TransactionRecord] = {}
        self.transactions: dict[int, Transaction] = {}
        #: {value: its transaction}
        self._of_value: dict[int, Transaction] = {}
        #: transactions whose offsets are in the quorum
        self.committed: set[int] = set()
        #: {stream: the input that comes next, by the committed offset}
        self.next_input: dict[str, int] = {}
        #: producers that were answered, and {stream: the last one}
        self._given: set[Producer] = set()
        self.latest: dict[str, Producer] = {}

    def _fail(self, story: str) -> None:
        raise InvariantBrokenError(story)

    def begun(self, transaction: Transaction) -> None:
        """A producer begins a transaction."""
        self.transactions[transaction.number] = transaction

    def sent(self, transaction: Transaction, value: int) -> None:
        """A record is on its way."""
        self._of_value[value] = transaction

    # -- what the quorum commits -----------------------------------------------------------------------------

    def committed_command(self, result: Result, command: Sequence[Any], session: int) -> None:  # noqa: ARG002
        """Look at a write."""
        operations = operations_of(result, command)
        ends: set[str] = set()
        for operation in operations:
            path = str(operation[1]) if len(operation) > 1 else ""
            parts = path.split("/")
            if path.startswith(paths.TRANSACTIONS + "/") and len(parts) == 3 and operation[0] in _WRITES:
                record = TransactionRecord.decode(parts[2], operation[2])
                self._record_written(parts[2], record)
                if record.state is TransactionState.PREPARE_COMMIT:
                    ends.add(parts[2])
        for operation in operations:
            path = str(operation[1]) if len(operation) > 1 else ""
            if path.startswith(f"{paths.GROUPS}/{OF_TRANSACTIONS}") and operation[0] in _WRITES:
                parts = path.split("/")
                if len(parts) == 7:
                    key = PartitionKey(parts[5], int(parts[6]))
                    self._offset_written(parts[3], OffsetRecord.decode(parts[3], key, operation[2]), ends)

    def _record_written(self, stream: str, record: TransactionRecord) -> None:
        before = self.records.get(stream)
        self.records[stream] = record
        if before is None or before.producer_id != record.producer_id:
            return
        if record.producer_epoch < before.producer_epoch:
            epochs = f"{record.producer_epoch} follows {before.producer_epoch}"
            self._fail(f"I27: {stream}: producer epoch {epochs}")

    def _offset_written(self, group: str, offset: OffsetRecord, ends: set[str]) -> None:
        transaction = self.transactions[int(offset.metadata)]
        stream = transaction.stream
        story = f"{group}: {transaction}"
        if stream not in ends:
            self._fail(f"I28: its offsets take effect without its commit: {story}")
        expected = self.next_input.get(stream, 0)
        if transaction.first_input != expected or offset.offset != transaction.end_input:
            self._fail(f"I28: it is committed where input {expected} comes next: {story}")
        self.next_input[stream] = offset.offset
        self.committed.add(transaction.number)

    # -- what leaves a coordinator ---------------------------------------------------------------------------

    def answered(self, request: inputs.TransactionRequest, outcome: object, latest: Producer | None) -> None:
        """An answer leaves.

        Args:
            request: as asked.
            outcome: of it.
            latest: the last producer of the id that was answered when the request was sent.
        """
        stream = request.transactional_id
        if isinstance(request, inputs.InitProducer):
            if isinstance(outcome, Producer):
                if outcome in self._given:
                    self._fail(f"I27: {stream}: two producers have {outcome}")
                self._given.add(outcome)
                self.latest[stream] = max(self.latest.get(stream, outcome), outcome)
        elif outcome is ErrorCode.NONE and latest is not None and request.producer < latest:
            self._fail(f"I27: {stream}: {request} succeeds after {latest}")

    def ended(self, transaction: Transaction, *, commits: bool) -> None:
        """The end of a transaction is acknowledged."""
        if commits != (transaction.number in self.committed):
            kind = "committed" if commits else "aborted"
            self._fail(f"I28: acknowledged as {kind}, and is not: {transaction}")

    def acknowledged(self, transaction: Transaction, replica: SimReplica, offset: int, value: int) -> None:
        """A leader says that a record is committed, in the sense of replicas."""
        transaction.records[value] = (replica.log.topic_id, replica.key.partition)
        self._world.invariants.acknowledged(replica, offset, value)

    # -- what readers of committed records get ---------------------------------------------------------------

    def read(self, replica: SimReplica, offset: int) -> int:
        """Read committed records at a replica, from an offset on; returns how many were of transactions."""
        world, log, role = self._world, replica.log, replica.machine.role
        world.invariants.check_replica(replica)
        end = reading.end_for(role, -1, FetchPosition(offset, 1), log, read_committed=True)
        if not isinstance(end, int) or not self.keeps_promises(replica):
            return 0
        name = f"{replica.key.topic}-{replica.key.partition} at broker {replica.broker.broker_id}"
        found = self._scan(log.records[: role.high_watermark], name)
        if end > found.last_stable_offset:
            self._fail(f"I29: {name}: the last stable offset is {end}, not {found.last_stable_offset}")
        role_before, stable_before = replica.stable_checked
        if role_before is role and end < stable_before:
            self._fail(f"I29: {name}: the last stable offset goes back from {stable_before} to {end}")
        replica.stable_checked = (role, end)
        got = for_users(log, offset, end)
        for value in got.values():
            transaction = self._of_value[value]
            if transaction.number not in self.committed:
                self._fail(f"I28: {name}: a reader of committed records gets {value} of {transaction}")
        expected = {each: value for each, value in found.visible.items() if offset <= each < end}
        if got != expected:
            self._fail(f"I28: {name}: a reader of committed records gets {got}, not {expected}")
        return len(got)

    def keeps_promises(self, replica: SimReplica) -> bool:
        """Whether a replica shows what is committed, and nothing of that was ever lost."""
        kept = self._world.invariants.committed.get((replica.log.topic_id, replica.key.partition))
        return kept is not None and kept.since_epoch == 0 and kept.counts(replica)

    def _scan(self, records: Sequence[Record], name: str) -> Scanned:
        begun: dict[int, int] = {}
        pending: dict[int, dict[int, int]] = {}
        epochs: dict[int, int] = {}
        visible: dict[int, int] = {}
        for offset, record in enumerate(records):
            if not record.batch:
                continue
            header = record.header
            producer_id, epoch = header.producer_id, header.producer_epoch
            if epoch < epochs.get(producer_id, 0):
                self._fail(f"I27: {name}: {header} after epoch {epochs[producer_id]}")
            epochs[producer_id] = epoch
            marker = record.marker
            if marker is None:
                assert header.attributes & TRANSACTIONAL, header
                begun.setdefault(producer_id, offset)
                pending.setdefault(producer_id, {})[offset] = record.value
            else:
                begun.pop(producer_id, None)
                values = pending.pop(producer_id, {})
                if marker.is_commit:
                    visible.update(values)
        return Scanned(min(begun.values(), default=len(records)), dict(sorted(visible.items())))

    # -- in the end ------------------------------------------------------------------------------------------

    def check_healed(self) -> None:
        """Every transaction has ended, in the quorum and in the logs, as a whole."""
        world = self._world
        states = world.invariants.states
        for stream, record in self.records.items():
            leaders = [states[key][0].leader for key in record.partitions if key in states]
            # A partition that nobody leads waits for an operator, and so does its marker.
            if record.state not in AT_REST and NO_LEADER not in leaders:
                self._fail(f"I29: {stream}: its transaction does not end: {record}")
        shown: dict[int, Identity] = {}
        whole: set[Identity] = set()
        for key, (state, _) in states.items():
            broker = world.brokers.get(state.leader)
            replica = None if broker is None else broker.replicas.get(key)
            if replica is None or not self.keeps_promises(replica):
                continue
            self.read(replica, 0)
            log, mark = replica.log, replica.machine.high_watermark
            place = f"{key.topic}-{key.partition}"
            if log.last_stable_offset(mark) != mark:
                stable = f"{log.last_stable_offset(mark)} of {mark}"
                self._fail(f"I29: {place}: a transaction does not end: stable is {stable}")
            identity: Identity = (log.topic_id, key.partition)
            whole.add(identity)
            for offset, value in for_users(log, 0, mark).items():
                if value in shown:
                    self._fail(f"I28: {place}: {value} at {offset} is there twice: {self._of_value[value]}")
                shown[value] = identity
        for number in sorted(self.committed):
            transaction = self.transactions[number]
            for value, identity in transaction.records.items():
                if identity in whole and value not in shown:
                    self._fail(f"I28: {value} of {transaction} is not there, which is committed")
