"""Which brokers came, went or bounced, and whose disk is another one."""

from __future__ import annotations

import uuid

import pytest

from controller.core.brokers import (
    BrokerDiff,
    broker_endpoint,
    diff_brokers,
    endpoints_of,
    find_outcasts,
    find_shortened,
    find_unjudged,
)
from controller.core.model import KnownTopic, LiveBroker
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    BrokerRecord,
    IncarnationRecord,
    LogEnd,
    TopicRecord,
    encode_topic_id,
)

ID = uuid.UUID("6f0e9b1c-0f5d-4a7b-9d6e-3c2b1a098765")


def broker(
    generation: int,
    incarnation: str | None = None,
    endpoints: tuple[str, ...] = (),
    shortened: dict[str, dict[int, LogEnd]] | None = None,
) -> LiveBroker:
    record = BrokerRecord(
        None, -1, endpoints, {}, timestamp_ms=0, incarnation=incarnation, shortened=shortened or {}
    )
    return LiveBroker(BrokerGeneration(generation), record)


def test_new_dead_and_bounced_brokers_are_told_apart() -> None:
    known = {1: broker(10), 2: broker(11), 3: broker(12)}
    current = {1: broker(10), 3: broker(20), 4: broker(21)}
    assert diff_brokers(known, current) == BrokerDiff(new=(4,), dead=(2,), bounced=(3,))


def test_the_same_generations_are_no_change_and_a_lower_one_is_an_old_look() -> None:
    assert not diff_brokers({1: broker(10)}, {1: broker(10)})
    assert not diff_brokers({1: broker(10)}, {1: broker(9)})


def test_another_incarnation_than_the_judged_one_makes_an_outcast() -> None:
    current = {1: broker(1, "a"), 2: broker(1, "b"), 3: broker(1, "c"), 4: broker(1)}
    judged = {1: "a", 2: "a", 4: "d"}
    assert find_outcasts(current, judged) == (2,)
    records = {each: IncarnationRecord(incarnation, 7) for each, incarnation in judged.items()}
    assert find_unjudged(current, records) == {2: IncarnationRecord("b"), 3: IncarnationRecord("c")}


def test_shortened_logs_are_judged_once_for_a_generation() -> None:
    ends = {"t": {0: LogEnd(4, 10), 3: LogEnd(-1, 0)}, encode_topic_id(ID): {0: LogEnd(2, 8)}, "gone": {}}
    ends["gone"] = {0: LogEnd(1, 1)}
    current = {1: broker(5, "a", shortened=ends), 2: broker(6, "b", shortened={"t": {0: LogEnd(4, 9)}})}
    topics = {
        "t": KnownTopic(TopicRecord(None, {0: (1, 2), 3: (1,)}), 0),
        "u": KnownTopic(TopicRecord(ID, {0: (1,)}), 0),
        "gone": KnownTopic(TopicRecord(uuid.UUID(int=8), {0: (1,)}), 0),
    }
    assert find_shortened(current, {1: 4}, topics) == {
        PartitionKey("t", 0): {1: (4, 10), 2: (4, 9)},
        PartitionKey("t", 3): {1: (-1, 0)},
        PartitionKey("u", 0): {1: (2, 8)},
    }
    assert find_shortened(current, {1: 5}, topics) == {PartitionKey("t", 0): {2: (4, 9)}}
    assert find_shortened(current, {1: 5, 2: 6}, topics) == {}
    known = {1: IncarnationRecord("a", 5), 2: IncarnationRecord("a", 6)}
    assert find_unjudged(current, known) == {2: IncarnationRecord("b", 6)}
    assert find_unjudged({1: broker(8, "a")}, known) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("BROKER://127.0.0.1:9192", ("BROKER", "127.0.0.1", 9192)),
        ("BROKER://[::1]:9192", ("BROKER", "::1", 9192)),
        ("BROKER://host", None),
        ("BROKER://host:70000", None),
        ("host:9192", None),
    ],
)
def test_endpoints_are_read_and_malformed_ones_left_out(
    text: str, found: tuple[str, str, int] | None
) -> None:
    record = broker(1, endpoints=("CLIENT://h:1", text)).record
    assert endpoints_of(record)[1:] == ([] if found is None else [found])
    assert broker_endpoint(record) == found
