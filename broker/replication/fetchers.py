"""Followers at work: one task per leading broker fetches all partitions that this broker follows there.

One request is in flight per leader; the leader holds it while there is nothing new, briefly at first and then
longer. In a fetch session it names only what is asked for anew, from elsewhere or no longer; when anything of
that goes wrong, the next request begins a session and names all. A small request behind a fetch that is held
ends its wait. A leader that cannot be reached is tried again after growing pauses. A task ends when it
follows nothing any more. Soft state.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-227; Kafka's ReplicaFetcherThread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Final

from broker.core.asked_session import AskedSession
from broker.core.fetch_pace import FetchPace
from broker.core.fetched import FetchOutcome, FetchPosition
from broker.log.errors import LogStorageError
from broker.replication.clock import monotonic_ms
from broker.replication.fetch_messages import (
    FETCH,
    FETCH_VERSION,
    TopicPartition,
    decode_fetch,
    encode_fetch,
)
from broker.replication.following import Followed, must_wait, take_answer, take_answer_patiently
from broker.replication.outcomes import Counters, ReplicationOptions
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from controller.core.brokers import BROKER_LISTENER
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import (
    BrokerAuthenticationError,
    BrokerConnection,
    BrokerConnectionLostError,
    BrokerUnreachableError,
)
from quorum.errors import NodeStoppedError, ProtocolError, QuorateError
from quorum.metadata.paths import PartitionKey
from quorum.platform.tls import MakeContext

#: How long a leader holds a fetch while things happen; doubled, when they cease, up to
#: replica_fetch_wait_max_ms.
FETCH_WAIT_MIN_MS: Final = 10

_log = logging.getLogger(__name__)


class Fetchers:
    """The fetching tasks by leader."""

    def __init__(
        self,
        registry: Registry,
        options: ReplicationOptions,
        counters: Counters,
        *,
        secrets: Sequence[str],
        cluster_id: str,
        dial: Mapping[int, tuple[str, int]],
        tls: MakeContext | None,
        on_failure: Callable[[QuorateError], None],
    ) -> None:
        """Follow nobody yet."""
        self.registry = registry
        self.options = options
        self.counters = counters
        self.on_failure = on_failure
        self._secrets = secrets
        self._cluster_id = cluster_id
        self._dial = dial
        self._tls = tls
        #: {leader: where it listens, by the last LeaderAndIsr that named it}
        self._named: dict[int, tuple[str, int]] = {}
        self._fetchers: dict[int, Fetcher] = {}
        self._of: dict[PartitionKey, Fetcher] = {}
        #: Answers that wait for the disk, one per partition at most.
        self.waiting: set[asyncio.Task[None]] = set()

    def learn(self, leader: int, host: str, port: int) -> None:
        """Note where a leader listens."""
        self._named[leader] = (host, port)

    def follow(self, replica: Replica) -> None:
        """Fetch a partition from the leader that its role names."""
        self.leave(replica.key)
        role = replica.follower
        assert role is not None
        fetcher = self._fetchers.get(role.leader)
        if fetcher is None:
            fetcher = self._fetchers[role.leader] = Fetcher(self, role.leader)
        self._of[replica.key] = fetcher
        fetcher.add(Followed(replica, role, FetchPace(replica.key)))

    def leave(self, key: PartitionKey) -> None:
        """Fetch a partition no longer."""
        fetcher = self._of.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)

    def ended(self, leader: int) -> None:
        """Forget a fetcher without partitions."""
        del self._fetchers[leader]

    async def stop(self) -> None:
        """End all tasks."""
        tasks = [*(fetcher.task for fetcher in self._fetchers.values()), *self.waiting]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def connect(self, leader: int) -> BrokerConnection:
        """Open a connection to a leader's broker listener."""
        address = (
            self._dial.get(leader)
            or self.registry.view.endpoint(leader, BROKER_LISTENER)
            or self._named.get(leader)
        )
        if address is None:
            raise BrokerUnreachableError(f"broker {leader}: its address is not known here yet")
        return await BrokerConnection.open(
            *address,
            secrets=self._secrets,
            cluster_id=self._cluster_id,
            client_id=f"replica-{self.registry.broker_id}",
            timeout_ms=self.options.replica_socket_timeout_ms,
            tls=self._tls,
        )


