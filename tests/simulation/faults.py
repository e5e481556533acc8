"""The nemeses: what is done to a world, one script each.

A script is a generator over the world: it does something, yields how many milliseconds to wait, undoes it and
returns whether it bit, that is whether anybody could notice. A script that finds nothing to do returns False
at once. Which nodes it takes is drawn; everything that others changed meanwhile it must bear. What a script
has not undone when the world heals, the world undoes.

The rules of the world's own safety are in operators.py: how many disks may be damaged at once, and who starts
dead nodes again.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Generator

from quorum.raft.core.messages import Role
from quorum.raft.journal.format import TRAILER_BYTES, TRAILER_MAGIC
from quorum.raft.journal.note import NOTE_NAME
from tests.simulation.nemesis import (
    ELECTION_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Script,
    World,
    leader_term,
    some_node,
    take_snapshot,
)
from tests.simulation.network_faults import (
    break_clients,
    break_connections,
    cut_clients,
    cut_one_way,
    cut_pair,
    halve,
    isolate,
    rough_weather,
    slow_line,
)
from tests.simulation.operators import Change
from tests.simulation.sim_node import SimNode
from tests.simulation.slow_disks import SLOW_DISKS, hang_disk, slow_disk
from tests.simulation.upgrades import update
from tests.support.memory_disk import Cut

#: between two looks at a node that is to come to something
LOOK_EVERY_MS = 4.0
#: what may be called on a disk: (operation, part of the path)
DISK_CALLS = (
    ("pwrite", "journal"),
    *(3 * [("fdatasync", "journal")]),
    ("create", "journal"),
    ("rename", "journal"),
    ("unlink", "journal"),
    ("fsync_dir", "journal"),
    ("pwrite", "snapshots"),
    ("fdatasync", "snapshots"),
    ("create", "snapshots"),
    ("rename", "snapshots"),
    ("unlink", "snapshots"),
    ("fsync_dir", "snapshots"),
    ("pread", "snapshots"),
    ("pread", "journal"),
    ("open", "snapshots"),
    ("truncate", "journal"),
)
#: what a power cut leaves of a group that is being written
TEARS = (Cut.ALL_BUT_FIRST_SECTOR, Cut.PREFIX_OF_BYTES, Cut.PREFIX_OF_SECTORS, Cut.SOME_SECTORS)
#: part of the paths of segments alone
SEGMENTS = ".segment"
#: moments of a new segment, of a compaction, of a snapshot that is taken, and of one that is received
ROLLING = (("open", "journal"), ("rename", "journal"), ("fsync_dir", "journal"))
COMPACTION = (("unlink", "journal"), ("fsync_dir", "journal"), ("unlink", "snapshots"))
TAKING = (("create", ".taken"), ("pwrite", "snapshots"), ("fdatasync", "snapshots"), ("rename", ".taken"))
INSTALLING = (
    ("create", ".received"),
    ("pwrite", ".received"),
    ("fdatasync", ".received"),
    ("rename", ".received"),
    ("open", ".snapshot"),
)
#: what a start does first
STARTING = (
    *(3 * [("pread", "snapshots")]),
    ("open", "snapshots"),
    ("pread", "journal"),
    ("fsync_dir", "snapshots"),
    ("pwrite", "journal"),
    ("fdatasync", "journal"),
)


# --- processes --------------------------------------------------------------------------------------------


def kill_one(world: World, rng: random.Random) -> Script:
    """A process is killed."""
    node = some_node(world, rng)
    if node is None:
        return False
    node.kill()
    yield 0.0
    return True


def kill_all(world: World, rng: random.Random) -> Script:
    """All processes are killed within a moment, or lose their power together."""
    power = rng.random() < 0.5
    apart_ms = rng.choice([0.0, 1.0, 30.0])
    ended = 0
    for node_id in sorted(world.nodes, key=lambda _: rng.random()):
        node = world.nodes[node_id]
        if node.running:
            ended += 1
            if power:
                node.power_cut()
            else:
                node.kill()
            yield rng.random() * apart_ms
    return ended > 1


def cut_power(world: World, rng: random.Random) -> Script:
    """A machine loses its power within one of its next calls of the disk."""
    return (yield from _crash(world, rng, power=True))


def crash(world: World, rng: random.Random) -> Script:
    """A process ends within one of its next calls of the disk."""
    return (yield from _crash(world, rng, power=False))


def _crash(world: World, rng: random.Random, *, power: bool) -> Script:
    node = some_node(world, rng)
    if node is None:
        return False
    before = node.crashes
    node.crash_within(rng.randrange(rng.choice([4, 20, 60])), power=power)
    yield 500.0
    return node.crashes > before


def crash_all(world: World, rng: random.Random) -> Script:
    """All machines lose their power, each within one of its next calls of the disk."""
    nodes = world.running()
    before = sum(node.crashes for node in nodes)
    for node in nodes:
        node.crash_within(rng.randrange(12), power=True)
    yield 1000.0
    return sum(node.crashes for node in nodes) > before + 1


def _crash_at(world: World, rng: random.Random, moments: tuple[tuple[str, str], ...]) -> Script:
    """End a node at a moment of some kind, if that comes within a few seconds."""
    node = some_node(world, rng)
    if node is None:
        return False
    before = node.crashes
    operation, part = rng.choice(moments)
    node.crash_at(operation, part, power=rng.random() < 0.5, skip=rng.choice([0, 0, 1, 2]))
    for _ in range(20):
        take_snapshot(node)
        yield 250.0
        if node.crashes > before:
            world.timeline.note(node.node_id, f"that was at {operation} of {part}")
            return True
    node.disk.forgive()
    return False


def crash_rolling(world: World, rng: random.Random) -> Script:
    """A node ends while it begins a segment."""
    return (yield from _crash_at(world, rng, ROLLING))


def crash_again(world: World, rng: random.Random) -> Script:
    """A node ends, and again within the first calls of the disk of its next lives."""
    node = some_node(world, rng)
    if node is None:
        return False
    before = node.crashes
    calls = 20
    for _ in range(rng.randrange(2, 5)):
        crashes, life = node.crashes, node.lives
        node.crash_within(rng.randrange(calls), power=rng.random() < 0.7)
        calls = rng.choice([10, 40, 80])
        for _ in range(100):
            yield 20.0
            if node.crashes > crashes or (node.running and node.lives > life + 1):
                break
        if node.running:
            break
    return node.crashes > before + 1


def tear_twice(world: World, rng: random.Random) -> Script:
    """A machine loses its power in the middle of a group, and again in the first one that it writes then."""
    node = some_node(world, rng)
    if node is None:
        return False
    before = node.crashes

    def arm(_: SimNode) -> None:
        node.crash_at("fdatasync", SEGMENTS, power=True, cut=rng.choice(TEARS))

    arm(node)
    node.on_start.append(arm)
    try:
        for _ in range(80):
            yield 50.0
            if node.crashes >= before + 3:
                break
    finally:
        node.on_start.remove(arm)
        node.disk.forgive()
    return node.crashes > before + 1


def crash_compacting(world: World, rng: random.Random) -> Script:
    """A node ends while it removes what snapshots made needless."""
    return (yield from _crash_at(world, rng, COMPACTION))


def crash_taking(world: World, rng: random.Random) -> Script:
    """A node ends while it takes a snapshot."""
    return (yield from _crash_at(world, rng, TAKING))


def pause(world: World, rng: random.Random) -> Script:
    """A process is stopped and goes on later, believing what it believed."""
    node = some_node(world, rng)
    if node is None or node.runtime is None:
        return False
    before, life = node.held, node.lives
    node.pause()
    # The short ones are no reason to elect another leader.
    yield rng.uniform(0.1, 3.0) * rng.choice([ELECTION_TIMEOUT_MS, SESSION_TIMEOUT_MS])
    if node.lives == life:
        node.resume()
    return node.held > before


def transfer(world: World, rng: random.Random) -> Script:
    """Leadership is handed over, a few times in a row."""
    handed = False
    for _ in range(rng.randrange(1, 4)):
        leader = world.leader()
        if leader is None or leader.member is None:
            return handed
        others = [node_id for node_id in sorted(world.nodes) if node_id != leader.node_id]
        term = leader_term(world)
        leader.member.engine.transfer(rng.choice([None, *others]))
        yield rng.uniform(50.0, 800.0)
        handed = handed or leader_term(world) > term
    return handed


def stale_votes(world: World, rng: random.Random) -> Script:
    """A candidate hears the votes of the election that it lost when it stands in the next one."""
    leader = world.leader()
    followers = [node for node in world.running() if node is not leader]
    if leader is None or leader.member is None or len(followers) < 2:
        return False
    candidate, voter = rng.sample(followers, 2)
    network, own = world.network, candidate.node_id
    others = [node_id for node_id in world.nodes if node_id != own]
    term = leader_term(world)
    # Long ways, so that the answers are still on theirs when the line is cut.
    quick, network.weather.delay_ms = network.weather.delay_ms, (20.0, 40.0)
    leader.member.engine.transfer(own)
    yield from _until(candidate, Role.CANDIDATE, term + 1, 500.0)
    for other in others:
        network.cut(other, own)
    yield from _until(candidate, Role.PRE_CANDIDATE, term + 1, 900.0)
    for other in others:
        if other != voter.node_id:
            # Its old vote comes while the candidate only asks whether it would be elected.
            network.heal(other, own)
    bit = yield from _until(candidate, Role.CANDIDATE, term + 2, 300.0)
    network.heal(voter.node_id, own)
    yield 100.0
    network.weather.delay_ms = quick
    return bit


def _until(node: SimNode, role: Role, term: int, most_ms: float) -> Generator[float, None, bool]:
    """Wait until a node is in a role in a term."""
    for _ in range(int(most_ms / LOOK_EVERY_MS)):
        if node.member is not None:
            engine = node.member.engine
            if engine.term >= term and engine.soft_state.role is role:
                return True
        yield LOOK_EVERY_MS
    return False


def jump_clock(world: World, rng: random.Random) -> Script:
    """The wall clock of a machine jumps, and perhaps back again."""
    node = world.nodes[rng.choice(sorted(world.nodes))]
    by_ms = int(rng.choice([-1.0, 1.0]) * rng.choice([500.0, 60_000.0, 1e9]))
    node.wall_offset_ms += by_ms
    world.timeline.note(node.node_id, f"wall clock jumped by {by_ms} ms")
    yield rng.uniform(100.0, 5000.0)
    if rng.random() < 0.5:
        node.wall_offset_ms -= by_ms
    return node.running


# --- disks ------------------------------------------------------------------------------------------------


def io_error(world: World, rng: random.Random) -> Script:
    """A call of the disk fails with EIO."""
    node = some_node(world, rng)
    if node is None:
        return False
    operation, part = rng.choice(DISK_CALLS)
    disk = node.disk
    disk.fail(operation, errno.EIO, path_part=part, skip=rng.randrange(3))
    before, life = disk.plans, node.lives
    for _ in range(24):
        yield 250.0
        if disk.plans < before and node.lives == life:
            world.timeline.note(node.node_id, f"{operation} of {part} failed with EIO")
            return True
    disk.forgive()
    return False


def fill_disk(world: World, rng: random.Random) -> Script:
    """A disk has no room for a while."""
    node = some_node(world, rng)
    if node is None:
        return False
    disk = node.disk
    before = disk.refused_for_room
    disk.capacity_bytes = disk.used_bytes + rng.choice([0, 100, 2000, 10_000])
    world.timeline.note(node.node_id, "full disk")
    for _ in range(40):
        # Space was written ahead: it takes a while until somebody wants more.
        yield 250.0
        if disk.refused_for_room > before:
            break
    # The long ones outlast the deadline of what was forwarded.
    yield rng.uniform(200.0, rng.choice([3000.0, 9000.0]))
    disk.capacity_bytes = None
    world.timeline.note(node.node_id, "room on the disk")
    return disk.refused_for_room > before


def refuse_segment(world: World, rng: random.Random) -> Script:
    """A disk has no room for another segment while snapshots make the last needless; then the node ends."""
    node = some_node(world, rng)
    if node is None:
        return False
    disk, life, before = node.disk, node.lives, node.disk.failed
    disk.fail("create", errno.ENOSPC, path_part="journal", times=10_000)
    for _ in range(80):
        yield 100.0
        if disk.failed > before or node.lives != life:
            break
    refused = disk.failed > before
    if refused:
        # Two are kept, and the log behind the older one.
        for _ in range(rng.randrange(2, 4)):
            take_snapshot(node)
            yield rng.uniform(100.0, 500.0)
        if node.lives == life and node.running:
            if rng.random() < 0.5:
                node.kill()
            else:
                node.power_cut()
    disk.forgive()
    return refused


def flip_bit(world: World, rng: random.Random) -> Script:
    """A bit of a segment or a snapshot is another one when the node starts again."""
    node = some_node(world, rng)
    if node is None or not world.operators.may_damage():
        return False
    node.kill()
    folder = rng.choice(["/data/journal", "/data/snapshots"])
    names = node.disk.listdir(folder)
    names = [name for name in names if not name.endswith(".partial")]
    if not names:
        return False
    newest = max([name for name in names if name != NOTE_NAME] or names)
    path = f"{folder}/{rng.choice([rng.choice(names), newest])}"
    content = node.disk.content(path).rstrip(b"\0")
    if not content:
        return False
    # Anywhere, in what was written last, or in the end of a group.
    first, end = rng.choice([(0, len(content)), (max(0, len(content) - 600), len(content)), (-1, 0)])
    if first < 0:
        first = max(0, content.find(TRAILER_MAGIC, rng.randrange(len(content))))
        end = min(first + TRAILER_BYTES, len(content))
    world.operators.damage(node, path, rng.randrange(8 * first, 8 * end))
    yield rng.uniform(3000.0, 8000.0)
    return True


# --- snapshots --------------------------------------------------------------------------------------------


def fall_behind(world: World, rng: random.Random) -> Script:
    """A follower is away until it needs a snapshot, which comes over a slow line."""
    chunks = world.network.counters.snapshot_chunks
    node = yield from _leave_behind(world, rng)
    if node is None:
        return False
    yield from _come_back(world, rng, node)
    return world.network.counters.snapshot_chunks > chunks


def crash_installing(world: World, rng: random.Random) -> Script:
    """A follower that is sent a snapshot ends at a moment of its installation, or its disk fails there."""
    node = yield from _leave_behind(world, rng)
    if node is None or not node.running:
        return False
    before = node.crashes + node.disk.failed
    operation, part = rng.choice(INSTALLING)
    skip = rng.randrange(4) if operation == "pwrite" else 0
    if rng.random() < 0.3:
        node.disk.fail(operation, errno.EIO, path_part=part, skip=skip)
    else:
        node.crash_at(operation, part, power=rng.random() < 0.5, skip=skip)
    yield from _come_back(world, rng, node)
    node.disk.forgive()
    return node.crashes + node.disk.failed > before


def lose_name(world: World, rng: random.Random) -> Script:
    """A follower ends before the name of what it was sent is durable; its next life ends with a power cut."""
    node = yield from _leave_behind(world, rng)
    if node is None or not node.running:
        return False
    before = node.crashes

    def arm(_: SimNode) -> None:
        if node.crashes == before + 1:
            node.crash_within(rng.randrange(40), power=True, cut=Cut.NOTHING)

    node.crash_at("fsync_dir", "snapshots", power=False)
    node.on_start.append(arm)
    try:
        yield from _come_back(world, rng, node)
    finally:
        node.on_start.remove(arm)
        node.disk.forgive()
    return node.crashes > before + 1


def misread(world: World, rng: random.Random) -> Script:
    """A call of the disk fails as a follower starts whose log begins behind a snapshot that it was sent."""
    node = yield from _leave_behind(world, rng)
    if node is None:
        return False
    take_snapshot(node)
    yield from _come_back(world, rng, node)
    if not node.running:
        return False
    node.kill()
    disk = node.disk
    before = disk.failed
    operation, part = rng.choice(STARTING)
    disk.fail(operation, errno.EIO, path_part=part, skip=rng.choice([0, 0, 1, 2]))
    for _ in range(60):
        yield 100.0
        if disk.failed > before or node.running:
            break
    disk.forgive()
    return disk.failed > before


def break_second(world: World, rng: random.Random) -> Script:
    """The names of a node's first snapshots are not durable; the first that is is broken as the node ends."""
    new = [node for node in world.running() if node.member and node.member.storage.snapshots.newest is None]
    if not new:
        return False
    node = rng.choice(new)
    assert node.member is not None
    storage, life, before = node.member.storage, node.lives, node.disk.failed
    node.disk.fail("fsync_dir", errno.EIO, path_part="snapshots", times=10_000)
    take_snapshot(node)
    segments = storage.journal.segment_count
    for _ in range(400):
        yield 50.0
        if node.lives != life or not node.running or storage.snapshots.newest is not None:
            break
        if node.disk.failed > before and storage.journal.segment_count > segments:
            # It makes the segment needless that begins where the log behind the first ones does.
            node.disk.forgive()
            take_snapshot(node)
    yield rng.uniform(20.0, 200.0)
    node.disk.forgive()
    newest = storage.snapshots.newest
    if node.disk.failed == before or newest is None or storage.snapshots.files() != [newest]:
        return False
    if node.lives != life or not node.running or not world.operators.may_damage():
        return False
    node.kill()
    world.operators.damage(node, newest.path, rng.randrange(8 * len(node.disk.content(newest.path))))
    yield rng.uniform(3000.0, 8000.0)
    return True


