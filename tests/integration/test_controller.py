"""The controller over a real quorum: topics, failures, bounces, disks, failover.

Each test runs an embedded quorum of one node; scripted brokers and the candidates share the test's event
loop. What fences a former controller stands in test_controller_fences.py.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from dataclasses import replace

import pytest

from controller.core.effects import Write
from controller.core.inputs import Done, Input, MultiDone, Unknown
from controller.core.requests import NewPartitions, NewTopic
from controller.messages.entities import (
    ControlRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from controller.runtime.shell import Shell
from controller.wire.codes import ErrorCode
from quorum.client import NoNodeError
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    RECOVERED,
    RECOVERING,
    IncarnationRecord,
    LogEnd,
    TopicConfigRecord,
    TopicRecord,
    topic_label,
)
from tests.support.controlled_cluster import (
    KEY,
    TOPIC,
    ControlledCluster,
    before_states_are_written,
    both_channels,
    cluster,
    term_of,
    until,
    until_read,
    until_state,
    writes_states,
)
from tests.support.scripted_broker import ScriptedBroker, request_kinds
from tests.support.written_states import create_topic

__all__ = ["cluster"]

OTHER = PartitionKey(TOPIC, 1)
UNCLEAN = TopicConfigRecord({"unclean.leader.election.enable": "true"}).encode()


async def exists(broker: ScriptedBroker, path: str) -> bool:
    return await broker.client.exists(path) is not None


# -- topics --------------------------------------------------------------------------------------------------


@both_channels
async def test_a_new_topic_gets_leaders_and_every_broker_learns_of_them(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (3, 2)})
    await until(lambda: all(len(broker.metadata) == 2 for broker in (one, two, three)))
    assert two.leader_of(KEY) == three.leader_of(KEY) == 2
    assert two.leader_of(OTHER) == three.leader_of(OTHER) == 3
    assert one.states == {}
    assert two.states[KEY].is_new
    state = await one.read_state(KEY)
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch, state.controller_epoch) == (2, (2, 3), 0, 1)


@both_channels
async def test_a_broker_that_comes_later_learns_of_every_topic(cluster: ControlledCluster) -> None:
    await cluster.start(2)
    await cluster.create({0: (1, 2), 1: (2,)})
    three = await cluster.add(3)
    await until(lambda: set(three.metadata) == {KEY, OTHER} and three.live_brokers == [1, 2, 3])
    assert request_kinds(three.requests)[0] == "UpdateMetadata"


@both_channels
async def test_a_topic_by_request_is_led_when_the_answer_comes(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    wanted = NewTopic(TOPIC, 4, 2, settings={"min.insync.replicas": "2"})
    outcome = (await cluster.active.create_topics([wanted], timeout_ms=10_000, validate_only=False))[TOPIC]
    assert (outcome.error_code, outcome.num_partitions, outcome.replication_factor) == (ErrorCode.NONE, 4, 2)
    assert len(one.metadata) == len(two.metadata) == len(one.states) == len(two.states) == 4
    assert {state.leader for state in one.states.values()} == {1, 2}
    data, _ = await one.client.get(paths.config_topic_path(TOPIC))
    assert TopicConfigRecord.decode(TOPIC, data).settings == {"min.insync.replicas": "2"}


async def test_a_request_is_refused_by_kafkas_codes_and_changes_nothing(cluster: ControlledCluster) -> None:
    (one,) = await cluster.start(1)
    wanted = [
        NewTopic("bad name"),
        NewTopic("none", 0),
        NewTopic("many", 1, 2),
        NewTopic("odd", 1, 1, settings={"cleanup.policy": "compacted"}),
        NewTopic("null", 1, 1, settings={"retention.ms": None}),
        NewTopic("a.b", 0),
        NewTopic("a_b"),
    ]
    outcomes = await cluster.active.create_topics(wanted, timeout_ms=10_000, validate_only=False)
    assert {name: each.error_code for name, each in outcomes.items()} == {
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.INVALID_PARTITIONS,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
        "odd": ErrorCode.INVALID_CONFIG,
        "null": ErrorCode.INVALID_CONFIG,
        "a.b": ErrorCode.INVALID_PARTITIONS,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert outcomes["a_b"].message == "Topic 'a_b' collides with existing topic: a.b"
    checked = await cluster.active.create_topics([NewTopic("dry")], timeout_ms=10_000, validate_only=True)
    assert checked["dry"].error_code == ErrorCode.NONE
    assert await one.client.get_children(paths.BROKER_TOPICS) == []
    unknown = await cluster.active.delete_topics(["nowhere"], timeout_ms=10_000)
    assert unknown["nowhere"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_candidate_that_does_not_lead_says_so(cluster: ControlledCluster) -> None:
    await cluster.start(1)
    two = await cluster.add(2, candidate=True)
    controller = two.controller
    assert controller is not None
    await until(lambda: controller.status().controller_id == 1)
    assert not controller.active
    outcomes = await controller.create_topics([NewTopic(TOPIC)], timeout_ms=1_000, validate_only=False)
    assert outcomes[TOPIC].error_code == ErrorCode.NOT_CONTROLLER


async def test_partitions_are_added_by_request_and_by_znode(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (1, 2)})
    added = await cluster.active.create_partitions(
        [NewPartitions(TOPIC, 3)], timeout_ms=10_000, validate_only=False
    )
    assert (added[TOPIC].error_code, added[TOPIC].num_partitions) == (ErrorCode.NONE, 3)
    assert len(one.states) == len(two.states) == 3
    data, stat = await one.client.get(paths.topic_path(TOPIC))
    record = TopicRecord.decode(TOPIC, data)
    more = TopicRecord(record.topic_id, {**record.partitions, 3: (2,)})
    await one.client.set(paths.topic_path(TOPIC), more.encode(), stat.version)
    await until(lambda: two.leader_of(PartitionKey(TOPIC, 3)) == 2)


@both_channels
@pytest.mark.parametrize("by_request", [True, False], ids=["by request", "by znode"])
async def test_a_deleted_topic_goes_from_brokers_and_quorum(
    cluster: ControlledCluster, by_request: bool
) -> None:
    one, two, three = await cluster.start(3)
    wanted = NewTopic(TOPIC, assignments={0: (2, 3), 1: (3, 1)}, settings={"retention.ms": "1"})
    await cluster.active.create_topics([wanted], timeout_ms=10_000, validate_only=False)
    if by_request:
        outcomes = await cluster.active.delete_topics([TOPIC], timeout_ms=10_000)
        assert outcomes[TOPIC].error_code == ErrorCode.NONE
    else:
        await one.client.create(paths.delete_topic_path(TOPIC))
        await until_read(lambda: exists(one, paths.delete_topic_path(TOPIC)), lambda there: not there)
    assert not await exists(one, paths.topic_path(TOPIC))
    assert not await exists(one, paths.config_topic_path(TOPIC))
    assert one.stopped == [OTHER]
    assert two.stopped == [KEY]
    assert sorted(three.stopped) == [KEY, OTHER]
    assert one.metadata == two.metadata == three.metadata == {}
    assert cluster.active.status().offline == ()


@both_channels
async def test_a_deletion_waits_for_live_brokers_and_not_for_dead_ones(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await three.die()
    await until(lambda: two.states[KEY].isr == (2,))
    two.answers.clear()
    late = await cluster.active.delete_topics([TOPIC], timeout_ms=300)
    assert late[TOPIC].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert await exists(one, paths.topic_path(TOPIC))
    two.answers.set()
    await until_read(lambda: exists(one, paths.topic_path(TOPIC)), lambda there: not there)
    assert two.stopped == [KEY]


@both_channels
async def test_a_new_controller_finishes_a_deletion(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,)})
    two.answers.clear()
    await one.client.create(paths.delete_topic_path(TOPIC))
    await until(lambda: TOPIC in term_of(cluster.active).machine.model.deleting)
    await one.die()
    two.compete()
    two.answers.set()
    await until_read(lambda: exists(two, paths.topic_path(TOPIC)), lambda there: not there)
    assert KEY in two.stopped


@both_channels
async def test_a_topic_whose_znode_goes_is_stopped_and_may_come_again(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,)})
    await until(lambda: KEY in two.metadata)
    first = two.metadata[KEY]
    for path in (
        paths.partition_state_path(KEY),
        paths.partition_path(KEY),
        paths.topic_partitions_path(TOPIC),
        paths.topic_path(TOPIC),
    ):
        await one.client.delete(path)
    await until(lambda: two.stopped == [KEY] and KEY not in two.metadata)
    await cluster.create({0: (2, 1)})
    # By queues its role comes before the metadata.
    await until(lambda: two.leader_of(KEY) == 2 and two.metadata.get(KEY, first) != first)


async def test_a_malformed_topic_is_logged_once_and_the_others_go_on(
    cluster: ControlledCluster, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = await cluster.start(2)
    await one.client.create(paths.topic_path("bad"), b'{"version":3')
    await one.client.create(
        paths.topic_path("twice"), json.dumps({"version": 1, "partitions": {"0": [1, 1]}}).encode()
    )
    await one.client.create(paths.topic_path("not a name"), TopicRecord(None, {0: (1,)}).encode())
    # No file system has a folder of such a name.
    long = "a" * 249
    await one.client.create(paths.topic_path(long), TopicRecord(None, {100_000: (1,)}).encode())
    await cluster.create({0: (2, 1)})
    await until(lambda: set(cluster.active.status().left_alone) == {"bad", "twice", "not a name", long})
    await one.client.set(paths.topic_path("bad"), b'{"version":3')
    await two.die()
    await until(lambda: one.leader_of(KEY) == 1)
    said = [record.message for record in caplog.records if "left alone" in record.message]
    assert sorted(message.split(" is left")[0] for message in said) == [
        f"topic {long}",
        "topic bad",
        "topic not a name",
        "topic twice",
    ]
    # Corrected, it is a topic like any other.
    await one.client.set(paths.topic_path("bad"), TopicRecord(None, {0: (1,)}).encode())
    await until(lambda: one.leader_of(PartitionKey("bad", 0)) == 1)


async def test_a_partition_taken_from_an_assignment_is_not_deleted(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,), 1: (2,)})
    data, _ = await one.client.get(paths.topic_path(TOPIC))
    record = TopicRecord.decode(TOPIC, data)
    fewer = TopicRecord(record.topic_id, {0: (2,)}).encode()
    await one.client.set(paths.topic_path(TOPIC), fewer)
    await until(lambda: TOPIC in cluster.active.status().left_alone)
    assert set(two.states) == {KEY, OTHER}
    await one.client.set(paths.topic_path(TOPIC), data)
    await until(lambda: cluster.active.status().left_alone == {})
    assert two.stopped == []


async def test_a_malformed_state_stops_decisions_until_it_is_corrected(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    good, _ = await one.client.get(paths.partition_state_path(KEY))
    await one.client.set(paths.partition_state_path(KEY), b"[]")
    await until(lambda: TOPIC in cluster.active.status().left_alone)
    await two.die()
    await until(lambda: three.live_brokers == [1, 3])
    assert three.leader_of(KEY) == 2
    await one.client.set(paths.partition_state_path(KEY), good)
    await until(lambda: three.leader_of(KEY) == 3)


# -- failures ------------------------------------------------------------------------------------------------


@both_channels
async def test_a_dead_brokers_partitions_get_a_new_leader_and_it_leaves_every_isr(
    cluster: ControlledCluster,
) -> None:
    _, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (3, 2)})
    await two.die()
    await until(lambda: three.leader_of(KEY) == 3)
    assert (three.states[KEY].leader_epoch, three.states[KEY].isr) == (1, (3,))
    await until(lambda: three.states[OTHER].isr == (3,))
    await until(lambda: three.live_brokers == [1, 3])
    await until(lambda: three.metadata[KEY].offline_replicas == (2,))


@both_channels
async def test_with_one_replica_a_dead_broker_means_offline_and_back_with_it(
    cluster: ControlledCluster,
) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2,)})
    await two.die()
    await until(lambda: one.metadata[KEY].leader == -1)
    state = await until_state(one, lambda state: state.leader == -1)
    assert (state.isr, state.leader_epoch) == ((2,), 1)
    assert cluster.active.status().offline == (KEY,)
    await two.live()
    await until(lambda: two.leader_of(KEY) == 2 and one.metadata[KEY].leader == 2)
    assert two.states[KEY].leader_epoch == 2


async def test_an_unclean_election_needs_the_setting_and_is_marked(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await two.set_isr(KEY, (2,))
    await two.die()
    await until(lambda: one.metadata[KEY].leader == -1)
    assert three.leader_of(KEY) == -1
    # Allowed later, it happens at once.
    await one.client.create(paths.config_topic_path(TOPIC), UNCLEAN)
    await until(lambda: three.leader_of(KEY) == 3)
    assert (three.states[KEY].isr, three.states[KEY].leader_recovery_state) == ((3,), RECOVERING)
    assert cluster.active.status().counters.unclean_elections == 1


async def test_a_new_partition_whose_brokers_are_dead_waits_for_them(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await two.die()
    await until(lambda: one.live_brokers == [1])
    await create_topic(one.client, TOPIC, TopicRecord(uuid.uuid4(), {0: (2,)}))
    await until(lambda: cluster.active.status().offline == (KEY,))
    await two.live()
    await until(lambda: two.leader_of(KEY) == 2)


@both_channels
async def test_a_leaders_isr_change_reaches_every_brokers_metadata_and_no_role(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await until(lambda: KEY in one.metadata and KEY in three.metadata)
    two.requests.clear()
    version = await two.set_isr(KEY, (2,))
    await until(lambda: all(broker.metadata[KEY].isr == (2,) for broker in (one, two, three)))
    assert one.metadata[KEY].zk_version == version
    assert request_kinds(two.requests) == ["UpdateMetadata"]
    assert cluster.active.status().under_replicated == (KEY,)


async def test_a_broker_outside_the_isr_is_not_elected(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3, 1)})
    await two.set_isr(KEY, (1, 2))
    # The event of the ISR change precedes that of the death, so no cache can be too old here.
    await two.die()
    await until(lambda: one.leader_of(KEY) == 1)
    assert one.states[KEY].isr == (1,)
    assert three.states[KEY].isr == (1,)


@both_channels
async def test_an_isr_change_between_reading_and_writing_is_decided_again(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3, 1), 1: (2, 3)})
    changed: list[int] = []

    async def interfere() -> None:
        if not changed:
            changed.append(await one.set_isr(KEY, (2, 1)))

    before_states_are_written(monkeypatch, interfere)
    await two.die()
    await until(lambda: one.leader_of(KEY) == 1 and three.leader_of(OTHER) == 3)
    assert (one.states[KEY].isr, one.states[KEY].leader_epoch) == ((1,), 1)
    assert three.states[OTHER].leader_epoch == 1
    assert cluster.active.status().counters.rounds_repeated == 1


@both_channels
async def test_a_partition_that_changes_in_every_round_holds_up_no_other(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3, 1), 1: (2, 3)})
    rounds: list[int] = []

    async def interfere() -> None:
        if len(rounds) < 6:
            rounds.append(await one.set_isr(KEY, (2, 1) if len(rounds) % 2 else (2, 3, 1)))

    before_states_are_written(monkeypatch, interfere)
    await two.die()
    await until(lambda: one.leader_of(KEY) == 1 or three.leader_of(KEY) == 3)
    await until(lambda: three.leader_of(OTHER) == 3)
    assert three.states[OTHER].leader_epoch == one.states[KEY].leader_epoch == 1


@both_channels
async def test_after_an_unknown_outcome_the_states_are_read_and_published(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    write = Shell.write
    lost: list[Input] = []

    async def lose_the_reply(shell: Shell, effect: Write) -> MultiDone:
        done = await write(shell, effect)
        if lost or not writes_states(effect):
            return done
        lost.append(done)
        assert done.outcome == Done()
        return MultiDone(effect.id, Unknown("the connection broke"))

    monkeypatch.setattr(Shell, "write", lose_the_reply)
    await two.die()
    await until(lambda: three.leader_of(KEY) == 3)
    # Written once: the second look found it done.
    assert three.states[KEY].leader_epoch == 1


# -- bounces and disks ---------------------------------------------------------------------------------------


@both_channels
async def test_a_bounce_between_two_looks_is_a_failure_and_a_start(cluster: ControlledCluster) -> None:
    _, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (2,), 2: (3, 2)})
    former = two.generation
    two.requests.clear()
    # In one multi: whoever looks at ids alone sees no change.
    await two.bounce()
    assert two.generation > former
    await until(lambda: three.leader_of(KEY) == 3 and two.leader_of(KEY) == 3)
    assert (two.states[KEY].isr, two.states[KEY].leader_epoch) == ((3,), 1)
    await until(lambda: two.leader_of(OTHER) == 2)
    # Offline first, then led again.
    assert two.states[OTHER].leader_epoch == 2
    await until(lambda: two.states[PartitionKey(TOPIC, 2)].isr == (3,))
    assert cluster.active.status().brokers.get(2) == two.generation
    kinds = request_kinds([each for each in two.requests if generation_in(each) == two.generation])
    assert kinds[0] == "UpdateMetadata"


def generation_in(request: ControlRequest) -> int:
    assert isinstance(request, LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest)
    return request.broker_epoch


@pytest.mark.parametrize("kind", [LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest])
async def test_a_request_held_back_until_the_broker_has_restarted_is_refused_once(
    cluster: ControlledCluster, kind: type[ControlRequest]
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    await cluster.create({0: (2, 3)}, "other")
    await until(lambda: PartitionKey("other", 0) in one.metadata)
    two.requests.clear()
    two.answered.clear()
    two.answers.clear()
    if kind is StopReplicaRequest:
        await one.client.create(paths.delete_topic_path("other"))
    elif kind is UpdateMetadataRequest:
        await two.set_isr(KEY, (2,))
    else:
        await three.die()
    await until(lambda: two.requests)
    assert isinstance(two.requests[0], kind)
    former = two.generation
    # The relay of this test: the request of the former life is still on its way to the new one.
    await two.bounce()
    two.answers.set()
    await until(lambda: cluster.active.status().brokers.get(2) == two.generation)
    await until(lambda: any(generation_in(each) == two.generation for each in two.requests))
    stale = [
        code for each, code in zip(two.requests, two.answered, strict=False) if generation_in(each) == former
    ]
    assert stale in ([], [ErrorCode.STALE_BROKER_EPOCH])
    assert len([each for each in two.requests if generation_in(each) == former]) == 1


async def test_a_stale_generation_is_never_sent_again(cluster: ControlledCluster) -> None:
    _, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    two.requests.clear()
    two.answered.clear()
    # The broker knows of its bounce before the controller can.
    two.script = lambda _request: ErrorCode.STALE_BROKER_EPOCH
    await two.set_isr(KEY, (2,))
    await until(lambda: cluster.active.status().counters.stale_generations == 1)
    # As long as it takes to tell the others ten times: the pause before a repetition is shorter.
    for isr in 5 * [(2, 3), (2,)]:
        await two.set_isr(KEY, isr)
        await until(lambda isr=isr: three.metadata[KEY].isr == isr)  # type: ignore[misc]
    assert len(two.requests) == 1


@both_channels
async def test_a_bounce_that_no_controller_saw_raises_the_leader_epoch(cluster: ControlledCluster) -> None:
    one, two, _ = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (3, 2)})
    await one.die()
    await two.bounce()
    await one.live(candidate=True)
    await until(lambda: two.leader_of(KEY) == 2)
    state = await until_state(one, lambda state: state.leader_epoch == 1)
    assert (state.leader, state.isr, state.controller_epoch) == (2, (2, 3), 2)
    # A follower that bounced changes nothing, and neither does a second look.
    other = await one.read_state(OTHER)
    assert other is not None
    assert other.leader_epoch == 0
    await until(lambda: two.states[KEY].leader_epoch == 1)


@both_channels
async def test_a_replaced_disk_leaves_every_isr_before_its_broker_learns_a_role(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (2,)})
    await two.die()
    await until(lambda: three.leader_of(KEY) == 3)
    await two.live(incarnation="e" * 32)
    await until(lambda: OTHER in two.metadata)
    state = await until_state(one, lambda state: state.isr == (), OTHER)
    assert state.leader == -1
    await until(lambda: cluster.active.status().counters.disks_replaced == 1)
    assert b"e" * 32 in (await two.incarnation_on_record() or b"")
    # It never led a partition with its empty disk.
    assert not any(
        each.leader == 2
        for request in two.requests
        if isinstance(request, LeaderAndIsrRequest) and request.broker_epoch == two.generation
        for topic in request.topic_states
        for each in topic.partition_states
    )


async def test_the_emptied_broker_that_starts_first_leads_nothing(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (1, 2, 3)})
    await one.die()
    await two.die()
    await three.die()
    await one.live(candidate=True, incarnation="e" * 32)
    # Nobody saw the others go, so they are still members; the emptied one is not.
    state = await until_state(one, lambda state: 1 not in state.isr)
    assert (state.leader, state.isr) == (-1, (2, 3))
    # The controller is killed, too: what it judged stands in the quorum.
    await one.die()
    await one.live(candidate=True)
    await until(lambda: KEY in one.metadata and one.leader_of(KEY) == -1)
    await two.live()
    await until(lambda: one.leader_of(KEY) == 2)
    assert one.states[KEY].isr == (2,)


@both_channels
async def test_a_broker_hears_nothing_before_its_disk_is_judged(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2, 1)})
    await one.die()
    await two.die()
    # The state still names broker 2 as the leader, and its disk is another one now.
    await two.live(incarnation="e" * 32)
    two.requests.clear()
    heard: list[int] = []

    async def dawdle() -> None:
        for _ in range(100):
            await two.client.sync()
        heard.append(len(two.requests))

    before_states_are_written(monkeypatch, dawdle)
    two.compete()
    state = await until_state(two, lambda state: 2 not in state.isr)
    assert (state.leader, state.isr) == (-1, (1,))
    await until(lambda: two.leader_of(KEY) == -1)
    assert heard[0] == 0


async def test_incarnations_are_recorded_only_after_the_memberships_are_gone(
    cluster: ControlledCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    on_record = await two.incarnation_on_record()
    await two.die()
    await until_state(one, lambda state: state.isr == (3,))
    await cluster.create({0: (3,)}, "other")
    # A controller that dies between the two: the next one judges again.
    await cluster.active.stop()
    seen: list[bytes | None] = []

    async def look() -> None:
        seen.append(await two.incarnation_on_record())

    before_states_are_written(monkeypatch, look)
    data, stat = await one.client.get(paths.partition_state_path(KEY))
    assert data is not None
    await one.client.set(paths.partition_state_path(KEY), data.replace(b"[3]", b"[3,2]"), stat.version)
    await two.live(incarnation="e" * 32)
    one.compete()
    await until_state(one, lambda state: state.isr == (3,))
    await until_read(two.incarnation_on_record, lambda value: value is not None and b"eee" in value)
    assert seen[0] == on_record


@both_channels
async def test_a_shortened_log_is_judged_once_whatever_becomes_of_the_controller(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (2,)})
    topic = await one.client.get(paths.topic_path(TOPIC))
    label = topic_label(TOPIC, TopicRecord.decode(TOPIC, topic[0]).topic_id)
    await two.die()
    await until(lambda: three.leader_of(KEY) == 3)
    # It comes back before its leader is gone, and is in the ISR again: as if nobody had seen it go.
    data, stat = await one.client.get(paths.partition_state_path(KEY))
    assert data is not None
    await cluster.active.stop()
    await one.client.set(paths.partition_state_path(KEY), data.replace(b"[3]", b"[3,2]"), stat.version)
    two.shortened = {label: {0: LogEnd(0, 5)}}
    await two.live()
    one.compete()
    state = await until_state(one, lambda state: state.isr == (3,))
    assert state.shortened == {2: (0, 5)}
    # The partition that it alone has, and whole, is led again as it was.
    await until(lambda: two.leader_of(OTHER) == 2)
    record = await two.incarnation_on_record()
    assert record is not None
    assert IncarnationRecord.decode(2, record).generation == two.generation
    # Its leader takes it in again, and no later look or controller minds what the registration still says.
    data, stat = await one.client.get(paths.partition_state_path(KEY))
    joined = replace(state, isr=(3, 2), shortened={})
    await one.client.set(paths.partition_state_path(KEY), joined.encode(), stat.version)
    await cluster.active.stop()
    one.compete()
    await until(lambda: sorted(cluster.active.status().brokers) == [1, 2, 3])
    await three.die()
    state = await until_state(one, lambda state: state.leader == 2)
    assert (state.isr, state.leader_recovery_state) == ((2,), RECOVERED)


# -- failover ------------------------------------------------------------------------------------------------


@both_channels
async def test_a_new_controller_publishes_everything_again(cluster: ControlledCluster) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3), 1: (1, 3)})
    await until(lambda: OTHER in two.metadata and OTHER in three.metadata)
    for broker in (two, three):
        broker.forget()
    two.compete()
    await one.die()
    await until(lambda: three.leader_of(KEY) == 2 and three.leader_of(OTHER) == 3)
    await until(lambda: len(two.metadata) == len(three.metadata) == 2)
    assert two.controller_epoch == three.controller_epoch == 2
    # What needed no decision was published as it stood.
    assert (three.states[KEY].leader_epoch, three.states[KEY].controller_epoch) == (0, 1)
    assert (three.states[OTHER].leader_epoch, three.states[OTHER].controller_epoch) == (1, 2)


async def test_decisions_that_were_written_but_not_sent_are_sent_by_the_next_controller(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    for broker in (one, three):
        broker.answers.clear()
    await two.die()
    await until_state(one, lambda state: state.leader == 3)
    # Killed after its multi: no request got through.
    assert three.leader_of(KEY) == 2
    three.cut()
    await one.die()
    three.answers.set()
    three.compete()
    await until(lambda: three.leader_of(KEY) == 3)
    assert (three.states[KEY].leader_epoch, three.controller_epoch) == (1, 2)


async def test_topics_that_came_while_no_controller_lived_get_leaders(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await one.die()
    await create_topic(two.client, TOPIC, TopicRecord(uuid.uuid4(), {0: (2,)}))
    two.compete()
    await until(lambda: two.leader_of(KEY) == 2)
    assert two.states[KEY].controller_epoch == 2


async def test_a_broken_connection_to_a_broker_is_made_again(cluster: ControlledCluster) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2, 1)})
    await until(lambda: KEY in one.metadata and KEY in two.metadata)
    two.answers.clear()
    await two.set_isr(KEY, (2,))
    await until(lambda: request_kinds(two.requests)[-1] == "UpdateMetadata")
    two.cut()
    two.answers.set()
    await until(lambda: two.metadata[KEY].isr == (2,))
    assert cluster.active.status().counters.requests_repeated >= 1


async def test_an_answer_that_does_not_come_in_time_makes_the_request_come_again(
    cluster: ControlledCluster,
) -> None:
    one, two = await cluster.start(2)
    await cluster.create({0: (2, 1)})
    await until(lambda: KEY in one.metadata and KEY in two.metadata)
    two.answers.clear()
    await two.set_isr(KEY, (2,))
    await until(lambda: cluster.active.status().counters.requests_repeated >= 1)
    two.answers.set()
    await until(lambda: two.metadata[KEY].isr == (2,))


async def test_what_a_broken_connection_to_the_quorum_hid_is_read_afterwards(
    cluster: ControlledCluster,
) -> None:
    one, two, three = await cluster.start(3)
    await cluster.create({0: (2, 3)})
    async with one.deaf():
        await create_topic(two.client, "unseen", TopicRecord(uuid.uuid4(), {0: (3,)}))
        await two.die()
        await one.client.sync()
        assert three.leader_of(KEY) == 2
    await until(lambda: three.leader_of(KEY) == 3)
    await until(lambda: three.leader_of(PartitionKey("unseen", 0)) == 3)
    assert cluster.active.controller_epoch == 1


async def test_a_lost_session_ends_the_candidate(cluster: ControlledCluster) -> None:
    (one,) = await cluster.start(1)
    running = one.running
    assert running is not None
    await one.client.close()
    async with asyncio.timeout(10):
        await running
    assert one.controller is not None
    assert not one.controller.active
    with pytest.raises(NoNodeError):
        async with one._new_client() as client:
            await client.get(paths.CONTROLLER)
