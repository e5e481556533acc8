"""An import into a simulated cluster under faults: what was imported is what every node holds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from quorum.core.acl import OPEN_ACL
from quorum.core.codes import OK, RUNTIME_INCONSISTENCY
from quorum.core.importing import BEGIN, OPEN, WRITE, ImportedNode, ImportedNumbers, walk
from quorum.core.results import Result
from quorum.errors import QuorateError
from tests.simulation.world import SHORT, World

SOURCE = "zk:2181"
STEPS = 60
TOPS = [f"/{name}" for name in "abcdefghijklmnop"]
PATHS = [*TOPS, *(f"{top}/{child}" for top in TOPS for child in "xyz")]
#: how long an answer is waited for: longer than a node's own deadline, or so short that steps overtake others
ANSWER_WITHIN_MS = (6000.0, 400.0, 30.0)
BETWEEN_MS = 150.0


class Importer:
    """Sends one step after the other to drawn nodes, each until it is carried out; nobody may lose one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng: random.Random = world.scheduler.rng("importer")
        self._number = 0
        self._question = 0
        #: whether an answer may be of a repetition
        self._repeated = False
        self._step: list[Any] = []
        #: {path: node} of the source
        self.tree: dict[str, ImportedNode] = {}
        self._creates: dict[str, int] = {}

    @property
    def done(self) -> bool:
        """Whether the cluster was opened."""
        return self._number > STEPS + 1

    def next_step(self) -> None:
        """Draw a step, and ask for it."""
        if self.done:
            return
        changes = self._draw() if 0 < self._number <= STEPS else None
        kind = BEGIN if not self._number else OPEN if changes is None else WRITE
        # Now and then the source is far ahead.
        floor = 100 * (self._number + 1) + (1 << 33) * (self._number > STEPS // 2)
        self._step = [kind, SOURCE, floor, changes]
        self._repeated = False
        self._ask()

    def _draw(self) -> list[Any]:
        changes: list[Any] = []
        for path in self._rng.sample(PATHS, 4):
            parent = path.rpartition("/")[0]
            if path in self.tree and self._rng.random() < 0.4:
                if any(other.startswith(f"{path}/") for other in self.tree):
                    continue
                del self.tree[path]
                self._creates.pop(path, None)
                changes.append([path])
            elif not parent or parent in self.tree:
                if parent and path not in self.tree:
                    self._creates[parent] += 1
                    changes.append(self._put(parent))
                self._creates.setdefault(path, 0)
                changes.append(self._put(path))
        return changes

    def _put(self, path: str) -> list[Any]:
        zxid = 1 + self._rng.randrange(100)
        numbers = ImportedNumbers(zxid, zxid, zxid, 5, 6, self._number, 0, self._creates[path])
        data = self._rng.randbytes(self._rng.choice([0, 8, 2000]))
        lifetime = self._rng.choice([0, 0, -1, 5000])
        self.tree[path] = node = ImportedNode(path, data, OPEN_ACL, numbers, lifetime)
        return node.change()

    def _ask(self) -> None:
        running = self._world.running()
        self._question += 1
        question = self._question
        self._world.scheduler.at(self._rng.choice(ANSWER_WITHIN_MS), self._ask_again, question)
        if not running:
            return
        asked = self._rng.choice(running)
        assert asked.member is not None
        assert asked.runtime is not None

        def told(result: Result | QuorateError) -> None:
            if question == self._question:
                self._told(result)

        asked.runtime.enter(asked.member.replica.import_step, list(self._step), told)

    def _ask_again(self, question: int) -> None:
        if question == self._question:
            self._repeated = True
            self._ask()

    def _told(self, result: Result | QuorateError) -> None:
        self._question += 1
        if isinstance(result, QuorateError):
            self._repeated = True
            self._world.scheduler.at(BETWEEN_MS, self._ask_again, self._question)
            return
        late = result.err == RUNTIME_INCONSISTENCY or self._step[0] == OPEN
        if result.err != OK and not (self._repeated and late):
            self._world.break_off("import", f"step {self._step} got {result}")
        self._number += 1
        self._world.scheduler.at(BETWEEN_MS, self.next_step)


class ImportWorld(World):
    """A world without clients, into which something is imported."""

    def _play(self) -> None:
        scheduler = self.scheduler
        for node in self.nodes.values():
            self.operators.start(node)
        importer = Importer(self)
        scheduler.at(1000.0, importer.next_step)
        self._run(1500.0)
        scheduler.at(0.0, self._next_fault)
        self._run(self._span.load_until_ms)
        self._heal()
        self._until(lambda: importer.done, 120_000.0, "the import does not come to an end")
        self._until(self._is_level, 30_000.0, "the nodes do not converge")
        self.operators.gone = True
        self.invariants.at_end()
        expected = {"/": None, **importer.tree}
        for node in self.nodes.values():
            assert node.member is not None
            machine = node.member.replica.machine
            assert not machine.transaction.import_source
            found = {each.path: each for each in walk(machine.tree)}
            assert found.keys() == expected.keys()
            for path, each in importer.tree.items():
                assert found[path].digest() == each.digest(), (path, found[path], each)


@pytest.mark.parametrize("profile", ["crashes", "partitions", "pauses", "snapshots", "disks"])
@pytest.mark.parametrize("seed", range(1, 5))
def test_an_import_survives_every_fault(profile: str, seed: int) -> None:
    ImportWorld(seed, profile, span=SHORT).run()