def break_installed(world: World, rng: random.Random) -> Script:
    """A snapshot that a follower was sent is broken before it has taken one itself."""
    node = yield from _leave_behind(world, rng)
    if node is None or node.member is None:
        return False
    applied_index = node.member.engine.applied_index
    for other in world.nodes:
        world.network.heal(other, node.node_id)
        world.network.heal(node.node_id, other)
    for _ in range(200):
        yield 20.0
        member = world.nodes[node.node_id].member
        if member is None:
            return False
        newest = member.storage.snapshots.newest
        if newest is not None and applied_index < newest.log_index <= member.engine.applied_index:
            break
    else:
        return False
    if not world.operators.may_damage():
        return False
    node.kill()
    written_bits = 8 * len(node.disk.content(newest.path))
    world.operators.damage(node, newest.path, rng.randrange(written_bits))
    yield rng.uniform(3000.0, 8000.0)
    return True


def _leave_behind(world: World, rng: random.Random) -> Generator[float, None, SimNode | None]:
    """Cut a follower off until the others have compacted the log that it has."""
    leader = world.leader()
    followers = [node for node in world.running() if node is not leader]
    if leader is None or not followers:
        return None
    node = rng.choice(followers)
    world.timeline.note(0, f"node {node.node_id} is left behind")
    others = [each for each in world.nodes if each != node.node_id]
    if rng.random() < 0.3:
        # It goes on hearing the leader, and serving clients.
        for other in others:
            world.network.slow(other, node.node_id, rng.choice([500, 2_000]))
    else:
        world.network.part([node.node_id], others)
    for _ in range(rng.randrange(3, 6)):
        yield rng.uniform(1000.0, 2000.0)
        # Two are kept, and the log behind the older one.
        take_snapshot(world.leader())
    return node


