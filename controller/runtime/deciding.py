"""Decide, write, look again: rounds until what the core wants stands in the quorum.

A leader may change its ISR while the controller decides. Then the version does not fit, nothing of that
multi is written, and its partitions are read and decided again; after ROUNDS_MAX rounds one by one, so that
a busy partition holds up no other. A topic with a state that the quorum does not take is left alone. After
an unknown outcome the partitions are read first: what was written shows there.
Source: control-plane design, "change_leaders"; seeds [0.A], [0.C].
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from controller.core.elections import Decisions, ElectionKind, Situation, decide
from controller.core.model import ClusterModel, KnownState
from controller.core.options import Counters
from controller.runtime.cache import Cache
from controller.runtime.carrying import Carrying
from controller.runtime.reader import read_settings
from controller.runtime.store import ROUNDS_MAX, Store, Written
from quorum.client import Client
from quorum.metadata.errors import ContendedError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings, effective
from quorum.platform.pace import Pace

#: Partitions that are decided between two looks at the clock.
DECIDED_AT_ONCE_MAX: Final = 500

log = logging.getLogger("quorate.controller")


class Decider:
    """Settles partitions in one term."""

    def __init__(
        self,
        client: Client,
        model: ClusterModel,
        store: Store,
        cache: Cache,
        *,
        controller_epoch: ControllerEpoch,
        default_settings: TopicSettings,
        counters: Counters,
        carrying: Carrying,
    ) -> None:
        """Decide from a model that a cache keeps, write by a store; channels may add to its multis."""
        self._client = client
        self._model = model
        self._store = store
        self._cache = cache
        self._controller_epoch = controller_epoch
        self._default_settings = default_settings
        self._counters = counters
        self._carrying = carrying

    async def settle(
        self,
        keys: Iterable[PartitionKey] | None,
        *,
        live: Collection[int] | None = None,
        generations: Mapping[int, BrokerGeneration] | None = None,
        kind: ElectionKind = ElectionKind.CLEAN,
    ) -> bool:
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
            decisions = await self._decide(situation, keys)
            if not decisions:
                return True
            written = await self._write(decisions, one_by_one=number == ROUNDS_MAX)
            for key, replicas in decisions.announced.items():
                if key in written.states:
                    self._model.announced[key] = replicas
            await self._cache.take_written(written.states, decisions.creations)
            self._carrying.flush()
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
            await self._cache.refresh()
        self._cache.dirty.mark_states(keys)
        return False

    async def _write(self, decisions: Decisions, *, one_by_one: bool) -> Written:
        self._carrying.channels.begin_write()
        try:
            return await self._store.write(
                decisions, one_by_one=one_by_one, beside=None if one_by_one else self._carrying
            )
        except ContendedError:
            self._carrying.lost_queue()
            raise

    async def _decide(self, situation: Situation, keys: list[PartitionKey]) -> Decisions:
        decisions = await self._decide_in_parts(situation, keys)
        if not decisions.undecided_topics:
            return decisions
        settings = await read_settings(self._client, decisions.undecided_topics)
        unclean_topics = [
            topic
            for topic, overrides in settings.items()
            if effective(self._default_settings, overrides).unclean_leader_election_enable
        ]
        if not unclean_topics:
            return decisions
        return await self._decide_in_parts(situation.allowing(unclean_topics), keys)

    async def _decide_in_parts(self, situation: Situation, keys: list[PartitionKey]) -> Decisions:
        # Nobody else changes what is decided from: the term has one loop.
        decisions, pace = Decisions(), Pace()
        for first in range(0, len(keys), DECIDED_AT_ONCE_MAX):
            decisions.add(decide(self._model, situation, keys[first : first + DECIDED_AT_ONCE_MAX]))
            await pace.rest()
        return decisions

    def _count(self, decisions: Decisions, written: Mapping[PartitionKey, KnownState]) -> None:
        self._counters.states_written += len(written)
        for key in decisions.unclean:
            if key in written:
                self._counters.unclean_elections += 1
                log.warning(
                    "unclean election of %s-%d: broker %d leads, records may be lost",
                    *key,
                    written[key].state.leader,
                )
