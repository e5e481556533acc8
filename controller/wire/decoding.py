"""Decoding of Kafka's messages from bytes that nobody has looked at yet.

kio's native reader takes the length of an array at its word and reserves room for it first: five bytes from
a stranger are enough to abort the process. So every message is walked over before it is read, and an array
with more items than there are bytes left is refused. An item of three bytes costs a hundred times as much
once it is read, so a message may also be refused for how many it has. The walk also refuses null where the
schema has no null. Items that are packed alike are walked over together: what can differ in their sizes are
the lengths of their arrays, and those stand in columns.

Record batches may be left where they are: they would be most of what is copied.

What kio's reader cannot take though the protocol allows it, the walk replaces before: tagged fields that the
schema does not know are left out, and a time that it cannot hold becomes the nearest that it can. Bytes
after the message are ignored. Kafka does the same.
Source: Kafka protocol guide; KIP-482 (compact lengths, tagged fields).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, fields
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple, TypeVar, cast, get_args, get_origin

from kio.serial import entity_reader
from kio.serial.errors import SerialError
from kio.static.protocol import Entity

from quorum.errors import ProtocolError

#: What is decoded: a frame, or a part of one.
Buffer = bytes | memoryview
#: (buffer, offset of a value, the state of this walk) -> offset after it
_Walk = Callable[[Buffer, int, "_State"], int]

E = TypeVar("E", bound=Entity)

#: {kafka_type: bytes}
_FIXED_BYTES: Final = {
    kafka_type: size
    for size, kafka_types in (
        (1, ("bool", "int8", "uint8")),
        (2, ("int16", "uint16", "error_code")),
        (4, ("int32", "uint32", "timedelta_i32")),
        (8, ("int64", "uint64", "float64", "timedelta_i64", "datetime_i64")),
        (16, ("uuid",)),
    )
    for kafka_type in kafka_types
}
#: {kafka_type: the least and the greatest number of milliseconds that kio's reader takes}
_TIMES_MS: Final = {
    # It counts microseconds in 64 bits.
    "timedelta_i64": (-(2**63) // 1000 + 1, 2**63 // 1000 - 1),
    # -1: none; the last millisecond of the year 9999
    "datetime_i64": (-1, 253_402_300_799_999),
}
_INT64: Final = Struct(">q")
_VARINT_BYTES_MAX: Final = 5
#: as the most items: no bound
ANY_NUMBER: Final = 2**31
#: so many plain numbers count as one item
NUMBERS_PER_ITEM: Final = 8
#: items that are compared at first, to see how many are packed alike; twice as many each time that all are
_ALIKE_MIN: Final = 64


class MalformedMessageError(ProtocolError):
    """Bytes that are not the message which their header says; nothing of it took effect."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}", "the sender must follow Kafka's protocol as of 3.9")


def packed_varint(value: int) -> bytes:
    """Write an unsigned varint."""
    packed = bytearray()
    while value >= 0x80:
        packed.append(value & 0x7F | 0x80)
        value >>= 7
    packed.append(value)
    return bytes(packed)


class _Change(NamedTuple):
    """Bytes of a message that something else takes the place of."""

    begin: int
    #: exclusive
    end: int
    instead: bytes


class _Shape(NamedTuple):
    """What an item consists of that has plain numbers, arrays of plain numbers and no tagged fields alone."""

    #: (bytes before the length of an array, bytes of each of its items), in their order
    arrays: Sequence[tuple[int, int]]
    #: after the last array
    last_bytes: int
    #: whether a count of tagged fields stands at the end
    has_tags: bool


class _State:
    """What one walk knows on its way."""

    __slots__ = ("changes", "items_left", "records")

    def __init__(self, items_max: int, records: list[memoryview | None] | None) -> None:
        #: items that the message may still have
        self.items_left = items_max
        #: in the order of their places; none overlaps another
        self.changes: list[_Change] = []
        #: takes the record batches; None: they stay in the message
        self.records = records


