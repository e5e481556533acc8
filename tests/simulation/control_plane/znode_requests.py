"""An operator that asks by znodes: /admin/reassign_partitions and /admin/preferred_replica_election.

Often just when another reassignment has ended, as a script does that goes on to the next partition. A request
that names live brokers and a known partition is carried out, or replaced by a later one for the same
partition: the controller takes none away that it has not begun. The API's request may be the later one where
it was sent before, as long as nobody has its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.core.reassignment import move_of
from quorum.core import queries
from quorum.core.codes import OP_CREATE, OP_SET_DATA
from quorum.core.results import Result
from quorum.metadata import paths
from quorum.metadata.admin_requests import PreferredElectionRecord, ReassignmentRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER

if TYPE_CHECKING:
    from tests.simulation.control_plane.world import World

EACH_MS = (300.0, 1500.0)
#: how soon after another reassignment has ended it goes on to the next
NEXT_MS = (0.0, 8.0)
#: how old a registration or a topic is so that the controller may be expected to know it
KNOWN_AFTER_MS = 2500

Replicas = tuple[int, ...]


@dataclass
class _Request:
    """One partition of a request that was written and is not begun yet."""

    topic_id: object
    target: Replicas
    #: whether the controller may have refused it, or had another request after it
    is_excused: bool


class ZnodeRequests:
    """What an operator asks for, and whether it is carried out."""

    def __init__(self, world: World) -> None:
        """Begin with nothing asked."""
        self._world = world
        self._rng = world.scheduler.rng("znode requests")
        self._open: dict[PartitionKey, _Request] = {}
        #: {partition: the API's requests for it that are not answered}
        self._by_api: Counter[PartitionKey] = Counter()
        self._moving: dict[PartitionKey, None] = {}
        #: {broker or topic: when it was registered or created last}
        self._since_ms: dict[int | str, float] = {}
        self.written = 0
        self.begun = 0
        self.is_asking = False

    def start(self) -> None:
        """Begin."""
        self.is_asking = True
        self._world.scheduler.at(2500, self._ask_again)

    def _ask_again(self) -> None:
        if self.is_asking:
            if self._rng.random() < 0.7:
                self._reassign()
            else:
                self._elect()
            self._world.scheduler.at(self._rng.uniform(*EACH_MS), self._ask_again)

    def _reassign(self) -> None:
        judge, rng, quorum = self._world.invariants, self._rng, self._world.quorum
        known = [(name, each) for name, record in sorted(judge.topics.items()) for each in record.partitions]
        if not self.is_asking or not known:
            return
        key = PartitionKey(*rng.choice(known))
        factor = self._world.plans[key.topic].replication_factor
        live = sorted(judge.registered)
        if len(live) < factor:
            return
        target = tuple(rng.sample(live, factor))
        before = self._written()
        value = ReassignmentRecord({**(before or {}), key: target}).encode()
        self._world.note(0, f"an operator writes that {key.topic}-{key.partition} goes to {list(target)}")
        self.written += 1
        topic_id = judge.topics[key.topic].topic_id
        is_excused = self._by_api[key] > 0 or not self._is_known(key, target)
        self._open[key] = _Request(topic_id, target, is_excused)
        if before is None:
            quorum.write(OP_CREATE, paths.REASSIGN_PARTITIONS, value, None, 0)
        else:
            quorum.write(OP_SET_DATA, paths.REASSIGN_PARTITIONS, value, -1)

    def _written(self) -> Mapping[PartitionKey, Replicas] | None:
        """Return what /admin/reassign_partitions holds; None: it is not there."""
        found = queries.get_data(self._world.quorum.machine, paths.REASSIGN_PARTITIONS)
        return None if isinstance(found, int) else ReassignmentRecord.decode(found[0]).targets

    def _elect(self) -> None:
        world = self._world
        if world.quorum.machine.tree.get(paths.PREFERRED_REPLICA_ELECTION) is not None:
            return
        keys = sorted(world.invariants.states)
        if keys:
            chosen = self._rng.sample(keys, self._rng.randint(1, len(keys)))
            value = PreferredElectionRecord(tuple(chosen)).encode()
            self.written += 1
            world.quorum.write(OP_CREATE, paths.PREFERRED_REPLICA_ELECTION, value, None, 0)

    def _is_known(self, key: PartitionKey, target: Replicas) -> bool:
        """Whether the controller should know a partition and all of its brokers."""
        now_ms, judge = self._world.scheduler.now_ms, self._world.invariants
        named: tuple[int | str, ...] = (*target, key.topic)
        return (
            all(each in judge.registered for each in target)
            and all(now_ms - self._since_ms.get(each, 0.0) >= KNOWN_AFTER_MS for each in named)
            and self._world.quorum.machine.tree.get(paths.delete_topic_path(key.topic)) is None
        )

    # -- what becomes of them --------------------------------------------------------------------------------

    def asked_by_api(self, key: PartitionKey) -> None:
        """Another request for a partition was sent by the API."""
        self._by_api[key] += 1
        if key in self._open:
            self._open[key].is_excused = True

    def answered_by_api(self, key: PartitionKey) -> None:
        """Such a request has had its effect, or has none any more."""
        self._by_api[key] -= 1

    def committed_command(self, result: Result, _command: Sequence[Any], _session: int) -> None:
        """Look at what a write has changed; the judge has seen it before."""
        if result.err:
            return
        now_ms = self._world.scheduler.now_ms
        paths_changed = [str(event[1]) for event in result.events or ()]
        for path in paths_changed:
            parts = path.split("/")
            if path.startswith(paths.BROKER_IDS + "/"):
                self._since_ms[int(parts[3])] = now_ms
            elif path.startswith(paths.BROKER_TOPICS + "/") and len(parts) == 4:
                self._topic_changed(parts[3])
        for key, request in self._open.items():
            request.is_excused = request.is_excused or not self._is_known(key, request.target)
        if paths.REASSIGN_PARTITIONS in paths_changed:
            self._request_changed()

    def _topic_changed(self, topic: str) -> None:
        judge = self._world.invariants
        record = judge.topics.get(topic)
        if record is None:
            self._since_ms.pop(topic, None)
            return
        self._since_ms.setdefault(topic, self._world.scheduler.now_ms)
        for partition, replicas in record.partitions.items():
            key, move = PartitionKey(topic, partition), move_of(record, partition)
            request = self._open.get(key)
            if request is not None and request.target == (replicas if move is None else move.target):
                self.begun += 1
                del self._open[key]
            if move is not None:
                self._moving[key] = None
            elif key in self._moving:
                del self._moving[key]
                if self.is_asking and self._rng.random() < 0.6:
                    self._world.scheduler.at(self._rng.uniform(*NEXT_MS), self._reassign)

    def _request_changed(self) -> None:
        left = self._written() or {}
        judge = self._world.invariants
        for key, request in list(self._open.items()):
            if left.get(key) == request.target:
                continue
            del self._open[key]
            record = judge.topics.get(key.topic)
            is_same = record is not None and record.topic_id == request.topic_id
            is_there = (
                is_same and record is not None and record.partitions.get(key.partition) == request.target
            )
            if not request.is_excused and is_same and not is_there:
                judge.fail(
                    f"I25: the request by znode that {key.topic}-{key.partition} goes to "
                    f"{list(request.target)} was taken away and is not begun"
                )

    def check_healed(self) -> None:
        """Nothing that was asked for is still to be begun."""
        judge = self._world.invariants
        for key, request in self._open.items():
            if not request.is_excused:
                judge.fail(f"I25: nobody begins that {key.topic}-{key.partition} goes to {request.target}")
        left = self._written()
        # A move of a partition that nobody can lead waits for an operator.
        if left is not None and not any(judge.states[key][0].leader == NO_LEADER for key in left):
            judge.fail(f"I25: nobody takes away the requests {left}")
        found = queries.get_data(self._world.quorum.machine, paths.PREFERRED_REPLICA_ELECTION)
        if not isinstance(found, int):
            judge.fail(f"I25: nobody carries out the elections {found[0]!r}")