def _come_back(world: World, rng: random.Random, node: SimNode) -> Generator[float, None, None]:
    """Join it again over lines of some speed."""
    others = [each for each in world.nodes if each != node.node_id]
    rate = rng.choice([3_000, 20_000, 1_000_000])
    for other in others:
        world.network.slow(other, node.node_id, rate)
        world.network.heal(other, node.node_id)
        world.network.heal(node.node_id, other)
    world.timeline.note(0, f"node {node.node_id} is back, at {rate} bytes/s")
    quick = node.speed
    if rng.random() < 0.3:
        # What it is sent by one leader arrives under the next.
        node.speed = SLOW_DISKS[0]
        for _ in range(rng.randrange(2, 8)):
            yield rng.uniform(100.0, 600.0)
            leader = world.leader()
            if leader is not None and leader.member is not None:
                leader.member.engine.transfer(None)
    yield rng.uniform(2000.0, 8000.0)
    node.speed = quick
    for other in others:
        world.network.unslow(other, node.node_id)
    yield 1000.0


def ask_snapshot(world: World, rng: random.Random) -> Script:
    """A node takes a snapshot at once."""
    node = some_node(world, rng)
    if node is None or node.member is None:
        return False
    snapshotter = node.member.snapshotter
    before = snapshotter.taken_count
    take_snapshot(node)
    yield 500.0
    return snapshotter.taken_count > before


