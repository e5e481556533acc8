"""Raft's core in transcripts: several nodes, each with a disk and a clock; the transcript is the network.

Nothing arrives before ``deliver``, nothing is durable before ``sync``, and no time passes before ``waits``.
Each node has a clock of its own, which moves by ticks of 10 ms; every random delay is the middle of its
range. A message that is sent over a link that is cut, or to a node that is down, is lost. ``settle``,
``elect`` and ``run`` deliver and sync everything, and show only roles, members, and what is applied.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import ClassVar

from quorum.raft.core.configuration import founding_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import MembershipError, NotLeaderError, TransferError
from quorum.raft.core.membership import AddMember, RemoveMember
from quorum.raft.core.messages import (
    ChunkRead,
    Compacted,
    HardState,
    Message,
    PeerDown,
    PeerUp,
    Persist,
    Persisted,
    Ready,
    Receive,
    Role,
    SnapshotInstalled,
    SnapshotMark,
    SnapshotRead,
    SnapshotWrite,
    Stimulus,
    Tick,
    Transfer,
    Vote,
)
from quorum.raft.core.options import Options
from quorum.raft.core.raft import Raft
from tests.scenarios import raft_lines
from tests.scenarios.transcript import Lines, Scene, TranscriptError, command
from tests.unit.raft_core.disk import TICK_MS, Applied, Disk, Snapshot, found, incarnation_of

#: ticks within which a node that may campaign does
TICKS_MAX = 2000
ROUNDS_MAX = 1000
Work = Persist | SnapshotRead | SnapshotWrite


class _Middle:
    """Draws the middle of every range."""

    def uniform(self, a: float, b: float, /) -> float:
        return (a + b) / 2


class _Peer:
    """One node: its disk, and the process that runs on it, if one does."""

    def __init__(self, founders: dict[int, str], disk: Disk) -> None:
        self.founders = founders
        self.disk = disk
        self.now_ms = 0.0
        self.raft: Raft | None = None
        self.log: dict[int, Entry] = {}  #: as handed to the disk, durable or not
        self.works: deque[Work] = deque()  #: what the disk has not done yet
        self.applied: list[Applied] = []


class RaftScene(Scene):
    """Nodes whose network, disks and clocks are in the transcript's hands."""

    REFUSALS: ClassVar = (NotLeaderError, MembershipError, TransferError)

    def __init__(self) -> None:
        self.options = Options()
        self.peers: dict[int, _Peer] = {}
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.leaders: dict[int, int] = {}  #: {term: its leader}
        self.committed: dict[int, Applied] = {}
        self.quiet = False
        self.lines: list[str] = []

    # --- nodes

    @command("nodes {nodes:ints}")
    def found_cluster(self, nodes: tuple[int, ...]) -> Lines:
        """A cluster that entry 1 of term 1 has founded, of which nobody leads."""
        founders = {node: f"127.0.0.1:{7000 + node}" for node in nodes}
        payload = found(founding_configuration(founders, {node: incarnation_of(node) for node in nodes}))
        founding = Entry(1, 1, EntryKind.FOUND, 0, payload)
        for node in nodes:
            disk = Disk()
            disk.hard_state = HardState(1, 0)
            disk.entries.append(founding)
            self.peers[node] = _Peer(founders, disk)
            self._start(node)
        self.lines.clear()
        return ()

    @command("nodes {nodes:ints}; {leader:int} leads term 2")
    def found_led_cluster(self, nodes: tuple[int, ...], leader: int) -> Lines:
        """A cluster that has elected its first leader, and that every node has heard."""
        self.found_cluster(nodes)
        return self._lead(leader)

    @command("nodes {nodes:ints}, one entry an append; {leader:int} leads term 2")
    def found_led_cluster_of_small_appends(self, nodes: tuple[int, ...], leader: int) -> Lines:
        self.options = Options(append_bytes_max=1)
        return self.found_led_cluster(nodes, leader)

    def _lead(self, leader: int) -> Lines:
        self.elect(leader)
        self.run_all(60)
        self.lines.clear()
        return self.show()

    @command("join {node:int}")
    def join(self, node: int) -> Lines:
        """Start a node that is no member yet, with an empty disk."""
        self.peers[node] = _Peer({}, Disk())
        self._start(node)
        return self._take()

    @command("crash {node:int}")
    def crash(self, node: int) -> Lines:
        """End a process; what its disk has not done is lost, as is what is on its way to it and from it."""
        peer = self.peers[node]
        peer.raft = None
        peer.works.clear()
        for link in list(self.links):
            if node in link:
                del self.links[link]
        for other in self._alive():
            self._step(other, PeerDown(node))
        return self._take()

    @command("restart {node:int}")
    def restart(self, node: int) -> Lines:
        self._start(node)
        return self._take()

    def _start(self, node: int) -> None:
        peer = self.peers[node]
        snapshot = peer.disk.snapshot
        peer.log = {entry.index: entry for entry in peer.disk.entries}
        peer.applied = list(snapshot.applied) if snapshot is not None else []
        peer.raft = Raft(
            options=self.options,
            node_id=node,
            incarnation=incarnation_of(node),
            hard_state=peer.disk.hard_state,
            log=peer.disk.view(1_000_000, anchored=True),
            snapshot=snapshot.mark if snapshot is not None else None,
            founders=peer.founders,
            found=found,
            reader=peer.disk,
            rng=_Middle(),
            now_ms=peer.now_ms,
        )
        for other in self._alive():
            if other != node:
                self._connect(node, other)
        self._drain(node)

    def _connect(self, node: int, other: int) -> None:
        if (node, other) not in self.cuts:
            self._step(node, PeerUp(other))
            self._step(other, PeerUp(node))

    def _alive(self) -> list[int]:
        return [node for node, peer in sorted(self.peers.items()) if peer.raft is not None]

    def _raft(self, node: int) -> Raft:
        raft = self.peers[node].raft if node in self.peers else None
        if raft is None:
            raise TranscriptError(f"node {node} is not up")
        return raft

    # --- time

    @command("{node:int} waits {ms:int} ms")
    def wait(self, node: int, ms: int) -> Lines:
        for _ in range(ms // int(TICK_MS)):
            self._tick(node)
        times = Counter(self._take())
        return [line for line, count in times.items() for _ in range(count)]

    @command("{node:int} times out")
    def time_out(self, node: int) -> Lines:
        """Let time pass for this node alone until it asks for votes."""
        self._time_out(node)
        return self._take()

    def _time_out(self, node: int) -> None:
        for _ in range(TICKS_MAX):
            if any(isinstance(sent, Vote) for sent in self._tick(node)):
                return
        raise TranscriptError(f"node {node} never campaigns")

    def _tick(self, node: int) -> list[Message]:
        self.peers[node].now_ms += TICK_MS
        return self._step(node, Tick())

    # --- network

    @command("deliver {sender:int} -> {receiver:int}")
    def deliver(self, sender: int, receiver: int) -> Lines:
        """Let everything arrive that is on its way between these two."""
        self._deliver(sender, receiver)
        return self._take()

    def _deliver(self, sender: int, receiver: int) -> None:
        waiting = self.links.pop((sender, receiver), None)
        if not waiting:
            raise TranscriptError(f"nothing is on its way from {sender} to {receiver}")
        for each in waiting:
            self._step(receiver, Receive(each, incarnation_of(sender)))

    @command("deliver one {sender:int} -> {receiver:int}")
    def deliver_one(self, sender: int, receiver: int) -> Lines:
        """Let the oldest message between these two arrive."""
        waiting = self.links.get((sender, receiver))
        if not waiting:
            raise TranscriptError(f"nothing is on its way from {sender} to {receiver}")
        self._step(receiver, Receive(waiting.popleft(), incarnation_of(sender)))
        return self._take()

    @command("drop {sender:int} -> {receiver:int}")
    def drop(self, sender: int, receiver: int) -> Lines:
        return [f"lost: {raft_lines.message(each)}" for each in self.links.pop((sender, receiver), ())]

    @command("cut {some:ints} from {others:ints}")
    def cut(self, some: tuple[int, ...], others: tuple[int, ...]) -> Lines:
        """Lose whatever these say to those, and those to these; no connection closes."""
        for one in some:
            for other in others:
                for link in ((one, other), (other, one)):
                    self.cuts.add(link)
                    self.links.pop(link, None)
        return ()

    @command("heal")
    def heal(self) -> Lines:
        """Make every link whole; the connections over those that were cut begin anew."""
        healed, self.cuts = sorted(self.cuts), set()
        for one, other in healed:
            if one < other and {one, other} <= set(self._alive()):
                self._connect(one, other)
        return self._take()

    # --- disks

    @command("sync {node:int}")
    def sync(self, node: int) -> Lines:
        """Let the disk of this node do all that it was asked for."""
        self._sync(node)
        return self._take()

    def _sync(self, node: int) -> None:
        works = self.peers[node].works
        if not works:
            raise TranscriptError(f"the disk of node {node} has nothing to do")
        for _ in range(len(works)):
            self._work(node, works.popleft())

    def _work(self, node: int, work: Work) -> None:
        disk = self.peers[node].disk
        match work:
            case Persist(seq):
                disk.write(work)
                self._step(node, Persisted(seq))
            case SnapshotRead(receiver, transfer, offset, bytes_max):
                snapshot = disk.snapshot
                assert snapshot is not None
                data = snapshot.data[offset : offset + bytes_max]
                mark, total_bytes = snapshot.mark, len(snapshot.data)
                index, term = mark.snapshot_index, mark.snapshot_term
                self._step(node, ChunkRead(receiver, transfer, index, term, offset, total_bytes, data))
            case SnapshotWrite():
                assert work.last, "a snapshot of a transcript fits into one piece"
                snapshot = Snapshot.load(work.data)
                disk.install(snapshot)
                peer = self.peers[node]
                peer.applied = list(snapshot.applied)
                peer.log = {entry.index: entry for entry in disk.entries}
                mark = snapshot.mark
                self._say(f"{node} loads the snapshot up to {mark.snapshot_index}:t{mark.snapshot_term}")
                installed = SnapshotInstalled(
                    work.install, mark.snapshot_index, mark.snapshot_term, mark.stamp_ms, mark.configuration
                )
                self._step(node, installed)

    @command("{node:int} takes a snapshot")
    def take_snapshot(self, node: int) -> Lines:
        """Cover what is applied by a snapshot, and drop the log that it covers."""
        peer = self.peers[node]
        index = len(peer.applied)
        entry = peer.disk.entry(index)
        configuration = self._raft(node).configuration_at(index)
        assert entry is not None
        assert configuration is not None
        mark = SnapshotMark(index, entry.term, entry.stamp_ms, configuration)
        peer.disk.snapshot = Snapshot(mark, list(peer.applied))
        peer.disk.compact(index + 1)
        peer.log = {entry.index: entry for entry in peer.disk.entries}
        self._step(node, Compacted(index + 1))
        return self._take()

    # --- clients and operators

    @command("{node:int} proposes {payload}")
    def propose(self, node: int, payload: str) -> Lines:
        now_ms = int(self.peers[node].now_ms)
        return self._ask(node, lambda raft: raft.propose(EntryKind.BATCH, payload.encode(), now_ms))

    @command("{node:int} confirms that it leads")
    def confirm(self, node: int) -> Lines:
        # What is so already is answered with a no-op.
        change = AddMember(node, f"127.0.0.1:{7000 + node}")
        return self._ask(node, lambda raft: raft.change_members(change))

    @command("{node:int} adds {member:int}")
    def add(self, node: int, member: int) -> Lines:
        change = AddMember(member, f"127.0.0.1:{7000 + member}")
        return self._ask(node, lambda raft: raft.change_members(change))

    @command("{node:int} removes {member:int}")
    def remove(self, node: int, member: int) -> Lines:
        return self._ask(node, lambda raft: raft.change_members(RemoveMember(member)))

    @command("{node:int} hands over to {target:int}")
    def hand_over(self, node: int, target: int) -> Lines:
        self._step(node, Transfer(target))
        return self._take()

    def _ask(self, node: int, question: Callable[[Raft], int]) -> Lines:
        question(self._raft(node))
        self._drain(node)
        return self._take()

    # --- everything at once

    @command("settle")
    def settle(self) -> Lines:
        """Sync and deliver until nothing is under way; no time passes."""
        return self._quietly(self._settle)

    @command("elect {node:int}")
    def elect(self, node: int) -> Lines:
        """Let this node time out, and everything else happen."""
        return self._quietly(lambda: self._time_out(node), self._settle)

    @command("run {ms:int} ms")
    def run_all(self, ms: int) -> Lines:
        """Let time pass for all nodes while everything is delivered and synced."""
        return self._quietly(*[self._turn] * (ms // int(TICK_MS)))

    def _turn(self) -> None:
        for node in self._alive():
            self._tick(node)
        self._settle()

    def _settle(self) -> None:
        for _ in range(ROUNDS_MAX):
            busy = [node for node in self._alive() if self.peers[node].works]
            for node in busy:
                self._sync(node)
            links = sorted(link for link, waiting in self.links.items() if waiting)
            for link in links:
                self._deliver(*link)
            if not busy and not links:
                return
        raise TranscriptError("the nodes never rest")

    def _quietly(self, *moves: Callable[[], None]) -> Lines:
        self.quiet = True
        for move in moves:
            move()
        self.quiet = False
        return self._take()

    @command("show")
    def show(self) -> Lines:
        return self.show_some(tuple(self._alive()))

    @command("show {nodes:ints}")
    def show_some(self, nodes: tuple[int, ...]) -> Lines:
        for node in nodes:
            log = [each for _, each in sorted(self.peers[node].log.items())]
            yield raft_lines.status(self._raft(node).status(), log)

    # --- the order contract of Ready

    def _step(self, node: int, stimulus: Stimulus) -> list[Message]:
        self._raft(node).step(stimulus, self.peers[node].now_ms)
        return self._drain(node)

    def _drain(self, node: int) -> list[Message]:
        raft = self._raft(node)
        sent: list[Message] = []
        while (ready := raft.ready()) is not None:
            self._handle(node, ready)
            sent += ready.messages
        raft.check_invariants()
        return sent

    def _handle(self, node: int, ready: Ready) -> None:
        peer = self.peers[node]
        if ready.soft_state is not None:
            self._say(raft_lines.soft_state(node, ready.soft_state))
            if ready.soft_state.role is Role.LEADER:
                assert self.leaders.setdefault(ready.soft_state.term, node) == node, "two leaders in a term"
        if ready.configuration is not None:
            self._say(f"{node} counts {raft_lines.members(ready.configuration)}")
        if ready.persist is not None:
            self._detail(raft_lines.persist(node, ready.persist))
            peer.works.append(ready.persist)
            for index in [index for index in peer.log if _supersedes(ready.persist, index)]:
                del peer.log[index]
            peer.log.update({entry.index: entry for entry in ready.persist.entries})
        for message in ready.messages:
            self._send(message)
        for entry in ready.committed:
            assert self.committed.setdefault(entry.index, _row(entry)) == _row(entry), "two outcomes"
            peer.applied.append(_row(entry))
            self._say(f"{node} applies {raft_lines.entry(entry)}")
        for read in ready.snapshot_reads:
            self._detail(f"{node} reads its snapshot for {read.receiver}")
            peer.works.append(read)
        for write in ready.snapshot_writes:
            self._detail(f"{node} writes the snapshot up to {write.snapshot_index}:t{write.snapshot_term}")
            peer.works.append(write)

    def _send(self, message: Message) -> None:
        link = (message.sender, message.receiver)
        lost = link in self.cuts or message.receiver not in self._alive()
        self._detail(raft_lines.message(message) + (" (lost)" if lost else ""))
        if not lost:
            self.links.setdefault(link, deque()).append(message)

    # --- lines

    def _say(self, line: str) -> None:
        self.lines.append(line)

    def _detail(self, line: str) -> None:
        if not self.quiet:
            self.lines.append(line)

    def _take(self) -> Lines:
        taken, self.lines = self.lines, []
        return taken


def _row(entry: Entry) -> Applied:
    return (entry.index, entry.term, int(entry.kind), entry.payload.hex())


def _supersedes(persist: Persist, index: int) -> bool:
    return bool(persist.entries) and index >= persist.entries[0].index
