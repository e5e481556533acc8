"""Each violation of a control-plane invariant that is planted in a history is found, and nothing else."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from pipeline.jobs import invariants
from pipeline.jobs.changes import changes_schema
from quorum.metadata import paths
from quorum.metadata.numbers import LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import ControllerRecord, TopicRecord
from tests.pipeline.histories import Player

Seen = list[tuple[str, int, str, str]]
REPLICAS = (1, 2, 3)


class Planter(Player):
    """A player that also breaks rules, each in a partition of its own, and notes what must be found."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.expected: Seen = []
        for broker_id in (1, 2, 3):
            self.start(broker_id)
        self.react()
        self.create("planted", dict.fromkeys(range(20), REPLICAS))
        self.untouched = iter(range(20))

    def plant(self, path: str, value: bytes | None, session_id: int, *found: tuple[str, str]) -> None:
        self.commit([(path, value)], session_id)
        self.expected += [(invariant, self.zxid, path, seen) for invariant, seen in found]

    def state(self, invariant: str, seen: str, *, session_id: int | None = None, **fields: Any) -> None:
        """Write a state with these fields changed, as the controller unless another session is named."""
        key = PartitionKey("planted", next(self.untouched))
        value = replace(self.states[key], **fields).encode()
        by = self.sessions[self.controller or 0] if session_id is None else session_id
        self.plant(paths.partition_state_path(key), value, by, (invariant, seen))

    def topic(self, invariant: str, seen: str, before: TopicRecord, after: TopicRecord) -> None:
        """Change a topic's record, of a topic without states."""
        name = f"moved-{self.zxid}"
        path = paths.topic_path(name)
        self.commit([(path, before.encode())], self.sessions[1])
        self.plant(path, after.encode(), self.sessions[1], (invariant, seen.format(name=name)))


def plant_states(player: Planter) -> None:
    epoch = player.epoch
    session = player.sessions[player.controller or 0]
    plant = player.state
    plant("I18", "leader 1 is not in the ISR [2, 3]", isr=(2, 3), leader_epoch=1)
    plant("I18", "the leader epoch went from 0 to 2", leader_epoch=2)
    plant("I18", "leader 1 became 2 within leader epoch 0", leader=2, session_id=player.sessions[2])
    plant("I18", "ISR [1, 2, 3, 4] goes beyond the replicas [1, 2, 3]", isr=(1, 2, 3, 4), leader_epoch=1)
    plant("I16", f"controller epoch 0 was written while it was {epoch}", controller_epoch=0, leader_epoch=1)
    seen = f"session 77 decided; the controller of epoch {epoch} has session {session}"
    plant("I16", seen, leader_epoch=1, session_id=77)
    seen = f"session 78 changed the ISR for broker 1 of session {player.sessions[1]}"
    plant("I17", seen, isr=(1, 2), session_id=78)
    seen = "leader 1 was in the ISR [1, 2, 3], and the state calls its election unclean"
    plant("I20", seen, isr=(1,), leader_epoch=1, leader_recovery_state=1)
    key = PartitionKey("planted", next(player.untouched))
    player.plant(paths.partition_state_path(key), b"{", session, ("I18", "the state is malformed"))
    # Shrunk to one by its leader, then led by another that nobody marked.
    key = PartitionKey("planted", next(player.untouched))
    small = replace(player.states[key], isr=(1,))
    player.commit([(paths.partition_state_path(key), small.encode())], player.sessions[1])
    seen = "leader 2 was not in the ISR [1], and the state does not say so"
    other = replace(small, leader=2, isr=(2,), leader_epoch=LeaderEpoch(1))
    player.plant(paths.partition_state_path(key), other.encode(), session, ("I20", seen))


def plant_topics(player: Planter) -> None:
    ids = iter(uuid.UUID(int=number) for number in range(1, 50))

    def record(
        replicas: tuple[int, ...], adding: tuple[int, ...] = (), removing: tuple[int, ...] = ()
    ) -> TopicRecord:
        moves = ({0: adding} if adding else {}, {0: removing} if removing else {})
        return TopicRecord(next(ids), {0: replicas}, *moves)

    def change(seen: str, before: TopicRecord, **fields: Any) -> None:
        player.topic("I21", seen, before, replace(before, adding_replicas={}, removing_replicas={}, **fields))

    moving = record((3, 1, 2), (3,), (2,))
    seen = (
        "partition 0 went from replicas [3, 1, 2] to [3, 2], neither the target [3, 1] nor the origin [1, 2]"
    )
    change(seen, moving, partitions={0: (3, 2)})
    seen = "partition 0 went from replicas [1, 2] to [1, 3], without a reassignment"
    change(seen, record((1, 2)), partitions={0: (1, 3)})
    change("partition 0 is gone", record((1, 2)), partitions={})
    before = record((1, 2))
    after = replace(before, partitions={0: (3, 1)}, adding_replicas={0: (3,)})
    seen = "partition 0 went from replicas [1, 2] to [3, 1], with another origin [1]"
    player.topic("I21", seen, before, after)
    before = record((1, 2))
    player.topic("I22", "the id of topic {name} changed", before, replace(before, topic_id=next(ids)))
    again = paths.topic_path("again")
    seen = "topic again was created with the id of an earlier topic planted"
    player.plant(again, player.topics["planted"].encode(), player.sessions[1], ("I22", seen))
    state = replace(player.states[PartitionKey("planted", 0)], leader_epoch=LeaderEpoch(5))
    seen = "a new partition began with leader epoch 5"
    path = paths.partition_state_path(PartitionKey("again", 0))
    player.plant(path, state.encode(), player.sessions[player.controller or 0], ("I22", seen))


def plant_brokers_and_controllers(player: Planter) -> None:
    seen = "broker 9 registered without recording its generation"
    player.plant(paths.broker_id_path(9), b"{}", 900, ("I17", seen))
    key = PartitionKey("planted", next(player.untouched))
    player.commit([(paths.broker_id_path(1), None)], player.sessions[1])
    seen = f"session {player.sessions[1]} changed the ISR for broker 1, which is not registered"
    shrunk = replace(player.states[key], isr=(1, 3)).encode()
    player.plant(paths.partition_state_path(key), shrunk, player.sessions[1], ("I17", seen))
    elected = next(row.zxid for row in player.rows if row.path == paths.CONTROLLER)
    player.commit([(paths.CONTROLLER, None)], 0)
    player.plant(
        *(paths.CONTROLLER, ControllerRecord(2, 0).encode(), player.sessions[2]),
        ("I16", f"a controller was elected without raising epoch {player.epoch}"),
        ("I16", f"epoch {player.epoch} had a controller already, by zxid {elected}"),
    )
    seen = f"the controller epoch went from {player.epoch} to {player.epoch + 2}"
    player.plant(paths.CONTROLLER_EPOCH, b"%d" % (player.epoch + 2), 0, ("I16", seen))


def test_every_planted_violation_is_found(spark: SparkSession) -> None:
    player = Planter(seed=3)
    plant_states(player)
    plant_topics(player)
    plant_brokers_and_controllers(player)
    rows = spark.createDataFrame(player.rows, changes_schema()).coalesce(1).cache()
    found = [tuple(row) for row in invariants.compute(rows).drop("ts").collect()]
    rows.unpersist()
    assert found == sorted(player.expected, key=lambda each: (each[1], each[2], each[0], each[3]))
    assert {each[0] for each in found} == {"I16", "I17", "I18", "I20", "I21", "I22"}