# --- members ----------------------------------------------------------------------------------------------


def lose_disk(world: World, rng: random.Random) -> Script:
    """A disk is lost with everything on it: its node is replaced and joins with an empty one."""
    return (yield from _await_change(world.operators.replace(_member(world, rng))))


def old_disk(world: World, rng: random.Random) -> Script:
    """A disk that was lost and replaced is found, and somebody starts its node with it for a while."""
    operators = world.operators
    node = _member(world, rng)
    change = operators.replace(node)
    if change is None or change.lost is None:
        return False
    if rng.random() < 0.4:
        # Before the new one is known: the log names no disk of this node at all.
        while not change.made:
            yield 50.0
    else:
        if not (yield from _await_change(change)):
            return False
        yield rng.uniform(0.0, 1000.0)
        if not change.ended or not operators.may_damage():
            return False
    operators.put_in(node, change.lost)
    try:
        yield rng.uniform(100.0, 500.0)
        leader = world.leader()
        if leader is not None and leader is not node and rng.random() < 0.5:
            # Its vote is asked for.
            leader.kill()
        yield rng.uniform(300.0, 4000.0)
    finally:
        operators.put_back(node)
    return True


def _member(world: World, rng: random.Random) -> SimNode:
    removed = world.operators.removed
    return rng.choice([node for node in world.nodes.values() if node.node_id not in removed])


