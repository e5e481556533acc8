"""The controller's machine among simulated brokers, in one process and without sockets, with its costs.

The machine steps over a tree of znodes in memory; every control request is packed as the controller packs it
and decoded as a broker decodes it. What the tree costs is not counted. Brokers answer at once, and keep of
each partition the newest leader epoch that they were sent, so that somebody can see what they lack.
"""

from __future__ import annotations

import time
import uuid
from array import array
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Final

from controller.core.effects import (
    CloseChannel,
    Effect,
    GiveWay,
    OpenChannel,
    ReadChildren,
    ReadNodes,
    Send,
    Trace,
    Write,
)
from controller.core.inputs import (
    Answered,
    ChildrenRead,
    Continued,
    Elected,
    Input,
    MultiDone,
    NodesRead,
    PathsChanged,
)
from controller.core.machine import ControllerMachine
from controller.core.options import ControllerOptions, Counters
from controller.messages.entities import (
    CONTROL_VERSIONS,
    LeaderAndIsrRequest,
    UpdateMetadataRequest,
    decode_request,
)
from controller.runtime.bodies import Bodies, Sender
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.numbers import ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from quorum.metadata.topic_settings import TopicSettings
from tests.support.stepped_controller import SteppedTree

REPLICAS: Final = 3
_PREFIX: Final = "scale-"


@dataclass
class Costs:
    """CPU seconds and counts, since the last take_costs()."""

    machine_s: float = 0.0
    packing_s: float = 0.0
    #: {broker id: CPU seconds that it decoded}
    decoding_s: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    requests: int = 0
    request_bytes: int = 0

    @property
    def slowest_decoding_s(self) -> float:
        """Of the broker that decodes longest."""
        return max(self.decoding_s.values(), default=0.0)

    @property
    def total_s(self) -> float:
        """Until the last broker has decoded all, if each decodes on a machine of its own."""
        return self.machine_s + self.packing_s + self.slowest_decoding_s


class SimulatedBroker:
    """What one broker was sent: {number of a partition: leader epoch}, -1 for nothing yet."""

    def __init__(self, partitions: int) -> None:
        """Know nothing."""
        self.metadata = array("i", [-1]) * partitions
        self.roles = array("i", [-1]) * partitions

    def forget(self) -> None:
        """Know nothing any more, as if it had just started."""
        for known in (self.metadata, self.roles):
            known[:] = array("i", [-1]) * len(known)


