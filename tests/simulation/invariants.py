"""What must hold after every event: I1 to I4, I7, durability; and at the end of a seed everything else.

`Invariants(nodes, scheduler)` hooks itself into every life that begins (`SimNode.on_start`): it hears every
entry that is applied, every message that leaves, and every group that a journal calls durable.
`after_event(node_id)` is called after every event and raises InvariantBroken; in the usual case it compares a
few numbers of the one node that ran. `at_end(history)` compares the final states with each other, with a
replay of the whole log, and with what the clients saw (checkers/verdict.py).

- I1: one leader per term; a term or vote that left a node, in a message, was durable there, and is never
  taken back, over all lives of that node incarnation.
- I2: one entry per index, over all nodes and lives, from the first moment that anybody called it committed;
  logs match (sampled). When a leader commits, the entry is on the platters of a majority of the voters.
- I3: commit and applied indexes only rise within a life; applied never passes committed, nor what is on the
  own platter.
- I4: state_digest and apply_digest are equal at equal applied indexes, over all nodes and lives.
- I7: a snapshot, as it is on the disk and as it was loaded, equals the replay of the entries up to its index;
  a file that has a snapshot's name was whole once, so that only a flipped bit breaks one.
- Durability: a node acknowledges an index only when its group is on the platter, and a later start finds it
  there; what a start read is on the platter before it counts. Now and then a copy of a disk loses its power
  and is recovered to prove it.

Source: docs/internals/simulation.md, "What is checked"; docs/internals/consensus.md, "Rules of the core",
"Journal", "Snapshots".
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from quorum.core.machine import FORCED_ZXID_JUMP, StateMachine
from quorum.errors import DataDirError
from quorum.node.member import QuorumMember
from quorum.raft.core.configuration import parse_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Role,
    SnapshotChunk,
    SnapshotChunkReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from quorum.raft.core.node import Node
from quorum.raft.datadir.identity import journal_directory
from quorum.raft.journal.index import LogIndex
from quorum.raft.journal.journal import Journal, JournalOptions, Record, StagedGroup
from quorum.raft.requests.origins import Forward, RegisterOrigin
from quorum.server.phases import Phase
from tests.simulation.changes import INVARIANT as MEMBERS
from tests.simulation.changes import judge_append
from tests.simulation.checkers.verdict import judge
from tests.simulation.finals import final_of
from tests.simulation.history import History
from tests.simulation.manners import Manners
from tests.simulation.origins import INVARIANT as FORWARDING
from tests.simulation.origins import Origins
from tests.simulation.replay import Replay, load_from
from tests.simulation.scheduler import Scheduler
from tests.simulation.sim_node import SimNode
from tests.support.memory_disk import Cut, MemoryDisk
from tests.unit.core.driver import dump

#: events of nodes between two looks at whole logs
LOGS_EVERY = 499
#: entries that are compared back from where two logs meet
LOGS_DEPTH = 64
#: acknowledgements between two recoveries of a copied disk
RECOVER_EVERY = 1500


class InvariantBroken(AssertionError):  # noqa: N818 - named as what was found
    """A promise was broken; the message is the story."""

    def __init__(self, invariant: str, story: str) -> None:
        super().__init__(f"{invariant}: {story}")
        self.invariant = invariant
        self.story = story


class Platter:
    """What one machine's disk is known to hold, over all lives.

    Attributes:
        log: the index of the journal of the last life.
        last_index, last_term: of the log, as far as its groups are on the platter.
        hard_state: as far as it is on the platter.
    """

    def __init__(self, disk: MemoryDisk, incarnation: str) -> None:
        self.disk = disk
        self.incarnation = incarnation
        self.log: LogIndex | None = None
        self.last_index = 0
        self.last_term = 0
        self.hard_state = HardState(0, 0)
        #: (index, term) of what the last group that was staged brings to the log
        self.staged: frozenset[tuple[int, int]] = frozenset()
        #: (term, candidate) of the last vote that left
        self.announced = HardState(0, 0)
        #: whether a bit was turned around since the last start, and whether ever
        self.flipped = False
        self.was_flipped = False
        self.set_aside: set[str] = set()

    def flip(self) -> None:
        """A bit is turned around."""
        self.flipped = self.was_flipped = True

    def holds(self, index: int, term: int) -> bool:
        """Tell whether an entry is there, in the log or below a snapshot."""
        if self.log is None or index > self.last_index:
            return False
        return index < self.log.first_index or self.log.term_at(index) == term


class _Life:
    """One life of a node, and what was seen of it last."""

    __slots__ = (
        *(
            "applied",
            "commit",
            "configuration",
            "engine",
            "indexes",
            "journal",
            "machine",
            "manners",
            "member",
            "node",
        ),
        *("number", "platter", "raft", "role", "taken", "term", "voted_for"),
    )

    manners: Manners

    def __init__(self, node: SimNode, member: QuorumMember, platter: Platter) -> None:
        self.node = node
        self.number = node.lives
        self.member = member
        self.platter = platter
        self.engine = member.engine
        self.raft: Node = member.core._node
        self.journal: Journal = member.storage.journal
        self.machine = member.replica.machine
        self.term = -1
        self.voted_for = -1
        self.role: Role | None = None
        self.commit = self.raft.commit_index
        #: at the end of the last event
        self.configuration = self.raft.history.latest
        self.applied = member.engine.applied_index
        self.taken = 0
        #: of the snapshots that were taken
        self.indexes: set[int] = set()

    def __str__(self) -> str:
        return f"node {self.node.node_id} (life {self.number})"


class Invariants:
    """The checks of one world."""

    def __init__(self, nodes: Mapping[int, SimNode], scheduler: Scheduler) -> None:
        self.nodes = nodes
        self._scheduler = scheduler
        self._rng = scheduler.rng("invariants")
        self._lives: dict[int, _Life] = {}
        #: {(node id, node incarnation): its disk}
        self._platters: dict[tuple[int, str], Platter] = {}
        #: {node id: the platter of its last life}
        self._last_platters: dict[int, Platter] = {}
        #: disks that tell when a bit of theirs is turned around
        self._watched_disks: set[MemoryDisk] = set()
        #: {term: who leads it}
        self._leaders: dict[int, str] = {}
        #: {index: the entry that was committed there}
        self.entries: dict[int, Entry] = {}
        #: {index: (state_digest, apply_digest) after it, and whose}
        self._digests: dict[int, tuple[bytes, bytes, str]] = {}
        self._replay = Replay(self.entries)
        self._origins = Origins()
        self._broken: InvariantBroken | None = None
        self._until_logs = LOGS_EVERY
        self._until_recovery = RECOVER_EVERY
        #: {check: how often it was made}
        self.counts: dict[str, int] = {
            "applied": 0,
            "acknowledged": 0,
            "majorities": 0,
            "snapshots": 0,
            "logs": 0,
            "recoveries": 0,
        }
        self._heed: dict[type, Callable[[_Life, Any], None]] = {
            AppendReply: self._acknowledges,
            HeartbeatReply: self._acknowledges,
            SnapshotChunkReply: self._acknowledges,
            VoteReply: self._votes,
            Vote: self._campaigns,
            Heartbeat: self._beats,
            **dict.fromkeys((Forward, RegisterOrigin), self._hands_out),
            **dict.fromkeys((Append, SnapshotChunk, TimeoutNow), self._leads),
        }
        for node in nodes.values():
            self.watch(node)

    def watch(self, node: SimNode) -> None:
        """Hook into all lives of a node; for nodes that are added later, too."""
        node.on_start.append(self._life_began)
        node.on_end.append(self._life_ended)

    def after_event(self, node_id: int) -> None:
        """Check the node whose code ran in the last event.

        Raises:
            InvariantBroken: with its story.
        """
        life = self._lives.get(node_id)
        if life is not None:
            raft = life.raft
            if raft.term != life.term or raft.role.kind is not life.role or raft.voted_for != life.voted_for:
                self._term_changed(life)
            if raft.commit_index != life.commit:
                self._commit_changed(life)
            if life.configuration is not raft.history.latest:
                self._configuration_changed(life)
            if life.engine.applied_index != life.applied:
                self._applied_changed(life)
            if life.member.snapshotter.taken_count != life.taken:
                self._snapshot_taken(life)
            self._until_logs -= 1
            if not self._until_logs:
                self._until_logs = LOGS_EVERY
                self._compare_logs(life)
        if self._broken is not None:
            raise self._broken

    def at_end(self, history: History | None = None) -> None:
        """Check what everything came to; all nodes run and have applied the same.

        Args:
            history: what the clients did and saw, if they are to be judged.

        Raises:
            InvariantBroken: with its story.
        """
        for life in self._lives.values():
            machine = life.member.replica.machine
            try:
                machine.check_invariants()
            except AssertionError as error:
                raise InvariantBroken("I9", f"{life} in the end: {error}") from error
            self._compare_with_replay(life, machine, "in the end")
        if self._broken is not None:
            raise self._broken
        if history is None:
            return
        applied = max((life.engine.applied_index for life in self._lives.values()), default=0)
        # A node that was removed and not stopped yet holds what it had; whether all others are level is the
        # world's to see to.
        finals = [
            final_of(node_id, life.member.replica.machine)
            for node_id, life in sorted(self._lives.items())
            if life.engine.applied_index == applied
        ]
        violations = judge(history, finals, others_max=self._zxids_of_no_client())
        if violations:
            stories = "\n".join(f"{name}: {story}" for name, story in violations[:20])
            raise InvariantBroken(violations[0].invariant, f"{len(violations)} violations:\n{stories}")

    def holders(self) -> set[int]:
        """Return the ids of the nodes whose newest disks hold all that was ever committed."""
        newest = {node_id: platter for (node_id, _), platter in self._platters.items()}
        index = max(self.entries, default=0)
        if not index:
            return set()
        term = self.entries[index].term
        return {
            node_id
            for node_id, platter in newest.items()
            if platter.disk is self.nodes[node_id].disk and platter.holds(index, term)
        }

    def _zxids_of_no_client(self) -> int:
        """Return how many zxids changes of members and forced starts may have taken, or skipped."""
        payloads = [
            entry.payload for _, entry in sorted(self.entries.items()) if entry.kind is EntryKind.MEMBERS
        ]
        ids = [parse_configuration(payload).cluster_id for payload in payloads]
        forced = sum(one != other for one, other in itertools.pairwise(ids))
        founded = self.entries.get(1)
        if ids and founded is not None:
            forced += parse_configuration(founded.payload).cluster_id != ids[0]
        return len(payloads) + forced * FORCED_ZXID_JUMP

    def _break(self, invariant: str, story: str) -> None:
        """Keep the first story; it is raised behind the event, outside of the product's own guards."""
        if self._broken is None:
            at = self._scheduler.now_ms / 1000
            self._broken = InvariantBroken(invariant, f"{story} (at {at:.4f} s)")

    # --- lives

    def _life_began(self, node: SimNode) -> None:
        member = node.member
        assert member is not None
        incarnation = member.storage.identity.incarnation
        key = (node.node_id, incarnation)
        platter = self._platters.get(key)
        if platter is None:
            platter = self._platters[key] = Platter(node.disk, incarnation)
        platter.disk = node.disk
        # A lost disk that is back stands in the place of the one that came for it.
        self._last_platters[node.node_id] = platter
        if node.disk not in self._watched_disks:
            self._watched_disks.add(node.disk)
            _tee(node.disk, "flip_bit", lambda *_: self._last_platters[node.node_id].flip())
        life = self._lives[node.node_id] = _Life(node, member, platter)
        self._check_recovered(life)
        platter.log = life.journal._log
        platter.last_index, platter.last_term = platter.log.last_index, platter.log.last_term
        platter.hard_state = HardState(life.raft.term, life.raft.voted_for)
        self._check_started(life, platter.log)
        member.replica.when_applied.insert(0, lambda entry: self._applied(life, entry))
        _tee(life.journal, "stage", lambda records: self._staged(life, records))
        _tee(life.journal, "finish", lambda group: self._finished(life, group))
        assert node.transport is not None
        _tee(node.transport, "send", lambda _peer, message: self._sent(life, message))
        life.manners = Manners(life, lambda: self._scheduler.now_ms, self._break)
        _tee(node.transport, "_onMessageReceivedCallback", life.manners.received)
        _tee(node.transport, "_onNodeDisconnectedCallback", life.manners.lost)
        if life.machine.applied_index:
            self._check_digests(life, life.machine.applied_index)
            self._compare_with_replay(life, life.machine, "loaded at the start")

    def _life_ended(self, node: SimNode) -> None:
        self._lives.pop(node.node_id, None)

    def _check_recovered(self, life: _Life) -> None:
        """A start finds everything that was durable in the lives before, or should have refused."""
        platter, raft = life.platter, life.raft
        platter.flipped = False
        announced = platter.announced
        if raft.term < max(platter.hard_state.term, announced.term):
            story = (
                f"{life} starts in term {raft.term}; {platter.hard_state} was durable, {announced} had left"
            )
            self._break("I1", story)
        elif raft.term == announced.term and announced.voted_for not in (0, raft.voted_for):
            self._break("I1", f"{life} voted for {announced} and starts with a vote for {raft.voted_for}")
        index, term = platter.last_index, platter.last_term
        found = raft.log.term_at(index)
        lost = index > raft.log.last_index or (found is not None and found != term)
        end = raft.log.last_index, raft.log.term_at(raft.log.last_index)
        # What superseded it may be there although its fsync never returned: the beginning of a group, or a
        # snapshot.
        superseded = end in platter.staged or end[0] == life.machine.applied_index > 0
        if lost and not superseded:
            self._break(
                "I5",
                f"{life} starts with a log up to {raft.log.last_index}, term {found} at {index}; "
                f"entry {index} of term {term} was durable",
            )

    def _check_started(self, life: _Life, log: LogIndex) -> None:
        """What a start counts is on the platter, name and all; it finds no snapshot that was never whole."""
        platter, disk = life.platter, life.platter.disk
        end = life.journal._durable
        for segment in log.segments:
            if segment.sequence > end.sequence:
                break
            node = disk._platter_names.get(segment.path)
            size = end.offset if segment.sequence == end.sequence else None
            seen = disk.content(segment.path)[:size].rstrip(b"\0")
            if node is None or bytes(node.platter[:size]).rstrip(b"\0") != seen:
                self._break("I5", f"{life} counts {segment.path}, and its platter has something else")
        set_aside = {path for path in disk._names if path.endswith(".damaged")}
        if not platter.was_flipped and set_aside - platter.set_aside:
            self._break("I7", f"{life} found broken snapshots that nobody broke: {sorted(set_aside)}")
        platter.set_aside = set_aside

    # --- I1

    def _term_changed(self, life: _Life) -> None:
        raft = life.raft
        if raft.term < life.term:
            self._break("I1", f"{life} went back from term {life.term} to {raft.term}")
        elif raft.term == life.term and life.voted_for > 0 and raft.voted_for != life.voted_for:
            was, now = life.voted_for, raft.voted_for
            self._break("I1", f"{life} voted for {was} and for {now} in term {raft.term}")
        if raft.role.kind is Role.LEADER:
            who = str(life)
            known = self._leaders.setdefault(raft.term, who)
            if known != who:
                self._break("I1", f"term {raft.term} is led by {known} and by {who}")
        life.term, life.voted_for, life.role = raft.term, raft.voted_for, raft.role.kind

    def _sent(self, life: _Life, message: Any) -> None:
        """A message leaves a node."""
        heed = self._heed.get(type(message))
        if heed is not None:
            heed(life, message)

    def _beats(self, life: _Life, message: Heartbeat) -> None:
        self._leads(life, message)
        life.manners.sent(message)

    def _hands_out(self, life: _Life, message: Forward | RegisterOrigin) -> None:
        user = self._origins.used(life.node.node_id, message.incarnation, life.number)
        if user != life.number:
            self._break(
                FORWARDING, f"{life} uses the origin incarnation {message.incarnation} of life {user}"
            )

    def _leads(self, life: _Life, message: Any) -> None:
        if message.term > life.platter.hard_state.term:
            self._not_durable(life, message)

    def _not_durable(self, life: _Life, message: Any) -> None:
        durable = life.platter.hard_state
        self._break("I1", f"{life} sent {message} while only {durable} was on its platter")

    def _announce(self, life: _Life, message: Any, voted_for: int) -> None:
        platter = life.platter
        announced = platter.announced
        if message.term > platter.hard_state.term:
            self._not_durable(life, message)
        if message.term > announced.term:
            platter.announced = HardState(message.term, voted_for)
        elif message.term == announced.term and voted_for:
            if announced.voted_for not in (0, voted_for):
                self._break("I1", f"{life} voted for {announced.voted_for}, and now sent {message}")
            platter.announced = HardState(message.term, voted_for)

    def _votes(self, life: _Life, message: VoteReply) -> None:
        life.manners.sent(message)
        voted_for = message.receiver if message.granted and not message.pre else 0
        self._announce(life, message, voted_for)
        durable = life.platter.hard_state
        # In a later term it can never vote in this one again.
        if voted_for and durable.term == message.term and durable.voted_for != voted_for:
            self._not_durable(life, message)

    def _campaigns(self, life: _Life, message: Vote) -> None:
        life.manners.sent(message)
        if not message.pre:
            self._announce(life, message, message.sender)

    # --- durability

    def _staged(self, life: _Life, records: Sequence[Record]) -> None:
        """A journal is about to write a group: the one before is on the platter."""
        life.platter.staged = frozenset(
            (record.index, record.term) for record in records if isinstance(record, Entry)
        )

    def _finished(self, life: _Life, group: StagedGroup) -> None:
        """A journal calls a group durable: compare with the platter."""
        platter = life.platter
        node = platter.disk._platter_names.get(group.path)
        content = b"" if node is None else node.platter
        start, end = group.place.offset, group.end
        expected = group.encoded.records + group.encoded.trailer
        if content[start:end] != expected:
            self._break(
                "I5", f"{life} calls {group.path} {start}..{end} durable; the platter has something else"
            )
        platter.log = log = life.journal._log
        platter.last_index, platter.last_term = log.last_index, log.last_term
        platter.hard_state = log.hard_state

    def _acknowledges(self, life: _Life, message: Any) -> None:
        """A follower tells its leader what it holds."""
        self.counts["acknowledged"] += 1
        platter = life.platter
        self._announce(life, message, 0)
        index = message.match_index
        if index > platter.last_index:
            self._break(
                "I5", f"{life} sent {message} while its platter holds the log up to {platter.last_index}"
            )
        elif platter.log is not None and index >= platter.log.first_index and message.term == life.raft.term:
            here, there = life.raft.log.term_at(index), platter.log.term_at(index)
            if here != there:
                self._break("I5", f"{life} sent {message}; it is of term {here}, on the platter of {there}")
        self._until_recovery -= 1
        if not self._until_recovery:
            self._until_recovery = RECOVER_EVERY
            self._recover_copy(life)

    def _recover_copy(self, life: _Life) -> None:
        """Cut the power of a copy of the disk, and recover it."""
        platter = life.platter
        if platter.flipped or platter.log is None:
            return
        self.counts["recoveries"] += 1
        copy = platter.disk.copy(random.Random(self._rng.random()))
        copy.power_cut(Cut.NOTHING)
        config = life.node.config
        options = JournalOptions(config.raft.segment_bytes_max, config.raft.log_cache_bytes_max)
        directory = journal_directory(str(config.node.data_dir))
        try:
            journal, recovered = Journal.open(copy, directory, options, lambda _: None)
        except DataDirError as error:
            self._break("I5", f"{life} would not come back without its power: {error}")
            return
        index = platter.last_index
        there = journal._log.term_at(index)
        if journal.last_index < index or there != platter.last_term:
            self._break(
                "I5",
                f"{life} would lose entry {index}: without power its log ends at {journal.last_index}, "
                f"term {there}",
            )
        if recovered.hard_state != platter.hard_state:
            self._break("I1", f"{life} would come back with {recovered.hard_state}, not {platter.hard_state}")

    # --- I2, I3, I4

    def _commit_changed(self, life: _Life) -> None:
        raft = life.raft
        before, now = life.commit, raft.commit_index
        if now < before:
            self._break("I3", f"{life} went back from commit index {before} to {now}")
        life.commit = now
        log = raft.log
        first = log.last_index - len(log._entries) + 1
        for index in range(max(before + 1, first), now + 1):
            self._note_committed(life, log._entries[index - first])
        if raft.role.kind is Role.LEADER:
            self._check_majority(life, now)

    def _is_held(self, node_id: int, incarnation: str, index: int, term: int) -> bool:
        platter = self._platters.get((node_id, incarnation))
        return platter is not None and platter.holds(index, term)

    def _configuration_changed(self, life: _Life) -> None:
        life.configuration = life.raft.history.latest
        if story := judge_append(life.raft):
            self._break(MEMBERS, f"{life} {story}")

    def _note_committed(self, life: _Life, entry: Entry) -> None:
        known = self.entries.setdefault(entry.index, entry)
        if known is not entry and known != entry:
            self._break("I2", f"{life} committed {_brief(entry)}; {_brief(known)} was committed there")

    def _check_majority(self, life: _Life, index: int) -> None:
        """A leader commits: the entry is on the platters of a majority of those who vote."""
        term = life.raft.log.term_at(index)
        # What it committed may have let it append the next configuration at once.
        configurations = (life.raft.history.latest, life.configuration)
        if term is None or None in configurations:
            return
        self.counts["majorities"] += 1
        if term != life.raft.term:
            self._break(
                "I5", f"{life} in term {life.raft.term} committed entry {index} of term {term} by count"
            )
        holders: list[int] = []
        for configuration in configurations:
            assert configuration is not None
            holders = [
                node_id
                for node_id, member in configuration.voters.items()
                if self._is_held(node_id, member.incarnation, index, term)
            ]
            if 2 * len(holders) > len(configuration.voters):
                break
        else:
            self._break(
                "I5",
                f"{life} committed entry {index} of term {term}, which only the platters of nodes "
                f"{holders} hold",
            )
        self._check_electable(life, index, term)

    def _check_electable(self, life: _Life, index: int, term: int) -> None:
        """Nobody who lacks what was committed could be elected now, even if all lost their power."""
        configuration = life.raft.history.latest
        assert configuration is not None
        voters = [
            self._platters.get((node_id, member.incarnation))
            for node_id, member in configuration.voters.items()
        ]
        logs = [
            (platter.last_term, platter.last_index) if platter is not None else (0, 0) for platter in voters
        ]
        for platter, log in zip(voters, logs, strict=True):
            if platter is None or platter.holds(index, term):
                continue
            if 2 * sum(log >= other for other in logs) > len(logs):
                self._break(
                    "I5",
                    f"{life} committed entry {index} of term {term}; a node with the log {log} (term, index) "
                    f"that lacks it would be elected by those with {logs}",
                )

    def _applied(self, life: _Life, entry: Entry) -> None:
        self.counts["applied"] += 1
        if entry.index > life.raft.commit_index:
            self._break(
                "I3", f"{life} applied {_brief(entry)} above its commit index {life.raft.commit_index}"
            )
        if entry.index > life.platter.last_index:
            story = (
                f"{life} applied {_brief(entry)}; its platter holds the log up to {life.platter.last_index}"
            )
            self._break("I3", story)
        self._note_committed(life, entry)
        self._check_digests(life, entry.index)
        if broken := self._origins.applied(entry, life.member.replica.machine):
            self._break(broken[0], f"{life} {broken[1]}")

    def _check_digests(self, life: _Life, index: int) -> None:
        machine = life.member.replica.machine
        mine = (machine.state_digest, machine.apply_digest)
        known = self._digests.get(index)
        if known is None:
            self._digests[index] = (*mine, str(life))
        elif known[:2] != mine:
            which = "state_digest" if known[0] != mine[0] else "apply_digest"
            self._break("I4", f"{which} of {life} after entry {index} is not that of {known[2]}")

    def _applied_changed(self, life: _Life) -> None:
        applied = life.engine.applied_index
        if applied < life.applied:
            self._break("I3", f"{life} went back from applied index {life.applied} to {applied}")
        life.applied = applied
        machine = life.member.replica.machine
        if machine is not life.machine:
            life.machine = machine
            self._check_digests(life, machine.applied_index)
            self._compare_with_replay(life, machine, "installed")
        if applied > life.raft.commit_index:
            self._break("I3", f"{life} applied {applied}, committed {life.raft.commit_index}")
        self._check_served(life, machine)

    def _check_served(self, life: _Life, machine: StateMachine) -> None:
        """Check that whoever is served as a session is who that session is attached to."""
        for session_id, connection in life.member.frontend._by_session.items():
            if connection.phase in (Phase.FINISHED, Phase.CLOSED):
                continue  # it gets what is queued, and no request of it is taken
            session = machine.sessions.get(session_id)
            if session is None or (session.node_id, session.nonce) != (life.node.node_id, connection.nonce):
                self._break("I13", f"{life} serves session {session_id} to a connection that has it no more")

    def _compare_logs(self, life: _Life) -> None:
        """Log matching: equal index and term, equal entries up to there; committed entries are in place."""
        self.counts["logs"] += 1
        mine = life.raft.log
        for other_life in self._lives.values():
            if other_life is life:
                continue
            other = other_life.raft.log
            index = min(mine.last_index, other.last_index)
            lowest = max(index - LOGS_DEPTH, mine.last_index - len(mine._entries), 0)
            lowest = max(lowest, other.last_index - len(other._entries))
            met = False
            for here in range(index, lowest, -1):
                one = mine._entries[here - mine.last_index - 1]
                two = other._entries[here - other.last_index - 1]
                met = met or one.term == two.term
                if met and one != two:
                    self._break("I2", f"the logs of {life} and {other_life} differ at {here}, and meet above")
        for entry in mine._entries[-LOGS_DEPTH:]:
            known = self.entries.get(entry.index)
            if known is not None and entry.index <= life.raft.commit_index and known != entry:
                self._break("I2", f"{life} holds {_brief(entry)}; {_brief(known)} was committed there")

    # --- I7

    def _snapshot_taken(self, life: _Life) -> None:
        """A snapshot was finished: what is on the disk must be the replay of its prefix."""
        life.taken = life.member.snapshotter.taken_count
        newest = life.member.storage.snapshots.newest
        if newest is None:
            return
        life.indexes.add(newest.log_index)
        files = life.member.storage.snapshots.files()
        if len(life.indexes) > 1 and len(files) < 2:
            self._break("I7", f"{life} has taken the snapshots of {sorted(life.indexes)} and keeps {files}")
        try:
            machine = load_from(life.node.disk.content(newest.path), newest.path)
        except FileNotFoundError:
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the file is not what it should be
            self._break("I7", f"{life} took {newest.path}, which cannot be loaded: {error!r}")
            return
        self._compare_with_replay(life, machine, newest.path)

    def _compare_with_replay(self, life: _Life, machine: StateMachine, what: str) -> None:
        index = machine.applied_index
        expected = self._replay.at(index)
        if expected is None:
            return
        self.counts["snapshots"] += 1
        found = dump(machine)
        different = [name for name in expected if expected[name] != found[name]]
        if different:
            parts = {name: _difference(expected[name], found[name]) for name in different}
            self._break("I7", f"{life}, {what}: the state of entry {index} is not the replay: {parts}")


def _tee(target: object, name: str, told: Callable[..., object]) -> None:
    """Have a method of one object tell somebody before it runs."""
    original = getattr(target, name)

    def call(*arguments: Any) -> Any:
        told(*arguments)
        return original(*arguments)

    setattr(target, name, call)


def _brief(entry: Entry) -> str:
    return f"entry {entry.index} of term {entry.term} ({entry.kind.name}, {len(entry.payload)} bytes)"


def _difference(expected: Any, found: Any) -> Any:
    """Return what differs, short enough for a story."""
    if isinstance(expected, dict) and isinstance(found, dict):
        keys = [key for key in {**expected, **found} if expected.get(key) != found.get(key)]
        return {key: (expected.get(key), found.get(key)) for key in keys[:3]}
    return expected, found
