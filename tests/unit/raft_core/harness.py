"""A deterministic world for the pure Raft core: clock, network, disks and clients in one heap of events.

One seed decides everything. Messages are delayed, lost, repeated and reordered; a crash loses what was not
made durable, and a random part of what was being made durable. After every event the promises that must never
break are checked; `settle` ends the faults and demands that the cluster works again.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from quorum.raft.core.configuration import (
    Configuration,
)
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import NotLeaderError
from quorum.raft.core.membership import MembershipChange
from quorum.raft.core.messages import (
    ChunkRead,
    ChunkReadFailed,
    ChunkWritten,
    Compacted,
    Halt,
    HardState,
    Message,
    PeerDown,
    PeerMet,
    PeerUp,
    Persist,
    Persisted,
    Ready,
    Receive,
    Resume,
    Role,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotMark,
    SnapshotRead,
    SnapshotWrite,
    Stimulus,
    Tick,
)
from quorum.raft.core.options import Options
from quorum.raft.core.raft import Raft
from tests.unit.raft_core.disk import (
    TICK_MS,
    Applied,
    BrokenPromiseError,
    Disk,
    Snapshot,
    found,
    incarnation_of,
)


@dataclass
class Process:
    """One life of a node."""

    raft: Raft
    applied: list[Applied]
    last_stamp_ms: int = 0
    persists: list[Persist] = field(default_factory=list)  #: submitted, not durable
    syncing: bool = False
    halted: bool = False
    alive: bool = True
    paused_until_ms: float = 0.0
    inbox: list[Stimulus] = field(default_factory=list)  #: what arrived during a pause
    memory: dict[int, Entry] = field(default_factory=dict)  #: the log as handed to the journal
    pinned: dict[int, Snapshot] = field(default_factory=dict)  #: {transfer: snapshot}
    received: bytearray = field(default_factory=bytearray)
    receiving: int = 0
    role: Role = Role.FOLLOWER
    commit_index: int = 0
    configuration: Configuration | None = None


class World:
    """Nodes 1..n with their disks; `run_until` moves the clock."""

    def __init__(
        self, seed: int, nodes: int = 3, options: Options | None = None, start: Sequence[int] | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.options = options or Options()
        self.now_ms = 0.0
        self.ids = list(range(1, nodes + 1))
        self.founders = {node_id: f"127.0.0.1:{7000 + node_id}" for node_id in self.ids}
        self.incarnations = {node_id: incarnation_of(node_id) for node_id in self.ids}
        self.disks = {node_id: Disk() for node_id in self.ids}
        self.processes: dict[int, Process] = {}
        self.cut: set[tuple[int, int]] = set()  #: directed links that lose everything
        self.loss = 0.0
        self.repeat = 0.0
        self.delay_ms = (0.1, 2.0)
        self.slow = 0.0  #: share of messages that take up to a second
        self.sync_ms = (0.1, 2.0)
        self.leaders: dict[int, int] = {}  #: {term: node id}
        self.committed: dict[int, Applied] = {}
        self.committed_entries: dict[int, tuple[Entry, int]] = {}  #: with a term in which it is committed
        self.proposed = 0
        self.joined: set[int] = set()  #: ids of nodes that are no founders
        self.silenced: set[str] = set()  #: incarnations of which nothing arrives any more
        self.lost_disks: dict[str, Disk] = {}  #: {incarnation: its disk, which nobody has any more}
        self.elections = 0
        self.delivered = 0
        self.installs = 0
        self.filter: Callable[[Message], bool] = lambda _: True
        self.trace: list[tuple[float, int, Stimulus]] = []
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        for node_id in start if start is not None else self.ids:
            self.start(node_id)

    # --- clock

    def later(self, delay_ms: float, call: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._number, call))

    def run_until(self, end_ms: float, until: Callable[[], bool] | None = None) -> bool:
        while self._events and self._events[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(self._events)
            call()
            if until is not None and until():
                return True
        self.now_ms = max(self.now_ms, end_ms)
        return until is not None and until()

    def run_for(self, duration_ms: float) -> None:
        self.run_until(self.now_ms + duration_ms)

    def await_(self, condition: Callable[[], bool], within_ms: float = 5000.0) -> None:
        begun_ms = self.now_ms
        if not condition() and not self.run_until(self.now_ms + within_ms, condition):
            raise AssertionError(f"not reached within {within_ms} ms after {begun_ms}: {self.describe()}")

    def describe(self) -> str:
        return "\n".join(str(process.raft.status()) for process in self.processes.values())

    # --- nodes

    def start(self, node_id: int, founders: dict[int, str] | None = None) -> Process:
        disk = self.disks[node_id]
        mark = disk.snapshot.mark if disk.snapshot is not None else None
        raft = Raft(
            options=self.options,
            node_id=node_id,
            incarnation=self.incarnations[node_id],
            hard_state=disk.hard_state,
            log=disk.view(self.rng.randrange(0, 20), anchored=mark is None or self.rng.random() < 0.5),
            snapshot=mark,
            founders=founders if founders is not None else {} if node_id in self.joined else self.founders,
            found=found,
            reader=disk,
            rng=self.rng,
            now_ms=self.now_ms,
        )
        applied = list(disk.snapshot.applied) if disk.snapshot is not None else []
        process = Process(raft, applied, mark.stamp_ms if mark is not None else 0)
        process.commit_index = mark.snapshot_index if mark is not None else 0
        process.memory = {entry.index: entry for entry in disk.entries}
        self.processes[node_id] = process
        self._tick(node_id, process)
        for other in list(self.processes):
            if other != node_id:
                self._connect(node_id, other)
                self._connect(other, node_id)
        return process

    def join(self, node_id: int) -> None:
        """Start a node that was formatted to join: no founder, an empty disk, an incarnation of its own."""
        self.ids.append(node_id)
        self.joined.add(node_id)
        self.disks[node_id] = Disk()
        self.incarnations[node_id] = f"{self.rng.getrandbits(128):032x}"
        self.start(node_id)

    def _connect(self, node_id: int, other: int) -> None:
        process = self.processes.get(node_id)
        if process is not None and (node_id, other) not in self.cut:
            self.later(self.rng.uniform(0.1, 3.0), lambda: self._link(node_id, process, other))

    def _link(self, node_id: int, process: Process, other: int) -> None:
        beyond = self.processes.get(other)
        if beyond is not None:
            met = PeerMet(other, self.incarnations[other], beyond.raft.founding_term, "")
            self.step(node_id, process, met)
            self.step(node_id, process, PeerUp(other))

    def crash(self, node_id: int) -> None:
        """Kill the process; of what was on its way to the disk a random beginning survives."""
        process = self.processes.pop(node_id)
        process.alive = False
        for persist in process.persists[: self.rng.randint(0, len(process.persists))]:
            self.disks[node_id].write(persist)
        for other in self.processes:
            self._disconnect(other, node_id)

    def _disconnect(self, node_id: int, other: int) -> None:
        process = self.processes.get(node_id)
        if process is not None:
            self.later(self.rng.uniform(0.1, 3.0), lambda: self.step(node_id, process, PeerDown(other)))

    def wipe(self, node_id: int) -> None:
        """Replace the disk of a stopped node by an empty one, which is formatted anew."""
        self.lost_disks[self.incarnations[node_id]] = self.disks[node_id]
        self.disks[node_id] = Disk()
        self.incarnations[node_id] = f"{self.rng.getrandbits(128):032x}"

    def _disk_of(self, node_id: int, incarnation: str) -> Disk | None:
        """The disk that a recorded voter's word came from, also if it was lost since."""
        if incarnation == self.incarnations[node_id]:
            return self.disks[node_id]
        return self.lost_disks.get(incarnation)

    def pause(self, node_id: int, duration_ms: float) -> None:
        process = self.processes[node_id]
        process.paused_until_ms = self.now_ms + duration_ms
        self.later(duration_ms, lambda: self._wake(node_id, process))

    def _wake(self, node_id: int, process: Process) -> None:
        inbox, process.inbox = process.inbox, []
        for stimulus in inbox:
            self.step(node_id, process, stimulus)

    def halt(self, node_id: int, duration_ms: float) -> None:
        process = self.processes[node_id]
        process.halted = True
        self.step(node_id, process, Halt("no space"))
        self.later(duration_ms, lambda: self._resume(node_id, process))

    def _resume(self, node_id: int, process: Process) -> None:
        if process.alive:
            process.halted = False
            self.step(node_id, process, Resume())
            self._sync(node_id, process)

    def isolate(self, node_id: int) -> None:
        for other in self.ids:
            if other != node_id:
                self.cut |= {(node_id, other), (other, node_id)}
                if self.rng.random() < 0.5:
                    self._disconnect(node_id, other)
                    self._disconnect(other, node_id)

    def heal(self) -> None:
        self.cut.clear()
        for node_id in self.processes:
            for other in self.processes:
                if node_id != other:
                    self._connect(node_id, other)

    def _tick(self, node_id: int, process: Process) -> None:
        if process.alive:
            if self.now_ms >= process.paused_until_ms:
                self.step(node_id, process, Tick())
            self.later(TICK_MS, lambda: self._tick(node_id, process))

    # --- the order contract of Ready

    def step(self, node_id: int, process: Process, stimulus: Stimulus) -> None:
        if not process.alive:
            return
        if self.now_ms < process.paused_until_ms:
            process.inbox.append(stimulus)
            return
        self.trace.append((self.now_ms, node_id, stimulus))
        process.raft.step(stimulus, self.now_ms)
        self.drain(node_id, process)

    def drain(self, node_id: int, process: Process) -> None:
        process.raft.check_invariants()
        counted = process.configuration
        for _ in range(1000):
            ready = process.raft.ready()
            if ready is None:
                break
            self._handle(node_id, process, ready)
        else:
            raise BrokenPromiseError("ready() never ends")
        self._check_roles(node_id, process, counted or process.configuration)

    def _handle(self, node_id: int, process: Process, ready: Ready) -> None:
        if ready.persist is not None:
            self._submit(node_id, process, ready.persist)
        for message in ready.messages:
            self._check_message(node_id, process, message)
            self._send(message)
        for entry in ready.committed:
            self._apply(node_id, process, entry)
        if ready.configuration is not None:
            process.configuration = ready.configuration
        for read in ready.snapshot_reads:
            self.later(self.rng.uniform(*self.sync_ms), partial(self._read, node_id, process, read))
        for transfer in ready.snapshot_releases:
            process.pinned.pop(transfer, None)
        for install in ready.snapshot_aborts:
            # A piece that is still under way comes too late.
            process.receiving, process.received = install + 1, bytearray()
        for write in ready.snapshot_writes:
            self.later(self.rng.uniform(*self.sync_ms), partial(self._write, node_id, process, write))

    def _submit(self, node_id: int, process: Process, persist: Persist) -> None:
        for index in [
            index for index in process.memory if persist.entries and index >= persist.entries[0].index
        ]:
            del process.memory[index]
        process.memory.update({entry.index: entry for entry in persist.entries})
        process.persists.append(persist)
        self._sync(node_id, process)

    def _sync(self, node_id: int, process: Process) -> None:
        if process.persists and not process.syncing and not process.halted:
            process.syncing = True
            count = len(process.persists)
            self.later(self.rng.uniform(*self.sync_ms), lambda: self._synced(node_id, process, count))

    def _synced(self, node_id: int, process: Process, count: int) -> None:
        process.syncing = False
        if not process.alive or process.halted:
            return
        self._flush(node_id, process, min(count, len(process.persists)))
        self._sync(node_id, process)

    def _flush(self, node_id: int, process: Process, count: int) -> None:
        if count:
            done, process.persists = process.persists[:count], process.persists[count:]
            for persist in done:
                self.disks[node_id].write(persist)
            self.step(node_id, process, Persisted(done[-1].seq))

    def _send(self, message: Message) -> None:
        if (
            (message.sender, message.receiver) in self.cut
            or self.rng.random() < self.loss
            or not self.filter(message)
        ):
            return
        incarnation = self.incarnations[message.sender]
        for _ in range(2 if self.rng.random() < self.repeat else 1):
            delay_ms = self.rng.uniform(*self.delay_ms)
            if self.rng.random() < self.slow:
                delay_ms = self.rng.uniform(10.0, 1000.0)
            self.later(delay_ms, lambda: self._deliver(message, incarnation))

    def _deliver(self, message: Message, incarnation: str) -> None:
        process = self.processes.get(message.receiver)
        lost = (message.sender, message.receiver) in self.cut or incarnation in self.silenced
        if process is not None and not lost:
            self.delivered += 1
            self.step(message.receiver, process, Receive(message, incarnation))

    # --- state machine and snapshots

    def _apply(self, node_id: int, process: Process, entry: Entry) -> None:
        row: Applied = (entry.index, entry.term, int(entry.kind), entry.payload.hex())
        if len(process.applied) != entry.index - 1:
            raise BrokenPromiseError(f"node {node_id} applied {entry.index} after {len(process.applied)}")
        if self.committed.setdefault(entry.index, row) != row:
            raise BrokenPromiseError(
                f"index {entry.index} was {self.committed[entry.index]}, node {node_id} commits {row}"
            )
        if not self.disks[node_id].holds(entry.index, entry.term):
            raise BrokenPromiseError(f"node {node_id} applies {entry}, which its own disk does not hold")
        self.committed_entries.setdefault(entry.index, (entry, process.raft.status().term))
        if entry.stamp_ms < process.last_stamp_ms:
            raise BrokenPromiseError(f"stamp of {entry} is below {process.last_stamp_ms}")
        process.last_stamp_ms = entry.stamp_ms
        process.applied.append(row)

    def snapshot(self, node_id: int, keep: int = 0) -> None:
        """Take a snapshot of what is applied and compact the log up to ``keep`` entries before it."""
        process = self.processes[node_id]
        disk = self.disks[node_id]
        index = len(process.applied)
        old = disk.snapshot.mark.snapshot_index if disk.snapshot is not None else 0
        if index <= old or process.raft.status().installing or self.is_paused(node_id):
            return
        entry = disk.entry(index)
        configuration = process.raft.configuration_at(index)
        assert entry is not None
        assert configuration is not None
        disk.snapshot = Snapshot(
            SnapshotMark(index, entry.term, entry.stamp_ms, configuration), list(process.applied)
        )
        first_index = min(index + 1 - keep, index + 1)
        if first_index > disk.first_index:
            disk.compact(first_index)
            self.step(node_id, process, Compacted(first_index))

    def _read(self, node_id: int, process: Process, read: SnapshotRead) -> None:
        if not process.alive:
            return
        snapshot = process.pinned.get(read.transfer) if read.offset else self.disks[node_id].snapshot
        snapshot = process.pinned.setdefault(read.transfer, snapshot) if snapshot is not None else None
        if snapshot is None:
            self.step(node_id, process, ChunkReadFailed(read.receiver, read.transfer))
            return
        data = snapshot.data[read.offset : read.offset + read.bytes_max]
        mark = snapshot.mark
        chunk = ChunkRead(
            read.receiver,
            read.transfer,
            mark.snapshot_index,
            mark.snapshot_term,
            read.offset,
            len(snapshot.data),
            data,
        )
        self.step(node_id, process, chunk)

    def _write(self, node_id: int, process: Process, write: SnapshotWrite) -> None:
        if not process.alive or write.install < process.receiving:
            return
        if write.install != process.receiving:
            process.receiving = write.install
            process.received = bytearray()
        if len(process.received) != write.offset:
            raise BrokenPromiseError(f"snapshot bytes at {write.offset} follow {len(process.received)}")
        process.received += write.data
        if not write.last:
            self.step(node_id, process, ChunkWritten(write.install, len(process.received)))
            return
        if self.rng.random() < 0.1:
            self.step(node_id, process, SnapshotFailed(write.install))
            return
        self._flush(node_id, process, len(process.persists))
        snapshot = Snapshot.load(bytes(process.received))
        mark = snapshot.mark
        self.disks[node_id].install(snapshot)
        process.applied = list(snapshot.applied)
        process.last_stamp_ms = mark.stamp_ms
        process.memory = {entry.index: entry for entry in self.disks[node_id].entries}
        self.installs += 1
        installed = SnapshotInstalled(
            write.install, mark.snapshot_index, mark.snapshot_term, mark.stamp_ms, mark.configuration
        )
        self.step(node_id, process, installed)

    # --- promises

    def _check_message(self, node_id: int, process: Process, message: Message) -> None:
        """A vote, or anything of a term, leaves only after that term is durable, and only what is durable is
        acknowledged."""
        if getattr(message, "pre", False):
            return
        if process.raft.status().halted and (
            getattr(message, "granted", False) or getattr(message, "match_index", 0)
        ):
            raise BrokenPromiseError(f"node {node_id} acknowledges with a full disk: {message}")
        durable = self.disks[node_id].hard_state
        if message.term > durable.term:
            raise BrokenPromiseError(f"{message} left before its term was durable ({durable})")
        match = getattr(message, "match_index", 0)
        disk = self.disks[node_id]
        snapshot_index = disk.snapshot.mark.snapshot_index if disk.snapshot is not None else 0
        if match > max(disk.last_index, snapshot_index):
            raise BrokenPromiseError(f"{message} acknowledges more than the disk holds ({disk.last_index})")

    def _check_roles(self, node_id: int, process: Process, counted: Configuration | None) -> None:
        """Check a leader and its commits against ``counted``, the latest configuration when the stimulus
        came."""
        status = process.raft.status()
        if status.commit_index < process.commit_index:
            raise BrokenPromiseError(f"commit index of node {node_id} fell to {status.commit_index}")
        if status.role is Role.LEADER:
            if status.halted:
                raise BrokenPromiseError(f"node {node_id} leads with a full disk")
            owner = self.leaders.setdefault(status.term, node_id)
            if owner != node_id:
                raise BrokenPromiseError(f"nodes {owner} and {node_id} lead term {status.term}")
            if process.role is not Role.LEADER:
                self.elections += 1
                self._check_completeness(node_id, process)
                self._check_votes(node_id, status.term, counted)
            if status.commit_index > process.commit_index:
                self._check_majority(status.commit_index, process, counted)
        process.role = status.role
        process.commit_index = status.commit_index

    def _check_completeness(self, node_id: int, process: Process) -> None:
        led_term = process.raft.status().term
        for index, (entry, committed_term) in self.committed_entries.items():
            own = process.memory.get(index)
            if (own is None and index <= len(process.applied)) or led_term <= committed_term:
                # Compacted; or elected late, by votes that were given before.
                continue
            if own != entry:
                raise BrokenPromiseError(f"leader {node_id} has {own} where {entry} is committed")

    def _check_votes(self, node_id: int, term: int, counted: Configuration | None) -> None:
        """A majority of the recorded voters has voted for the winner, durably."""
        electors = []
        for voter, member in counted.voters.items() if counted is not None else ():
            disk = self._disk_of(voter, member.incarnation)
            state = disk.hard_state if disk is not None else HardState(0, 0)
            if state.term > term or (state.term, state.voted_for) == (term, node_id):
                electors.append(voter)
        if counted is not None and len(electors) < counted.quorum_size:
            raise BrokenPromiseError(f"node {node_id} leads term {term} by the votes of {electors} only")

    def _check_majority(self, index: int, process: Process, counted: Configuration | None) -> None:
        """What a leader commits is durable on a majority of the voters, by their recorded incarnations."""
        term = process.raft.term_at(index)
        assert counted is not None
        holders = [
            node_id
            for node_id, member in counted.voters.items()
            if term is not None
            and (disk := self._disk_of(node_id, member.incarnation)) is not None
            and disk.holds(index, term)
        ]
        if len(holders) < counted.quorum_size:
            raise BrokenPromiseError(f"index {index} was committed but is durable on {holders} only")

    def check_logs(self) -> None:
        """Log matching on the disks: equal index and term mean equal entries and equal prefixes."""
        disks = list(self.disks.items())
        for number, (one, left) in enumerate(disks):
            for two, right in disks[number + 1 :]:
                equal = False
                for index in range(min(left.last_index, right.last_index), 0, -1):
                    mine, theirs = left.entry(index), right.entry(index)
                    if mine is None or theirs is None:
                        break
                    equal = equal or mine.term == theirs.term
                    if equal and mine != theirs:
                        raise BrokenPromiseError(
                            f"disks of {one} and {two} differ at {index}: {mine}, {theirs}"
                        )

    # --- clients

    def leader(self) -> int | None:
        """The leader of the highest term among the living."""
        best = [
            (process.raft.status().term, node_id)
            for node_id, process in self.processes.items()
            if process.raft.status().role is Role.LEADER
        ]
        return max(best)[1] if best else None

    def is_paused(self, node_id: int) -> bool:
        return self.now_ms < self.processes[node_id].paused_until_ms

    def propose(self, node_id: int, count: int = 1, size: int = 0) -> bool:
        process = self.processes[node_id]
        if self.is_paused(node_id):
            return False
        try:
            for _ in range(count):
                self.proposed += 1
                payload = self.proposed.to_bytes(8, "big") + bytes(size)
                process.raft.propose(EntryKind.BATCH, payload, int(self.now_ms))
        except NotLeaderError:
            return False
        self.drain(node_id, process)
        return True

    def change(self, node_id: int, change: MembershipChange) -> int:
        """Ask this node for a change of the membership."""
        index = self.processes[node_id].raft.change_members(change)
        self.drain(node_id, self.processes[node_id])
        return index

    def voters(self) -> list[int]:
        """The voters by the leader's latest configuration, once it is committed and has no learners."""
        leader = self.leader()
        status = self.processes[leader].raft.status() if leader is not None else None
        done = status is not None and status.configuration_committed and not status.learners
        return list(status.voters) if status is not None and done else []

    def stable(self) -> bool:
        """One leader that every member follows, everything committed and applied by every member."""
        leader = self.leader()
        if leader is None:
            return False
        top = self.processes[leader].raft.status()
        members = (*top.voters, *top.learners)
        if leader not in members:
            return False
        for node_id, process in self.processes.items():
            if node_id not in members:
                continue
            status = process.raft.status()
            if (status.leader_id, status.term) != (leader, top.term):
                return False
            if not status.commit_index == status.durable_index == top.last_index == len(process.applied):
                return False
        return True

    def end_faults(self) -> None:
        self.loss = self.repeat = self.slow = 0.0
        self.delay_ms = (0.1, 2.0)
        self.sync_ms = (0.1, 2.0)
        self.heal()

    def settle(self, within_ms: float = 20_000.0) -> None:
        """End all faults and demand progress on every node."""
        self.end_faults()
        for node_id in self.ids:
            if node_id not in self.processes:
                self.start(node_id)
        self.await_(lambda: self.leader() is not None and self.propose(self.leader() or 0), within_ms)
        self.await_(self.stable, within_ms)
        self.check_logs()
