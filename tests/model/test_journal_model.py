"""The journal against a list of records, under power cuts, full disks, failing fsyncs and flipped bits.

The model is the list of all records in the order of writing. Whatever happens, a start must yield exactly
the state after some prefix of that list which holds every acknowledged record, or refuse loudly; and what a
start yielded counts as acknowledged, since the node votes on it.
"""

from __future__ import annotations

import contextlib
import random
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from quorum.errors import DataDamagedError
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.journal.journal import (
    Install,
    Journal,
    JournalFailedError,
    JournalFullError,
    JournalOptions,
    OriginIncarnation,
    Record,
    Recovered,
)
from tests.support.journals import compact
from tests.support.memory_disk import Cut, MemoryDisk, Stopped

DIRECTORY = "/data/journal"
OPTIONS = JournalOptions(segment_bytes_max=4096, log_cache_bytes_max=2000)
EVERYTHING = 1 << 40


class Model(NamedTuple):
    """The state that a list of records adds up to."""

    entries: dict[int, Entry]
    base: int
    hard_state: HardState
    install: int
    origin: int

    @property
    def last_index(self) -> int:
        return max(self.entries, default=self.base)


def replay(records: list[Record]) -> Model:
    entries: dict[int, Entry] = {}
    base, install, origin = 0, 0, 0
    hard_state = HardState(0, 0)
    for record in records:
        if isinstance(record, Entry):
            entries = {index: entry for index, entry in entries.items() if index < record.index}
            entries[record.index] = record
        elif isinstance(record, HardState):
            hard_state = record
        elif isinstance(record, OriginIncarnation):
            origin = record.number
        else:
            install = max(install, record.log_index)
            held = entries.get(record.log_index)
            if record.log_index > base and (held is None or held.term != record.term):
                entries, base = {}, record.log_index
    return Model(entries, base, hard_state, install, origin)


class World:
    """A journal, its disk, and the list of what was written to it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.disk = MemoryDisk(rng)
        self.records: list[Record] = []
        self.acknowledged = 0
        self.kept_from = 1
        self.flipped = False
        Journal.create(self.disk, DIRECTORY)
        self.journal = self.open()

    def open(self) -> Journal:
        journal, recovered = Journal.open(self.disk, DIRECTORY, OPTIONS, lambda _line: None)
        self.check(journal, recovered)
        return journal

    def check(self, journal: Journal, recovered: Recovered) -> None:
        for count in range(len(self.records), self.acknowledged - 1, -1):
            if self.same(replay(self.records[:count]), journal, recovered):
                del self.records[count:]
                self.acknowledged = count
                return
        raise AssertionError(f"{recovered} is no state of {self.acknowledged} to {len(self.records)} records")

    def same(self, model: Model, journal: Journal, recovered: Recovered) -> bool:
        install = recovered.highest_install.log_index if recovered.highest_install else 0
        found = (recovered.hard_state, install, recovered.origin_incarnation, recovered.last_index)
        if found != (model.hard_state, model.install, model.origin, model.last_index):
            return False
        first = recovered.first_index
        assert first <= max(self.kept_from, model.base + 1), "more was compacted than was allowed"
        wanted = [model.entries[index] for index in sorted(model.entries) if index >= first]
        held = journal.read(first, EVERYTHING, EVERYTHING) if first <= recovered.last_index else []
        if held != wanted:
            return False
        assert list(recovered.tail) == wanted[len(wanted) - len(recovered.tail) :]
        assert bool(recovered.tail) == bool(wanted)
        terms = {entry.index: entry.term for entry in wanted}
        runs = [(index, term) for index, term in terms.items() if terms.get(index - 1) != term]
        assert list(recovered.term_runs) == runs
        return True

    def payload(self) -> bytes:
        kind = self.rng.randrange(6)
        size = self.rng.choice([0, 1, 40, 300, 600, 1500])
        if kind == 0:
            return bytes(size)
        if kind == 1:
            return self.rng.randbytes(size // 2) + bytes(size)
        if kind == 2:
            # What a client might do: store a piece of a journal.
            names = [name for name in self.disk.listdir(DIRECTORY) if name.endswith(".segment")]
            content = self.disk.content(f"{DIRECTORY}/{self.rng.choice(names)}").rstrip(b"\0")
            start = self.rng.randrange(len(content))
            return content[start : start + size]
        return self.rng.randbytes(size)

    def group(self) -> list[Record]:
        model = replay(self.records)
        term = max(model.hard_state.term, 1)
        records: list[Record] = []
        match self.rng.randrange(10):
            case 0:
                records.append(HardState(term + 1, self.rng.randrange(4)))
            case 1:
                records.append(OriginIncarnation(model.origin + 1))
            case 2:
                index = self.rng.randrange(max(model.base, model.last_index - 3), model.last_index + 6)
                if index > max(model.base, self.kept_from):
                    return [Install(index, term), HardState(term + 1, 0)]
        if records and isinstance(records[0], HardState):
            term = records[0].term
        last = model.last_index
        if self.rng.random() < 0.25 and last > max(model.base + 1, self.kept_from):
            term += 1
            records.append(HardState(term, 0))
            last = self.rng.randrange(max(model.base, self.kept_from, last - 5), last)
        count = self.rng.randrange(1, 6)
        kinds = list(EntryKind)
        records += [
            Entry(last + 1 + i, term, self.rng.choice(kinds), i, self.payload()) for i in range(count)
        ]
        return records

    def append(self) -> None:
        group = self.group()
        self.records += group
        staged = self.journal.stage(group)
        while True:
            try:
                self.journal.write(staged)
                break
            except JournalFullError:
                self.live_without_room(group)
                self.disk.capacity_bytes = None
        self.journal.finish(staged)
        self.acknowledged = len(self.records)

    def live_without_room(self, staged: list[Record]) -> None:
        """What may come between two attempts to write a group: a snapshot's compaction, and the end."""
        if self.rng.random() < 0.9:
            # What was applied is durable, and never superseded.
            durable = replay(self.records[: self.acknowledged]).last_index
            self.compact(min([durable, *(each.index - 1 for each in staged if isinstance(each, Entry))]))
        if self.rng.random() < 0.5:
            raise Stopped

    def compact(self, last: int) -> None:
        if last >= self.kept_from:
            self.kept_from = self.rng.randrange(self.kept_from, last + 2)
            compact(self.journal, self.kept_from)

    def act(self) -> None:
        for _ in range(self.rng.randrange(1, 12)):
            if self.rng.random() < 0.15:
                self.compact(replay(self.records).last_index)
            else:
                self.append()

    def read_something(self) -> None:
        model = replay(self.records[: self.acknowledged])
        first = self.journal.first_index
        if first <= model.last_index:
            start = self.rng.randrange(first, model.last_index + 1)
            bytes_max = self.rng.choice([1, 500, EVERYTHING])
            held = self.journal.read(start, EVERYTHING, bytes_max)
            assert held == [model.entries[start + i] for i in range(len(held))]
            assert held
            if bytes_max == EVERYTHING:
                assert held[-1].index == model.last_index

    def lose(self) -> None:
        """End the process in one of the ways that there are."""
        if self.rng.random() < 0.2:
            self.disk.kill()
        else:
            self.disk.power_cut(self.rng.choice([None, None, *Cut]))


