"""One life of a broker: its session and registration, its candidate for controller, its replicas.

Follows the shipped broker's order: open the logs from what the quorum has, register, obey requests, compete;
when the session is over, lead nothing, and begin again with another one. Elections, registration, reads and
ISR writes are the shipped coroutines over a simulated client.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import TYPE_CHECKING

from broker.core import fences
from broker.core.cluster_view import ClusterView
from broker.core.partition import LeaderState, ProposeIsr
from broker.core.replica_inputs import (
    IsrFound,
    IsrRefused,
    IsrWritten,
    LagTick,
    Opened,
    SessionBegun,
    SessionLost,
    StopReplica,
)
from broker.groups.coordinator import Coordinator, coordinator_of
from broker.lifecycle.registration import broker_record
from broker.lifecycle.state_queue import StateQueue
from controller.election.published import Published, read_published
from controller.election.store import (
    compare_and_set_state,
    read_partition_states,
    register_broker,
)
from controller.wire.codes import ErrorCode
from quorum.client import BadVersionError, ClientError, ClientState, ConnectionLossError, NoNodeError
from quorum.config.address import Address
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER
from quorum.metadata.numbers import BrokerGeneration, LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import LogEnd, topic_label
from tests.simulation.control_plane.client import SimClient
from tests.simulation.control_plane.control import Control
from tests.simulation.control_plane.fetcher import Fetchers
from tests.simulation.control_plane.hosting import TRUST, HostedController
from tests.simulation.control_plane.listener import Listener
from tests.simulation.control_plane.log import Disk, SimLog
from tests.simulation.control_plane.members import OPTIONS as GROUP_OPTIONS
from tests.simulation.control_plane.process import Process
from tests.simulation.control_plane.replica import SimReplica
from tests.simulation.control_plane.serving import Serving

if TYPE_CHECKING:
    from tests.simulation.control_plane.world import World

SESSION_TIMEOUT_MS = 1500
LAG_MAX_MS = 1500
CHECKPOINT_MS = 700
RETRY_PAUSE_MS = 100


class SimBroker:
    """One life."""

    def __init__(self, world: World, broker_id: int, disk: Disk, process: Process) -> None:
        """Belong to a world; start() begins."""
        self.world = world
        self.broker_id = broker_id
        self.disk = disk
        self.process = process
        self.view = ClusterView()
        #: czxids of its registrations, as the quorum has them
        self.registrations: list[int] = []
        #: controller epoch of the last request that was obeyed
        self.epoch_obeyed = 0
        #: how late the next write of an ISR arrives at the quorum; 0: not later than others
        self.slow_write_ms = 0.0
        self.is_registered = False
        self.is_leaving = False
        #: whether its channel is "queue", as a controller and as a broker
        self.reads_queue = broker_id in world.variations.by_queue
        self.client: SimClient | None = None
        self.control = Control(self)
        self.controller: HostedController | None = None
        self.coordinator: Coordinator | None = None
        self.replicas: dict[PartitionKey, SimReplica] = {}
        self._fetchers = Fetchers(self)
        self.serving = Serving(self)
        #: what the transactional producers of others, and other brokers, ask
        self.listener = Listener(self)
        self._lost = asyncio.Event()

    @property
    def generation(self) -> BrokerGeneration:
        """Of the registration that counts."""
        return self.control.gate.generation

    def start(self) -> None:
        """Begin."""
        self.process.spawn(self._live())
        self.process.post(LAG_MAX_MS / 2, self._lag_tick)
        self.process.post(CHECKPOINT_MS, self._checkpoint)

    # -- sessions --------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        opened = False
        while not self.is_leaving:
            client = self.client = SimClient(self.world.quorum, self.process, SESSION_TIMEOUT_MS)
            client.delay_ms = self.world.quorum_delay_ms
            client.is_cut = self.world.is_quorum_cut(self.broker_id)
            self._lost = asyncio.Event()
            client.add_listener(self._state_changed)
            await client.start()
            try:
                if not opened:
                    self._open(await read_published(client.shipped))
                    opened = True
                await self._serve_session(client)
            except (*SESSION_OVER, ConnectionLossError) as error:
                self.world.note(self.broker_id, f"its session: {error.message}")
            except QuorateError as error:
                self.world.note(self.broker_id, f"is not registered: {error.message}")
                await self.process.rest(RETRY_PAUSE_MS)
            self._end_session()
            await client.close()

    def _state_changed(self, state: ClientState) -> None:
        if state in (ClientState.LOST, ClientState.CLOSED):
            self._lost.set()

    async def _serve_session(self, client: SimClient) -> None:
        record = broker_record(
            clients={"CLIENT": Address(f"broker-{self.broker_id}", 9092)},
            broker=Address(f"broker-{self.broker_id}", 9192),
            admin=f"http://broker-{self.broker_id}:9292",
            rack="",
            incarnation=self.disk.incarnation,
            timestamp_ms=0,
            reads_queue=self.reads_queue,
            shortened=self._shortened(),
        )
        queue = StateQueue(self.broker_id, self.control.apply, TRUST)
        if self.reads_queue:
            await queue.watch(client.shipped)
        generation = await register_broker(client.shipped, self.broker_id, record, TRUST)
        self.world.note(self.broker_id, f"is registered with generation {generation}")
        if self.control.gate.begin(generation):
            self.generation_began()
        self.control.published.attach(client.shipped)
        self.is_registered = True
        for replica in list(self.replicas.values()):
            replica.step(SessionBegun())
        self.control.registered()
        rng = random.Random(f"{self.world.scheduler.seed}/controller/{generation}")
        controller = self.controller = HostedController(self.world, self, client, rng)
        coordinator = self.coordinator = coordinator_of(
            client.shipped, self.broker_id, GROUP_OPTIONS, self.view, TRUST, self.listener.ground
        )
        works = [self.process.spawn(each.run()) for each in (controller, coordinator)]
        if self.reads_queue:
            works.append(self.process.spawn(queue.run(client.shipped, generation)))
        await self._lost.wait()
        for work in works:
            work.cancel()

    def _end_session(self) -> None:
        self.is_registered = False
        self.controller = self.coordinator = None
        self.control.published.attach(None)
        for replica in list(self.replicas.values()):
            replica.step(SessionLost())

    def generation_began(self) -> None:
        """Lead nothing any more, and apply the next decision about each partition whatever its epoch."""
        for replica in list(self.replicas.values()):
            replica.step(SessionLost(self.generation))

    async def leave(self) -> None:
        """Stop cleanly: let others lead, end the session."""
        self.is_leaving = True
        await self.world.ask_to_shut_down(self)
        self._checkpoint()
        if self.client is not None:
            await self.client.close()
        self.world.scheduler.at(0, self.world.ended, self)

    # -- replicas --------------------------------------------------------------------------------------------

    def _open(self, published: Published) -> None:
        """Open the logs of the replicas that are assigned to this broker; the others are strays."""
        disk = self.disk
        for key, log in list(disk.logs.items()):
            topic = published.topics.get(key.topic)
            is_ours = topic is not None and self.broker_id in topic.partitions.get(key.partition, ())
            if topic is None or not is_ours or log.topic_id != topic.topic_id:
                disk.delete(key)
                continue
            state = published.states.get(key)
            epoch = LeaderEpoch(-1) if state is None else state.state.leader_epoch
            self._open_replica(key, log, epoch)
        for key, each in published.states.items():
            topic = published.topics[key.topic]
            had_log = key in disk.high_watermarks
            if had_log and self.broker_id in each.state.isr and key not in disk.logs:
                disk.shortened[key] = None
                self.create_replica(key, topic.topic_id)
        for key, replica in self.replicas.items():
            if replica.log.log_end_offset < disk.high_watermarks.get(key, 0):
                disk.shortened[key] = None

    def _open_replica(self, key: PartitionKey, log: SimLog, leader_epoch: LeaderEpoch) -> SimReplica:
        log.recover()
        replica = self.replicas[key] = SimReplica(self, key, log)
        replica.step(Opened(self.disk.high_watermarks.get(key, 0), leader_epoch))
        return replica

    def create_replica(self, key: PartitionKey, topic_id: uuid.UUID | None) -> SimReplica:
        """Open or create the log of a partition; that of another topic with the name goes."""
        log = self.disk.logs.get(key)
        if log is not None and fences.is_of_another_topic(topic_id, log.topic_id):
            self.world.note(self.broker_id, f"sets {key.topic}-{key.partition} of another topic aside")
            self.disk.delete(key)
            log = None
        if log is None:
            log = self.disk.logs[key] = SimLog(key, topic_id)
        return self._open_replica(key, log, LeaderEpoch(-1))

    def close(self, replica: SimReplica) -> None:
        """Let a replica go; its log stays."""
        if self.replicas.get(replica.key) is replica:
            del self.replicas[replica.key]
            self.disk.high_watermarks[replica.key] = replica.machine.high_watermark

    def _shortened(self) -> dict[str, dict[int, LogEnd]]:
        found: dict[str, dict[int, LogEnd]] = {}
        for key in self.disk.shortened:
            if (log := self.disk.logs.get(key)) is not None:
                ends = found.setdefault(topic_label(key.topic, log.topic_id), {})
                ends[key.partition] = LogEnd(log.latest_epoch, log.log_end_offset)
        return found

    def _checkpoint(self) -> None:
        """Write the high watermarks."""
        marks = dict(self.disk.high_watermarks)
        marks.update((key, each.machine.high_watermark) for key, each in self.replicas.items())
        self.disk.checkpoint({key: each for key, each in marks.items() if key in self.disk.logs})
        self.process.post(CHECKPOINT_MS, self._checkpoint)

    def _lag_tick(self) -> None:
        for replica in list(self.replicas.values()):
            if replica.machine.leader is not None:
                replica.step(LagTick(LAG_MAX_MS))
        self.process.post(LAG_MAX_MS / 2, self._lag_tick)

    def why_missing(self, key: PartitionKey) -> ErrorCode:
        """Return the error for a partition without a replica here."""
        is_known = not self.view.received or self.view.partition(key.topic, key.partition) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # -- fetches ---------------------------------------------------------------------------------------------

    def fetch_from(self, leader: int) -> None:
        """There may be something to fetch from a leader."""
        self._fetchers.wake(leader)

    # -- ISRs ------------------------------------------------------------------------------------------------

    def write_isr(self, replica: SimReplica, number: int, proposal: ProposeIsr) -> None:
        """Carry a change of an ISR to the quorum."""
        client = self.client
        if client is None or not self.is_registered:
            self.process.post(0, self._isr_outcome, replica, IsrRefused(number))
        else:
            self.process.spawn(self._carry(client, replica, number, proposal))

    def _isr_outcome(self, replica: SimReplica, outcome: IsrWritten | IsrRefused | IsrFound) -> None:
        if not replica.is_closed:
            replica.step(outcome)
            # A follower's session may have settled while it was a member.
            replica.wake_fetches(of_followers=False)

    async def _carry(self, client: SimClient, replica: SimReplica, number: int, proposal: ProposeIsr) -> None:
        while replica.machine.awaits_write(number) and not replica.is_closed and self.client is client:
            try:
                outcome = await self._attempt(client, replica.key, number, proposal)
            except SESSION_OVER:
                return
            except ClientError:
                outcome = None
            if outcome is not None:
                self._isr_outcome(replica, outcome)
                return
            await self.process.rest(RETRY_PAUSE_MS)

    async def _attempt(
        self, client: SimClient, key: PartitionKey, number: int, proposal: ProposeIsr
    ) -> IsrWritten | IsrRefused | IsrFound | None:
        """Try once; None: nobody knows, or there is nothing to say."""
        joining: dict[int, int] = {}
        for broker_id, generation in proposal.joining.items():
            node = await client.exists(paths.broker_generation_path(broker_id))
            registration = await client.exists(paths.broker_id_path(broker_id))
            if node is None or registration is None:
                return IsrRefused(number)
            if not fences.may_join(generation, node.mzxid, registration.czxid):
                return IsrRefused(number)
            joining[broker_id] = node.version
        if self.slow_write_ms and client.link is not None:
            client.link.stall(self.slow_write_ms)
            self.slow_write_ms = 0.0
        try:
            version = await compare_and_set_state(
                client.shipped, key, proposal.state, proposal.partition_version, joining
            )
        except BadVersionError as error:
            if error.path != paths.partition_state_path(key):
                return IsrRefused(number)
            await client.sync(paths.partition_state_path(key))
            found = (await read_partition_states(client.shipped, [key]))[key]
            if found is None or found[1] == proposal.partition_version:
                return None
            return IsrFound(number, *found)
        except NoNodeError:
            return None
        return IsrWritten(number, version)

    # -- what the world looks at -----------------------------------------------------------------------------

    def leading(self, key: PartitionKey) -> LeaderState | None:
        """Return the leader's state of a replica, if it leads."""
        replica = self.replicas.get(key)
        return None if replica is None else replica.machine.leader

    def stop_replica(self, key: PartitionKey) -> None:
        """Let a replica go, as when damage is found."""
        if (replica := self.replicas.get(key)) is not None:
            replica.step(StopReplica())