def decode(
    entity_type: type[E],
    body: Buffer,
    offset: int = 0,
    *,
    items_max: int = ANY_NUMBER,
    records: list[memoryview | None] | None = None,
) -> E:
    """Read one message.

    Args:
        entity_type: an entity of kio or of this package.
        body: holds the message, without its header.
        offset: where it begins.
        items_max: items of all its arrays together, and tagged fields that are not known.
        records: takes the record batches of the message in their order, as views of `body`; their fields are
            None then. None: they are copied into their fields.
    """
    try:
        state = _State(items_max, records)
        end = _walk_entity(entity_type)(body, offset, state)
        if state.changes:
            body, offset = _changed(body, offset, end, state.changes), 0
        return entity_reader(entity_type)(body, offset)[0]
    except (SerialError, ValueError, OverflowError) as error:
        raise MalformedMessageError(entity_type.__name__, str(error)) from error
    except (IndexError, struct_error) as error:
        raise MalformedMessageError(entity_type.__name__, "the message is cut short") from error


def varint(body: Buffer, offset: int) -> tuple[int, int]:
    """Read an unsigned varint; return it and the offset after it."""
    value = body[offset]
    if value < 0x80:
        return value, offset + 1
    value &= 0x7F
    for position in range(1, _VARINT_BYTES_MAX):
        byte = body[offset + position]
        value |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return value, offset + position + 1
    raise ValueError("a length has more than five bytes")


def _changed(body: Buffer, begin: int, end: int, changes: Sequence[_Change]) -> bytes:
    """Return a part of a message with its changes made."""
    pieces: list[Buffer] = []
    for change in changes:
        pieces += (body[begin : change.begin], change.instead)
        begin = change.end
    return b"".join([*pieces, body[begin:end]])


@cache
def _walk_entity(entity_type: type[Entity]) -> _Walk:
    steps: list[_Walk] = []
    tagged: dict[int, _Walk] = {}
    fixed_bytes = 0
    for each in fields(entity_type):
        kafka_type = each.metadata.get("kafka_type", "")
        if "tag" in each.metadata:
            tagged[each.metadata["tag"]] = _walk_field(each, entity_type.__flexible__)
        elif kafka_type in _FIXED_BYTES and kafka_type not in _TIMES_MS and not _is_array(each.type):
            fixed_bytes += _FIXED_BYTES[kafka_type]
        else:
            if fixed_bytes:
                steps.append(_walk_fixed(fixed_bytes))
                fixed_bytes = 0
            steps.append(_walk_field(each, entity_type.__flexible__))
    if fixed_bytes:
        steps.append(_walk_fixed(fixed_bytes))
    if entity_type.__flexible__:
        steps.append(_walk_tags(tagged))

    def walk(body: Buffer, offset: int, state: _State) -> int:
        for step in steps:
            offset = step(body, offset, state)
        if offset > len(body):
            raise IndexError
        return offset

    return walk


def _walk_field(each: Field[Any], flexible: bool) -> _Walk:
    kafka_type = each.metadata.get("kafka_type", "")
    item: _Walk | None = None
    if kafka_type in _TIMES_MS:
        item, item_bytes = _walk_time(*_TIMES_MS[kafka_type]), 8
    elif kafka_type in _FIXED_BYTES:
        item_bytes = _FIXED_BYTES[kafka_type]
    else:
        item_bytes = 1
        item = _walk_sized(kafka_type, flexible) if kafka_type else _walk_entity(_entity_of(each.type))
    if _is_array(each.type):
        shape = None if kafka_type else _shape(_entity_of(each.type))
        return _walk_array(each.name, item, item_bytes, shape, flexible, nullable=_is_nullable(each.type))
    if item is None:
        return _walk_fixed(item_bytes)
    if not kafka_type and _is_nullable(each.type) and "tag" not in each.metadata:
        return _walk_nullable(item)
    return item


