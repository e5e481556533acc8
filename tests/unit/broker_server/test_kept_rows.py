"""Metadata from kept rows: the bytes are those that are written without them, after every change."""

import uuid
from collections.abc import Awaitable, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.core.cluster_view import ClusterView
from broker.server.api.metadata import ROW_VERSIONS_MAX, partition_row
from broker.server.handlers import ApiHandlers
from broker.server.requests import Request
from broker.server.table import FOR_CLIENTS
from broker.wire.codec import LongResponse, encode_request, encode_response
from controller.messages.entities import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from tests.support.broker_services import CLUSTER_ID, services
from tests.support.broker_wire import whole

VERSIONS = FOR_CLIENTS[ApiKey.METADATA].versions
NAMES = ["a", "b", "täglich", "no/name"]
IDS = [uuid.UUID(int=each) for each in range(1, 5)]
Asked = Sequence[str | uuid.UUID] | None
PEERS = st.lists(st.integers(1, 3), unique=True, max_size=3).map(tuple)


class Settings:
    auto_create_topics = False

    @property
    def broker(self) -> "Settings":
        return self


def update(brokers: tuple[int, ...], topics: tuple[UpdateMetadataTopicState, ...]) -> UpdateMetadataRequest:
    def live(number: int) -> UpdateMetadataBroker:
        endpoint = UpdateMetadataEndpoint(port=number, host="h", listener="CLIENT", security_protocol=0)
        return UpdateMetadataBroker(id=number, endpoints=(endpoint,), rack="r" if number == 2 else None)

    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=ControllerEpoch(1),
        broker_epoch=BrokerGeneration(1),
        topic_states=topics,
        live_brokers=tuple(map(live, brokers)),
    )


def partition(index: int, leader: int, epoch: int, replicas: tuple[int, ...]) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=ControllerEpoch(1),
        leader=leader,
        leader_epoch=LeaderEpoch(epoch),
        isr=replicas[:1],
        zk_version=PartitionVersion(0),
        replicas=replicas,
    )


def topic(name: str, *partitions: UpdateMetadataPartitionState, number: int = 0) -> UpdateMetadataTopicState:
    # No two topics have the same id.
    topic_id = IDS[NAMES.index(name)] if number == 0 else uuid.uuid5(IDS[number], name)
    return UpdateMetadataTopicState(topic_name=name, topic_id=topic_id, partition_states=partitions)


PARTITIONS = st.builds(partition, st.integers(0, 2), st.integers(-2, 3), st.integers(0, 2), PEERS)
TOPICS = st.builds(
    lambda name, states, number: topic(name, *states, number=number),
    st.sampled_from(NAMES[:3]),
    st.lists(PARTITIONS, min_size=1, max_size=3),
    st.sampled_from([0, 0, 1]),
)
UPDATES = st.builds(update, PEERS, st.lists(TOPICS, max_size=2).map(tuple))
#: As Kafka answers them without access lists.
ALL_OF_A_TOPIC, ALL_OF_THE_CLUSTER = 3576, 8096
#: None: all topics
ASKED = st.none() | st.lists(st.sampled_from([*NAMES, *IDS]), max_size=4)


def ask(view: ClusterView, version: int, asked: Asked, flag: bool = False) -> LongResponse:
    """Return the response, not written yet."""
    # Version 0 has no null: an empty list asks for all. Ids are known from 10 on, names are null from 12 on.
    rows = [
        {"name": None if version >= 12 else "", "topic_id": each}
        if isinstance(each, uuid.UUID)
        else {"name": each, "topic_id": None}
        for each in asked or ()
        if version >= 10 or isinstance(each, str)
    ]
    flags = ("allow_auto_topic_creation", "include_cluster_authorized_operations")
    values = {"topics": rows if asked is not None or version == 0 else None, **dict.fromkeys(flags, flag)}
    values["include_topic_authorized_operations"] = flag
    body = memoryview(encode_request(ApiKey.METADATA, version, values))
    request = Request(ApiKey.METADATA, version, 1, "test", body, len(body), 0.0)
    answer = ApiHandlers(services(view, config=Settings()), for_brokers=False).handle(request)
    assert isinstance(answer, Awaitable)
    with pytest.raises(StopIteration) as end:
        answer.__await__().__next__()
    found = end.value.value
    answer.close()  # type: ignore[attr-defined]
    assert isinstance(found, LongResponse)
    return found


