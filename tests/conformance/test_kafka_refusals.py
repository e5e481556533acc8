"""What is refused with which code and which words: the same wrong requests to Apache Kafka 3.9.1 and to ours.

Scripts look for words in what clients print. So ours contain Kafka's sentence, where it has one; a remedy may
follow.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from broker.local import brokers_in_thread
from controller.wire.apis import ApiKey
from tests.support.broker_wire import ask
from tests.support.kafka_broker import kafka_broker
from tests.support.nodes import eventually

WAIT_S = 60.0
TOPIC, BROKER = 2, 4
PREFERRED, UNCLEAN = 0, 1
SET, DELETE, APPEND = 0, 1, 2
#: request, version, values, and the words that both say; None: all that Kafka says
Case = tuple[ApiKey, int, Mapping[str, Any], str | None]


def topic(name: str, partitions: int = 1, replicas: int = 1, **given: Any) -> dict[str, Any]:
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": index, "broker_ids": brokers} for index, brokers in given.get("assigned", ())
        ],
        "configs": [{"name": name, "value": value} for name, value in given.get("configs", ())],
    }


def create(*topics: Mapping[str, Any], words: str | None = None) -> Case:
    return ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 10_000, "validate_only": False}, words


def delete(name: str | None, topic_id: uuid.UUID | None = None, words: str | None = None) -> Case:
    return (
        ApiKey.DELETE_TOPICS,
        6,
        {"topics": [{"name": name, "topic_id": topic_id}], "timeout": 10_000},
        words,
    )


def extend(name: str, count: int, *assigned: tuple[int, ...], words: str | None = None) -> Case:
    rows = [{"broker_ids": brokers} for brokers in assigned] or None
    topics = [{"name": name, "count": count, "assignments": rows}]
    values = {"topics": topics, "timeout": 10_000, "validate_only": False}
    return ApiKey.CREATE_PARTITIONS, 3, values, words


def alter(kind: int, name: str, *changes: tuple[str, int, str | None], words: str | None = None) -> Case:
    rows = [{"name": name, "config_operation": what, "value": value} for name, what, value in changes]
    resources = [{"resource_type": kind, "resource_name": name, "configs": rows}]
    return ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": False}, words


def describe(kind: int, name: str, words: str | None = None) -> Case:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": ["x"]}]
    return ApiKey.DESCRIBE_CONFIGS, 4, {"resources": resources, "include_synonyms": False}, words


def move(name: str, partition: int, replicas: tuple[int, ...] | None, words: str | None = None) -> Case:
    topics = [{"name": name, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
    return ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": topics, "timeout": 10_000}, words


def elect(kind: int, name: str, partition: int) -> Case:
    rows = [{"topic": name, "partitions": [partition]}]
    return ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": rows, "timeout": 10_000}, None


def cluster_of(endpoint_type: int) -> Case:
    values = {"include_cluster_authorized_operations": False, "endpoint_type": endpoint_type}
    return ApiKey.DESCRIBE_CLUSTER, 1, values, None


UNKNOWN_ID = uuid.UUID(int=77)
#: A topic `a` of two partitions is there, on broker 1.
CASES: dict[str, Case] = {
    "a topic that exists": create(topic("a")),
    "no name": create(topic("")),
    "a dot": create(topic(".")),
    "two dots": create(topic("..")),
    "a long name": create(topic("x" * 250), words="is longer than the max allowed length 249"),
    "a blank in a name": create(topic("a b/ü")),
    "no partitions": create(topic("new", 0)),
    "fewer than no partitions": create(topic("new", -2)),
    "no replicas": create(topic("new", 1, 0)),
    "fewer than no replicas": create(topic("new", 1, -2)),
    "too many replicas": create(topic("new", 1, 3)),
    "counts and an assignment": create(topic("new", 1, 1, assigned=[(0, (1,))])),
    "a count and an assignment": create(topic("new", 1, -1, assigned=[(0, (1,))])),
    "a gap": create(topic("new", -1, -1, assigned=[(1, (1,))])),
    "a replica twice": create(topic("new", -1, -1, assigned=[(0, (1, 1))]), words="Duplicate"),
    "uneven": create(topic("new", -1, -1, assigned=[(0, (1,)), (1, (1, 2))])),
    "a topic twice": create(topic("new"), topic("new")),
    "an unknown setting": create(topic("new", configs=[("no.such", "1")])),
    "a wrong value": create(
        topic("new", configs=[("retention.ms", "x")]),
        words="Invalid value x for configuration retention.ms: ",
    ),
    "a small value": create(
        topic("new", configs=[("min.insync.replicas", "0")]),
        words="Invalid value 0 for configuration min.insync.replicas: ",
    ),
    "nulls": create(topic("new", configs=[("retention.ms", None), ("segment.bytes", None)])),
    "delete an unknown topic": delete("nope"),
    "delete no topic": delete("a b"),
    "delete an unknown id": delete(None, UNKNOWN_ID),
    "delete a name and an id": delete("a", UNKNOWN_ID),
    "fewer partitions": extend("a", 1),
    "as many partitions": extend("a", 2),
    "less than no partitions": extend("a", -1),
    "partitions of an unknown topic": extend("nope", 3),
    "too few assignments": extend("a", 4, (1,)),
    "too many assignments": extend("a", 3, (1,), (1,)),
    "assigned to an unknown broker": extend("a", 3, (9,)),
    "assigned twice": extend("a", 3, (1, 1)),
    "assigned to nobody": extend("a", 3, ()),
    "settings of an unknown topic": alter(TOPIC, "nope", ("retention.ms", SET, "1")),
    "settings of no topic": alter(TOPIC, "", ("retention.ms", SET, "1")),
    "set an unknown setting": alter(TOPIC, "a", ("no.such", SET, "1")),
    "set a wrong value": alter(
        TOPIC, "a", ("retention.ms", SET, "x"), words="Invalid value x for configuration retention.ms: "
    ),
    "set null": alter(TOPIC, "a", ("retention.ms", SET, None)),
    "set twice": alter(TOPIC, "a", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
    "append to a number": alter(TOPIC, "a", ("retention.ms", APPEND, "1")),
    "delete what is not set": alter(TOPIC, "a", ("no.such", DELETE, None)),
    "settings of what is unknown": alter(99, "a", ("retention.ms", SET, "1")),
    "settings of a broker that is no number": alter(BROKER, "x", ("log.retention.ms", SET, "1")),
    "settings of another broker": alter(BROKER, "7", ("log.retention.ms", SET, "1")),
    "a setting that is read at the start": alter(BROKER, "1", ("log.dirs", SET, "1")),
    "describe an unknown topic": describe(TOPIC, "nope"),
    "describe no topic": describe(TOPIC, "a b"),
    "describe a topic without a name": describe(TOPIC, ""),
    "describe another broker": describe(BROKER, "7", words="Unexpected broker id, expected 1"),
    "describe all brokers at once": describe(BROKER, ""),
    "move an unknown topic": move("nope", 0, (1,)),
    "move an unknown partition": move("a", 9, (1,)),
    "move to nobody": move("a", 0, ()),
    "move to an unknown broker": move(
        "a", 0, (9,), words="Replica assignment has brokers that are not alive."
    ),
    "move twice to the same": move(
        "a", 0, (1, 1), words="Duplicate replica ids in partition reassignment replica list: "
    ),
    "move to a broker below 0": move("a", 0, (-1,), words="Invalid broker id in replica list: "),
    "cancel nothing": move("a", 0, None),
    "elect in an unknown topic": elect(PREFERRED, "nope", 0),
    "elect in an unknown partition": elect(PREFERRED, "a", 9),
    "elect who leads": elect(PREFERRED, "a", 0),
    "elect where somebody leads": elect(UNCLEAN, "a", 0),
    "the controller's endpoints": cluster_of(2),
    "unknown endpoints": cluster_of(9),
}


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with brokers_in_thread(1, settings={"broker": {"auto_create_topics": False}}) as running:
        prepare(running.bootstrap)
        yield running.bootstrap


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_broker(tmp_path_factory.mktemp("kafka")) as address:
        prepare(address)
        yield address


def prepare(address: str) -> None:
    """Wait until the topic of the cases is there and led."""
    api_key, version, values, _ = create(topic("a", 2))

    def ready() -> bool:
        ask(address, api_key, version, values)
        return known(address, "a", 2)

    eventually(ready, WAIT_S, "topic a is led")


def refusals(answer: Any) -> list[tuple[int, str]]:
    """Every error code of an answer that is one, and its text."""
    if isinstance(answer, tuple):
        return [each for part in answer for each in refusals(part)]
    if not dataclasses.is_dataclass(answer):
        return []
    values = {each.name: getattr(answer, each.name) for each in dataclasses.fields(answer)}
    found = [each for value in values.values() for each in refusals(value)]
    code = int(values.get("error_code", 0))
    return [(code, values.get("error_message") or ""), *found] if code else found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_wrong_request_gets_kafkas_code_and_words(ours: str, theirs: str, case: Case) -> None:
    api_key, version, values, words = case
    # What is named twice has a row for each in Kafka's answer.
    kafkas = dict.fromkeys(refusals(ask(theirs, api_key, version, values)))
    found = dict.fromkeys(refusals(ask(ours, api_key, version, values)))
    assert [code for code, _ in found] == [code for code, _ in kafkas]
    for (_, said), (_, by_kafka) in zip(found, kafkas, strict=True):
        assert (words or "") in by_kafka
        assert (by_kafka if words is None else words) in said


def test_versions_that_kafka_4_has_left_out_are_spoken(ours: str, theirs: str) -> None:
    settings = ("retention.ms", "segment.bytes")
    resource = {"resource_type": TOPIC, "resource_name": "early-0", "configuration_keys": settings}
    answers = []
    for address in (theirs, ours):
        said: list[Any] = []
        for version in (0, 1):
            new = topic(f"early-{version}", configs=[("retention.ms", "1000")])
            asked = {"topics": [new, topic("a b")], "timeout": 10_000}
            created = ask(address, ApiKey.CREATE_TOPICS, version, asked).topics
            said.append(sorted((each.name, each.error_code) for each in created))
            said += [getattr(each, "error_message", None) for each in created if each.error_code]
        eventually(partial(known, address, "early-0"), WAIT_S)
        described = ask(address, ApiKey.DESCRIBE_CONFIGS, 0, {"resources": [resource]}).results[0]
        said.append(
            sorted((each.name, each.value, each.is_default, each.read_only) for each in described.configs)
        )
        names = ("early-0", "early-1", "nope")
        deleted = ask(address, ApiKey.DELETE_TOPICS, 0, {"topic_names": names, "timeout": 10_000}).responses
        said.append(sorted((each.name, each.error_code) for each in deleted))
        answers.append(said)
    assert answers[1] == answers[0]
    assert answers[1][0] == [("a b", 17), ("early-0", 0)]


def known(address: str, name: str, partitions: int = 1) -> bool:
    """Whether all partitions of a topic are led."""
    found = ask(address, ApiKey.METADATA, 4, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
    return [each.error_code for each in found.topics[0].partitions] == [0] * partitions


def test_negative_offsets_are_committed_and_read_back_as_by_kafka(ours: str, theirs: str) -> None:
    group = {"group_id": "reset", "generation_id_or_member_epoch": -1, "member_id": ""}
    asked = {"groups": [{"group_id": "reset", "topics": None}], "require_stable": False}
    answers = []
    for address in (theirs, ours):
        said: list[Any] = []
        for offset in (-1, -2, -9):
            row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
            values = {**group, "topics": [{"name": "a", "partitions": [row]}]}
            eventually(partial(commit, address, values), WAIT_S, "the offset is committed")
            (found,) = ask(address, ApiKey.OFFSET_FETCH, 8, asked).groups[0].topics[0].partitions
            said.append((found.committed_offset, found.metadata, found.error_code))
        answers.append(said)
    assert answers[1] == answers[0]
    assert answers[1] == [(-1, "m", 0), (-2, "m", 0), (-9, "m", 0)]


def commit(address: str, values: Mapping[str, Any]) -> bool:
    """Commit; Kafka makes the topic of its groups when somebody looks for a coordinator."""
    ask(address, ApiKey.FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["reset"]})
    found = ask(address, ApiKey.OFFSET_COMMIT, 8, values)
    return [each.error_code for each in found.topics[0].partitions] == [0]
