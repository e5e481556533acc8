"""The people beside the machines: they start dead nodes, repair disks, and change who is a member.

Decides when a node is started again and how, and carries out one change of the members at a time as the
manuals say: a lost disk is replaced first and the node joins with an empty one, a new node is added before it
starts, a node that was removed is stopped. Every request goes to a drawn node, as it does through the admin
port, and is repeated until it has succeeded. An operator knows only what nodes answer.

The world's own safety rule is kept here: at most a minority of the disks is damaged or lost at any time. A
start that is refused, or a member that stops itself, is allowed only where something was done to its disk.
"""

from __future__ import annotations

import errno
import random
from typing import Protocol

from quorum.errors import QuorateError, UnknownMemberError
from quorum.raft.core.configuration import Configuration
from quorum.raft.datadir.forcing import MARKER_NAME
from quorum.raft.datadir.identity import SNAPSHOTS_NAME, Start, journal_directory
from quorum.raft.journal.recovery import scan_journal
from quorum.raft.requests.requests import Action, LeaderRequest
from quorum.raft.snapshots.format import SnapshotDamagedError, SnapshotReader
from tests.simulation.scheduler import Scheduler
from tests.simulation.settings import peer_address
from tests.simulation.sim_node import SimNode
from tests.simulation.timeline import Timeline
from tests.support.memory_disk import MemoryDisk

#: between two looks at a change that is under way
LOOK_EVERY_MS = 150.0
#: a removed node may go on for so long before somebody stops it
LINGER_MS_MAX = 3000.0
#: longer than a node's own deadline for an answer
ANSWER_WITHIN_MS = 6000.0
#: share of the seeds in which a removal is asked of every node at once
REMOVED_TWICE = 0.1
#: share of the forced starts whose disk does not read a snapshot
FORCED_MISREADS = 0.3
VOTERS_MIN = 3
VOTERS_MAX = 5


class Site(Protocol):
    """What an operator works on."""

    scheduler: Scheduler
    timeline: Timeline
    nodes: dict[int, SimNode]

    def running(self) -> list[SimNode]:
        """Return the nodes that run and are not stopped, ascending."""

    def new_node(self, node_id: int) -> SimNode:
        """Set up one more machine."""

    def break_off(self, invariant: str, story: str, error: BaseException | None = None) -> None:
        """End the run: a promise was broken."""


class Change:
    """A change of the members that is under way."""

    def __init__(self, action: Action, node: SimNode) -> None:
        self.action = action
        self.node = node
        #: a request waits for its answer
        self.asked = False
        self.question = 0
        #: a request has succeeded
        self.made = False
        self.ended = False
        #: of a replacement: the disk that was lost
        self.lost: MemoryDisk | None = None


