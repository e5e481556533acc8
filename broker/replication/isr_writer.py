"""Writes changes of ISRs: one compare-and-set on the state znode per partition, many partitions at once.

A follower joins only if the node of its generation still has the mzxid that its fetches carried and its
registration is alive (KIP-903). A conflict or a lost connection is looked up in the quorum: the leader adopts
its own write, steps down, or waits for the controller's next request. Until the outcome is certain the change
stays pending and gates the high watermark. Soft state; the quorum's state is the truth.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-497, KIP-903;
docs/internals/requirements.md, [0.disc3].
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.core import fences
from broker.core.replica_effects import IsrChanged, ReplicaEffect, WriteIsr
from broker.core.replica_inputs import IsrFound, IsrRefused, IsrWritten
from broker.replication.outcomes import Counters
from broker.replication.replica import Replica
from controller.election.store import compare_and_set_state, read_partition_states
from quorum.client import BadVersionError, Client, ClientError, ConnectionLossError, NoNodeError
from quorum.errors import NodeStoppedError, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER, MetadataDecodeError
from quorum.metadata.numbers import BrokerGeneration
from quorum.platform.tasks import TaskSet

#: Changes on their way at once; the others wait for their turn.
IN_FLIGHT_MAX: Final = 500
RETRY_PAUSE_S: Final = 0.2

_log = logging.getLogger(__name__)


class IsrWriter:
    """Carries proposals of leaders to the quorum."""

    def __init__(self, counters: Counters, on_failure: Callable[[QuorateError], None]) -> None:
        """Write nothing before a client is attached."""
        self._counters = counters
        self._client: Client | None = None
        self._turns = asyncio.Semaphore(IN_FLIGHT_MAX)
        #: One per partition at most: a leader proposes nothing while a change of its own is pending.
        self._tasks = TaskSet(lambda error: on_failure(NodeStoppedError.during("a change of an ISR", error)))

    def attach(self, client: Client | None) -> None:
        """Write through this client's session from now on; changes of a former session end unresolved."""
        self._client = client

    async def stop(self) -> None:
        """Give up what is on its way."""
        await self._tasks.stop()

    def carry_out(self, replica: Replica, effects: Iterable[ReplicaEffect]) -> None:
        """Write the changes of the ISR among the effects; their outcomes go back into the machine."""
        for asked in effects:
            if isinstance(asked, WriteIsr):
                self._begin(replica, asked)

    def _begin(self, replica: Replica, asked: WriteIsr) -> None:
        client = self._client
        if client is None:
            replica.step(IsrRefused(asked.number))
            return
        self._tasks.spawn(self._write(client, replica, asked))

    async def _write(self, client: Client, replica: Replica, asked: WriteIsr) -> None:
        try:
            async with self._turns:
                complaint = ""
                while replica.machine.awaits_write(asked.number) and self._client is client:
                    try:
                        if await self._attempt(client, replica, asked):
                            return
                    except SESSION_OVER:
                        raise
                    except ClientError as error:
                        if str(error) != complaint:
                            complaint = str(error)
                            _log.warning("the ISR of %s-%d cannot be changed yet: %s", *replica.key, error)
                    await asyncio.sleep(RETRY_PAUSE_S)
        except SESSION_OVER as error:
            # The broker registers again or stops, and leads nothing until then.
            _log.warning("the ISR of %s-%d was not changed: %s", *replica.key, error)

    async def _attempt(self, client: Client, replica: Replica, asked: WriteIsr) -> bool:
        """Try once; True once the outcome is certain and the machine has it."""
        change = asked.proposal
        try:
            joining = await self._joining_versions(client, change.joining)
            if joining is None:
                replica.step(IsrRefused(asked.number))
                return True
            version = await compare_and_set_state(
                client, replica.key, change.state, change.partition_version, joining
            )
        except ConnectionLossError:
            # The same write again: if the lost one comes late, one of the two meets the other's version.
            return False
        except BadVersionError as error:
            if error.path != paths.partition_state_path(replica.key):
                replica.step(IsrRefused(asked.number))
                return True
            return await self._look_up(client, replica, asked)
        except NoNodeError:
            # The topic is being deleted: the pending change gates what a StopReplica will end.
            return True
        self._note(replica, replica.step(IsrWritten(asked.number, version)))
        return True

    def _note(self, replica: Replica, effects: Iterable[ReplicaEffect]) -> None:
        # A follower's session may have settled while it was a member.
        replica.waiters.mark_fetches()
        for effect in effects:
            if not isinstance(effect, IsrChanged):
                continue
            kind = "joined" if effect.has_joined else "left"
            if effect.has_joined:
                self._counters.isr_expansions += 1
            else:
                self._counters.isr_shrinks += 1
            _log.info("the ISR of %s-%d is %s now: a follower %s", *replica.key, list(effect.isr), kind)

    async def _joining_versions(
        self, client: Client, joining: Mapping[int, BrokerGeneration]
    ) -> dict[int, int] | None:
        """Return {broker id: version of its generation's node}; None if one has bounced or is not alive."""
        versions: dict[int, int] = {}
        for broker_id, generation in joining.items():
            node, registration = await asyncio.gather(
                client.exists(paths.broker_generation_path(broker_id)),
                client.exists(paths.broker_id_path(broker_id)),
            )
            if node is None or registration is None:
                return None
            if not fences.may_join(generation, node.mzxid, registration.czxid):
                return None
            versions[broker_id] = node.version
        return versions

    async def _look_up(self, client: Client, replica: Replica, asked: WriteIsr) -> bool:
        self._counters.isr_conflicts += 1
        try:
            await client.sync(paths.partition_state_path(replica.key))
            found = (await read_partition_states(client, [replica.key]))[replica.key]
        except ConnectionLossError:
            return False
        except MetadataDecodeError as error:
            _log.warning("the ISR of %s-%d was not changed: %s", *replica.key, error)
            return True
        if found is None or not replica.machine.awaits_write(asked.number):
            return True
        effects = replica.step(IsrFound(asked.number, *found))
        self._note(replica, effects)
        if replica.leader is None:
            text = "stepped down from %s-%d: broker %d leads it in epoch %d, not this one in epoch %d"
            _log.info(text, *replica.key, found[0].leader, found[0].leader_epoch, replica.leader_epoch)
        return asked not in effects
