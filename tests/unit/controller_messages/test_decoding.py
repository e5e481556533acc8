"""Decoding beside kio's own reader: the same values from good bytes, and a refusal of what would abort it."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterator

import kio.schema
import pytest
from kio.schema.fetch.v15 import FetchRequest
from kio.schema.metadata.v1 import MetadataRequest as MetadataRequestV1
from kio.schema.metadata.v12 import MetadataRequest
from kio.schema.produce.v9 import ProduceRequest
from kio.serial import entity_reader
from kio.static.constants import EntityType
from kio.static.protocol import Entity

from controller.messages.decoding import MalformedMessageError, decode
from tests.support.kio_samples import encoded, sample

SAMPLES = 5
ENTITIES_MIN = 500


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


def test_an_unknown_tag_is_refused_by_name() -> None:
    with pytest.raises(MalformedMessageError, match="MetadataRequest: tag 5 is not known"):
        decode(MetadataRequest, b"\x00\x01\x00\x01\x05\x00")


def test_the_error_names_the_message_and_a_remedy() -> None:
    with pytest.raises(MalformedMessageError) as caught:
        decode(MetadataRequest, b"")
    assert str(caught.value).startswith("MetadataRequest: the message is cut short (")