class Operators:
    """Everybody who looks after the nodes of a world."""

    def __init__(self, site: Site) -> None:
        self.changes_made = 0
        self.change: Change | None = None
        #: no time is left for waits
        self.hurries = False
        #: nothing is started any more
        self.gone = False
        #: ids of nodes that were removed: they are not started again
        self.removed: set[int] = set()
        #: ids of nodes that nobody starts for now
        self.held_back: set[int] = set()
        #: ids of founders that were bootstrapped a second time and do not belong to the cluster
        self.orphans: set[int] = set()
        #: nodes with empty disks that are added again one after the other, since another one was forced
        self.outcasts: list[SimNode] = []
        #: is always started with --force-new-cluster, as if that stood in its start script
        self._forced: SimNode | None = None
        self._site = site
        self._rng: random.Random = site.scheduler.rng("operators")
        #: drawn apart, so that other seeds stay what they were
        self._removes_twice = site.scheduler.rng("removals").random() < REMOVED_TWICE
        self._misreads = site.scheduler.rng("forced starts")
        #: {node id: its disk right before it was damaged}: it has not started since
        self._healthy: dict[int, MemoryDisk] = {}
        #: {node id: the file of its disk that was damaged last}
        self._damaged: dict[int, str] = {}
        #: the newest configuration that was seen, and the index that was applied with it
        self._newest: tuple[int, Configuration] | None = None
        #: {node id: its disk}, while another one is in its machine
        self._set_aside: dict[int, MemoryDisk] = {}

    # --- starting ---------------------------------------------------------------------------------

    def look_after(self, node: SimNode) -> None:
        """Be told what happens to a node from now on."""
        node.on_end.append(self._ended)
        node.on_story.append(self._judge)

    def start(self, node: SimNode) -> None:
        """Start a node as it has to be started, if it is to run and does not."""
        if node.running or self.gone or node.node_id in self.removed | self.held_back:
            return
        if node in self.outcasts:
            return
        if node.formatted:
            mode = Start.FORCE_NEW_CLUSTER if node is self._forced else Start.PLAIN
        elif not node.joins:
            # A founder that crashed before it was formatted is bootstrapped again, as `quorate up` does.
            mode = Start.BOOTSTRAP
        elif self.change is not None and self.change.node is node and not self.change.made:
            return
        else:
            mode = Start.JOIN
            # An older build may not be let in any more.
            node.feature_level = max(each.feature_level for each in self._site.nodes.values())
        if node.start(mode):
            # It has read everything that it needs, and goes on from there.
            self._healthy.pop(node.node_id, None)

    def let_go(self, node: SimNode) -> None:
        """Start a node that was held back."""
        self.held_back.discard(node.node_id)
        self.start(node)

    def bootstrap_again(self, node: SimNode) -> None:
        """A founder's disk is lost, and its start script bootstraps it again; `force` puts that right."""
        if node.running:
            node.power_cut()
        self._wipe(node)
        node.joins = False
        self.orphans.add(node.node_id)
        self.start(node)

    def _ended(self, node: SimNode) -> None:
        """A life ended: somebody starts the node again after a while."""
        rng = self._rng
        delay_ms = rng.uniform(20.0, 500.0) if rng.random() < 0.65 else rng.uniform(500.0, 3000.0)
        if rng.random() < 0.05:
            delay_ms = rng.uniform(3000.0, 10_000.0)
        self._site.scheduler.at(100.0 if self.hurries else delay_ms, self.start, node)

    def _judge(self, node: SimNode, what: str, error: BaseException) -> None:
        """Something ended a life, or should have: only a disk to which something was done excuses that."""
        if node.node_id in self.orphans and what != "escaped":
            return
        healthy = self._healthy.get(node.node_id)
        if what == "escaped" or not (node.disk_troubled or healthy):
            self._site.break_off(what, f"node {node.node_id}: {error!r}", error)
        elif what == "refused" and healthy is not None and not node.disk_troubled:
            if _must_fall_back(healthy, self._damaged[node.node_id]):
                story = f"node {node.node_id} has another snapshot to start from: {error!r}"
                self._site.break_off(what, story, error)
            # As from a copy made right before: nothing was promised since.
            node.disk.restore(self._healthy.pop(node.node_id))
            self._site.timeline.note(node.node_id, "its disk was repaired")

    # --- disks ------------------------------------------------------------------------------------

    def may_damage(self) -> bool:
        """Tell whether one more disk may be damaged or lost: of a minority at most."""
        configuration = self.configuration()
        voters = 0 if configuration is None else len(configuration.voters)
        # Beside outcasts the configuration that was seen may still be the one from before the forced start.
        amiss = len(self._healthy) + len(self._set_aside) + len(self.orphans) + len(self.outcasts)
        amiss += self.change is not None
        return amiss < (voters - 1) // 2

    def damage(self, node: SimNode, path: str, bit: int) -> None:
        """Flip a bit of a file; the node is down."""
        self._healthy[node.node_id] = node.disk.copy(node.disk.rng)
        self._damaged[node.node_id] = path
        node.disk.flip_bit(path, bit)
        self._site.timeline.note(node.node_id, f"bit {bit} of {path} flipped")

    def put_in(self, node: SimNode, disk: MemoryDisk) -> None:
        """Put another disk into a machine and start it: somebody took a lost one for the right one."""
        if node.running:
            node.kill()
        self._set_aside[node.node_id] = node.disk.copy(node.disk.rng)
        node.disk.restore(disk)
        self._site.timeline.note(node.node_id, "its lost disk is back")
        node.start()

    def put_back(self, node: SimNode) -> None:
        """Put the right disk in again."""
        own = self._set_aside.pop(node.node_id, None)
        if own is not None:
            if node.running:
                node.kill()
            node.disk.restore(own)
            self._site.timeline.note(node.node_id, "its own disk is back")

    def _wipe(self, node: SimNode) -> None:
        """Put in an empty disk. What its start script said of the old one goes with that."""
        if node is self._forced:
            self._forced = None
        node.wipe()

    # --- members ----------------------------------------------------------------------------------

    def configuration(self) -> Configuration | None:
        """Return the newest configuration that a node was seen to have applied."""
        # Those that know a newer one may be down: without a memory a member would be taken for a stranger.
        newest = self._newest
        for node in self._site.running():
            assert node.member is not None
            replica = node.member.replica
            index = replica.machine.applied_index
            if newest is None or index > newest[0]:
                configuration = replica.configuration()
                if configuration is not None:
                    newest = index, configuration
        self._newest = newest
        return None if newest is None else newest[1]

    def replace(self, node: SimNode) -> Change | None:
        """The disk of a node is lost: put in an empty one and let the node join with it."""
        if not self.may_damage():
            return None
        if self.change is not None and (not self.change.made or self.change.node is node):
            # Nobody would carry on what is not committed yet.
            return None
        if node.running:
            node.power_cut()
        # If another disk is in the machine at the moment, the right one is given up with it.
        self._set_aside.pop(node.node_id, None)
        # A damaged one would not start.
        lost = None if node.node_id in self._healthy else node.disk
        self._wipe(node)
        change = self._begin(Action.REPLACE, node)
        change.lost = lost
        return change

    def add(self) -> Change | None:
        """Let a new node join, or one that was removed, with an empty disk."""
        configuration = self.configuration()
        if self.change is not None or configuration is None or len(configuration.voters) >= VOTERS_MAX:
            return None
        if self.outcasts:
            return None
        taken = {*configuration.voters, *configuration.learners}
        node_id = next(each for each in range(1, 2 * VOTERS_MAX) if each not in taken)
        node = self._site.nodes.get(node_id)
        if node is None:
            node = self._site.new_node(node_id)
        elif node.running:
            return None
        else:
            self._wipe(node)
        node.joins = True
        self.removed.discard(node_id)
        return self._begin(Action.ADD, node)

    @property
    def idle(self) -> bool:
        """Whether every disk is good and belongs to a member, and no change is under way."""
        amiss = self._healthy or self._set_aside or self.orphans or self.outcasts or self.change
        return not amiss

    def force(self, survivor: SimNode) -> None:
        """A majority is lost for good: one node goes on alone, all others come back with empty disks."""
        self.change = None
        self.orphans.clear()
        self._healthy.clear()
        self._set_aside.clear()
        nodes = [node for _, node in sorted(self._site.nodes.items()) if node.node_id not in self.removed]
        self.outcasts = [node for node in nodes if node is not survivor]
        for node in nodes:
            if node.running:
                node.kill()
        for node in self.outcasts:
            self._wipe(node)
        self.held_back.clear()
        # Whoever forces a directory a second time takes the mark of the first time away.
        mark = f"{survivor.config.node.data_dir}/{MARKER_NAME}"
        if survivor.disk.exists(mark):
            survivor.disk.unlink(mark)
            survivor.disk.fsync_dir(str(survivor.config.node.data_dir))
        self._forced = survivor
        self._newest = None
        self._site.timeline.note(survivor.node_id, "is forced to go on alone")
        if self._misreads.random() < FORCED_MISREADS:
            # Of its snapshots one is not read by this start; the next one reads it.
            survivor.disk.fail("pread", errno.EIO, path_part=".snapshot")
        self.start(survivor)
        self._site.scheduler.at(LOOK_EVERY_MS, self._add_outcast, survivor)

    def _add_outcast(self, survivor: SimNode) -> None:
        if self.gone or not self.outcasts:
            return
        configuration = self.configuration()
        if self.change is None and configuration is not None and survivor.node_id in configuration.voters:
            node = self.outcasts.pop(0)
            # Whoever removed it meanwhile went by the members from before the forced start.
            self.removed.discard(node.node_id)
            self._begin(Action.ADD, node)
        self._site.scheduler.at(LOOK_EVERY_MS, self._add_outcast, survivor)

    def remove(self) -> Change | None:
        """Let a member go, the leader perhaps."""
        configuration = self.configuration()
        if self.change is not None or configuration is None or len(configuration.voters) <= VOTERS_MIN:
            return None
        # The node that was forced may be the one that would go, and the others could not join it any more.
        if self.outcasts:
            return None
        node_id = self._rng.choice(sorted(configuration.voters))
        return self._begin(Action.REMOVE, self._site.nodes[node_id])

    def _begin(self, action: Action, node: SimNode) -> Change:
        self.change = change = Change(action, node)
        self._site.timeline.note(node.node_id, f"members: {action.name.lower()} begins")
        self._site.scheduler.at(0.0, self._look, change)
        return change

    def _look(self, change: Change) -> None:
        """See how far a change has come, and do what is next."""
        if self.gone or self.change is not change:
            return
        if not change.made:
            if not change.asked:
                self._ask(change)
        elif self._is_done(change):
            self.change = None
            change.ended = True
            self.changes_made += 1
            self._site.timeline.note(change.node.node_id, f"members: {change.action.name.lower()} is done")
            return
        self._site.scheduler.at(LOOK_EVERY_MS, self._look, change)

    def _ask(self, change: Change) -> None:
        running = self._site.running()
        if not running:
            return
        asked = self._rng.choice(running)
        change.question += 1
        change.asked = True
        # The node that was asked may be gone, and then nobody answers.
        self._site.scheduler.at(ANSWER_WITHIN_MS, self._give_up_question, change, change.question)
        self._ask_node(change, asked)
        if self._removes_twice and change.action is Action.REMOVE:
            for node in running:
                if node is not asked and node.running:
                    self._ask_node(change, node)

    def _ask_node(self, change: Change, asked: SimNode) -> None:
        assert asked.member is not None
        assert asked.runtime is not None
        node_id = change.node.node_id
        address = peer_address(node_id) if change.action is Action.ADD else ""
        question = change.question

        def told(result: int | QuorateError) -> None:
            if change.question == question:
                change.asked = False
            done = not isinstance(result, QuorateError)
            if isinstance(result, UnknownMemberError) and change.action is Action.REMOVE:
                # Whoever repeats a removal takes that for done.
                done = True
                self._judge_absence(asked, node_id)
            if done:
                self._make(change)

        asked.runtime.enter(asked.member.replica.ask, LeaderRequest(change.action, node_id, address), told)

    def _give_up_question(self, change: Change, question: int) -> None:
        if change.question == question:
            change.asked = False

    def _judge_absence(self, asked: SimNode, node_id: int) -> None:
        """Check what a node tells of who is no member against what it has applied by then."""
        assert asked.member is not None
        configuration = asked.member.replica.configuration()
        if configuration is None or configuration.member(node_id) is not None:
            self._site.break_off(
                "members",
                f"node {asked.node_id} says that node {node_id} is no member, and has applied that it is",
            )

    def _make(self, change: Change) -> None:
        """A request has succeeded: the change is committed."""
        if change.made or self.change is not change:
            return
        change.made = True
        node = change.node
        self._site.timeline.note(node.node_id, f"members: {change.action.name.lower()} is committed")
        if change.action is Action.REMOVE:
            self.removed.add(node.node_id)
            linger_ms = 0.0 if self.hurries else self._rng.uniform(0.0, LINGER_MS_MAX)
            self._site.scheduler.at(linger_ms, self._stop, node)
        else:
            self._site.scheduler.at(self._rng.uniform(0.0, 1000.0), self.start, node)

    def _stop(self, node: SimNode) -> None:
        if node.running and node.node_id in self.removed:
            node.kill()

    def _is_done(self, change: Change) -> bool:
        node = change.node
        configuration = self.configuration()
        if configuration is None:
            return False
        if change.action is Action.REMOVE:
            return not node.running
        voter = configuration.voters.get(node.node_id)
        return (
            voter is not None
            and node.member is not None
            # The disk that it lost may be in it, and what was seen of the members may still name that one.
            and node.node_id not in self._set_aside
            and voter.incarnation == node.member.storage.identity.incarnation
        )


def _must_fall_back(disk: MemoryDisk, path: str) -> bool:
    """Tell whether a node can start without this file: it is a snapshot, and another one reaches everything.

    Args:
        disk: as it was before the file was damaged.
        path: the file.
    """
    folder, _, broken = path.rpartition("/")
    if not folder.endswith(SNAPSHOTS_NAME):
        return False
    names = [name for name in disk.listdir(folder) if name != broken and name.endswith(".snapshot")]
    # One that was damaged earlier went unnoticed while a newer one was good.
    others = [int(name.partition("-")[0]) for name in names if _is_good(disk, f"{folder}/{name}")]
    log = scan_journal(disk, journal_directory(folder.rpartition("/")[0])).log
    return bool(others) and max(others) >= log.install.log_index


def _is_good(disk: MemoryDisk, path: str) -> bool:
    file = disk.open(path)
    try:
        SnapshotReader(file).verify()
    except SnapshotDamagedError:
        return False
    finally:
        file.close()
    return True