def _is_nullable(annotation: object) -> bool:
    return type(None) in get_args(annotation)


def _is_array(annotation: object) -> bool:
    return get_origin(annotation) is tuple or any(get_origin(part) is tuple for part in get_args(annotation))


def _walk_fixed(byte_count: int) -> _Walk:
    return lambda _body, offset, _state: offset + byte_count


def _shape(entity_type: type[Entity]) -> _Shape | None:
    """Return what items of this kind consist of; None if there is more."""
    arrays: list[tuple[int, int]] = []
    fixed_bytes = 0
    for each in fields(entity_type):
        kafka_type = each.metadata.get("kafka_type", "")
        if "tag" in each.metadata:
            continue
        if kafka_type not in _FIXED_BYTES or kafka_type in _TIMES_MS:
            return None
        if not _is_array(each.type):
            fixed_bytes += _FIXED_BYTES[kafka_type]
        elif entity_type.__flexible__:
            arrays.append((fixed_bytes, _FIXED_BYTES[kafka_type]))
            fixed_bytes = 0
        else:
            return None
    return _Shape(arrays, fixed_bytes, entity_type.__flexible__) if arrays or fixed_bytes else None


def _entity_of(annotation: object) -> type[Entity]:
    """Return the entity that an annotation names, inside of a tuple or with None."""
    while not isinstance(annotation, type) or get_origin(annotation) is tuple:
        annotation = next(part for part in get_args(annotation) if part not in (type(None), Ellipsis))
    return cast("type[Entity]", annotation)


def _walk_nullable(item: _Walk) -> _Walk:
    def walk(body: Buffer, offset: int, state: _State) -> int:
        marker = body[offset]
        return offset + 1 if marker == 0xFF else item(body, offset + 1, state)

    return walk


def _walk_sized(kafka_type: str, flexible: bool) -> _Walk:
    """Return the walk over a string or bytes; whether they may be null is checked by the reader."""
    if kafka_type == "records":
        return _walk_records(flexible)
    if flexible:

        def walk(body: Buffer, offset: int, _state: _State) -> int:
            size, offset = varint(body, offset)
            return offset + max(size - 1, 0)

        return walk
    length_bytes = 2 if kafka_type == "string" else 4

    def walk_legacy(body: Buffer, offset: int, _state: _State) -> int:
        end = offset + length_bytes
        return end + max(int.from_bytes(body[offset:end], "big", signed=True), 0)

    return walk_legacy


def _walk_records(flexible: bool) -> _Walk:
    def walk(body: Buffer, offset: int, state: _State) -> int:
        begin = offset
        if flexible:
            size, offset = varint(body, offset)
            size -= 1
        else:
            size, offset = int.from_bytes(body[offset : offset + 4], "big", signed=True), offset + 4
        end = offset + max(size, 0)
        if size < -1 or end > len(body):
            raise ValueError(f"{size} bytes of records and {max(len(body) - offset, 0)} bytes are left")
        if state.records is not None:
            state.records.append(None if size < 0 else memoryview(body)[offset:end])
            state.changes.append(_Change(begin, end, b"\0" if flexible else b"\xff\xff\xff\xff"))
        return end

    return walk


