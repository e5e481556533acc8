"""Which brokers came, went or bounced, and whose disk is another one."""

from __future__ import annotations

import uuid

import pytest

from controller.core.brokers import (
    BrokerDiff,
    broker_endpoint,
    diff_brokers,
    endpoints_of,
    find_doubts,
    judgement,
)
from controller.core.model import KnownTopic, LiveBroker
from quorum.metadata.numbers import BrokerGeneration
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


def test_another_disk_than_the_judged_one_is_doubted_everywhere() -> None:
    topics = {"t": KnownTopic(TopicRecord(None, {0: (1, 2)}), 0)}
    former = IncarnationRecord("a", 7)
    assert find_doubts(broker(1, "a"), former, topics, ["apart"]) == {}
    assert find_doubts(broker(1, "b"), former, topics, ["apart"]) == {"t": None, "apart": None}
    # It was never a member, or says nothing of its disk.
    assert find_doubts(broker(1, "b"), None, topics, ["apart"]) == {}
    assert find_doubts(broker(1), former, topics, ["apart"]) == {}
    assert judgement(broker(1, "a"), former, ()) is None
    assert judgement(broker(1, "b"), former, ()) == IncarnationRecord("b")
    assert judgement(broker(1, "b"), None, ()) == IncarnationRecord("b")
    assert judgement(broker(1), former, ()) is None


def test_what_could_not_be_judged_stays_in_doubt_until_it_is() -> None:
    topics = {"t": KnownTopic(TopicRecord(None, {0: (1, 2)}), 0)}
    noted = judgement(broker(1, "b"), IncarnationRecord("a"), ["apart"])
    assert noted == IncarnationRecord("b", -1, {"apart": "a"})
    assert find_doubts(broker(2, "b"), noted, topics, ["apart"]) == {"apart": None}
    assert judgement(broker(2, "b"), noted, ["apart"]) is None
    assert find_doubts(broker(3, "c"), noted, topics, ["apart"]) == {"t": None, "apart": None}
    assert judgement(broker(3, "c"), noted, ["apart"]) == IncarnationRecord("c", -1, {"apart": "a"})
    # The old disk has what the topic counts on.
    assert find_doubts(broker(4, "a"), noted, topics, ["apart"]) == {"t": None}
    assert judgement(broker(4, "a"), noted, ()) == IncarnationRecord("a")
    # A topic that is gone is in doubt no more.
    assert find_doubts(broker(5, "b"), noted, topics, []) == {}
    assert judgement(broker(5, "b"), noted, ()) == IncarnationRecord("b")


def test_shortened_logs_are_judged_once_for_a_generation() -> None:
    ends = {"t": {0: LogEnd(4, 10)}, encode_topic_id(ID): {0: LogEnd(2, 8)}, "gone": {0: LogEnd(1, 1)}}
    topics = {
        "t": KnownTopic(TopicRecord(None, {0: (1, 2), 3: (1,)}), 0),
        "u": KnownTopic(TopicRecord(ID, {0: (1,)}), 0),
        "gone": KnownTopic(TopicRecord(uuid.UUID(int=8), {0: (1,)}), 0),
    }
    came = broker(5, "a", shortened=ends)
    for former in (None, IncarnationRecord("a", 4)):
        assert find_doubts(came, former, topics, ["apart"]) == dict.fromkeys(("t", "u", "apart"), ends)
        assert judgement(came, former, ()) == IncarnationRecord("a", 5)
    noted = judgement(came, None, ["apart"])
    assert noted == IncarnationRecord("a", 5, {"apart": "a"})
    assert find_doubts(came, noted, topics, ["apart"]) == {"apart": ends}
    assert judgement(broker(8, "a"), IncarnationRecord("a", 5), ()) is None
    assert judgement(came, IncarnationRecord("b", 5), ()) == IncarnationRecord("a", 5)


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
