"""The machine of transactions over a quorum in memory: epochs, fences, ends, offsets, time-outs."""

from __future__ import annotations

from broker.core.groups.inputs import DeleteGroup
from broker.core.groups.slot import GroupSlot
from broker.core.transactions import inputs
from broker.core.transactions.deciding import OFFSETS_BYTES_MAX
from broker.core.transactions.inputs import Producer
from broker.core.transactions.machine import LOOK_MS, MARKERS_WAITED_MS
from controller.core.effects import Trace, Write
from controller.core.inputs import MultiDone, Unknown
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import EPOCH_EXHAUSTED, TransactionState
from tests.support.transactions_world import P0, P1, TIMEOUT_MS, TransactionsWorld, stored_in


def state_of(world: TransactionsWorld, name: str = "x") -> TransactionState | None:
    found = stored_in(world.tree, name)
    return None if found is None or found.record is None else found.record.state


def test_a_transaction_goes_its_way() -> None:
    world = TransactionsWorld()
    producer = world.init()
    assert producer.epoch == 0
    assert world.add(producer, P0, P1) is ErrorCode.NONE
    assert state_of(world) is TransactionState.ONGOING
    world.ask(inputs.EndTransaction("x", producer, commits=True))
    world.happen(world.ahead()[0])
    (markers,) = world.ahead()
    assert markers[1:] == (producer, True, frozenset((P0, P1)))
    assert world.answers[max(world.answers)] is ErrorCode.NONE
    assert world.add(producer, P0) is not None
    world.finish()
    assert world.end(producer) in (ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)


def test_a_repeated_end_is_answered_alike() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.add(producer, P0)
    assert [world.end(producer) for _ in range(2)] == [ErrorCode.NONE] * 2
    assert world.end(producer, commits=False) is ErrorCode.INVALID_TXN_STATE
    assert state_of(world) is TransactionState.COMPLETE_COMMIT


def asked_after_an_end(world: TransactionsWorld) -> list[int]:
    """Ask three things of an id whose abort is decided, while the markers are under way."""
    producer = world.init()
    world.add(producer, P0)
    world.ask(inputs.EndTransaction("x", producer, commits=False))
    world.happen(world.ahead()[0])
    return [
        world.ask(request)
        for request in (
            inputs.EndTransaction("x", producer, commits=False),
            inputs.AddPartitions("x", producer, frozenset((P1,))),
            inputs.InitProducer("x", TIMEOUT_MS),
        )
    ]


def test_what_is_decided_lets_others_wait() -> None:
    world = TransactionsWorld()
    numbers = asked_after_an_end(world)
    assert not world.answers.keys() & set(numbers)
    world.finish()
    ended, added, taken = (world.answers[number] for number in numbers)
    assert (ended, added) == (ErrorCode.NONE, ErrorCode.NONE)
    # The next transaction was open by then.
    assert taken is ErrorCode.CONCURRENT_TRANSACTIONS


def test_markers_that_take_long_are_waited_for_in_vain() -> None:
    world = TransactionsWorld()
    numbers = asked_after_an_end(world)
    world.tick(MARKERS_WAITED_MS + LOOK_MS)
    assert [world.answers[number] for number in numbers] == [ErrorCode.CONCURRENT_TRANSACTIONS] * 3
    world.finish()
    assert state_of(world) is TransactionState.COMPLETE_ABORT