def grow(world: World, rng: random.Random) -> Script:
    """A node joins."""
    yield rng.uniform(0.0, 500.0)
    return (yield from _await_change(world.operators.add()))


def shrink(world: World, rng: random.Random) -> Script:
    """A node leaves, the leader perhaps."""
    yield rng.uniform(0.0, 500.0)
    return (yield from _await_change(world.operators.remove()))


def lose_majority(world: World, rng: random.Random) -> Script:
    """All members but one are lost with their disks: that one is forced, the others join again.

    The one holds all that was committed, as a careful operator chooses it: so nothing may be lost.
    """
    operators = world.operators
    if not operators.idle:
        return False
    for node in list(world.nodes.values()):
        operators.held_back.add(node.node_id)
        if node.running:
            node.power_cut()
    yield rng.uniform(100.0, 3000.0)
    whole = world.whole()
    if not whole or not operators.idle:
        for node in world.nodes.values():
            operators.let_go(node)
        return False
    operators.force(rng.choice(whole))
    for _ in range(150):
        yield 200.0
        if operators.idle:
            return True
    return not operators.outcasts


def _await_change(change: Change | None) -> Script:
    if change is None:
        return False
    for _ in range(100):
        yield 200.0
        if change.ended:
            return True
    return change.made


FAULTS: dict[str, Callable[[World, random.Random], Script]] = {
    script.__name__: script
    for script in (
        cut_one_way,
        cut_pair,
        isolate,
        halve,
        cut_clients,
        break_connections,
        break_clients,
        rough_weather,
        slow_line,
        kill_one,
        kill_all,
        cut_power,
        crash,
        crash_all,
        crash_rolling,
        crash_again,
        tear_twice,
        crash_compacting,
        crash_taking,
        pause,
        transfer,
        stale_votes,
        jump_clock,
        slow_disk,
        hang_disk,
        io_error,
        fill_disk,
        refuse_segment,
        flip_bit,
        fall_behind,
        crash_installing,
        lose_name,
        misread,
        break_second,
        break_installed,
        ask_snapshot,
        lose_disk,
        old_disk,
        grow,
        shrink,
        lose_majority,
        update,
    )
}