class Fetcher:
    """Fetches from one leader."""

    def __init__(self, fetchers: Fetchers, leader: int) -> None:
        """Start the task."""
        self._fetchers = fetchers
        self._leader = leader
        #: {as Fetch names it: partition}
        self._followed: dict[TopicPartition, Followed] = {}
        self._names: dict[PartitionKey, TopicPartition] = {}
        #: What the next request has to look at; a dict, for its order.
        self._touched: dict[TopicPartition, None] = {}
        self._session: AskedSession[TopicPartition, tuple[Followed, FetchPosition]] = AskedSession()
        #: Where the leader holds a fetch, until something ends that wait.
        self._held: BrokerConnection | None = None
        self._added = asyncio.Event()
        self._pause_ms = 0
        self._wait_ms = FETCH_WAIT_MIN_MS
        self.task = asyncio.create_task(self._run(), name=f"fetch from broker {leader}")

    def add(self, followed: Followed) -> None:
        """Fetch one partition more."""
        name = TopicPartition(followed.replica.topic_id, followed.replica.key.partition)
        self._names[followed.replica.key] = name
        self._followed[name] = followed
        self._touch_soon(name)

    def remove(self, key: PartitionKey) -> None:
        """Fetch one partition less."""
        name = self._names.pop(key)
        del self._followed[name]
        self._touched[name] = None

    def _touch_soon(self, name: TopicPartition) -> None:
        """Look at a partition with the next request, which does not wait until this one's time is over."""
        self._touched[name] = None
        self._added.set()
        connection, self._held = self._held, None
        if connection is not None:
            self._spawn(self._end_wait(connection))

    async def _end_wait(self, connection: BrokerConnection) -> None:
        """Let the leader answer what it holds: it does so when the next request comes, whatever that is."""
        timeout_ms = self._fetchers.options.replica_socket_timeout_ms
        # A connection that ends is met by the fetch itself.
        with contextlib.suppress(BrokerConnectionLostError, BrokerUnreachableError):
            await connection.request(ApiKey.API_VERSIONS, 0, b"", flexible=False, timeout_ms=timeout_ms)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._fetchers.waiting.add(task)
        task.add_done_callback(self._fetchers.waiting.discard)

    async def _run(self) -> None:
        options = self._fetchers.options
        try:
            while self._followed:
                try:
                    await self._serve_connection()
                except (
                    BrokerUnreachableError,
                    BrokerConnectionLostError,
                    BrokerAuthenticationError,
                    ProtocolError,
                ) as error:
                    if self._pause_ms == 0:
                        _log.warning("fetching from broker %d failed: %s", self._leader, error)
                    self._pause_ms = min(
                        max(self._pause_ms * 2, options.replica_fetch_backoff_ms),
                        options.replica_fetch_backoff_max_ms,
                    )
                    await asyncio.sleep(self._pause_ms / 1000)
        except LogStorageError as error:
            self._fetchers.on_failure(error)
        except Exception as error:  # noqa: BLE001 - the top of a task: the broker stops with the story
            self._fetchers.on_failure(NodeStoppedError.during(f"fetching from broker {self._leader}", error))
        finally:
            self._fetchers.ended(self._leader)

    def _begin_session(self) -> None:
        """Name all partitions with the next request."""
        self._session.begin()
        self._touched = dict.fromkeys(self._followed)

    async def _serve_connection(self) -> None:
        connection = await self._fetchers.connect(self._leader)
        self._begin_session()
        try:
            while self._followed:
                await self._fetch_once(connection)
        finally:
            self._held = None
            connection.close()

    async def _fetch_once(self, connection: BrokerConnection) -> None:
        options = self._fetchers.options
        registry = self._fetchers.registry
        now_ms = monotonic_ms()
        self._added.clear()
        self._look(now_ms)
        if not len(self._session):
            self._begin_session()
            await self._wait_for_partitions(now_ms)
            return
        changes = self._session.request()
        body = encode_fetch(
            [(name, position) for name, (_, position) in changes.named.items()],
            changes.forgotten,
            registry.broker_id,
            registry.gate.generation,
            session_id=changes.session_id,
            session_epoch=changes.epoch,
            max_wait_ms=self._wait_ms,
            max_bytes=options.replica_fetch_response_max_bytes,
        )
        self._held = connection
        answer = await connection.request(
            FETCH,
            FETCH_VERSION,
            body,
            flexible=True,
            timeout_ms=options.replica_socket_timeout_ms + self._wait_ms,
        )
        self._held = None
        # An answer before its time means that something happens: the next one follows soon, with a high
        # watermark that has risen or a partition that has just been added.
        is_early = monotonic_ms() - now_ms < self._wait_ms
        self._wait_ms = (
            FETCH_WAIT_MIN_MS if is_early else min(self._wait_ms * 2, options.replica_fetch_wait_max_ms)
        )
        error_code, session_id, outcomes = decode_fetch(answer)
        if self._session.is_refused(error_code):
            self._begin_session()
            return
        if error_code is not ErrorCode.NONE:
            raise ProtocolError(f"broker {self._leader} refused a fetch: {error_code.name}")
        self._pause_ms = 0
        for name, outcome in outcomes:
            self._take(name, outcome)
        self._session.advance(session_id)
        if not len(self._session):
            self._begin_session()

    def _look(self, now_ms: int) -> None:
        """See from where to ask for what was touched, and what not to ask for now."""
        options, throttle = self._fetchers.options, self._fetchers.registry.follower_throttle
        touched, self._touched = self._touched, {}
        for name in touched:
            followed = self._followed.get(name)
            if followed is None or not followed.pace.is_due(now_ms, throttle):
                self._session.leave(name)
                if followed is not None:
                    self._touched[name] = None
                continue
            position = followed.position(options, throttle, now_ms)
            if followed.may_change(position, throttle):
                self._touched[name] = None
            self._session.want(name, (followed, position))

    def _take(self, name: TopicPartition, outcome: FetchOutcome) -> None:
        """Apply what a leader's answer says of one partition."""
        if (asked := self._session.get(name)) is None:
            raise ProtocolError(f"broker {self._leader} answered for a partition that was not asked for")
        followed, position = asked
        throttle = self._fetchers.registry.follower_throttle
        self._touched[name] = None
        if outcome.records and followed.pace.is_throttled(throttle):
            throttle.spend(len(outcome.records), monotonic_ms())
        if self._followed.get(name) is not followed or not followed.is_current(position.offset):
            return
        if must_wait(followed, outcome):
            followed.pace.is_busy = True
            # What waits must not hold all of the answer.
            outcome = outcome._replace(records=bytes(outcome.records))
            self._spawn(self._take_later(name, followed, position.offset, outcome))
        elif take_answer(followed, position.offset, outcome, self._fetchers.options):
            # Last where all are named, so that a busy partition does not crowd others out.
            self._followed[name] = self._followed.pop(name)

    async def _take_later(
        self, name: TopicPartition, followed: Followed, offset: int, outcome: FetchOutcome
    ) -> None:
        """Apply an answer that waits for the disk; the other partitions go on meanwhile."""
        fetchers = self._fetchers
        try:
            await take_answer_patiently(followed, offset, outcome, fetchers.options, fetchers.counters)
            if fetchers.registry.is_cut(followed.replica.key):
                await fetchers.registry.write_high_watermarks()
        except LogStorageError as error:
            fetchers.on_failure(error)
        except Exception as error:  # noqa: BLE001 - the top of a task: the broker stops with the story
            fetchers.on_failure(NodeStoppedError.during(f"following broker {self._leader}", error))
        followed.pace.is_busy = False
        self._touch_soon(name)

    async def _wait_for_partitions(self, now_ms: int) -> None:
        """Wait for the first partition that may be asked for again, or for a new one."""
        soonest_ms = min(
            (
                followed.pace.not_before_ms
                for followed in self._followed.values()
                if not followed.pace.is_busy
            ),
            default=now_ms + self._fetchers.options.replica_fetch_backoff_max_ms,
        )
        try:
            async with asyncio.timeout(max(soonest_ms - now_ms, 1) / 1000):
                await self._added.wait()
        except TimeoutError:
            return