def test_the_next_producer_fences_the_one_before() -> None:
    world = TransactionsWorld()
    first = world.init()
    world.add(first, P0)
    assert world.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert state_of(world) is TransactionState.COMPLETE_ABORT
    second = world.init()
    assert second == Producer(first.id, first.epoch + 2)
    assert world.end(first) is ErrorCode.PRODUCER_FENCED
    assert world.add(first, P0) is ErrorCode.PRODUCER_FENCED
    assert world.add(Producer(first.id + 1, 0), P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # As fenceProducers leaves it.
    assert state_of(world) is TransactionState.EMPTY


def test_a_producer_goes_on_with_a_higher_epoch() -> None:
    world = TransactionsWorld()
    first = world.init()
    second = world.init(expected=first)
    assert second == Producer(first.id, first.epoch + 1)
    assert world.init(expected=first) == second, "the answer was lost"
    third = world.init()
    assert world.init(expected=second) is ErrorCode.PRODUCER_FENCED
    assert third.epoch == second.epoch + 1


def test_epochs_that_end_take_another_id() -> None:
    world = TransactionsWorld()
    first = world.init()
    path = paths.transaction_path("x")
    value, version = world.tree.nodes[path]
    epoch = f'"producer_epoch":{EPOCH_EXHAUSTED - 1},"last'.encode()
    world.tree.nodes[path] = value.replace(b'"producer_epoch":0,"last', epoch), version
    world = TransactionsWorld(world.tree)
    assert world.init() == Producer(first.id, EPOCH_EXHAUSTED)
    last = Producer(first.id, EPOCH_EXHAUSTED)
    other = world.init(expected=last)
    assert (other.epoch, other.id != first.id) == (0, True)
    assert world.init(expected=last) == other, "the answer was lost"


def test_a_transaction_that_is_open_too_long_is_aborted() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.add(producer, P0)
    world.tick(TIMEOUT_MS - 1)
    assert not world.ahead()
    world.tick(1_001)
    world.finish()
    assert state_of(world) is TransactionState.COMPLETE_ABORT
    assert world.end(producer) is ErrorCode.PRODUCER_FENCED


def test_a_timeout_above_the_limit_is_refused() -> None:
    world = TransactionsWorld()
    for timeout_ms in (0, -1, 900_001):
        request = inputs.InitProducer("x", timeout_ms)
        assert world.done(request) is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_an_id_that_nobody_uses_is_removed() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.tick(3_600_001)
    world.finish()
    assert state_of(world) is None and not world.machine.all()
    assert world.machine.find("x") is None
    assert world.add(producer, P0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.groups.machine.room.held_bytes == 0


def test_few_of_many_old_ids_are_removed_at_once() -> None:
    world = TransactionsWorld()
    for number in range(250):
        world.init(f"id-{number}")
    world.tick(3_600_001)
    first = len(world.ahead())
    world.finish()
    # What is not old yet keeps nobody else from its turn.
    for _ in range(3):
        world.tick(1_000)
        world.finish()
    assert 0 < first <= 100 and not world.machine.all()


def test_ids_go_sooner_where_room_is_short() -> None:
    world = TransactionsWorld()
    world.init()
    # Of 128 MiB seven tenths.
    world.groups.machine.room.held_bytes += 7 * 128 * 1024 * 1024 // 10
    world.tick(2_100_000)
    world.finish()
    assert state_of(world) is TransactionState.EMPTY
    world.tick(100_000)
    world.finish()
    assert state_of(world) is None


def test_a_new_id_without_room_is_refused() -> None:
    world = TransactionsWorld()
    producer = world.init("present")
    world.groups.machine.room.held_bytes += 10**12
    assert world.done(inputs.InitProducer("another", 60_000)) is ErrorCode.POLICY_VIOLATION
    [said] = [each.text for each in world.effects if isinstance(each, Trace)]
    assert "transactional id 'another'" in said and "groups.groups_bytes_max" in said
    assert world.done(inputs.InitProducer("present", 60_000)) == producer._replace(epoch=1)


def test_offsets_and_the_decision_are_one_multi() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.add(producer, P0)
    assert world.store(producer, "g", {0: 5, 1: 6}) is ErrorCode.NONE
    assert set(world.machine.unstable("g")) == {P0, P1}
    assert world.groups.offsets("g") == {}
    world.ask(inputs.EndTransaction("x", producer, commits=True))
    (write,) = world.ahead()
    assert isinstance(write, Write)
    world.happen(write)
    assert world.groups.offsets("g") == {0: 5, 1: 6}
    assert state_of(world) is TransactionState.PREPARE_COMMIT
    assert not world.machine.unstable("g")
    assert not world.tree.children(paths.transaction_path("x"))
    slot = world.groups.machine.find("g")
    assert isinstance(slot, GroupSlot) and slot.flying is None


def test_an_abort_forgets_the_offsets() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.store(producer, "g", {0: 5})
    assert world.end(producer, commits=False) is ErrorCode.NONE
    assert (world.groups.offsets("g"), list(world.machine.unstable("g"))) == ({}, [])


def test_offsets_of_another_group_are_refused() -> None:
    world = TransactionsWorld()
    producer = world.init()
    offsets = {P0: OffsetRecord(1, -1, "", 0)}
    asked = inputs.StoreOffsets("x", producer, "g", offsets)
    assert world.done(asked) is ErrorCode.INVALID_TXN_STATE
    world.done(inputs.AddGroup("x", producer, "other"))
    assert world.done(asked) is ErrorCode.INVALID_TXN_STATE


def test_the_offsets_of_a_transaction_are_bounded() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.done(inputs.AddGroup("x", producer, "g"))
    many = OFFSETS_BYTES_MAX // 300
    offsets = {PartitionKey("t", each): OffsetRecord(1, -1, "", 0) for each in range(many)}
    asked = inputs.StoreOffsets("x", producer, "g", offsets)
    assert world.done(asked) is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert not world.machine.unstable("g")


def test_a_group_that_is_deleted_meanwhile_comes_again() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.groups.done(world.groups.committing("g", {0: 1}))
    world.store(producer, "g", {0: 5})
    assert world.groups.done(DeleteGroup("g")) is ErrorCode.NONE
    assert world.end(producer) is ErrorCode.NONE
    assert world.groups.offsets("g") == {0: 5}


def test_a_lost_commit_is_found() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.store(producer, "g", {0: 5})
    number = world.ask(inputs.EndTransaction("x", producer, commits=True))
    (write,) = world.ahead()
    world.effects.remove(write)
    world.tree.multi(write.operations)
    world.step(MultiDone(write.id, Unknown("the reply was lost")))
    world.finish()
    assert world.answers[number] is ErrorCode.NONE
    slot = world.groups.machine.find("g")
    assert isinstance(slot, GroupSlot) and {each: at.offset for each, at in slot.stored.offsets.items()} == {
        P0: 5
    }


def test_a_new_coordinator_goes_on_with_a_decision() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.add(producer, P0)
    world.ask(inputs.EndTransaction("x", producer, commits=True))
    world.happen(world.ahead()[0])
    world.groups.elect_another()
    other = TransactionsWorld(world.tree)
    (markers,) = other.ahead()
    assert markers[1:] == (producer, True, frozenset((P0,)))
    other.finish()
    assert state_of(other) is TransactionState.COMPLETE_COMMIT
    world.finish()
    assert world.resigned is not None and world.resigned.is_fenced


def test_verification_knows_the_open_transaction_alone() -> None:
    world = TransactionsWorld()
    producer = world.init()
    world.add(producer, P0)
    asked = inputs.VerifyPartitions("x", producer, frozenset((P0, P1)))
    assert world.done(asked) == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    world.end(producer)
    assert set(world.done(asked).values()) == {ErrorCode.TRANSACTION_ABORTABLE}
