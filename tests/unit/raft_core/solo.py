"""One core without a world, for tests that say every message themselves."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from quorum.raft.core.configuration import (
    founding_configuration,
)
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import (
    DurableLog,
    HardState,
    Message,
    PeerMet,
    Persist,
    Persisted,
    Receive,
    Role,
    SnapshotInstalled,
    SnapshotMark,
    SnapshotRead,
    SnapshotWrite,
    Stimulus,
    Tick,
    VoteReply,
)
from quorum.raft.core.options import Options
from quorum.raft.core.raft import Raft
from tests.unit.raft_core.disk import TICK_MS, Disk, found, incarnation_of


class Solo:
    """One core without a world: the test plays network, disk and clock. Nothing is durable before `sync`."""

    def __init__(
        self,
        terms: Sequence[int] = (),
        *,
        node_id: int = 1,
        nodes: int = 3,
        hard_state: HardState | None = None,
        options: Options | None = None,
        founders: Mapping[int, str] | None = None,
        snapshot: SnapshotMark | None = None,
        tail: int = 1_000_000,
        anchored: bool = True,
        size: int = 0,
        met: bool = True,
        cluster_id: str = "",
    ) -> None:
        """Start with a log of these terms, one entry each; the first founds the cluster.

        Args:
            terms: term of entry 1, 2, …
            node_id: own id.
            nodes: number of founders.
            hard_state: None: the log's last term, no vote.
            options: timing and bounds.
            founders: None: all nodes.
            met: whether it has heard, with an empty log, of the other founders.
            snapshot: what the state was loaded from; the log is compacted up to it.
            tail: how many entries are in memory; the others are read.
            anchored: whether the journal knows the term right before its first entry.
            size: extra payload bytes of each entry.
            cluster_id: of a restored state.
        """
        self.node_id = node_id
        self.now_ms = 1000.0
        self.ids = list(range(1, nodes + 1))
        self.founders = {peer: f"127.0.0.1:{7000 + peer}" for peer in self.ids}
        self.disk = Disk()
        named = {peer: incarnation_of(peer) for peer in self.ids}
        payload = found(founding_configuration(self.founders, named))
        for index, term in enumerate(terms, 1):
            kind = EntryKind.FOUND if index == 1 else EntryKind.BATCH
            self.disk.entries.append(
                Entry(index, term, kind, index, payload if index == 1 else b"%d" % index + bytes(size))
            )
        if snapshot is not None:
            last = len(self.disk.entries)
            self.disk.entries = self.disk.entries[snapshot.snapshot_index :]
            self.disk.first_index = min(snapshot.snapshot_index, last) + 1
            self.disk.anchor = (snapshot.snapshot_index, snapshot.snapshot_term)
        self.disk.hard_state = hard_state or HardState(terms[-1] if terms else 0, 0)
        self._options = options or Options()
        self._cluster_id = cluster_id
        if founders is not None:
            self.founders = dict(founders)
        self._start(snapshot, self.disk.view(tail, anchored=anchored))
        for peer in self.ids if met and not terms else ():
            if peer != node_id:
                self.meet(peer)

    def _start(self, snapshot: SnapshotMark | None, log: DurableLog) -> None:
        self.raft = Raft(
            options=self._options,
            node_id=self.node_id,
            incarnation=incarnation_of(self.node_id),
            hard_state=self.disk.hard_state,
            log=log,
            snapshot=snapshot,
            founders=self.founders,
            found=found,
            reader=self.disk,
            rng=random.Random(7),
            now_ms=self.now_ms,
            cluster_id=self._cluster_id,
        )
        self.unsynced: list[Persist] = []
        self._drained = False  #: whether everything was taken once
        self._written = 0  #: how many of them are on the disk already
        self.committed: list[Entry] = []
        self.reads: list[SnapshotRead] = []
        self.writes: list[SnapshotWrite] = []
        self.released: list[int] = []
        self.aborted: list[int] = []

    def restart(self, snapshot: SnapshotMark | None = None, hard_state: HardState | None = None) -> Solo:
        """Start again from the disk, and from another snapshot than before if one is given."""
        if hard_state is not None:
            self.disk.hard_state = hard_state
        self._start(snapshot, self.disk.view(1_000_000, anchored=True))
        return self

    def role(self) -> Role:
        return self.raft.status().role

    def rests(self) -> bool:
        return self.raft.rests

    def step(self, stimulus: Stimulus, after_ms: float = 0.0) -> list[Message]:
        """Advance the clock, take the stimulus, return the messages that leave at once."""
        self.now_ms += after_ms
        if isinstance(stimulus, SnapshotInstalled):
            # The journal writes in order: what was submitted before is on the disk, told or not.
            for persist in self.unsynced[self._written :]:
                self.disk.write(persist)
            self._written = len(self.unsynced)
            self.disk.continue_from(stimulus.snapshot_index, stimulus.snapshot_term)
        self.raft.step(stimulus, self.now_ms)
        if self.raft.rests and self._drained:
            assert self.raft.ready() is None
        return self.drain()

    def drain(self) -> list[Message]:
        messages: list[Message] = []
        self._drained = True
        while (ready := self.raft.ready()) is not None:
            if ready.persist is not None:
                self.unsynced.append(ready.persist)
            messages += ready.messages
            self.committed += ready.committed
            self.reads += ready.snapshot_reads
            self.writes += ready.snapshot_writes
            self.released += ready.snapshot_releases
            self.aborted += ready.snapshot_aborts
        self.raft.check_invariants()
        return messages

    def sync(self, count: int | None = None) -> list[Message]:
        """Make the oldest persists (all: None) durable, return the messages that leave then."""
        done = self.unsynced[:count]
        del self.unsynced[: len(done)]
        for persist in done[self._written :]:
            self.disk.write(persist)
        self._written = max(0, self._written - len(done))
        return self.step(Persisted(done[-1].seq)) if done else []

    def hear(self, message: Message, incarnation: str | None = None) -> list[Message]:
        return self.step(Receive(message, incarnation or incarnation_of(message.sender)))

    def meet(
        self, peer: int, incarnation: str = "", founding_term: int | None = 0, cluster_id: str = ""
    ) -> None:
        """Hear a peer's hello; by default that of a founder with an empty log."""
        self.step(PeerMet(peer, incarnation or incarnation_of(peer), founding_term, cluster_id))

    def tick(self, after_ms: float) -> list[Message]:
        """Let time pass in steps that are no pause."""
        messages: list[Message] = []
        for _ in range(int(after_ms // TICK_MS)):
            messages += self.step(Tick(), TICK_MS)
        return messages

    def campaign(self) -> list[Message]:
        """Tick until the pre-vote is asked for."""
        for _ in range(200):
            messages = self.step(Tick(), TICK_MS)
            if messages:
                return messages
        raise AssertionError("it never campaigned")

    def lead(self, elector: int = 2) -> list[Message]:
        """Win an election with the vote of one peer; return what the new leader sends first."""
        self.campaign()
        term = self.raft.status().term
        self.hear(VoteReply(term, elector, self.node_id, True, True, term + 1))
        self.sync()
        return self.hear(VoteReply(term + 1, elector, self.node_id, False, True, term + 1))

    def log(self) -> list[tuple[int, int]]:
        """(index, term) of the whole log, durable or not."""
        status = self.raft.status()
        return [
            (index, self.raft.term_at(index) or 0)
            for index in range(status.first_index, status.last_index + 1)
        ]