def written_anew(view: ClusterView, version: int, asked: Asked, flag: bool = False) -> bytes:
    """Return the answer that the view's content makes, whole."""

    def found(name: str) -> dict[str, Any]:
        topic = view.topics[name]
        rows = [partition_row(view.brokers, *each)._asdict() for each in sorted(topic.partitions.items())]
        may = {"topic_authorized_operations": ALL_OF_A_TOPIC} if flag else {}
        return {"error_code": 0, "name": name, "topic_id": topic.topic_id, "partitions": rows, **may}

    def rows() -> Iterator[dict[str, Any]]:
        names = [each for each in asked or () if version >= 10 or isinstance(each, str)]
        if asked is None or (version == 0 and not names):
            yield from map(found, view.topics)
            return
        for each in dict.fromkeys(
            view.topic_name(each) or each if isinstance(each, uuid.UUID) else each for each in names
        ):
            if isinstance(each, uuid.UUID):
                name = None if version >= 12 else ""
                code, topic_id = ErrorCode.UNKNOWN_TOPIC_ID, each
            elif each in view.topics:
                yield found(each)
                continue
            else:
                name, topic_id = each, None
                code = (
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if view.received else ErrorCode.LEADER_NOT_AVAILABLE
                )
                if not each.isascii() or "/" in each:
                    code = ErrorCode.INVALID_TOPIC_EXCEPTION
            yield {"error_code": code, "name": name, "topic_id": topic_id, "partitions": ()}

    brokers = [
        {"node_id": each, "host": "h", "port": each, "rack": row.rack}
        for each, row in sorted(view.brokers.items())
    ]
    controller = 1 if 1 in view.brokers else -1
    values = {"brokers": brokers, "cluster_id": CLUSTER_ID, "controller_id": controller}
    if flag:
        values["cluster_authorized_operations"] = ALL_OF_THE_CLUSTER
    return encode_response(ApiKey.METADATA, version, {**values, "topics": list(rows())})


@pytest.mark.parametrize("version", range(VERSIONS.low, VERSIONS.high + 1))
@settings(max_examples=40)
@given(st.lists(st.tuples(UPDATES, ASKED, st.booleans()), max_size=12))
def test_kept_rows_give_the_bytes_of_the_view(version: int, steps: list[Any]) -> None:
    view = ClusterView()
    for change, asked, flag in steps:
        for some in (asked, None):
            assert whole(ask(view, version, some, flag)) == written_anew(view, version, some, flag)
        view.apply(change)
        assert view.rows.keys() <= view.topics.keys()


@pytest.mark.parametrize("version", range(VERSIONS.low, VERSIONS.high + 1))
def test_every_version_repeats_its_bytes(version: int) -> None:
    view = ClusterView()
    view.apply(update((1, 2), tuple(topic(each, partition(0, 3, 1, (1, 3))) for each in NAMES[:2])))
    asks: list[Asked] = [None, ["a"], ["b", "a", "b"], [IDS[1], "b", IDS[3]]]
    for asked in asks:
        for _ in range(2):
            assert whole(ask(view, version, asked)) == written_anew(view, version, asked)
    assert {name: list(kept) for name, kept in view.rows.items()} == {"a": [version], "b": [version]}


@pytest.mark.parametrize(
    "change",
    [
        update((1, 2), tuple(topic(each, partition(0, 2, 2, (1, 2))) for each in "ab")),
        update((1, 2), tuple(topic(each, partition(0, 1, 1, (1, 2)), number=1) for each in "ab")),
        update((1, 2), tuple(topic(each, partition(0, -2, 2, ())) for each in "ab")),
        update((2,), ()),
    ],
    ids=["leader", "id", "deleted", "brokers"],
)
def test_rows_that_change_while_written_are_lost(change: UpdateMetadataRequest) -> None:
    view = ClusterView()
    view.apply(update((1, 2), tuple(topic(each, partition(0, 1, 1, (1, 2))) for each in "ab")))
    begun = ask(view, 9, None)
    steps = begun.steps()
    assert len(list(islice(steps, 1))) == 1
    assert view.rows.keys() == {"a"}
    view.apply(change)
    list(steps)
    asks: list[Asked] = [None, ["a"], ["b"]]
    for asked in asks:
        assert whole(ask(view, 9, asked)) == written_anew(view, 9, asked)


def test_few_versions_of_a_row_are_kept() -> None:
    view = ClusterView()
    view.apply(update((1,), (topic("a", partition(0, 1, 1, (1,))),)))
    for version in range(VERSIONS.low, VERSIONS.high + 1):
        whole(ask(view, version, None))
        assert version in view.rows["a"]
        assert len(view.rows["a"]) <= ROW_VERSIONS_MAX
