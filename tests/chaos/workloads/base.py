"""What all workloads share: a client of the quorum that records, and how errors become outcomes.

The client knows nothing of checkers. An error that is definite is a failure, any other an unknown outcome; so
is an operation that took too long. After an unknown outcome a client goes on: its operation stays open.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final, NamedTuple

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from pipeline.checks.history import Operation
from pipeline.checks.suites import judge_workload
from pipeline.checks.verdicts import Verdict
from quorum.client import (
    BadVersionError,
    Client,
    ClientClosedError,
    MultiFailedError,
    NoServerError,
    SessionExpiredError,
)
from quorum.client.client import DEFAULT_SESSION_TIMEOUT_MS
from quorum.errors import QuorateError
from tests.chaos.cluster import ChaosCluster
from tests.chaos.recorder import Call, Process, Recorder
from tests.chaos.secured import quiet, way
from tests.support.nodes import eventually

OPERATION_TIMEOUT_S: Final = 6.0
#: How long a client looks for a server before it says so and looks again.
CONNECT_PATIENCE_MS: Final = 4000.0
BAD_VERSION: Final = "bad version"
#: Of each partition of a topic, if there are as many brokers.
REPLICAS: Final = 3
#: A log that is dirty at once, and whose segments end soon: for topics that are compacted during a run.
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "1500",
}
#: How long cleaners have at the end; a checker says so if nothing was cleaned.
CLEAN_DEADLINE_S: Final = 45.0

Answer = tuple[Any, int]
#: {name: settings}
Topics = Mapping[str, Mapping[str, str]]


class History(NamedTuple):
    """What a run recorded, of all workloads."""

    operations: list[Operation]
    #: lines of final.jsonl
    final: list[dict[str, Any]]


class Workload(abc.ABC):
    """One kind of load. Made once for a run; run() ends soon after stop is set."""

    name: ClassVar[str]
    description: ClassVar[str]
    needs_brokers: ClassVar[bool] = False
    #: some clients are processes of their own
    has_clients: ClassVar[bool] = False
    #: it plays a part that real brokers would play, too
    excludes_brokers: ClassVar[bool] = False

    def __init__(self, cluster: ChaosCluster, recorder: Recorder, rng: random.Random) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.rng = rng

    @abc.abstractmethod
    async def set_up(self) -> None:
        """Make what the clients work on, while nothing is wrong yet."""

    @abc.abstractmethod
    async def run(self, stop: asyncio.Event) -> None:
        """Run all clients until stop is set."""

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """Read what is left when all is healed: lines of final.jsonl."""
        return []

    @classmethod
    def check(cls, history: History) -> list[Verdict]:
        """Judge the workload's part of a history, known by the keys that it uses."""
        return judge_workload(cls.name, history.operations, history.final)


class TopicWorkload(Workload):
    """Clients of brokers, and the topics that they need."""

    needs_brokers: ClassVar[bool] = True
    topics: ClassVar[Topics]
    #: of each topic
    partitions: ClassVar[int]

    async def set_up(self) -> None:
        """Create the topics; acknowledged is what two replicas have."""
        await asyncio.to_thread(self._create_topics)

    def _create_topics(self) -> None:
        admin = AdminClient(quiet(self.cluster.bootstrap))
        replicas = min(REPLICAS, len(self.cluster.broker_ids))
        common = {"min.insync.replicas": str(min(2, replicas))}
        topics = [
            NewTopic(name, self.partitions, replicas, config=common | dict(settings))
            for name, settings in self.topics.items()
        ]
        for future in admin.create_topics(topics).values():
            future.result(30)
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        """Return when every partition has all of its replicas."""
        for name in self.topics:
            self.cluster.brokers.wait_in_sync(name)

    def wait_clean(self) -> None:
        """Return when cleaners have nothing to do, or have had their time."""
        brokers, ratio = self.cluster.brokers, "quorate_broker_cleaner_max_dirty_ratio"
        with contextlib.suppress(AssertionError):
            eventually(
                lambda: all(brokers.metric(each, ratio) <= 0.01 for each in brokers.brokers),
                CLEAN_DEADLINE_S,
                "every log is clean",
            )