class ControllerWorld:
    """Topics without states, brokers, and the machine of the present term."""

    def __init__(self, brokers: int, partitions: int, topic_partitions: int) -> None:
        """Lay out topics of topic_partitions each, with replicas on brokers in turn; nobody is elected."""
        assert partitions % topic_partitions == 0, "only whole topics"
        self.tree = SteppedTree()
        self.brokers = {each: SimulatedBroker(partitions) for each in range(1, brokers + 1)}
        self.costs = Costs()
        self._topic_partitions = topic_partitions
        self._partitions = partitions
        self._epoch = 0
        for broker_id in self.brokers:
            record = BrokerRecord(
                None,
                -1,
                (f"BROKER://127.0.0.1:{9_000 + broker_id}",),
                {"BROKER": "SASL_PLAINTEXT"},
                0,
                incarnation=uuid.UUID(int=broker_id).hex,
            )
            self.tree.put(paths.broker_id_path(broker_id), record.encode(), owner=100 + broker_id)
        for topic in range(partitions // topic_partitions):
            replicas = {
                number: tuple((topic + number + each) % brokers + 1 for each in range(REPLICAS))
                for number in range(topic_partitions)
            }
            record_of_topic = TopicRecord(uuid.UUID(int=topic + 1), replicas)
            self.tree.put(paths.topic_path(f"{_PREFIX}{topic}"), record_of_topic.encode())
        self.tree.changed.clear()

    def elect(self) -> None:
        """Begin another term and let it settle; the machine of the one before is gone."""
        self._epoch += 1
        self.tree.put(paths.CONTROLLER_EPOCH, str(self._epoch).encode())
        self.tree.changed.clear()
        version = self.tree.nodes[paths.CONTROLLER_EPOCH].version
        self._elected = Elected(1, ControllerEpoch(self._epoch), version, seed=7)
        self._machine = ControllerMachine(
            self._elected,
            options=ControllerOptions(),
            default_settings=TopicSettings(),
            counters=Counters(),
            check_signed=lambda _path, _data, _owner: None,
        )
        self._bodies = Bodies(self._machine.model)
        self._settle(self._elected)

    def retire(self) -> None:
        """Drop the machine, and let the brokers forget what it sent."""
        del self._machine, self._bodies
        for broker in self.brokers.values():
            broker.forget()

    def die(self, broker_id: int) -> None:
        """End a broker's session, and let the machine settle."""
        del self.brokers[broker_id]
        self.tree.remove(paths.broker_id_path(broker_id))
        self._settle()

    def take_costs(self) -> Costs:
        """Return what the machine and the brokers have cost since the last call."""
        costs, self.costs = self.costs, Costs()
        return costs

    def check(self) -> None:
        """See that every broker was sent the present state of all that concerns it.

        Raises:
            AssertionError: one lacks something.
        """
        for number in range(self._partitions):
            topic, partition = divmod(number, self._topic_partitions)
            key = PartitionKey(f"{_PREFIX}{topic}", partition)
            data = self.tree.nodes[paths.partition_state_path(key)].data
            state = PartitionStateRecord.decode(key, data)
            assert state.leader in self.brokers, f"{key}: {state}"
            for broker_id, broker in self.brokers.items():
                assert broker.metadata[number] == state.leader_epoch, f"broker {broker_id} knows no {key}"
                if broker_id in state.isr:
                    assert broker.roles[number] == state.leader_epoch, f"broker {broker_id} lacks {key}"

    # -- steps ---------------------------------------------------------------------------------------------

    def _settle(self, *events: Input) -> None:
        inputs = deque(events)
        while True:
            # Events of what is written come before the reply.
            self._note_changes(inputs)
            if not inputs:
                return
            event = inputs.popleft()
            started = time.process_time()
            effects = self._machine.step(event, now_ms=1_000)
            self.costs.machine_s += time.process_time() - started
            for effect in effects:
                answer = self._carry_out(effect)
                self._note_changes(inputs)
                if answer is not None:
                    inputs.append(answer)

    def _note_changes(self, inputs: deque[Input]) -> None:
        if self.tree.changed:
            inputs.append(PathsChanged(list(self.tree.changed)))
            self.tree.changed.clear()

    def _carry_out(self, effect: Effect) -> Input | None:
        tree = self.tree
        match effect:
            case ReadNodes(number, wanted):
                return NodesRead(number, tuple(tree.nodes.get(path) for path in wanted))
            case ReadChildren(number, path):
                return ChildrenRead(number, tree.children(path) if path in tree.nodes else None)
            case Write(number, operations):
                return MultiDone(number, tree.multi(operations))
            case GiveWay():
                return Continued()
            case Send():
                return self._send(effect)
            case OpenChannel() | CloseChannel() | Trace():
                return None
            case _:
                raise AssertionError(f"unexpected: {effect}")

    def _send(self, send: Send) -> Answered:
        costs, broker = self.costs, self.brokers[send.broker_id]
        sender = Sender(self._elected.broker_id, self._elected.controller_epoch, send.generation)
        started = time.process_time()
        api_key, body = self._bodies.make(sender, send.batch)
        packed = time.process_time()
        request = decode_request(api_key, CONTROL_VERSIONS[api_key], body)
        decoded = time.process_time()
        costs.packing_s += packed - started
        costs.decoding_s[send.broker_id] += decoded - packed
        costs.requests += 1
        costs.request_bytes += len(body)
        assert isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest), request
        known = broker.metadata if isinstance(request, UpdateMetadataRequest) else broker.roles
        for topic in request.topic_states:
            first = int(topic.topic_name.removeprefix(_PREFIX)) * self._topic_partitions
            for state in topic.partition_states:
                known[first + state.partition_index] = state.leader_epoch
        return Answered(send.broker_id, send.generation, ErrorCode.NONE, {})
