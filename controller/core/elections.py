"""Who leads which partition: change_leaders, init_leaders and the rules that take a broker out of an ISR.

One decision per partition: of its ISR, the live members stay; the leader stays if it is one of them, else
the first of them in assignment order leads. With no live member the partition is offline and keeps its ISR,
unless its topic allows an unclean election: then the first live replica leads alone, marked, and records
may be lost. Whenever a topic is decided about, what the model doubts there goes first. A broker with another
disk than the one that its memberships were judged by (an outcast) loses them whatever becomes of the ISR,
which may end up empty. One whose log is shortened loses the membership,
too, and the state keeps where that log ends: when nobody is left in the ISR and all of these live, the one
with the highest end (last leader epoch, offset) leads, marked; an unclean election takes the highest of the
live ones. A leader from the ISR is no reason to forget it, as it may be dead without anybody knowing yet (all
lost power): its first own change of the ISR drops it, and until then the dead stay in the ISR. A partition
without a state gets its first one: all live replicas, the first one leads. A broker that shuts down leads
nothing that another member of the ISR can lead, and leaves the ISRs of others. A partition that is reassigned
gets a decision with each step, so that its brokers learn of its replicas. leader_epoch rises by exactly 1 for
every state decided here. A decision is only a wish: it counts once the quorum has acknowledged it at the
version it was decided on.
Source: ARCHITECTURE.md, "Life of a broker failure", "Life of a controller"; docs/internals/requirements.md,
[0.A], [0.C], [0.F], [1.4]; KIP-704 (recovery state); KIP-460 (elections on request).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from controller.core import fences
from controller.core.model import ClusterModel, KnownState
from controller.core.reassignment import Replicas, wanted_replicas
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    LogEnd,
    PartitionStateRecord,
    topic_label,
)

_NO_GENERATIONS: Final[Mapping[int, BrokerGeneration]] = {}
_NO_SHORTENED: Final[Mapping[int, Mapping[int, LogEnd]]] = {}
_NO_LOG: Final = LogEnd(-1, -1)


class ElectionKind(Enum):
    """What an election is for."""

    #: A leader that can go on leading goes on.
    CLEAN = "clean"
    #: The preferred replica shall lead wherever it can.
    PREFERRED = "preferred"
    #: Somebody asks that a partition without a live member of its ISR gets a leader all the same.
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class Situation:
    """What elections depend on, besides the partitions."""

    controller_epoch: ControllerEpoch
    #: Ids of the brokers that may lead and stay in an ISR.
    live: Collection[int]
    #: Of the topic at hand: brokers that lose their ISR memberships, since their disk is another one.
    outcasts: Collection[int] = ()
    #: Of the topic at hand: {partition: {broker that loses this ISR membership: where its log ends}}
    shortened: Mapping[int, Mapping[int, LogEnd]] = field(default_factory=lambda: _NO_SHORTENED)
    #: Topics that allow an unclean election.
    unclean_topics: Collection[str] = ()
    #: {broker id: generation}, given by a new controller only: a leader that registered after its state was
    #: written has bounced while no controller watched.
    generations: Mapping[int, BrokerGeneration] = field(default_factory=lambda: _NO_GENERATIONS)
    #: Live brokers that shut down.
    leaving: Collection[int] = ()
    kind: ElectionKind = ElectionKind.CLEAN

    def allowing(self, unclean_topics: Collection[str]) -> Situation:
        """Return the same with unclean elections allowed in these topics."""
        return replace(self, unclean_topics=unclean_topics)

    def about(self, model: ClusterModel, topic: str) -> Situation:
        """Return the same with what is doubted in a known topic."""
        doubts = model.doubts_about(topic)
        if not doubts:
            return self
        label = topic_label(topic, model.topics[topic].record.topic_id)
        shortened: dict[int, dict[int, LogEnd]] = {}
        for each, doubt in doubts.items():
            for partition, end in ({} if doubt is None else doubt.get(label, {})).items():
                shortened.setdefault(partition, {})[each] = end
        outcasts = tuple(each for each, doubt in doubts.items() if doubt is None)
        return replace(self, outcasts=outcasts, shortened=shortened)


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the controller wants to stand in the quorum."""

    #: {partition: (new state, version that it was decided on)}
    updates: dict[PartitionKey, tuple[PartitionStateRecord, PartitionVersion]] = field(default_factory=dict)
    #: {partition: its first state}
    creations: dict[PartitionKey, PartitionStateRecord] = field(default_factory=dict)
    #: Those among the updates that may lose records.
    unclean: list[PartitionKey] = field(default_factory=list)
    #: Topics with a partition that only an unclean election could bring back: ask for their setting.
    undecided_topics: dict[str, None] = field(default_factory=dict)
    #: {partition that is being reassigned, of those above: replicas that shall hold it}
    announced: dict[PartitionKey, Replicas] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Say whether there is anything to write."""
        return bool(self.updates or self.creations)

    def add(self, others: Decisions) -> None:
        """Take those about other partitions in."""
        self.updates.update(others.updates)
        self.creations.update(others.creations)
        self.unclean.extend(others.unclean)
        self.undecided_topics.update(others.undecided_topics)
        self.announced.update(others.announced)


def decide(
    model: ClusterModel, situation: Situation, keys: Iterable[PartitionKey] | None = None
) -> Decisions:
    """Decide about partitions, all by default; a partition that is as it should be gets no decision.

    Each is decided on its own, so that many may be taken in parts (`Decisions.add`).
    """
    decisions = Decisions()
    cluster, topic = situation, ""
    chosen = model.partitions() if keys is None else ((key, model.replicas(key)) for key in keys)
    for key, assigned in chosen:
        if not assigned or not model.may_decide(key.topic):
            continue
        if model.doubts and key.topic != topic:
            topic = key.topic
            situation = cluster.about(model, topic)
        known, move = model.states.get(key), model.move(key)
        if known is None:
            first = first_state(situation, assigned)
            if first is not None:
                decisions.creations[key] = first
                if move is not None:
                    decisions.announced[key] = assigned
            continue
        replicas = assigned
        if move is not None:
            replicas = wanted_replicas(move, _electable(situation, known.state.isr), model.announced.get(key))
        state = next_state(
            situation,
            key,
            replicas,
            known,
            leavers=() if move is None else tuple(each for each in assigned if each not in replicas),
            is_told=move is None or replicas == model.announced.get(key),
        )
        if state is not None:
            decisions.updates[key] = (state, known.partition_version)
            if move is not None:
                decisions.announced[key] = replicas
            if state.leader != NO_LEADER and state.leader not in known.state.isr:
                decisions.unclean.append(key)
        leader = known.state.leader if state is None else state.leader
        if leader == NO_LEADER and any(_is_eligible(situation, each) for each in replicas):
            decisions.undecided_topics[key.topic] = None
    return decisions


def first_state(situation: Situation, replicas: Replicas) -> PartitionStateRecord | None:
    """Return the first state of a partition, or None while no replica lives (init_leaders)."""
    isr = _electable(situation, replicas)
    if not isr:
        return None
    return PartitionStateRecord(situation.controller_epoch, isr[0], LeaderEpoch(0), isr)


def next_state(
    situation: Situation,
    key: PartitionKey,
    replicas: Replicas,
    known: KnownState,
    *,
    leavers: Replicas = (),
    is_told: bool = True,
) -> PartitionStateRecord | None:
    """Return what a partition's state should become, or None if it is right (change_leaders).

    Args:
        situation: what else elections depend on.
        key: the partition.
        replicas: those that shall hold it, the first one preferred.
        known: its present state.
        leavers: replicas that a reassignment takes away.
        is_told: whether its brokers know these replicas.
    """
    state, taken = known.state, situation.shortened.get(key.partition, {})
    gone = (*situation.outcasts, *leavers)
    members = tuple(each for each in state.isr if each not in gone and each not in taken)
    # Once a member is shortened, or nobody leads, any replica's end may matter.
    is_hurt = state.leader == NO_LEADER or bool(state.shortened)
    noted = {each: end for each, end in taken.items() if each in state.isr or (is_hurt and each in replicas)}
    ends = {each: end for each, end in {**state.shortened, **noted}.items() if each not in gone}
    alive = _electable(situation, members)
    recovery = state.leader_recovery_state
    unclean = situation.kind is ElectionKind.UNCLEAN or key.topic in situation.unclean_topics
    if alive:
        # A leader of the ISR ends what an unclean election had begun.
        leader, recovery = _leader_among(situation, alive, replicas, state.leader), RECOVERED
        # Beside a shortened one the dead stay, since the leader may be as dead as they are.
        isr = alive if not ends else tuple(i for i in members if i in alive or i not in situation.live)
    elif (
        candidates := _uncleanly_electable(situation, replicas, members, ends, unclean=unclean)
    ) and not taken:
        leader = max(candidates, key=lambda each: ends.get(each, _NO_LOG))
        isr, recovery, ends = (leader,), RECOVERING, {}
    else:
        leader, isr = NO_LEADER, members
    is_same = (leader, isr, ends) == (state.leader, state.isr, state.shortened)
    if is_told and is_same and not fences.bounced_unseen(known, situation.generations.get(state.leader)):
        return None
    return PartitionStateRecord(
        situation.controller_epoch, leader, LeaderEpoch(state.leader_epoch + 1), isr, recovery, ends
    )


def _uncleanly_electable(
    situation: Situation, replicas: Replicas, members: Replicas, ends: Mapping[int, LogEnd], *, unclean: bool
) -> Replicas:
    """Return the replicas of which one may lead although no member of the ISR lives: any, if that is allowed;
    else the shortened ones, when they are all back and nobody else is left in the ISR.
    """
    if unclean:
        return _electable(situation, replicas)
    if members or not all(each in situation.live for each in ends):
        return ()
    return _electable(situation, tuple(each for each in replicas if each in ends))


def _electable(situation: Situation, brokers: Replicas) -> Replicas:
    """Return the live ones; those that shut down only where there are no others."""
    live = tuple(each for each in brokers if _is_eligible(situation, each))
    return tuple(each for each in live if each not in situation.leaving) or live


def _is_eligible(situation: Situation, broker_id: int) -> bool:
    return broker_id in situation.live and broker_id not in situation.outcasts


def _leader_among(situation: Situation, alive: Replicas, replicas: Replicas, present: int) -> int:
    if situation.kind is ElectionKind.PREFERRED and replicas[0] in alive:
        return replicas[0]
    if present in alive:
        return present
    return next((each for each in replicas if each in alive), NO_LEADER)
