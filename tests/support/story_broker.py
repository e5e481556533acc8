"""A broker as far as the quorum sees one: a process with one session that does what a test tells it.

Run as `python -m tests.support.story_broker HOSTS BROKER_ID SESSION_TIMEOUT_MS`; one JSON command per line
on the standard input, one JSON answer per line on the standard output, in order. It registers, competes for
the controller, writes leaderAndISR records in fenced multis and watches, all through quorum.client and
quorum.metadata as a real broker would. It holds no partition and talks to no other broker. `BrokerProcess`
is the test's end of it. Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import select
import signal
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.election import store
from controller.election.fenced import fenced_multi
from controller.election.plans import CONTROLLER_OFFICE, Mandate, Won
from quorum.client import Client, ClientError, CreateMode, NodeExistsError, Transaction, WatchEvent
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from tests.support.nodes import server_environment
from tests.support.trust import TRUST
from tests.support.written_states import create_topic, write_states

ROUNDS_MAX = 8
HELD = "/held"
ANSWER_DEADLINE_S = 60.0

Command = dict[str, Any]


class InOrder(random.Random):
    """Makes a client try its hosts in the order in which they are given, so that a test places it."""

    def sample(self, population: Sequence[Any], k: int, *, counts: Any = None) -> list[Any]:  # noqa: ARG002 - the signature of Random
        """Return the first k as they stand."""
        return list(population)[:k]


@dataclass
class Broker:
    """One broker's state: its client, its mandate if it was elected, the events that its watches saw."""

    hosts: str
    broker_id: int
    session_timeout_ms: int
    client: Client
    mandate: Mandate[ControllerEpoch] | None = None
    events: list[WatchEvent] = field(default_factory=list)

    def new_client(self) -> Client:
        """A client of the same quorum with a session of its own."""
        return Client(self.hosts, session_timeout_ms=self.session_timeout_ms, rng=InOrder())

    async def start(self, _command: Command) -> object:
        """Open the session and create the parents of all records."""
        await self.client.start()
        await store.ensure_base_paths(self.client)
        try:
            await self.client.create(HELD)
        except NodeExistsError:
            pass  # another broker was first
        return {"session_id": self.client.session_id}

    async def register(self, _command: Command) -> object:
        """Register; the same broker has the same incarnation in every life."""
        incarnation = uuid.UUID(int=self.broker_id).hex
        record = BrokerRecord(
            "127.0.0.1", 9000 + self.broker_id, (), {}, timestamp_ms=0, incarnation=incarnation
        )
        generation = await store.register_broker(self.client, self.broker_id, record, TRUST)
        _, stat = await self.client.get(paths.broker_id_path(self.broker_id))
        _, kept = await self.client.get(paths.broker_generation_path(self.broker_id))
        return {"generation": generation, "czxid": stat.czxid, "kept_mzxid": kept.mzxid}

    async def hold(self, command: Command) -> object:
        """Create further ephemerals in one session; returns all ephemerals of this broker."""
        held = [f"{HELD}/{self.broker_id}-{number}" for number in range(command["count"])]
        for path in held:
            await self.client.create(path, b"", CreateMode.EPHEMERAL)
        return [*held, paths.broker_id_path(self.broker_id)]

    async def elect(self, _command: Command) -> object:
        """Compete until this broker or a live other one is the controller."""
        outcome = await store.elect(self.client, CONTROLLER_OFFICE, self.broker_id, 0, TRUST)
        if isinstance(outcome, Won):
            self.mandate = outcome.mandate
            return {"won": True, "epoch": outcome.mandate.epoch}
        return {"won": False, "held_by": outcome.broker_id}

    async def elect_when_free(self, _command: Command) -> object:
        """Watch /controller before each attempt and compete again whenever it goes."""
        while True:
            gone = asyncio.Event()
            await self.client.exists(paths.CONTROLLER, lambda _event, gone=gone: gone.set())  # type: ignore[misc]
            answer = await self.elect({})
            assert isinstance(answer, dict)
            if answer["won"]:
                return answer
            await gone.wait()

    async def found(self, command: Command) -> object:
        """Create topics and their states, leaders spread over the brokers; returns how many states."""
        brokers: list[int] = command["brokers"]
        states: dict[PartitionKey, PartitionStateRecord] = {}
        for topic_number in range(command["topics"]):
            topic = f"topic-{topic_number}"
            replicas = {
                partition: tuple(brokers[(partition + shift) % len(brokers)] for shift in range(2))
                for partition in range(command["partitions"])
            }
            await create_topic(self.client, topic, TopicRecord(uuid.UUID(int=topic_number), replicas))
            for partition, isr in replicas.items():
                states[PartitionKey(topic, partition)] = PartitionStateRecord(
                    self._epoch, isr[0], LeaderEpoch(0), isr
                )
        written = await write_states(self.client, self._mandate, creations=states)
        assert len(written.states) == len(states), written
        return len(states)

    async def fail_over(self, command: Command) -> object:
        """Give every partition that a dead broker leads to the rest of its ISR; returns how many moved."""
        dead, moved = command["dead"], 0
        for _ in range(ROUNDS_MAX):
            states = await self._states(command)
            updates = {
                key: (self._without(state, dead), version)
                for key, (state, version) in states.items()
                if dead in state.isr
            }
            if not updates:
                return moved
            moved += len((await write_states(self.client, self._mandate, updates)).states)
        raise AssertionError(f"partitions still led by broker {dead} after {ROUNDS_MAX} rounds")

    async def states(self, command: Command) -> object:
        """Read all states: {"topic/partition": [leader, leader epoch, controller epoch, isr, version]}."""
        return {
            f"{key.topic}/{key.partition}": [
                state.leader,
                state.leader_epoch,
                state.controller_epoch,
                list(state.isr),
                version,
            ]
            for key, (state, version) in (await self._states(command)).items()
        }

    async def compare_and_set(self, command: Command) -> object:
        """Write one state's ISR as its leader would, at a version; returns the new version."""
        key = PartitionKey(command["topic"], command["partition"])
        found = (await store.read_partition_states(self.client, [key]))[key]
        assert found is not None
        state = replace(found[0], isr=tuple(command["isr"]))
        return await store.compare_and_set_state(self.client, key, state, command["version"])

    async def stale_multi(self, command: Command) -> object:
        """Send a fenced multi in the name of the mandate this broker once won, through its own session."""
        return await self._fenced_write(self.client, command)

    async def stale_multi_in_new_session(self, command: Command) -> object:
        """The same through a new session, so that only the fence can refuse it."""
        async with self.new_client() as client:
            return await self._fenced_write(client, command)

    async def watch_deletion(self, command: Command) -> object:
        """Watch nodes one by one, and the children of their parents."""
        for path in command["paths"]:
            assert await self.client.exists(path, self.events.append) is not None
        for parent in sorted({path.rpartition("/")[0] for path in command["paths"]}):
            await self.client.get_children(parent, self.events.append)
        return None

    async def seen(self, _command: Command) -> object:
        """Events of all watches so far: [type, path, zxid]."""
        return [[event.event_type.name, event.path, event.zxid] for event in self.events]

    async def fingerprint(self, _command: Command) -> object:
        """Everything that is stored, as [path, mzxid, pzxid, version, cversion] by path."""
        await self.client.sync("/")
        found: list[object] = []
        todo = ["/"]
        while todo:
            path = todo.pop()
            children, stat = await self.client.get_children2(path)
            found.append([path, stat.mzxid, stat.pzxid, stat.version, stat.cversion])
            if path != "/zookeeper":
                todo += sorted(f"{path.rstrip('/')}/{child}" for child in children)
        return found

    async def _fenced_write(self, client: Client, command: Command) -> object:
        assert self.mandate is not None
        key = PartitionKey(command["topic"], command["partition"])
        value = PartitionStateRecord(self._epoch, self.broker_id, LeaderEpoch(99), (self.broker_id,)).encode()
        transaction = Transaction()
        transaction.set(paths.partition_state_path(key), value)
        await fenced_multi(client, self.mandate, transaction)
        return "written"

    async def _states(
        self, command: Command
    ) -> dict[PartitionKey, tuple[PartitionStateRecord, PartitionVersion]]:
        await self.client.sync("/")
        keys = [
            PartitionKey(f"topic-{topic}", partition)
            for topic in range(command["topics"])
            for partition in range(command["partitions"])
        ]
        found = await store.read_partition_states(self.client, keys)
        return {key: value for key, value in found.items() if value is not None}

    def _without(self, state: PartitionStateRecord, dead: int) -> PartitionStateRecord:
        isr = tuple(broker_id for broker_id in state.isr if broker_id != dead)
        leader = isr[0] if state.leader == dead else state.leader
        leader_epoch = LeaderEpoch(state.leader_epoch + 1)
        return replace(state, controller_epoch=self._epoch, leader=leader, leader_epoch=leader_epoch, isr=isr)

    @property
    def _epoch(self) -> ControllerEpoch:
        return self._mandate.epoch

    @property
    def _mandate(self) -> Mandate[ControllerEpoch]:
        assert self.mandate is not None, "this broker was never elected"
        return self.mandate


