"""The candidate for controller in every broker, and what brokers and clients ask of the controller.

A missing /controller_epoch goes on from the highest controller epoch that any partition state carries.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [0.D], [2.4], [3.1], [3.5].
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

from controller.core import inputs
from controller.core.brokers import broker_endpoint
from controller.core.machine import ControllerMachine
from controller.core.model import LiveBroker
from controller.core.options import ControllerOptions, ControllerStatus, Counters
from controller.core.outcomes import (
    PartitionOutcome,
    RequestFailed,
    ShutdownOutcome,
    TopicOutcome,
)
from controller.core.reassignment import Move
from controller.core.requests import NewPartitions, NewTopic
from controller.election.candidate import Candidate
from controller.election.fenced import fenced_multi
from controller.election.plans import CONTROLLER_OFFICE, Mandate
from controller.election.published import highest_controller_epoch
from controller.election.store import ensure_controller_epoch
from controller.runtime.bodies import Bodies
from controller.runtime.recording import RecordedControllerMachine
from controller.runtime.senders import Senders, TermShare
from controller.runtime.shell import Shell
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerConnection, BrokerUnreachableError
from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings
from quorum.metadata.trust import Trust
from quorum.platform.recording import Recordings
from quorum.platform.tls import MakeContext

log = logging.getLogger("quorate.controller")

Outcomes = dict[str, TopicOutcome]
PartitionOutcomes = dict[PartitionKey, PartitionOutcome]


class Controller:
    """One candidate in one broker, for one quorum session."""

    def __init__(
        self,
        client: Client,
        broker_id: int,
        *,
        options: ControllerOptions,
        secrets: Sequence[str],
        cluster_id: str,
        default_settings: TopicSettings,
        dial: Mapping[int, tuple[str, int]],
        tls: MakeContext | None = None,
        rng: random.Random | None = None,
        recordings: Recordings | None = None,
    ) -> None:
        """Prepare; run() competes.

        Args:
            client: started; its session owns /controller after a victory.
            broker_id: the candidate.
            options: of the controller.
            secrets: peer secrets, for the broker listeners of others and for what they sign.
            cluster_id: the cluster's id.
            default_settings: defaults of topics.
            dial: {broker id: (host, port)} in place of the registered broker listener.
            tls: makes the context of each connection with a broker listener; None: plain.
            rng: spreads replicas and draws topic ids.
            recordings: of its terms; None: none are wanted.
        """
        self._client = client
        self._broker_id = broker_id
        self._options = options
        self._secrets = secrets
        self._cluster_id = cluster_id
        self._trust = Trust(secrets, cluster_id)
        self._default_settings = default_settings
        self._dial = dial
        self._tls = tls
        self._rng = rng if rng is not None else random.SystemRandom()
        self._recordings = recordings
        self._counters = Counters()
        self._candidate: Candidate[ControllerEpoch, Shell] = Candidate(
            client, broker_id, CONTROLLER_OFFICE, self._trust, self._begin, self._ensure_epoch
        )
        #: Compete until stop(), or until the session is over.
        self.run = self._candidate.run
        self.stop = self._candidate.stop

    @property
    def active(self) -> bool:
        """Whether this candidate is the controller."""
        return self._candidate.term is not None

    @property
    def controller_epoch(self) -> ControllerEpoch | None:
        """Epoch of the running term; None where this candidate is not the controller."""
        mandate = self._candidate.mandate
        return None if mandate is None else mandate.epoch

    def status(self) -> ControllerStatus:
        """Say what this candidate knows."""
        term = self._candidate.term
        if term is None:
            return ControllerStatus(self._candidate.holder_id, None, counters=self._counters)
        model, step = term.machine.model, term.machine.step_under_way
        return ControllerStatus(
            controller_id=self._broker_id,
            controller_epoch=self.controller_epoch,
            brokers={each: broker.generation for each, broker in sorted(model.brokers.items())},
            under_replicated=tuple(model.under_replicated()),
            offline=tuple(model.offline()),
            partition_count=model.partition_count(),
            left_alone=dict(model.left_alone),
            strangers=term.machine.parts.membership.strangers,
            step_under_way="" if step is None else step.value,
            counters=self._counters,
        )

    # -- elections -----------------------------------------------------------------------------------------

    async def _ensure_epoch(self) -> None:
        if await self._client.exists(paths.CONTROLLER_EPOCH) is None:
            await ensure_controller_epoch(self._client, await highest_controller_epoch(self._client))

    def _begin(self, mandate: Mandate[ControllerEpoch]) -> Shell:
        elected = inputs.Elected(
            mandate.broker_id, mandate.epoch, mandate.epoch_version, self._rng.getrandbits(63)
        )
        make: Callable[..., ControllerMachine] = ControllerMachine
        if self._recordings is not None:
            make = partial(RecordedControllerMachine, self._recordings)
        machine = make(
            elected,
            options=self._options,
            default_settings=self._default_settings,
            counters=self._counters,
            check_signed=self._trust.check_signed,
        )

        def make_senders(
            put: Callable[[inputs.Input], None], fail: Callable[[BaseException], None]
        ) -> Senders:
            share = TermShare(
                client=self._client,
                multi=partial(fenced_multi, self._client, mandate),
                broker_id=mandate.broker_id,
                controller_epoch=mandate.epoch,
                bodies=Bodies(machine.model),
                connect=self._connect,
                options=self._options,
                counters=self._counters,
                trust=self._trust,
                put=put,
                on_failure=fail,
            )
            return Senders(share)

        return Shell(self._client, elected, machine, make_senders)

    async def _connect(self, broker_id: int, broker: LiveBroker) -> BrokerConnection:
        address = self._dial.get(broker_id)
        if address is None:
            endpoint = broker_endpoint(broker.record)
            if endpoint is None:
                raise BrokerUnreachableError(
                    f"the registration of broker {broker_id} names no broker listener", "register it again"
                )
            address = (endpoint.host, endpoint.port)
        return await BrokerConnection.open(
            *address,
            secrets=self._secrets,
            cluster_id=self._cluster_id,
            client_id=f"controller-{self._broker_id}",
            timeout_ms=self._options.control_request_timeout_ms,
            tls=self._tls,
        )

    # -- brokers -------------------------------------------------------------------------------------------

    async def shut_down(self, broker_id: int, generation: BrokerGeneration) -> ShutdownOutcome:
        """Give the leaderships of a broker away, because it is about to stop.

        A generation above the known one waits for its registration to be noticed. The answer waits until the
        brokers concerned have answered, but no longer than the option shutdown_settle_ms.
        """
        term, options = self._candidate.term, self._options
        if term is None:
            return ShutdownOutcome(ErrorCode.NOT_CONTROLLER)
        if not await term.wait_for_broker(broker_id, generation, options.broker_event_ms / 1000):
            return ShutdownOutcome(ErrorCode.BROKER_NOT_AVAILABLE)
        outcome = await term.ask(inputs.ShutDown(broker_id, generation))
        if isinstance(outcome, RequestFailed):
            if outcome.error_code != ErrorCode.NOT_CONTROLLER:
                log.warning("the shutdown of broker %d is not prepared: %s", broker_id, outcome.message)
            return ShutdownOutcome(outcome.error_code)
        assert isinstance(outcome, ShutdownOutcome)
        if outcome.error_code == ErrorCode.NONE:
            partitions = term.machine.model.partitions()
            topics = {key.topic for key, replicas in partitions if broker_id in replicas}
            settle_ms = min(options.shutdown_settle_ms, options.control_request_timeout_ms // 2)
            await term.wait_until_settled(topics, settle_ms / 1000)
        return outcome

    # -- partitions ----------------------------------------------------------------------------------------

    async def elect_leaders(
        self, keys: Collection[PartitionKey] | None, *, unclean: bool, timeout_ms: int
    ) -> PartitionOutcomes | ErrorCode:
        """Elect preferred leaders, or unclean ones: {partition: outcome}, or why nothing was done.

        Args:
            keys: the partitions; None: all, and only those that needed it are in the answer.
            unclean: elect replicas outside of the ISR where no member of it lives.
            timeout_ms: of all of it.
        """
        return await self._ask_partitions(inputs.ElectLeaders(keys, unclean), timeout_ms)

    async def reassign(
        self, targets: Mapping[PartitionKey, tuple[int, ...] | None], *, timeout_ms: int
    ) -> PartitionOutcomes | ErrorCode:
        """Begin reassignments, or cancel those whose target is None: {partition: outcome}, or why not.

        An outcome is good once the request is committed; `reassignments` shows what is under way.
        """
        return await self._ask_partitions(inputs.Reassign(targets), timeout_ms)

    def reassignments(self) -> Iterator[tuple[PartitionKey, Move]] | None:
        """Yield the reassignments under way, topic by topic; None where this candidate is not the controller.

        As things are at the first one, however slowly they are taken.
        """
        return None if self._candidate.term is None else self._candidate.term.machine.model.moves()

    async def _ask_partitions(
        self, request: inputs.ElectLeaders | inputs.Reassign, timeout_ms: int
    ) -> PartitionOutcomes | ErrorCode:
        term = self._candidate.term
        if term is None:
            return ErrorCode.NOT_CONTROLLER
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                outcome = await term.ask(request)
        except TimeoutError:
            return ErrorCode.REQUEST_TIMED_OUT
        if isinstance(outcome, RequestFailed):
            return outcome.error_code
        assert isinstance(outcome, dict)
        done = {key.topic for key, each in outcome.items() if each.error_code == ErrorCode.NONE}
        if done:
            await term.wait_until_settled(done, self._options.settle_ms / 1000)
        return outcome

    # -- topics --------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool
    ) -> Outcomes:
        """Create topics with different names: {name: outcome}.

        An outcome is good once the topic is committed; the answer then waits until every live broker has
        answered the requests about it, but no longer than the option settle_ms. Not within timeout_ms:
        REQUEST_TIMED_OUT, and the topic may still come.
        """
        names = [topic.name for topic in topics]
        request = inputs.CreateTopics(tuple(topics), validate_only)
        return await self._ask_topics(names, request, timeout_ms)

    async def create_partitions(
        self, counts: Sequence[NewPartitions], *, timeout_ms: int, validate_only: bool
    ) -> Outcomes:
        """Add partitions to topics: {name: outcome}; waits as create_topics does."""
        names = [each.name for each in counts]
        return await self._ask_topics(names, inputs.ExtendTopics(tuple(counts), validate_only), timeout_ms)

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> Outcomes:
        """Delete topics: {name: outcome}; good once the topic is gone from every live broker and the quorum.

        Not within timeout_ms: REQUEST_TIMED_OUT, and the deletion goes on.
        """
        return await self._ask_topics(names, inputs.DeleteTopics(tuple(names)), timeout_ms)

    async def _ask_topics(
        self,
        names: Sequence[str],
        request: inputs.CreateTopics | inputs.ExtendTopics | inputs.DeleteTopics,
        timeout_ms: int,
    ) -> Outcomes:
        term = self._candidate.term
        if term is None:
            return _all(names, ErrorCode.NOT_CONTROLLER, "this broker is not the controller")
        outcomes: Outcomes = {}
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                outcome = await term.ask(request)
                if isinstance(outcome, RequestFailed):
                    return _all(names, outcome.error_code, outcome.message)
                assert isinstance(outcome, dict)
                outcomes = outcome
                done = [name for name, each in outcomes.items() if each.error_code == ErrorCode.NONE]
                if isinstance(request, inputs.DeleteTopics):
                    failed = await term.wait_until_deleted(done)
                    if failed is not None:
                        return _all(names, failed.error_code, failed.message)
                elif done and not request.validate_only:
                    await term.wait_until_settled(done, self._options.settle_ms / 1000)
        except TimeoutError:
            if not outcomes or isinstance(request, inputs.DeleteTopics):
                return _unfinished(outcomes, names)
        return outcomes


def _unfinished(outcomes: Outcomes, names: Sequence[str]) -> Outcomes:
    late = _all(names, ErrorCode.REQUEST_TIMED_OUT, "not finished in time; it goes on")
    return late | {name: each for name, each in outcomes.items() if each.error_code != ErrorCode.NONE}


def _all(names: Sequence[str], code: ErrorCode, message: str) -> Outcomes:
    return {name: TopicOutcome(code, message) for name in names}