_NETWORK = ("cut_one_way", "cut_pair", "isolate", "halve", "break_connections", "rough_weather", "slow_line")
_CLIENTS = ("cut_clients", "break_clients")
_CRASHES = (
    *("kill_one", "kill_all", "cut_power", "crash", "crash_all", "crash_again", "tear_twice"),
    *("crash_rolling", "crash_compacting", "crash_taking"),
)
_DISKS = ("slow_disk", "io_error", "fill_disk", "flip_bit")
_MEMBERS = ("lose_disk", "old_disk", "grow", "shrink")
_SNAPSHOTS = ("fall_behind", "crash_installing", "lose_name", "misread", "break_installed", "ask_snapshot")


def _mix(*names: str, **weights: float) -> dict[str, float]:
    return {**dict.fromkeys(names, 1.0), **weights}


#: {fault of the mix: share of the seeds that have it, once}; drawn apart from all others, so that
#: a seed without it is as it would be if there were none
SELDOM = {
    "tear_twice": 0.1,
    "lose_name": 0.1,
    "misread": 0.1,
    "refuse_segment": 0.05,
    "break_second": 0.1,
    "hang_disk": 0.15,
    "update": 0.1,
}
#: {profile: {fault: weight}}
PROFILES: dict[str, dict[str, float]] = {
    "mix": _mix(
        *(name for name in FAULTS if name not in SELDOM),
        kill_all=0.5,
        crash_all=0.7,
        fall_behind=1.5,
        ask_snapshot=0.5,
        jump_clock=0.5,
        lose_majority=0.3,
    ),
    "calm": {},
    "partitions": _mix(*_NETWORK, *_CLIENTS, "pause", "transfer"),
    "crashes": _mix(*_CRASHES, "ask_snapshot"),
    "pauses": _mix("pause", "transfer", "stale_votes", "jump_clock", "kill_one", "isolate"),
    "disks": _mix(*_DISKS, "cut_power", "crash_all", "ask_snapshot"),
    "hangs": _mix("hang_disk", "slow_disk", "transfer", "cut_clients", "break_clients", hang_disk=4.0),
    "members": _mix(
        *_MEMBERS, "kill_one", "cut_power", "isolate", "transfer", "pause", "cut_one_way", grow=3.0
    ),
    "forced": _mix("lose_majority", "kill_one", "cut_power", "cut_one_way", "transfer", lose_majority=3.0),
    # Between nodes that are far from each other (world.DISTANCES).
    "distant": _mix(
        *("kill_one", "kill_all", "cut_power", "isolate", "halve", "break_connections", "pause", "transfer"),
        *("grow", "shrink", "break_clients"),
        kill_all=2.0,
    ),
    # Opens with a founder that is bootstrapped again (openings.py).
    "founders": _mix("kill_one", "cut_power", "transfer", "pause", "cut_one_way", "break_connections"),
    "snapshots": _mix(
        *_SNAPSHOTS, "crash_compacting", "crash_taking", "kill_one", "transfer", fall_behind=3.0
    ),
    # An empty disk has no snapshot yet, whose name could be other than durable.
    "updates": _mix(
        "update", "kill_one", "crash", "isolate", "transfer", "fall_behind", *_MEMBERS, update=3.0
    ),
    "compaction": _mix(
        "refuse_segment", "break_second", "lose_disk", "kill_one", "transfer", break_second=3.0
    ),
}
