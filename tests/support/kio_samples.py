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
from dataclasses import fields
from typing import Any, Final, TypeVar, get_args, get_origin

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
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
