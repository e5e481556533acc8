"""Decoding beside kio's own reader: the same values from good bytes, and a refusal of what would abort it."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import random
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import kio.schema
import pytest
from kio.schema.fetch.v15 import FetchRequest
from kio.schema.metadata.v1 import MetadataRequest as MetadataRequestV1
from kio.schema.metadata.v12 import MetadataRequest
from kio.schema.offset_commit.v2 import OffsetCommitRequest
from kio.schema.produce.v3 import ProduceResponse
from kio.schema.produce.v9 import ProduceRequest
from kio.serial import entity_reader
from kio.static.constants import EntityType
from kio.static.protocol import Entity

from controller.messages.entities import (
    _REQUESTS,
    _RESPONSES,
    LeaderAndIsrPartitionState,
    LeaderAndIsrTopicState,
)
from controller.wire import decoding
from controller.wire.decoding import ANY_NUMBER, MalformedMessageError, decode
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch, PartitionVersion
from tests.support.kio_samples import encoded, encoded_with_unknown_tags, sample

SAMPLES = 5
CONTROL_MESSAGES = (*_REQUESTS.values(), *_RESPONSES.values())
ENTITIES_MIN = 500
FLEXIBLE_MIN = 250
#: of a message in which one byte is changed: in a longer one it would be one of a long text
CHANGED_BYTES_MAX = 20_000


def kio_messages() -> Iterator[type[Entity]]:
    for package in pkgutil.walk_packages(kio.schema.__path__, "kio.schema."):
        if package.name.endswith((".request", ".response")):
            for value in vars(importlib.import_module(package.name)).values():
                if isinstance(value, type) and getattr(value, "__type__", None) in (
                    EntityType.request,
                    EntityType.response,
                ):
                    yield value


def test_every_message_of_kio_is_decoded_as_by_its_own_reader() -> None:
    chance = random.Random(25)
    seen = 0
    for entity_type in kio_messages():
        seen += 1
        for _ in range(SAMPLES):
            body = encoded(sample(entity_type, chance))
            expected, size = entity_reader(entity_type)(b"head" + body, 4)
            assert size == len(body)
            assert decode(entity_type, b"head" + body + b"tail", 4) == expected, entity_type
            assert decode(entity_type, memoryview(body)) == expected
    assert seen > ENTITIES_MIN


def with_repeats(message: Any, chance: random.Random) -> Any:
    """Return a message with runs of items that are packed alike, and of items that are not."""
    changed: dict[str, Any] = {}
    for each in fields(message):
        value = getattr(message, each.name)
        if isinstance(value, tuple) and value and is_dataclass(value[0]):
            kind: Any = type(value[0])
            times = (1, 2, 70) if decoding._shape(kind) else (1,)
            runs = [[item] * chance.choice(times) for item in value]
            changed[each.name] = tuple(with_repeats(item, chance) for item in itertools.chain(*runs))
    return replace(message, **changed)


def outcome(entity_type: type[Entity], body: bytes, items_max: int) -> object:
    try:
        return decode(entity_type, memoryview(body), items_max=items_max)
    except MalformedMessageError as error:
        return error.message


def test_items_packed_alike_are_judged_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(40)
    bodies: list[tuple[type[Entity], bytes, int]] = []
    for entity_type in (*CONTROL_MESSAGES * 10, *kio_messages()):
        body = bytearray(encoded(with_repeats(sample(entity_type, chance), chance)))
        if len(body) > CHANGED_BYTES_MAX:
            continue
        bodies.append((entity_type, bytes(body), chance.choice((ANY_NUMBER, 3, 100))))
        bodies.append((entity_type, bytes(body[: chance.randrange(len(body) + 1)]), ANY_NUMBER))
        for _ in range(3 if body else 0):
            changed = body.copy()
            changed[chance.randrange(len(body))] = chance.choice((0, 1, 2, 0x80, chance.randrange(256)))
            bodies.append((entity_type, bytes(changed), chance.choice((ANY_NUMBER, 100))))
    runs: list[int] = []

    def counted(*arguments: Any) -> tuple[int, int]:
        found = walk_alike(*arguments)
        runs.append(found[0])
        return found

    walk_alike = decoding._walk_alike
    monkeypatch.setattr(decoding, "_walk_alike", counted)
    together = [outcome(*each) for each in bodies]
    assert max(runs) > 100, "long runs are walked together"
    assert 0 in runs
    monkeypatch.setattr(decoding, "_walk_alike", lambda _shape, _max, _body, offset, _state: (0, offset))
    assert together == [outcome(*each) for each in bodies]
    refused = sum(isinstance(each, str) for each in together)
    assert len(bodies) // 5 < refused < len(bodies) * 4 // 5


def test_numbers_of_items_packed_alike_are_counted() -> None:
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=ControllerEpoch(1),
        leader=1,
        leader_epoch=LeaderEpoch(1),
        isr=tuple(range(16)),
        partition_epoch=PartitionVersion(1),
        replicas=tuple(range(24)),
    )
    topic = LeaderAndIsrTopicState(topic_name="orders", topic_id=None, partition_states=(state,) * 300)
    body = encoded(topic)
    items = 300 * (1 + 16 // 8 + 24 // 8)
    assert decode(LeaderAndIsrTopicState, body, items_max=items) == topic
    with pytest.raises(MalformedMessageError, match="replicas has 24 items and at most 16 more are allowed"):
        decode(LeaderAndIsrTopicState, body, items_max=items - 1)


@pytest.mark.parametrize("entity_type", [FetchRequest, MetadataRequest, MetadataRequestV1, ProduceRequest])
def test_a_cut_or_changed_message_is_refused_or_read_but_nothing_else(entity_type: type[Entity]) -> None:
    chance = random.Random(26)
    refused = 0
    for _ in range(2000):
        body = bytearray(encoded(sample(entity_type, chance)))
        if body and chance.random() < 0.5:
            del body[chance.randrange(len(body)) :]
        for _ in range(chance.randrange(4) if body else 0):
            body[chance.randrange(len(body))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        try:
            decode(entity_type, bytes(body))
        except MalformedMessageError:
            refused += 1
    assert refused > 200


def test_an_array_longer_than_its_message_is_refused_before_room_is_made() -> None:
    for body in (b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f" + b"\0" * 100):
        with pytest.raises(MalformedMessageError, match="topics has 4294967294 items"):
            decode(MetadataRequest, body)
    with pytest.raises(MalformedMessageError, match="topics has 2147483647 items and 0 bytes"):
        decode(MetadataRequestV1, b"\x7f\xff\xff\xff")


def test_null_is_refused_where_the_schema_has_none() -> None:
    assert decode(MetadataRequest, b"\x00\x01\x00\x00").topics is None
    with pytest.raises(MalformedMessageError, match="must not be null"):
        decode(ProduceRequest, b"\x00" + b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00" + b"\x00")


#: known to nobody: one of one byte, one of two, one without a value
UNKNOWN = {90: b"new", 1000: bytes(200), 70: b""}


def test_unknown_tags_in_every_struct_of_every_message_are_passed_over() -> None:
    chance = random.Random(27)
    tried = 0
    for entity_type in [*kio_messages(), *CONTROL_MESSAGES]:
        if not entity_type.__flexible__:
            continue
        tried += 1
        for _ in range(SAMPLES):
            message = sample(entity_type, chance)
            body = encoded(message)
            more = encoded_with_unknown_tags(message, UNKNOWN)
            assert encoded_with_unknown_tags(message, {}) == body, entity_type
            assert len(more) > len(body) + 200
            expected = decode(entity_type, body)
            assert decode(entity_type, memoryview(b"head" + more + b"tail"), 4) == expected, entity_type
    assert tried > FLEXIBLE_MIN


def test_an_unknown_tag_must_fit_its_message() -> None:
    assert decode(MetadataRequest, b"\x00\x01\x00\x01\x05\x01x") == decode(MetadataRequest, b"\0\1\0\0")
    for tags in (b"\x01\x05\x02x", b"\x02\x05\x01x", b"\x01\x05", b"\xff\xff\xff\xff\x0f\x05\x00"):
        with pytest.raises(MalformedMessageError, match=r"cut short|tagged fields and"):
            decode(MetadataRequest, b"\x00\x01\x00" + tags)


def test_unknown_tags_count_as_items() -> None:
    many = b"\x00\x01\x00" + b"\xe8\x07" + b"\x05\x00" * 1000
    assert decode(MetadataRequest, many, items_max=1000).topics is None
    with pytest.raises(MalformedMessageError, match="tag 5 is not known, and no more such are allowed"):
        decode(MetadataRequest, many, items_max=999)


@pytest.mark.parametrize(
    ("milliseconds", "held"),
    [
        (-1, -1),
        (2**63 - 1, 9_223_372_036_854_774),
        (-(2**63), -9_223_372_036_854_775),
    ],
)
def test_a_duration_that_cannot_be_held_is_the_longest_that_it_can(milliseconds: int, held: int) -> None:
    body = b"\x00\x01g" + bytes(4) + b"\x00\x01m" + milliseconds.to_bytes(8, "big", signed=True) + bytes(4)
    found = decode(OffsetCommitRequest, body)
    assert found.retention_time == timedelta(milliseconds=held)
    assert (found.group_id, found.member_id, found.topics) == ("g", "m", ())


def test_a_time_that_cannot_be_held_is_the_last_that_it_can() -> None:
    def time_of(milliseconds: int) -> datetime | None:
        partition = bytes(14) + milliseconds.to_bytes(8, "big", signed=True)
        body = b"\0\0\0\1\0\1t\0\0\0\1" + partition + bytes(4)
        return decode(ProduceResponse, body).responses[0].partition_responses[0].log_append_time

    assert (time_of(-1), time_of(-2), time_of(-(2**63))) == (None, None, None)
    assert time_of(0) == datetime(1970, 1, 1, tzinfo=UTC)
    latest = time_of(2**63 - 1)
    assert latest is not None and latest.year == 9999


def test_text_that_is_not_utf_8_is_refused() -> None:
    body = b"\x02" + bytes(16) + b"\x03\xfft" + b"\x00\x00\x00\x00"
    with pytest.raises(MalformedMessageError, match="MetadataRequest: Failed interpreting bytes as UTF-8"):
        decode(MetadataRequest, body)


def test_the_error_names_the_message_and_a_remedy() -> None:
    with pytest.raises(MalformedMessageError) as caught:
        decode(MetadataRequest, b"")
    assert str(caught.value).startswith("MetadataRequest: the message is cut short (")
