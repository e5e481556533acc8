"""Connections of members and of those who only claim to be one, over real sockets."""

from __future__ import annotations

import asyncio
import random

import pytest

from quorum.platform.os_runtime import AsyncioRuntime
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.hello import HelloRefusedError, PeerIdentity
from quorum.raft.peers.peer import STRANGER_MS
from quorum.raft.peers.peers import PeerNode
from tests.support.peer_network import CLUSTER_ID, Network, ended, on_both_loops

TWO, OTHER = "2" * 32, "f" * 32


def configuration(two: str, *retired: str) -> Configuration:
    voters, second = {1: Member("h:1", "1" * 32)}, {2: Member("h:2", two)}
    members = ({**voters, **second}, {}) if two else (voters, second)
    return Configuration(CLUSTER_ID, *members, retired)


def judging(two: str, *retired: str, leader_id: int = 1) -> Admission:
    known = configuration(two, *retired)
    return Admission(known, known, leader_id)


class ShiftedRuntime(AsyncioRuntime):
    """A clock that a test can move on."""

    shift_ms = 0.0

    def monotonic_ms(self) -> float:
        return super().monotonic_ms() + self.shift_ms


@on_both_loops
async def test_an_impostor_does_not_disturb_the_member_whose_name_it_uses(network: Network) -> None:
    network.reserve(1, 2)
    one = await network.start(1, admission=lambda: judging(TWO))
    two = await network.start(2)
    await network.until(lambda: one.up(2) and two.up(1))
    events = list(one.events)
    impostor = await network.start(2, incarnation=OTHER, members={1: network.addresses[1]})
    await network.until(impostor.transport.refusals.by_peers)
    (told,) = impostor.transport.refusals.by_peers()
    assert told.node_id == 1
    assert (TWO in told.reason, OTHER in told.reason) == (True, True)
    assert "quorate members replace 2" in told.remedy
    (refused,) = one.transport.refusals.refused_disks().items()
    assert (refused[0], refused[1].incarnation) == (2, OTHER)
    assert "quorate members replace 2" in refused[1].reason
    assert two.heartbeat(1)
    await network.until(lambda: one.received)
    assert one.received[-1][:2] == (2, TWO)
    assert one.events == events
    assert two.transport.refusals.by_peers() == ()


@on_both_loops
async def test_a_refused_disk_that_became_the_members_is_not_called_refused_any_more(
    network: Network,
) -> None:
    network.reserve(1, 2)
    recorded = [TWO]
    one = await network.start(1, admission=lambda: judging(recorded[0]))
    two = await network.start(2, incarnation=OTHER)
    await network.until(one.transport.refusals.refused_disks)
    recorded[0] = OTHER
    await network.until(lambda: one.up(2) and two.up(1))
    assert one.transport.refusals.refused_disks() == {}


@on_both_loops
async def test_a_build_that_is_too_old_is_refused_and_both_sides_say_why(network: Network) -> None:
    network.reserve(1, 2)
    one = await network.start(1, admission=lambda: judging(TWO)._replace(feature_level=2))
    two = await network.start(2, incarnation=TWO)
    await network.until(two.transport.refusals.by_peers)
    (refusal,) = two.transport.refusals.by_peers()
    assert "supported feature level: at least 2 there, up to 1 here" in refusal.reason
    assert "update node 2 to the build of the others" in refusal.remedy
    assert "up to 1 there, at least 2 here" in one.transport.refusals.refused_disks()[2].reason


@on_both_loops
async def test_a_member_that_starts_again_replaces_its_old_connection_at_once(network: Network) -> None:
    network.reserve(1, 2)
    one = await network.start(1, admission=lambda: judging(TWO))
    identity = PeerIdentity("local", CLUSTER_ID, 2, TWO)
    older, *_ = await network.dial_as(identity, one)
    newer, *_ = await network.dial_as(identity, one)
    assert await ended(older) == b""
    assert not newer.at_eof()


@on_both_loops
async def test_a_replaced_disk_loses_its_connection_and_the_new_one_gets_in(network: Network) -> None:
    network.reserve(1, 2)
    known = [judging(TWO)]
    one = await network.start(1, admission=lambda: known[0])
    old = PeerIdentity("local", CLUSTER_ID, 2, TWO)
    older, *_ = await network.dial_as(old, one)
    await network.until(lambda: one.transport.links()[2].inbound)
    known[0] = judging("", TWO)
    one.transport.recheck_identities()
    assert await ended(older) == b""
    newer, *_ = await network.dial_as(old._replace(cluster_id="", incarnation=OTHER), one)
    await network.until(lambda: one.transport.links()[2].inbound)
    known[0] = judging(OTHER, TWO)
    one.transport.recheck_identities()
    assert one.transport.links()[2].inbound
    with pytest.raises(HelloRefusedError, match="incarnation"):
        await network.dial_as(old, one)
    assert not newer.at_eof()


@on_both_loops
async def test_a_refused_hello_proves_that_a_cluster_exists(network: Network) -> None:
    network.reserve(1, 2)
    proven: list[PeerIdentity] = []
    await network.start(1, admission=lambda: judging(TWO))
    empty = await network.start(2, cluster_id="", incarnation=OTHER, on_proven=proven.append)
    await network.until(lambda: empty.transport.refusals.by_peers())
    assert {identity.cluster_id for identity in proven if identity.node_id == 1} == {CLUSTER_ID}


@on_both_loops
async def test_a_stranger_that_nobody_made_a_member_is_given_up(network: Network) -> None:
    network.reserve(1, 9)
    runtime = ShiftedRuntime(asyncio.get_running_loop(), random.Random())
    one = await network.start(1, members={}, admits_strangers=lambda: True, runtime=runtime)
    nine = await network.start(9, address=network.addresses[9])
    await network.until(lambda: 9 in one.transport.links() and one.up(9))
    await nine.transport.stop()
    await network.until(lambda: network.log.having("node 9 cannot be reached"))
    assert 9 in one.transport.links()
    runtime.shift_ms = STRANGER_MS
    await network.until(lambda: network.log.having("node 9", "is given up"))
    assert 9 not in one.transport.links()


@on_both_loops
async def test_a_stranger_that_became_a_member_is_dialled_on(network: Network) -> None:
    network.reserve(1, 9)
    runtime = ShiftedRuntime(asyncio.get_running_loop(), random.Random())
    one = await network.start(1, members={}, admits_strangers=lambda: True, runtime=runtime)
    address = network.addresses[9]
    nine = await network.start(9, address=address)
    await network.until(lambda: 9 in one.transport.links() and one.up(9))
    one.transport.addNode(PeerNode(9, address))
    await nine.transport.stop()
    await network.until(lambda: network.log.having("node 9 cannot be reached"))
    runtime.shift_ms = 2 * STRANGER_MS
    await network.until(lambda: len(network.log.having("node 9 cannot be reached")) > 1)
    assert 9 in one.transport.links()
