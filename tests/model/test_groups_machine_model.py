"""Coordinators one after the other over one quorum, with lost replies, failed readings and late multis.

Commits of one partition carry rising offsets. So whatever happens: an offset in the quorum never goes back,
what was acknowledged is there, a request has one answer at most, and each has one when all is heard again.
"""

from __future__ import annotations

import random

import pytest

from broker.core.groups import group_fences, inputs
from controller.core.effects import Write
from controller.core.inputs import MultiDone, ReadFailed, Unknown
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import GenerationId
from tests.support.groups_world import SESSION_MS, GroupsWorld, TreeOfGroups

SEEDS = 60
STEPS = 120
GROUPS = ("a", "b", "c")


class Run:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.tree = TreeOfGroups()
        self.worlds = [GroupsWorld(self.tree)]
        #: {(coordinator, request): (group, partition, offset)}
        self.asked: dict[tuple[int, int], tuple[str, int, int]] = {}
        #: {(group, partition): the largest offset that was acknowledged}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.seen: dict[tuple[str, int], int] = {}
        self.number = 0

    def run(self) -> None:
        """Let much happen, then everything that is under way."""
        for _ in range(STEPS):
            self.step()
            self.check()
        last = self.worlds[-1]
        last.finish()
        self.check()
        if last.resigned is None:
            mine = [number for index, number in self.asked if index == len(self.worlds) - 1]
            assert set(mine) <= last.answers.keys()

    def step(self) -> None:
        """Let one thing happen to one coordinator, most often to the present one."""
        rng = self.rng
        index = len(self.worlds) - 1
        if index and rng.random() < 0.2:
            index -= 1
        world = self.worlds[index]
        world.now_ms = max(each.now_ms for each in self.worlds)
        match rng.randrange(12):
            case 0:
                self.tree_elects()
            case 1:
                world.tick(rng.randrange(SESSION_MS))
            case 2:
                self.rejoin(world)
            case 3 | 4 | 5:
                self.commit(index)
            case _:
                self.happen(world)

    def tree_elects(self) -> None:
        if self.rng.random() < 0.4 or self.worlds[-1].resigned is not None:
            self.worlds[-1].elect_another()
            self.worlds.append(GroupsWorld(self.tree, now_ms=self.worlds[-1].now_ms))

    def rejoin(self, world: GroupsWorld) -> None:
        """Let a member come to a group, or go again."""
        group = self.rng.choice(GROUPS)
        if self.rng.random() < 0.5:
            world.ask(world.joining(group, new_id=f"m{self.rng.randrange(3)}"))
        else:
            world.ask(inputs.LeaveGroup(group, [(f"m{self.rng.randrange(3)}", None)]))

    def commit(self, index: int) -> None:
        """Commit in the name of nobody, or of a member if the group has some."""
        world, group, partition = self.worlds[index], self.rng.choice(GROUPS), self.rng.randrange(2)
        self.number += 1
        slot = world.machine.find(group)
        members = getattr(getattr(slot, "machine", None), "members", [])
        generation_id = getattr(getattr(slot, "machine", None), "generation_id", GenerationId(-1))
        whose = (members[0].member_id, None, generation_id) if members else ("", None, GenerationId(-1))
        number = world.ask(world.committing(group, {partition: self.number}, whose))
        self.asked[index, number] = group, partition, self.number

    def happen(self, world: GroupsWorld) -> None:
        """Let a multi or a reading happen, or not, or lose its reply."""
        ahead = [each for each in world.effects if isinstance(each, Write | inputs.ReadGroup)]
        if not ahead:
            return
        effect = self.rng.choice(ahead)
        world.effects.remove(effect)
        lot = self.rng.random()
        if isinstance(effect, inputs.ReadGroup):
            if lot < 0.1:
                world.step(ReadFailed(effect.id, "no connection"))
            else:
                world.read(effect)
        elif lot < 0.15:
            world.step(MultiDone(effect.id, Unknown("the request was lost")))
        else:
            outcome = self.tree.multi(effect.operations)
            world.step(MultiDone(effect.id, Unknown("the reply was lost") if lot < 0.3 else outcome))

    def check(self) -> None:
        """See that nothing that was promised is gone."""
        for (index, number), (group, partition, offset) in list(self.asked.items()):
            if self.worlds[index].answers.get(number) is ErrorCode.NONE:
                key = group, partition
                self.acknowledged[key] = max(offset, self.acknowledged.get(key, 0))
                del self.asked[index, number]
        for group in GROUPS:
            held = self.world_offsets(group)
            for partition in range(2):
                key = group, partition
                now = held.get(partition, 0)
                assert now >= self.seen.get(key, 0), "an offset has gone back"
                assert now >= self.acknowledged.get(key, 0), "an acknowledged offset is not there"
                self.seen[key] = now

    def world_offsets(self, group: str) -> dict[int, int]:
        return self.worlds[-1].offsets(group)


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_no_promise_is_broken(first: int) -> None:
    run_all(range(first, first + 20))


def run_all(seeds: range) -> None:
    for seed in seeds:
        Run(seed).run()


@pytest.mark.parametrize(
    ("fence", "off"), [("coordinator_epoch", lambda _: -1), ("may_answer", lambda **_: True)]
)
def test_a_fence_that_is_off_is_noticed(fence: str, off: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_fences, fence, off)
    with pytest.raises(AssertionError, match="offset"):
        run_all(range(SEEDS))