async def pause(stop: asyncio.Event, seconds: float) -> None:
    """Wait until the run ends, or so long."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


async def in_threads(stop: asyncio.Event, works: Sequence[Callable[[threading.Event], None]]) -> None:
    """Run blocking clients, each in a thread, until stop is set or one of them ends; wait for all."""
    stopping, loop = threading.Event(), asyncio.get_running_loop()
    with ThreadPoolExecutor(len(works)) as pool:
        threads = [loop.run_in_executor(pool, work, stopping) for work in works]
        stopped = asyncio.ensure_future(stop.wait())
        try:
            ends: list[asyncio.Future[Any]] = [stopped, *threads]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            stopping.set()
            await asyncio.wait(threads)
        await asyncio.gather(*threads)


async def record(
    call: Call, asked: Callable[[], Awaitable[Answer]], node: str, timeout_s: float = OPERATION_TIMEOUT_S
) -> Any:
    """Run one operation and record how it ended.

    Returns:
        Its result, or None where it did not succeed.

    Raises:
        SessionExpiredError, ClientClosedError: recorded as well; the client needs a new session.
    """
    try:
        async with asyncio.timeout(timeout_s):
            result, zxid = await asked()
    except TimeoutError:
        call.unknown("no answer")
        return None
    except (SessionExpiredError, ClientClosedError):
        call.fail("no session")
        raise
    except BadVersionError:
        call.fail(BAD_VERSION, node=node)
        return None
    except MultiFailedError as error:
        call.fail(BAD_VERSION if isinstance(error.cause, BadVersionError) else str(error), node=node)
        return None
    except QuorateError as error:
        if error.definite:
            call.fail(str(error), node=node)
        else:
            call.unknown(str(error))
        return None
    call.ok(result, zxid=zxid, node=node)
    return result


@contextlib.asynccontextmanager
async def connected(
    hosts: str, rng: random.Random, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
) -> AsyncIterator[Client | None]:
    """A session, or None if no server gave one in time."""
    hosts, tls = way(hosts)
    client = Client(hosts, tls=tls, session_timeout_ms=session_timeout_ms, rng=random.Random(rng.random()))
    try:
        await client.start(CONNECT_PATIENCE_MS)
    except (NoServerError, SessionExpiredError):
        await client.close()
        yield None
        return
    try:
        yield client
    finally:
        # The session's end is no part of the history; a server that does not answer does not hold the run up.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_PATIENCE_MS / 1000):
                await client.close()


class QuorumWorkload(Workload):
    """Clients of the quorum: some stay with one node, the others go to any."""

    clients: ClassVar[int] = 6
    #: seconds between two operations of a client, drawn anew each time from zero to twice as much
    pace_s: ClassVar[float] = 0.05
    session_timeout_ms: ClassVar[int] = DEFAULT_SESSION_TIMEOUT_MS

    async def run(self, stop: asyncio.Event) -> None:
        """Run every client, each with sessions one after the other."""
        async with asyncio.TaskGroup() as group:
            for number in range(1, self.clients + 1):
                node = str(number) if number in self.cluster.node_ids else ""
                hosts = self.cluster.host(number) if node else self.cluster.hosts
                process = self.recorder.process(f"{self.name}-{number}")
                group.create_task(self._live(process, hosts, node, random.Random(self.rng.random()), stop))

    async def _live(
        self, process: Process, hosts: str, node: str, rng: random.Random, stop: asyncio.Event
    ) -> None:
        while not stop.is_set():
            async with connected(hosts, rng, self.session_timeout_ms) as client:
                if client is None:
                    continue
                with contextlib.suppress(SessionExpiredError, ClientClosedError):
                    await self.session(process, client, node, rng, stop)

    async def session(
        self, process: Process, client: Client, node: str, rng: random.Random, stop: asyncio.Event
    ) -> None:
        """Work within one session until stop is set; one step after the other unless overridden."""
        while not stop.is_set():
            await self.step(process, client, node, rng)
            await pause(stop, rng.uniform(0, 2 * self.pace_s))

    async def step(self, process: Process, client: Client, node: str, rng: random.Random) -> None:
        """Do one operation."""
        raise NotImplementedError
