"""The phases of partitions: every legal move happens, and no other one does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping

import pytest

from controller.core.effects import Send
from controller.core.inputs import Answered, DeleteTopics, Reassign
from controller.core.phases import PHASE_MOVES, PartitionPhase, phase_of
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from tests.support.stepped_controller import SteppedController, of_kind

KEY = PartitionKey("orders", 0)
NEW, ONLINE, OFFLINE = PartitionPhase.NEW, PartitionPhase.ONLINE, PartitionPhase.OFFLINE
MOVING, DELETING, LEFT_ALONE = PartitionPhase.MOVING, PartitionPhase.DELETING, PartitionPhase.LEFT_ALONE


def die(stepped: SteppedController, *broker_ids: int) -> None:
    for each in broker_ids:
        if paths.broker_id_path(each) in stepped.tree.nodes:
            stepped.tree.remove(paths.broker_id_path(each))
    stepped.settle()


def live(stepped: SteppedController, *broker_ids: int) -> None:
    for each in broker_ids:
        stepped.register(each)
    stepped.settle()


def spoil(stepped: SteppedController, *_: int) -> None:
    """Make the topic's record one that cannot be read."""
    path = paths.topic_path(KEY.topic)
    stepped.good = stepped.tree.nodes[path].data  # type: ignore[attr-defined]
    stepped.tree.put(path, b"[]")
    stepped.settle()


def mend(stepped: SteppedController, *_: int) -> None:
    stepped.tree.put(paths.topic_path(KEY.topic), stepped.good)  # type: ignore[attr-defined]
    stepped.settle()


def delete(stepped: SteppedController, *_: int) -> None:
    stepped.ask(DeleteTopics((KEY.topic,)))


def move(stepped: SteppedController, *_: int) -> None:
    stepped.ask(Reassign({KEY: (1, 3)}))


def cancel(stepped: SteppedController, *_: int) -> None:
    """Take the reassignment back, and let the brokers confirm."""
    stepped.ask(Reassign({KEY: None}))
    confirm(stepped)


def confirm(stepped: SteppedController) -> None:
    done = 0
    while True:
        sends = of_kind(stepped.effects[done:], Send)
        done = len(stepped.effects)
        if not sends:
            return
        stepped.settle(*(Answered(each.broker_id, each.generation, 0, {}) for each in sends))


Act = Callable[..., None]
#: {move: what is done before, then what makes it}; numbers are the brokers of an act.
WAYS: Mapping[tuple[PartitionPhase, PartitionPhase], tuple[tuple[Act, tuple[int, ...]], ...]] = {
    (NEW, ONLINE): ((live, (1,)),),
    (NEW, DELETING): ((delete, ()),),
    (NEW, LEFT_ALONE): ((spoil, ()),),
    (ONLINE, OFFLINE): ((live, (1, 2)), (die, (1, 2))),
    (ONLINE, MOVING): ((live, (1, 2, 3)), (move, ())),
    (ONLINE, DELETING): ((live, (1, 2)), (delete, ())),
    (ONLINE, LEFT_ALONE): ((live, (1, 2)), (spoil, ())),
    (OFFLINE, ONLINE): ((live, (1, 2)), (die, (1, 2)), (live, (1, 2))),
    (OFFLINE, MOVING): ((live, (1, 2, 3)), (move, ()), (die, (1, 2, 3)), (live, (1, 2))),
    (OFFLINE, DELETING): ((live, (1, 2)), (die, (1, 2)), (delete, ())),
    (OFFLINE, LEFT_ALONE): ((live, (1, 2)), (die, (1, 2)), (spoil, ())),
    (MOVING, ONLINE): ((live, (1, 2, 3)), (move, ()), (cancel, ())),
    (MOVING, OFFLINE): ((live, (1, 2, 3)), (move, ()), (die, (1, 2, 3))),
    (MOVING, DELETING): ((live, (1, 2, 3)), (move, ()), (delete, ())),
    (MOVING, LEFT_ALONE): ((live, (1, 2, 3)), (move, ()), (spoil, ())),
    (LEFT_ALONE, NEW): ((spoil, ()), (mend, ())),
    (LEFT_ALONE, ONLINE): ((live, (1, 2)), (spoil, ()), (mend, ())),
    (LEFT_ALONE, OFFLINE): ((live, (1, 2)), (die, (1, 2)), (spoil, ()), (mend, ())),
    (LEFT_ALONE, MOVING): ((live, (1, 2, 3)), (move, ()), (spoil, ()), (mend, ())),
    (LEFT_ALONE, DELETING): ((live, (1, 2)), (spoil, ()), (delete, ())),
}
#: What only a new controller sees: a partition that it has not read the state of yet.
OF_A_NEW_TERM = {(NEW, OFFLINE), (NEW, MOVING)}


def with_topic() -> SteppedController:
    stepped = SteppedController()
    stepped.create(KEY.topic, {0: (1, 2)})
    stepped.elect()
    return stepped


def test_every_legal_move_is_made_by_a_test() -> None:
    legal = {(before, after) for before, phases in PHASE_MOVES.items() for after in phases}
    assert legal == set(WAYS) | OF_A_NEW_TERM
    assert set(PHASE_MOVES) == set(PartitionPhase)


@pytest.mark.parametrize("wanted", WAYS, ids=lambda wanted: f"{wanted[0].value} to {wanted[1].value}")
def test_a_legal_move_is_made(wanted: tuple[PartitionPhase, PartitionPhase]) -> None:
    stepped = with_topic()
    model = stepped.machine.model
    assert phase_of(model, KEY) is NEW
    *before, (last, brokers) = WAYS[wanted]
    for act, ids in before:
        act(stepped, *ids)
    seen = [phase_of(model, KEY)]
    stepped.watch = lambda: seen.append(phase_of(model, KEY))
    last(stepped, *brokers)
    passed = [each for number, each in enumerate(seen) if number == 0 or seen[number - 1] is not each]
    assert wanted in set(itertools.pairwise(passed))


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_no_other_move_is_made(seed: int) -> None:
    rng = random.Random(seed)
    stepped = with_topic()
    model = stepped.machine.model
    last = phase_of(model, KEY)

    def watch() -> None:
        nonlocal last
        now = phase_of(model, KEY)
        if last is not None and now is not None and now is not last:
            assert now in PHASE_MOVES[last], f"from {last} to {now}"
        last = now

    stepped.watch = watch
    for _ in range(30):
        chosen = rng.choice((live, die, spoil, mend, delete, move, cancel, confirm))
        if paths.topic_path(KEY.topic) not in stepped.tree.nodes:
            last = None
            stepped.create(KEY.topic, {0: (1, 2)})
            stepped.settle()
        if chosen is spoil and KEY.topic in model.left_alone:
            continue
        if chosen is mend and KEY.topic not in model.left_alone:
            continue
        if chosen in (live, die):
            chosen(stepped, rng.randint(1, 3))
        else:
            chosen(stepped)
        stepped.wait(rng.choice((0, 100, 3_000)))
