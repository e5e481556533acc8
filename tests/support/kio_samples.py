"""Messages with random content, for every entity that kio can write: of its own schema, or ours.

Array lengths and sizes go over the limits of one byte; numbers take their whole range where nothing else
gives them a meaning. Equal generators give equal messages.
"""

from __future__ import annotations

import datetime as dt
import io
import random
import types
import uuid
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._serialize import get_field_writer
from kio.serial.writers import (
    write_compact_array_length,
    write_legacy_array_length,
    write_unsigned_varint,
)
from kio.static.primitive import i32, uvarint
from kio.static.protocol import Entity

E = TypeVar("E", bound=Entity)

#: {kafka_type: bits of a number, signed or not}
_SIGNED_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNSIGNED_BITS: Final = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
_NULL_SHARE: Final = 0.3


def sample(entity_type: type[E], chance: random.Random) -> E:
    """Return one message, or a part of one."""
    return entity_type(
        **{each.name: _value(each.type, each.metadata, chance) for each in fields(entity_type)}
    )


def encoded(message: Entity) -> bytes:
    """Return what kio writes."""
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def encoded_with_unknown_tags(message: Entity, tags: Mapping[int, bytes]) -> bytes:
    """Return what kio would write, with more tagged fields in every struct that may have some."""
    buffer = io.BytesIO()
    known: dict[int, bytes] = {}
    for each in fields(message):
        value = getattr(message, each.name)
        tag = each.metadata.get("tag")
        default = (
            get_tagged_field_default(each) if each.default is MISSING and tag is not None else each.default
        )
        if tag is not None and value == default:
            continue
        part = io.BytesIO()
        flexible = message.__flexible__
        if each.metadata.get("kafka_type") is not None:
            get_field_writer(each, flexible, is_request_header=False, is_tag=tag is not None)(part, value)
        elif isinstance(value, tuple):
            (write_compact_array_length if flexible else write_legacy_array_length)(part, i32(len(value)))
            part.writelines(encoded_with_unknown_tags(item, tags) for item in value)
        elif value is None and type(None) in get_args(each.type):
            part.write(_null(each.type, flexible))
        else:
            nullable = tag is None and type(None) in get_args(each.type)
            part.write((b"\1" if nullable else b"") + encoded_with_unknown_tags(value, tags))
        if tag is None:
            buffer.write(part.getvalue())
        else:
            known[tag] = part.getvalue()
    if message.__flexible__:
        write_unsigned_varint(buffer, uvarint(len(known) + len(tags)))
        for number, raw in sorted({**tags, **known}.items()):
            for part_of_head in (number, len(raw)):
                write_unsigned_varint(buffer, uvarint(part_of_head))
            buffer.write(raw)
    return buffer.getvalue()


def _null(annotation: Any, flexible: bool) -> bytes:
    if any(get_origin(part) is tuple for part in get_args(annotation)):
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    return b"\xff"


def _value(annotation: Any, metadata: Any, chance: random.Random) -> Any:
    arguments = get_args(annotation)
    kafka_type = metadata.get("kafka_type")
    if isinstance(annotation, types.UnionType):
        if chance.random() < _NULL_SHARE and "tag" not in metadata and kafka_type != "uuid":
            return None
        annotation = next(part for part in arguments if part is not type(None))
        return _value(annotation, metadata, chance)
    if get_origin(annotation) is tuple:
        # Of what takes one byte, sometimes more than the length of an array says in one byte.
        count = chance.choice((0, 1, 2, 150 if kafka_type in ("int32", "bool") else 3))
        return tuple(_value(arguments[0], metadata, chance) for _ in range(count))
    return sample(annotation, chance) if kafka_type is None else _primitive(kafka_type, chance)


def _primitive(kafka_type: str, chance: random.Random) -> Any:
    number = chance.randrange(1, 100)
    if kafka_type in _SIGNED_BITS:
        bits = _SIGNED_BITS[kafka_type]
        return chance.choice((-1, 0, number, chance.randrange(-(2 ** (bits - 1)), 2 ** (bits - 1))))
    if kafka_type in _UNSIGNED_BITS:
        return chance.choice((0, number, chance.getrandbits(_UNSIGNED_BITS[kafka_type])))
    match kafka_type:
        case "string":
            return "".join(chance.choices("aZ9._-ü", k=chance.choice((0, 3, 200))))
        case "bytes" | "records":
            return chance.randbytes(chance.choice((0, 3, 20_000)))
        case "uuid":
            return uuid.UUID(int=chance.getrandbits(128))
        case "bool":
            return chance.random() < 0.5
        case "float64":
            return number / 4
        case "error_code":
            return ErrorCode(number)
        case "timedelta_i32" | "timedelta_i64":
            return dt.timedelta(milliseconds=number)
        case "datetime_i64":
            return dt.datetime.fromtimestamp(number, tz=dt.UTC)
    raise AssertionError(f"no sample of {kafka_type}")