def plan_trouble(world: World) -> None:
    """Make the disk fail somewhere in what comes next."""
    disk, rng = world.disk, world.rng
    match rng.randrange(6):
        case 0 | 1 | 2:
            disk.stop_after(rng.randrange(12))
        case 3:
            disk.fail(rng.choice(["fdatasync", "fsync_dir"]), 5, skip=rng.randrange(4))
        case 4:
            disk.fail("pwrite", rng.choice([5, 28]), skip=rng.randrange(4))
        case 5:
            used = sum(len(disk.content(f"{DIRECTORY}/{name}")) for name in disk.listdir(DIRECTORY))
            disk.capacity_bytes = used + rng.choice([0, rng.randrange(3000)])


def run_until_trouble(world: World) -> None:
    try:
        world.act()
        world.read_something()
    except (Stopped, JournalFailedError):
        pass
    world.disk.capacity_bytes = None


def restart(world: World) -> None:
    """Open again, with crashes during some of the openings."""
    while world.rng.random() < 0.4:
        world.disk.stop_after(world.rng.randrange(8))
        try:
            Journal.open(world.disk, DIRECTORY, OPTIONS, lambda _line: None)
        except Stopped:
            pass
        world.lose()
    world.disk.kill()
    world.journal = world.open()
    # The node votes and acknowledges from here on: what it holds must survive even the worst.
    if world.rng.random() < 0.5:
        world.append()
    world.disk.power_cut(Cut.NOTHING)
    world.journal = world.open()


EXAMPLES = 1000
SETTINGS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@SETTINGS
@given(seed=st.integers(0, 1 << 48))
def test_a_restart_holds_everything_acknowledged(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(world.rng.randrange(1, 6)):
        plan_trouble(world)
        run_until_trouble(world)
        world.lose()
        restart(world)
    world.read_something()


@SETTINGS
@given(seed=st.integers(0, 1 << 48))
def test_a_flipped_bit_is_harmless_or_refused(seed: int) -> None:
    world = World(random.Random(seed))
    world.act()
    if world.rng.random() < 0.5:
        plan_trouble(world)
        run_until_trouble(world)
        world.lose()
    names = [name for name in world.disk.listdir(DIRECTORY) if name.endswith(".segment")]
    path = f"{DIRECTORY}/{world.rng.choice(names)}"
    size = len(world.disk.content(path).rstrip(b"\0")) + 60
    world.disk.flip_bit(path, world.rng.randrange(8 * size))
    world.disk.kill()
    with contextlib.suppress(DataDamagedError):
        world.open()


@pytest.mark.parametrize("seed", range(3))
def test_every_byte_at_which_the_last_group_can_tear(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(4):
        world.append()
    group = world.group()
    world.records += group
    staged = world.journal.stage(group)
    # A new segment is created, written, synced, named, its folder synced, and opened before.
    world.disk.stop_after(1 if staged.header is None else 7)
    with pytest.raises(Stopped):
        world.journal.write(staged)
    acknowledged, records = world.acknowledged, list(world.records)
    unsynced = world.disk.unsynced_bytes(staged.path)
    for kept in range(0, min(unsynced, 9000) + 1, 1 if unsynced < 1500 else 7):
        other = World.__new__(World)
        other.__dict__.update(world.__dict__)
        other.disk = world.disk.copy(random.Random(kept))
        other.records, other.acknowledged = list(records), acknowledged
        other.disk.cut_at_byte(staged.path, kept)
        other.open()
