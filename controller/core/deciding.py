"""Decides about partitions, writes the decisions and takes them over, until nothing is left to decide.

A leader may change its ISR while the controller decides. Then the version does not fit, nothing of that
multi is written, and its partitions are read and decided again; after ROUNDS_MAX rounds one by one, so that
a busy partition holds up no other. A topic with a state that the quorum does not take is left alone. After
an unknown outcome the partitions are read first: what was written shows there.
Source: ARCHITECTURE.md, "Life of a broker failure"; docs/internals/requirements.md, [0.A], [0.C].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from controller.core.cache import Cache
from controller.core.elections import Decisions, ElectionKind, Situation, decide
from controller.core.io import Io, Steps, parts_of, rest
from controller.core.model import ClusterModel, KnownState
from controller.core.options import Counters
from controller.core.reading import read_settings
from controller.core.writing import ROUNDS_MAX, StateWriter
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings, effective

#: Partitions that are decided between two rests.
DECIDED_AT_ONCE_MAX: Final = 500


class Decider:
    """Settles partitions in one term."""

    def __init__(
        self,
        io: Io,
        model: ClusterModel,
        cache: Cache,
        writer: StateWriter,
        *,
        controller_epoch: ControllerEpoch,
        default_settings: TopicSettings,
        counters: Counters,
    ) -> None:
        """Decide from a model that a cache keeps."""
        self._io = io
        self._model = model
        self._cache = cache
        self._writer = writer
        self._controller_epoch = controller_epoch
        self._default_settings = default_settings
        self._counters = counters

    def settle(
        self,
        keys: Iterable[PartitionKey] | None,
        *,
        live: Collection[int] | None = None,
        generations: Mapping[int, BrokerGeneration] | None = None,
        kind: ElectionKind = ElectionKind.CLEAN,
    ) -> Steps[bool]:
        """Decide about partitions and write until nothing is left to decide.

        Args:
            keys: which; None: all.
            live: brokers that may lead; None: the admitted ones.
            generations: of a new controller only, to find bounces that nobody saw.
            kind: what the election is for.

        Returns:
            False if others changed some of them in every round: those are dirty again.
        """
        situation = Situation(
            controller_epoch=self._controller_epoch,
            live=frozenset(self._model.brokers if live is None else live),
            generations=generations or {},
            leaving=frozenset(self._model.leaving),
            kind=kind,
        )
        keys = [key for key, _ in self._model.partitions()] if keys is None else list(keys)
        for number in range(ROUNDS_MAX + 1):
            decisions = yield from self._decide(situation, keys)
            if not decisions:
                return True
            written = yield from self._writer.write(decisions, one_by_one=number == ROUNDS_MAX)
            for key, replicas in decisions.announced.items():
                if key in written.states:
                    self._model.announced[key] = replicas
            yield from self._cache.take_written(written.states, decisions.creations)
            self._count(decisions, written.states)
            for key, problem in written.refused.items():
                self._cache.leave_alone(key.topic, f"partition {key.partition}: {problem}")
            if not written.unsettled:
                return True
            self._counters.rounds_repeated += 1
            keys = written.unsettled
            self._cache.dirty.mark_states(keys)
            for topic in dict.fromkeys(key.topic for key in keys):
                # The conflict may be that the topic is gone.
                self._cache.dirty.mark_topic(topic)
            yield from self._cache.refresh()
        self._cache.dirty.mark_states(keys)
        return False

    def _decide(self, situation: Situation, keys: list[PartitionKey]) -> Steps[Decisions]:
        decisions = yield from self._decide_in_parts(situation, keys)
        if not decisions.undecided_topics:
            return decisions
        settings = yield from read_settings(self._io, decisions.undecided_topics)
        unclean_topics = [
            topic
            for topic, overrides in settings.items()
            if effective(self._default_settings, overrides).unclean_leader_election_enable
        ]
        if not unclean_topics:
            return decisions
        return (yield from self._decide_in_parts(situation.allowing(unclean_topics), keys))

    def _decide_in_parts(self, situation: Situation, keys: list[PartitionKey]) -> Steps[Decisions]:
        # Nobody else changes what is decided from: a term does one pass at a time.
        decisions = Decisions()
        for part in parts_of(keys, DECIDED_AT_ONCE_MAX):
            decisions.add(decide(self._model, situation, part))
            yield from rest(part, DECIDED_AT_ONCE_MAX)
        return decisions

    def _count(self, decisions: Decisions, written: Mapping[PartitionKey, KnownState]) -> None:
        for key in decisions.unclean:
            if key in written:
                self._counters.unclean_elections += 1
                leader = written[key].state.leader
                self._io.warn(
                    f"unclean election of {key.topic}-{key.partition}: broker {leader} leads, "
                    "records may be lost"
                )
