"""What is done to a cluster while it is founded: scripts like those of faults.py, begun before any node.

An opening keeps some founders from starting until it lets them. Whatever else it does, it keeps the condition
of the promise that a cluster is founded once (docs/guarantees.md): of the founders with empty disks one can
reach a member of the cluster that exists, before they are a majority or at the same time.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Generator
from typing import NamedTuple

from tests.simulation.nemesis import Script, World
from tests.simulation.sim_node import SimNode

#: between two looks at whether a founder has met the cluster; far shorter than it waits for the others
LOOK_MS = 10.0
#: a founding that takes longer has met other faults
FOUNDS_WITHIN_MS = 3000.0
#: between two looks at whether the founders hold the first entry; shorter than an answer is under way
WATCH_MS = 0.25
#: by then the leader has the answers that were under way
ANSWERED_WITHIN_MS = 50.0
#: a founder that has met nobody by then is not going to be a temptation
MEETS_WITHIN_MS = 6000.0
#: a witness that answers later than that may be heard too late: a founder waits for one election timeout
SLOW_MS_MAX = 300.0


class _Roles(NamedTuple):
    """Who is who once a cluster exists.

    Attributes:
        away: early founders that still have their disks; one of them is the witness.
        witness: whom the others might ask.
        knower: the founder with an empty disk that can reach the witness.
        others: the other founders with empty disks; with the knower they are a majority.
    """

    away: list[SimNode]
    witness: SimNode
    knower: SimNode
    others: list[SimNode]


def bootstrap_again(world: World, rng: random.Random) -> Script:
    """A founder loses its disk and is bootstrapped again, while others have never run or are away.

    The cluster is founded without a minority of late founders. With the others away, the empty founder and
    the late ones are a majority of those that `[members]` names: they must not found a second cluster.
    """
    operators = world.operators
    ids = sorted(world.nodes)
    late = [world.nodes[node_id] for node_id in sorted(rng.sample(ids, (len(ids) - 1) // 2))]
    operators.held_back.update(node.node_id for node in late)
    world.timeline.note(0, f"late founders: {sorted(operators.held_back)}")
    early = [world.nodes[node_id] for node_id in ids if world.nodes[node_id] not in late]
    lost = (yield from _lose_founder(world, early)) if rng.random() < 0.4 else None
    unheard = lost is not None
    if lost is None:
        yield rng.uniform(800.0, 5000.0)
        for _ in range(50):
            if world.leader() is not None:
                break
            yield 100.0
        else:
            for node in late:
                operators.let_go(node)
            return False
        if not all(node.running for node in early):
            yield 3000.0
        lost = rng.choice(early)
    away = [node for node in early if node is not lost]
    empty = rng.sample([lost, *late], 1 + len(late))
    roles = _Roles(away, rng.choice(away), empty[0], empty[1:])
    try:
        operators.held_back.add(lost.node_id)
        operators.bootstrap_again(lost)
        _hide(world, rng, roles)
        yield rng.uniform(0.0, 800.0)
        if rng.random() < 0.5 and not unheard:
            tempted = yield from _meet_first(world, rng, roles)
        else:
            tempted = yield from _meet_meanwhile(world, rng, roles)
        if tempted and unheard:
            yield from _tempt_while_it_lives(world, roles)
        elif tempted:
            yield from _tempt(world, rng, roles)
    finally:
        # Every commit needed all early founders, so that whichever is left has lost nothing.
        _show(world, roles)
        operators.force(rng.choice(away))
    return tempted


def _lose_founder(world: World, early: list[SimNode]) -> Generator[float, None, SimNode | None]:
    """Let the founding commit at its leader only, and choose that one: the others just hold the entry."""
    for _ in range(int(FOUNDS_WITHIN_MS / WATCH_MS)):
        leader = world.leader()
        holders = [node for node in early if node is not leader]
        if leader is not None and all(_holds_founding(node) for node in holders):
            for node in holders:
                world.network.cut(leader.node_id, node.node_id)
            yield ANSWERED_WITHIN_MS
            for node in holders:
                _stop(world, node)
                world.network.heal(leader.node_id, node.node_id)
            world.timeline.note(leader.node_id, "was the only one that knew of the founding's commit")
            return leader
        yield WATCH_MS
    return None


def _holds_founding(node: SimNode) -> bool:
    return node.running and node.member is not None and node.member.core.status().durable_index > 0


def _hide(world: World, rng: random.Random, roles: _Roles) -> None:
    """Let nobody reach a member of the cluster, but for the knower the witness."""
    _run(world, roles.witness)
    for member in roles.away:
        if member is not roles.witness and rng.random() < 0.5:
            _stop(world, member)
        for empty in (*roles.others, roles.knower):
            if (member, empty) != (roles.witness, roles.knower):
                _sever(world, rng, member, empty)


def _show(world: World, roles: _Roles) -> None:
    """Let everybody reach everybody."""
    for one, other in itertools.permutations(world.nodes, 2):
        world.network.heal(one, other)
    for node in roles.away:
        _run(world, node)


def _meet_first(world: World, rng: random.Random, roles: _Roles) -> Script:
    """Let the others start when the knower has met the witness, which may be out of its reach by then."""
    witness, knower = roles.witness, roles.knower
    early = roles.others if rng.random() < 0.5 else []
    # So many are no majority.
    for node in early[1:]:
        _run(world, node)
    _run(world, knower)
    for _ in range(int(MEETS_WITHIN_MS / LOOK_MS)):
        if _has_met(knower):
            break
        yield LOOK_MS
    else:
        return False
    world.timeline.note(knower.node_id, f"has met node {witness.node_id}")
    if rng.random() < 0.7:
        if rng.random() < 0.5:
            _stop(world, witness)
        else:
            _sever(world, rng, witness, knower)
    if rng.random() < 0.5 and knower.running:
        if rng.random() < 0.5:
            knower.kill()
        else:
            knower.power_cut()
    yield rng.uniform(0.0, 500.0)
    for node in roles.others:
        _run(world, node)
    return True


def _meet_meanwhile(world: World, rng: random.Random, roles: _Roles) -> Script:
    """Start the knower beside all others, while the witness may be slow to answer.

    It is stopped again if it cannot reach the witness any more before it has met it.
    """
    witness, knower = roles.witness, roles.knower
    for node in roles.others:
        _run(world, node)
        yield rng.choice([0.0, rng.uniform(0.0, 600.0)])
    while not _reaches(world, knower, witness):
        yield LOOK_MS
    slow_until = 0
    if rng.random() < 0.5:
        slow_until = int(rng.uniform(0.0, SLOW_MS_MAX) / LOOK_MS)
        witness.pause()
    _run(world, knower)
    for look in range(int(MEETS_WITHIN_MS / LOOK_MS)):
        if look == slow_until:
            witness.resume()
        if _has_met(knower):
            world.timeline.note(knower.node_id, f"has met node {witness.node_id}")
            return True
        slow = look < slow_until and witness.running
        if not knower.running or knower.paused or not (slow or _reaches(world, knower, witness)):
            break
        yield LOOK_MS
    _stop(world, knower)
    return False


def _tempt(world: World, rng: random.Random, roles: _Roles) -> Script:
    """Leave the founders with empty disks to themselves, start some again, and let all meet in the end."""
    for _ in range(rng.randrange(4)):
        yield rng.uniform(300.0, 1500.0)
        node = rng.choice([roles.knower, *roles.others])
        if node.running:
            node.kill()
    yield rng.uniform(1000.0, 4000.0)
    _show(world, roles)
    world.timeline.note(0, "the early founders are back")
    yield rng.uniform(500.0, 2000.0)
    return True


def _tempt_while_it_lives(world: World, roles: _Roles) -> Script:
    """The same for a founder that heard of a founding which may have committed: only its process knows."""
    for _ in range(int(MEETS_WITHIN_MS / LOOK_MS)):
        if not roles.knower.running:
            _stop(world, roles.knower)
            break
        yield LOOK_MS
    _show(world, roles)
    world.timeline.note(0, "the early founders are back")
    return True


def _run(world: World, node: SimNode) -> None:
    world.operators.let_go(node)


def _stop(world: World, node: SimNode) -> None:
    """End a process that nobody starts again for now."""
    world.operators.held_back.add(node.node_id)
    if node.running:
        node.kill()


def _sever(world: World, rng: random.Random, one: SimNode, other: SimNode) -> None:
    """Let no hello through between two nodes: for that one direction is enough."""
    ways = [(one.node_id, other.node_id), (other.node_id, one.node_id)]
    for way in rng.choice([ways, ways[:1], ways[1:]]):
        world.network.cut(*way)


def _reaches(world: World, one: SimNode, other: SimNode) -> bool:
    ways = {(one.node_id, other.node_id), (other.node_id, one.node_id)}
    return other.running and not other.paused and world.network.cuts.isdisjoint(ways)


def _has_met(node: SimNode) -> bool:
    return node.member is not None and bool(node.member.founding_problem()[0])


#: {profile: what its worlds open with}
OPENINGS: dict[str, Callable[[World, random.Random], Script]] = {"founders": bootstrap_again}
