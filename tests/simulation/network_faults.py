"""Nemeses of the network: cuts in one or both directions, broken connections, bad weather, slow lines.

faults.py says what a script is. Source: docs/internals/simulation.md, "Faults".
"""

from __future__ import annotations

import random

from tests.simulation.nemesis import (
    SESSION_TIMEOUT_MS,
    Script,
    World,
    some_node,
    two_nodes,
)


def cut_one_way(world: World, rng: random.Random) -> Script:
    """One direction between two nodes carries nothing; mostly from or to the leader."""
    sender, receiver = two_nodes(world, rng)
    counters = world.network.counters
    before = counters.held + counters.given_up
    world.timeline.note(0, f"cut {sender} -> {receiver}")
    world.network.cut(sender, receiver)
    yield rng.uniform(100.0, 8000.0)
    world.network.heal(sender, receiver)
    world.timeline.note(0, f"healed {sender} -> {receiver}")
    return counters.held + counters.given_up > before


def cut_pair(world: World, rng: random.Random) -> Script:
    """Two nodes cannot hear each other; mostly the leader and another one."""
    one, other = two_nodes(world, rng)
    return (yield from _part(world, rng, [one], [other], 8000.0))


def isolate(world: World, rng: random.Random) -> Script:
    """A node hears no other one, and every second time no client either."""
    node = some_node(world, rng)
    if node is None:
        return False
    others = [each for each in world.nodes if each != node.node_id]
    return (yield from _part(world, rng, [node.node_id], others, 6000.0, clients=rng.random() < 0.5))


def halve(world: World, rng: random.Random) -> Script:
    """The nodes fall into two groups; clients reach both."""
    ids = sorted(world.nodes)
    rng.shuffle(ids)
    half = rng.randrange(1, len(ids))
    return (yield from _part(world, rng, ids[:half], ids[half:], 6000.0))


def cut_clients(world: World, rng: random.Random) -> Script:
    """No client reaches a node, or none hears it."""
    node_id = rng.choice(sorted(world.nodes))
    directions = rng.choice([[(0, node_id)], [(node_id, 0)], [(0, node_id), (node_id, 0)]])
    talking = bool(world.nodes[node_id].links)
    for direction in directions:
        world.network.cut(*direction)
    world.timeline.note(0, f"cut {directions}")
    yield rng.uniform(100.0, 3 * SESSION_TIMEOUT_MS)
    for direction in directions:
        world.network.heal(*direction)
    world.timeline.note(0, f"healed {directions}")
    return talking


def _part(
    world: World,
    rng: random.Random,
    some: list[int],
    others: list[int],
    most_ms: float,
    *,
    clients: bool = False,
) -> Script:
    network = world.network
    counters = network.counters
    before = counters.held + counters.given_up
    world.timeline.note(0, f"parted {some} from {others}{' and the clients' if clients else ''}")
    network.part(some, [*others, 0] if clients else others)
    yield rng.uniform(100.0, most_ms)
    for one in some:
        for other in [*others, 0]:
            network.heal(one, other)
            network.heal(other, one)
    world.timeline.note(0, f"joined {some} and {others}")
    return counters.held + counters.given_up > before


def break_connections(world: World, rng: random.Random) -> Script:
    """Connections between nodes break, a few in a row; what is on its way is lost."""
    before = world.network.counters.broken
    ids = sorted(world.nodes)
    for _ in range(rng.randrange(1, 6)):
        sender, receiver = rng.sample(ids, 2)
        if world.network.break_connection(sender, receiver):
            world.timeline.note(0, f"broke {sender} -> {receiver}")
        yield rng.uniform(0.0, 300.0)
    return world.network.counters.broken > before


def break_clients(world: World, rng: random.Random) -> Script:
    """Connections of clients with a node break."""
    node = rng.choice([world.nodes[node_id] for node_id in sorted(world.nodes)])
    links = list(node.links.items())
    for server, link in links:
        if rng.random() < 0.7:
            link.break_()
            node.links.pop(server, None)
    world.timeline.note(0, f"broke connections of clients with node {node.node_id}")
    yield 0.0
    return bool(links)


def rough_weather(world: World, rng: random.Random) -> Script:
    """For a while chunks come late, twice, in another order, or break their connection."""
    counters, weather = world.network.counters, world.network.weather
    calm = (
        weather.late_chance,
        weather.late_ms,
        weather.twice_chance,
        weather.stale_chance,
        weather.break_chance,
    )
    before = counters.late + counters.twice + counters.stale + counters.broken
    weather.late_chance = rng.choice([0.02, 0.1, 0.5])
    weather.late_ms = rng.choice([50.0, 200.0, 700.0])
    weather.twice_chance = rng.choice([0.0, 0.05, 0.2])
    weather.stale_chance = rng.choice([0.0, 0.5, 1.0])
    weather.break_chance = rng.choice([0.0, 0.001, 0.01])
    world.timeline.note(0, f"rough weather: {weather}")
    yield rng.uniform(500.0, 6000.0)
    (
        weather.late_chance,
        weather.late_ms,
        weather.twice_chance,
        weather.stale_chance,
        weather.break_chance,
    ) = calm
    world.timeline.note(0, "calm weather")
    return counters.late + counters.twice + counters.stale + counters.broken > before


def slow_line(world: World, rng: random.Random) -> Script:
    """One direction carries few bytes."""
    sender, receiver = rng.sample(sorted(world.nodes), 2)
    leader = world.leader()
    if leader is not None and leader.node_id != receiver and rng.random() < 0.6:
        sender = leader.node_id
    before = world.network.counters.slowed_bytes
    rate = rng.choice([2_000, 10_000, 50_000])
    world.network.slow(sender, receiver, rate)
    world.timeline.note(0, f"slow {sender} -> {receiver}: {rate} bytes/s")
    yield rng.uniform(500.0, rng.choice([6000.0, 15_000.0]))
    world.network.unslow(sender, receiver)
    world.timeline.note(0, f"quick {sender} -> {receiver}")
    return world.network.counters.slowed_bytes > before