def _walk_array(
    name: str, item: _Walk | None, item_bytes: int, shape: _Shape | None, flexible: bool, *, nullable: bool
) -> _Walk:
    def walk(body: Buffer, offset: int, state: _State) -> int:
        if flexible:
            count, offset = varint(body, offset)
            count -= 1
        else:
            count = int.from_bytes(body[offset : offset + 4], "big", signed=True)
            offset += 4
        if count < 0:
            if count == -1 and nullable:
                return offset
            raise ValueError(f"{name} must not be null")
        if count * item_bytes > len(body) - offset:
            raise ValueError(f"{name} has {count} items and {max(len(body) - offset, 0)} bytes are left")
        per_item = 1 if item is not None else NUMBERS_PER_ITEM
        if count // per_item > state.items_left:
            raise ValueError(
                f"{name} has {count} items and at most {state.items_left * per_item} more are allowed"
            )
        state.items_left -= count // per_item
        if item is None:
            return offset + count * item_bytes
        alike_max = _ALIKE_MIN
        while count:
            walked = 0
            if shape is not None:
                walked, offset = _walk_alike(shape, min(count, alike_max), body, offset, state)
                alike_max = alike_max * 2 if walked == alike_max else _ALIKE_MIN
            if not walked:
                walked, offset = 1, item(body, offset, state)
            count -= walked
        return offset

    return walk


def _walk_alike(shape: _Shape, items_max: int, body: Buffer, offset: int, state: _State) -> tuple[int, int]:
    """Walk over items that are packed like the first; return their number, and the offset after them.

    There may be none: what must be refused, or has tagged fields or long arrays, is walked over alone.
    """
    #: (place in an item, the byte there): short lengths of arrays, and no tagged fields
    columns: list[tuple[int, int]] = []
    place, numbers = 0, 0
    for before, item_bytes in shape.arrays:
        place += before
        if offset + place >= len(body) or not 0 < (length := body[offset + place]) < 0x80:
            return 0, offset
        columns.append((place, length))
        place += 1 + (length - 1) * item_bytes
        numbers += (length - 1) // NUMBERS_PER_ITEM
    place += shape.last_bytes
    if shape.has_tags:
        columns.append((place, 0))
        place += 1
    alike = min(items_max, (len(body) - offset) // place)
    if numbers:
        alike = min(alike, state.items_left // numbers)
    for column, byte in columns:
        found = bytes(body[offset + column : offset + alike * place : place])
        alike -= len(found.lstrip(bytes((byte,))))
    state.items_left -= alike * numbers
    return alike, offset + alike * place


def _walk_time(least: int, greatest: int) -> _Walk:
    def walk(body: Buffer, offset: int, state: _State) -> int:
        milliseconds = _INT64.unpack_from(body, offset)[0]
        end = offset + _INT64.size
        if not least <= milliseconds <= greatest:
            held = max(least, min(milliseconds, greatest))
            state.changes.append(_Change(offset, end, _INT64.pack(held)))
        return end

    return walk


def _walk_tags(tagged: dict[int, _Walk]) -> _Walk:
    def walk(body: Buffer, offset: int, state: _State) -> int:
        if body[offset] == 0:
            return offset + 1
        section, first_change = offset, len(state.changes)
        count, offset = varint(body, offset)
        if count > len(body) - offset:
            raise ValueError(f"{count} tagged fields and {len(body) - offset} bytes are left")
        #: (tag, its value with the changes made in it)
        kept: list[tuple[int, bytes]] = []
        for _ in range(count):
            tag, offset = varint(body, offset)
            size, offset = varint(body, offset)
            end = offset + size
            if end > len(body):
                raise IndexError
            if tag in tagged:
                inner = len(state.changes)
                if tagged[tag](body, offset, state) != end:
                    raise ValueError(f"tag {tag} has {size} bytes, which its value does not fill")
                kept.append((tag, _changed(body, offset, end, state.changes[inner:])))
            elif state.items_left > 0:
                state.items_left -= 1
            else:
                raise ValueError(f"tag {tag} is not known, and no more such are allowed")
            offset = end
        if len(kept) < count or len(state.changes) > first_change:
            del state.changes[first_change:]
            state.changes.append(_Change(section, offset, _tag_section(kept)))
        return offset

    return walk


def _tag_section(kept: Sequence[tuple[int, bytes]]) -> bytes:
    section = bytearray(packed_varint(len(kept)))
    for tag, value in kept:
        section += packed_varint(tag) + packed_varint(len(value)) + value
    return bytes(section)