async def serve(hosts: str, broker_id: int, session_timeout_ms: int) -> None:
    """Answer commands until the standard input ends."""
    client = Client(hosts, session_timeout_ms=session_timeout_ms, rng=InOrder())
    broker = Broker(hosts, broker_id, session_timeout_ms, client)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command: Command = json.loads(line)
        do: Callable[[Command], Awaitable[object]] = getattr(broker, command["do"])
        answer: dict[str, object]
        try:
            answer = {"answer": await do(command)}
        except (ClientError, QuorateError) as error:
            answer = {"error": type(error).__name__, "text": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    await client.close()


class BrokerProcess:
    """A running story_broker, as the test sees it."""

    def __init__(self, hosts: str, broker_id: int, session_timeout_ms: int) -> None:
        """Start the process; its session begins with the command "start"."""
        self.broker_id = broker_id
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, hosts, str(broker_id), str(session_timeout_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=server_environment(),
        )
        self._output = b""

    def send(self, do: str, **arguments: object) -> None:
        """Give a command without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the next answer.

        Raises:
            AssertionError: the command failed, the process ended, or there was no answer in time.
        """
        answer = self._next()
        assert "error" not in answer, f"broker {self.broker_id}: {answer}"
        return answer["answer"]

    def ask(self, do: str, **arguments: object) -> Any:
        """Give a command and wait for its answer."""
        self.send(do, **arguments)
        return self.answer()

    def refused(self, do: str, **arguments: object) -> str:
        """Give a command that must fail; return the name of its error."""
        self.send(do, **arguments)
        return self.refusal()

    def refusal(self) -> str:
        """Wait for the next answer, which must be an error; return its name."""
        answer = self._next()
        assert "error" in answer, f"broker {self.broker_id} was not refused: {answer}"
        return str(answer["error"])

    def _next(self) -> dict[str, Any]:
        stream = self._process.stdout
        assert stream is not None
        while b"\n" not in self._output:
            readable, _, _ = select.select([stream], [], [], ANSWER_DEADLINE_S)
            assert readable, f"broker {self.broker_id} did not answer within {ANSWER_DEADLINE_S} s"
            part = os.read(stream.fileno(), 1 << 20)
            assert part, f"broker {self.broker_id} ended with {self._process.wait()}"
            self._output += part
        line, self._output = self._output.split(b"\n", 1)
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer

    def signal(self, number: signal.Signals) -> None:
        """Send a signal such as SIGSTOP."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL; its session stays until it expires."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the process and close its pipes."""
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
