"""The rules that keep a stale actor from acting on a replica, one function each.

Callers go through this module (`fences.name(...)`), so that a test can switch one rule off by replacing it.
Pure functions over numbers.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-101, KIP-380, KIP-497, KIP-516,
KIP-903.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Final

from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch

#: Leader epochs of a StopReplica that no epoch is too old for: none given, the topic is being deleted.
ANY_EPOCH: Final = (-1, -2)


# -- control requests ------------------------------------------------------------------------------------


def is_stale_controller(controller_epoch: ControllerEpoch, known: ControllerEpoch) -> bool:
    """Whether a request comes from a controller that has a successor."""
    return controller_epoch < known


def is_former_connection(number: int, newest: int) -> bool:
    """Whether a request comes by an older connection than one by which a controller has spoken since.

    Its sender has given that connection up, and what it said there was decided before what it says now.
    """
    return number < newest


def is_stale_generation(broker_epoch: BrokerGeneration, generation: BrokerGeneration) -> bool:
    """Whether a request is for a former life of this broker."""
    return broker_epoch < generation


def is_decided_in(decided_in: BrokerGeneration, generation: BrokerGeneration) -> bool:
    """Whether the present life has decided about the replica: what was decided for another one is no news."""
    return decided_in == generation


def may_lead_on(decided_in: BrokerGeneration, generation: BrokerGeneration) -> bool:
    """Whether a leader goes on in a generation: a broker leads only by a LeaderAndIsr of its present life."""
    return decided_in == generation


def is_stale_decision(leader_epoch: LeaderEpoch, known: LeaderEpoch) -> bool:
    """Whether a LeaderAndIsr of this generation is older than one that was applied."""
    return leader_epoch < known


def is_repeated_decision(leader_epoch: LeaderEpoch, known: LeaderEpoch) -> bool:
    """Whether a LeaderAndIsr of this generation was applied already; it changes nothing then."""
    return leader_epoch == known


def is_stale_stop(leader_epoch: int, known: LeaderEpoch) -> bool:
    """Whether a StopReplica is older than the decision that the replica has its role from."""
    return leader_epoch not in ANY_EPOCH and leader_epoch < known


def is_of_another_topic(named: Hashable | None, known: Hashable | None) -> bool:
    """Whether a request means another topic of the same name; one that names no id means any."""
    return named is not None and named != known


# -- readers ---------------------------------------------------------------------------------------------


def is_fenced_reader(current_leader_epoch: int, known: LeaderEpoch) -> bool:
    """Whether a reader believes in a leader epoch that is over; -1: it does not say."""
    return 0 <= current_leader_epoch < known


def is_ahead_reader(current_leader_epoch: int, known: LeaderEpoch) -> bool:
    """Whether a reader believes in a leader epoch that this replica has not heard of."""
    return current_leader_epoch > known


def is_position_of_epoch(current_leader_epoch: int, leader_epoch: LeaderEpoch) -> bool:
    """Whether a follower's position counts: one of another leader epoch says nothing about this log."""
    return current_leader_epoch == leader_epoch


def is_next_of_session(session_epoch: int, expected: int) -> bool:
    """Whether a request follows the last one of its fetch session: none was lost, and none comes twice.

    Args:
        session_epoch: of the request.
        expected: one more than that of the request before.
    """
    return session_epoch == expected


def has_diverged(end: tuple[int, int], last_fetched_epoch: int, fetch_offset: int) -> bool:
    """Whether a reader of last_fetched_epoch up to fetch_offset holds records that the leader does not.

    Args:
        end: (leader epoch, end offset) that the leader has for last_fetched_epoch.
        last_fetched_epoch: of the reader's last record.
        fetch_offset: exclusive end of what the reader has.
    """
    return end[0] < last_fetched_epoch or end[1] < fetch_offset


def visible_end(high_watermark: int, _log_end_offset: int) -> int:
    """Return the end (exclusive) of what a consumer may see: what is committed, not all that is there."""
    return high_watermark


# -- the ISR ---------------------------------------------------------------------------------------------


def gating_isr(isr: tuple[int, ...], joining: Collection[int]) -> tuple[int, ...]:
    """Return the replicas that gate the high watermark: the maximal ISR that the quorum may have.

    Args:
        isr: as last known.
        joining: those that a change on its way adds.
    """
    return isr + tuple(joining)


def is_of_former_life(generation: BrokerGeneration, known: BrokerGeneration) -> bool:
    """Whether a fetch comes from a life of the follower that is over."""
    return generation < known


def may_join(generation: BrokerGeneration, node_generation: int, registered_generation: int) -> bool:
    """Whether a follower may join the ISR: its fetches carried the generation that is registered now.

    Args:
        generation: of its fetches.
        node_generation: mzxid of the node that keeps its newest generation.
        registered_generation: czxid of its registration.
    """
    return node_generation == generation == registered_generation


def is_own_epoch(leader_epoch: LeaderEpoch, known: LeaderEpoch) -> bool:
    """Whether a state that was read belongs to this leadership; only then a leader adopts its ISR."""
    return leader_epoch == known


# -- the follower ----------------------------------------------------------------------------------------


def is_current_answer(
    leader_epoch: int, known_epoch: LeaderEpoch, fetch_offset: int, log_end_offset: int
) -> bool:
    """Whether a leader's answer is for the present role and the present end of the log."""
    return leader_epoch == known_epoch and fetch_offset == log_end_offset
