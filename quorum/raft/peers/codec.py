"""Frames of the messages between peers: NamedTuples in, bytes out, and back without trust.

A frame is a 4-byte big-endian length of what follows, a version byte, the CRC32 of the body and the body,
which is the msgpack list ``[tag, *fields]``. A field of log entries comes first among the fields, whatever
its place in the class: tag and entries are one prefix that is packed and summed once for all followers.

Decoding checks arity, types and sizes against the annotations of the registered classes, which are read once.
It raises ProtocolError for everything that is not exactly a message, and nothing else. It does not know what
a message means nor whether its sender may send it. Soft state only: the prefixes packed in this turn.

Source: Raft §5 for the messages, the msgpack specification for the body.
"""

from __future__ import annotations

import math
import struct
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

import msgpack

from quorum.errors import ProtocolError, shown
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    SnapshotChunk,
    SnapshotChunkReply,
    TimeoutNow,
    Vote,
    VoteReply,
)

#: Version byte of every frame.
CODEC_VERSION: Final = 1
#: Bytes of the length field that begins a frame.
LENGTH_BYTES: Final = 4
#: Largest frame by default, without its length field: the largest batch and what surrounds it.
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
#: Most items of one list field (entries of an append, sessions of a touch).
ITEMS_MAX: Final = 1024 * 1024
#: Longest text field in bytes.
TEXT_BYTES_MAX: Final = 4096

#: Tags of the core's messages. They are on the wire: never reuse one. Others begin at 32.
RAFT_MESSAGE_TYPES: Final[Mapping[int, type[Any]]] = {
    1: Append,
    2: AppendReply,
    3: Heartbeat,
    4: HeartbeatReply,
    5: Vote,
    6: VoteReply,
    7: SnapshotChunk,
    8: SnapshotChunkReply,
    9: TimeoutNow,
}

_HEADER: Final = struct.Struct(">IBI")  #: length, version, CRC32 of the body
_CHECKED: Final = struct.Struct(">BI")  #: the header after the length
_FIELDS_MAX: Final = 14  #: tag and fields fit msgpack's one-byte list header
_FIXARRAY: Final = 0x90
_INT_MAX: Final = 2**64 - 1
_ROUTE: Final = ("term", "sender", "receiver")
_SHARED_MAX: Final = 64  #: prefixes kept within one turn
_INFINITE: Final = float("inf")
#: Types of fields that are checked by type and range alone.
_PLAIN: Final = frozenset((int, bool, float))
_REMEDY: Final = "all nodes must run releases that speak the same peer protocol"

#: What a decoder takes: any contiguous bytes.
Buffer = bytes | bytearray | memoryview


class PeerMessage(Protocol):
    """What every registered message begins with."""

    @property
    def term(self) -> int:
        """The sender's term."""

    @property
    def sender(self) -> int:
        """Node id of the sender."""

    @property
    def receiver(self) -> int:
        """Node id of the receiver."""


class _FieldError(Exception):
    """A decoded value that does not fit its annotation; carries the path to it, innermost first."""

    def __init__(self, value: object, wanted: str) -> None:
        super().__init__(wanted)
        self.value = value
        self.wanted = wanted
        self.path: list[str] = []


_Check = Callable[[object], object]


class _Spec(NamedTuple):
    """What the codec knows of one message class."""

    tag: int
    message_type: type[Any]
    names: tuple[str, ...]  #: in wire order
    checks: tuple[_Check, ...]  #: in wire order
    types: tuple[type[Any], ...] | None  #: of the decoded tag and fields, if all are plain; None otherwise
    places: tuple[int, ...] | None  #: wire position of each field; None: wire order is the class's
    shared: int | None  #: position in the class of the field of entries
    floats: tuple[int, ...]  #: positions in the class of float fields
    bulk: bool


class Codec:
    """Packs and unpacks the registered messages of one node."""

    def __init__(
        self,
        message_types: Mapping[int, type[Any]] = RAFT_MESSAGE_TYPES,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Read the annotations of the message classes.

        Args:
            message_types: {tag: NamedTuple class that begins with term, sender, receiver}; tags are 0..127.
            frame_bytes_max: largest frame, without its length field, that is packed or accepted.
        """
        self.frame_bytes_max = frame_bytes_max
        self._by_tag = {tag: _read_spec(tag, message_type) for tag, message_type in message_types.items()}
        self._by_type = {spec.message_type: spec for spec in self._by_tag.values()}
        if len(self._by_type) != len(self._by_tag):
            raise TypeError("a message class is registered under two tags")
        self._pack: Callable[[object], bytes] = msgpack.Packer(use_bin_type=True).pack
        #: [(entries, tag, packed prefix, its CRC)] of this turn; the same tuple object means the same bytes
        self._shared: list[tuple[object, int, bytes, int]] = []

    def is_bulk(self, message: object) -> bool:
        """Tell whether such messages carry payloads (bytes, entries), which small messages overtake."""
        return self._spec(message).bulk

    def encode(self, message: PeerMessage) -> tuple[bytes, ...]:
        """Pack a message.

        Returns:
            The parts of its frame in order; a part may be shared with other frames of this turn.
        """
        spec = self._spec(message)
        fields: Any = message
        if spec.floats:
            fields = list(fields)
            for place in spec.floats:
                fields[place] = float(fields[place])
        if spec.shared is None:
            body = self._pack((spec.tag, *fields))
            return (self._header(spec, len(body), zlib.crc32(body)) + body,)
        prefix, prefix_crc = self._prefix(spec, fields[spec.shared])
        rest = self._pack((*fields[: spec.shared], *fields[spec.shared + 1 :]))[1:]
        header = self._header(spec, len(prefix) + len(rest), zlib.crc32(rest, prefix_crc))
        return header, prefix, rest

    def end_turn(self) -> None:
        """Forget what was packed for several receivers; call it when the turn's messages are written."""
        self._shared.clear()

    def frame_bytes(self, buffer: Buffer, start: int) -> int:
        """Read the length field at `start`.

        Returns:
            Bytes of the frame after the length field.
        """
        size = int.from_bytes(buffer[start : start + LENGTH_BYTES], "big")
        if not _CHECKED.size < size <= self.frame_bytes_max:
            raise ProtocolError(
                f"frame length {size} is not within {_CHECKED.size + 1}..{self.frame_bytes_max} bytes",
                _REMEDY,
            )
        return size

    def decode(self, frame: Buffer) -> PeerMessage:
        """Unpack one frame, given without its length field. Nothing of the result refers to the buffer."""
        if not _CHECKED.size < len(frame) <= self.frame_bytes_max:
            raise ProtocolError(f"a frame of {len(frame)} bytes is not a message", _REMEDY)
        codec_version, crc = _CHECKED.unpack_from(frame)
        if codec_version != CODEC_VERSION:
            raise ProtocolError(
                f"frame version is {codec_version}, this node speaks {CODEC_VERSION}", _REMEDY
            )
        body = memoryview(frame)[_CHECKED.size :]
        found = zlib.crc32(body)
        if found != crc:
            raise ProtocolError(f"frame CRC is {found:08x}, the header says {crc:08x}: damaged on the way")
        return self._check(_unpack(body))

    def _spec(self, message: object) -> _Spec:
        spec = self._by_type.get(type(message))
        if spec is None:
            raise TypeError(f"{type(message).__name__} is not a registered peer message")
        return spec

    def _header(self, spec: _Spec, body_bytes: int, crc: int) -> bytes:
        size = body_bytes + _CHECKED.size
        if size > self.frame_bytes_max:
            name = spec.message_type.__name__
            raise ValueError(f"{name} packs to {size} bytes, frames hold at most {self.frame_bytes_max}")
        return _HEADER.pack(size, CODEC_VERSION, crc)

    def _prefix(self, spec: _Spec, entries: object) -> tuple[bytes, int]:
        for known, tag, prefix, crc in self._shared:
            if known is entries and tag == spec.tag:
                return prefix, crc
        prefix = bytes((_FIXARRAY | (len(spec.names) + 1), spec.tag)) + self._pack(entries)
        crc = zlib.crc32(prefix)
        if len(self._shared) < _SHARED_MAX:
            self._shared.append((entries, spec.tag, prefix, crc))
        return prefix, crc

    def _check(self, values: object) -> PeerMessage:
        if type(values) is not tuple or not values:
            raise ProtocolError(f"message is {shown(values)}, not a list with a tag", _REMEDY)
        spec = self._by_tag.get(values[0]) if type(values[0]) is int else None
        if spec is None:
            raise ProtocolError(f"message tag {shown(values[0])} is unknown", _REMEDY)
        if spec.types is not None and tuple(map(type, values)) == spec.types and _all_in_range(values):
            # The common small messages, without a call per field.
            plain: PeerMessage = spec.message_type._make(values[1:])
            return plain
        name = spec.message_type.__name__
        if len(values) != len(spec.names) + 1:
            raise ProtocolError(f"{name} has {len(values) - 1} fields instead of {len(spec.names)}", _REMEDY)
        try:
            fields = _check_each(values[1:], spec.checks, spec.names)
        except _FieldError as error:
            path = "".join(reversed(error.path))
            problem = f"{name}{path} is {shown(error.value)}, not {error.wanted}"
            raise ProtocolError(problem, _REMEDY) from None
        if spec.places is not None:
            fields = [fields[place] for place in spec.places]
        message: PeerMessage = spec.message_type(*fields)
        return message


def _all_in_range(values: tuple[Any, ...]) -> bool:
    """Return whether no number is below 0, infinite or none; for values of plain types."""
    return all(value is False or 0 <= value < _INFINITE for value in values)


def _unpack(body: memoryview) -> object:
    try:
        return msgpack.unpackb(
            body,
            use_list=False,
            raw=False,
            max_map_len=0,
            max_ext_len=0,
            max_array_len=min(len(body), ITEMS_MAX),
            max_str_len=TEXT_BYTES_MAX,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"frame body is not msgpack of a message: {error}", _REMEDY) from error


def _check_each(
    values: tuple[object, ...], checks: tuple[_Check, ...], names: tuple[str, ...]
) -> list[object]:
    checked: list[object] = []
    keep = checked.append
    try:
        for check, value in zip(checks, values, strict=True):
            keep(check(value))
    except _FieldError as error:
        error.path.append(f".{names[len(checked)]}")
        raise
    return checked


# --- reading annotations --------------------------------------------------------------------------------


def _read_spec(tag: int, message_type: type[Any]) -> _Spec:
    hints = _hints(message_type)
    names = tuple(hints)
    if names[: len(_ROUTE)] != _ROUTE:
        raise TypeError(f"{message_type.__name__} does not begin with {', '.join(_ROUTE)}")
    if not 0 <= tag <= 0x7F or len(names) > _FIELDS_MAX:
        raise TypeError(f"{message_type.__name__}: tag {tag} of 0..127, {len(names)} fields of {_FIELDS_MAX}")
    shared = [place for place, name in enumerate(names) if _is_records(hints[name])]
    if len(shared) > 1:
        raise TypeError(f"{message_type.__name__} has more than one field of entries")
    plain = [hints[name] for name in names]
    wire = (*shared, *(place for place in range(len(names)) if place not in shared))
    return _Spec(
        tag=tag,
        message_type=message_type,
        names=tuple(names[place] for place in wire),
        checks=tuple(_check_for(hints[names[place]]) for place in wire),
        types=(int, *plain) if not shared and set(plain) <= _PLAIN else None,
        places=tuple(wire.index(place) for place in range(len(names))) if shared else None,
        shared=shared[0] if shared else None,
        floats=tuple(place for place, name in enumerate(names) if hints[name] is float),
        bulk=bool(shared) or any(hint is bytes for hint in hints.values()),
    )


def _hints(record_type: type[Any]) -> dict[str, Any]:
    if not (issubclass(record_type, tuple) and hasattr(record_type, "_fields")):
        raise TypeError(f"{record_type.__name__} is not a NamedTuple")
    hints = typing.get_type_hints(record_type)
    return {name: hints[name] for name in record_type._fields}


def _is_records(hint: Any) -> bool:
    arguments = typing.get_args(hint)
    return (
        typing.get_origin(hint) is tuple
        and len(arguments) == 2
        and arguments[1] is Ellipsis
        and isinstance(arguments[0], type)
        and issubclass(arguments[0], tuple)
    )


def _check_for(hint: Any) -> _Check:
    """Return a function that converts a decoded value to the annotated type or raises _FieldError."""
    simple = _SIMPLE.get(hint)
    if simple is not None:
        return simple
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union) and len(arguments) == 2 and type(None) in arguments:
        return _optional(_check_for(next(argument for argument in arguments if argument is not type(None))))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _sequence(_check_any_int if arguments[0] is int else _check_for(arguments[0]))
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return _enumeration(hint)
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _record(hint)
    raise TypeError(f"peer messages do not carry fields of type {hint!r}")


def _check_int(value: object) -> object:
    if type(value) is not int or value < 0:
        raise _FieldError(value, f"an integer within 0..{_INT_MAX}")
    return value


def _check_any_int(value: object) -> object:
    """Session ids use all 64 bits; everything else in a message counts from 0."""
    if type(value) is not int:
        raise _FieldError(value, "an integer")
    return value


def _check_bool(value: object) -> object:
    if type(value) is not bool:
        raise _FieldError(value, "true or false")
    return value


def _check_float(value: object) -> object:
    if type(value) is not float or not math.isfinite(value):
        raise _FieldError(value, "a finite float")
    return value


def _check_bytes(value: object) -> object:
    if type(value) is not bytes:
        raise _FieldError(value, "bytes")
    return value


def _check_text(value: object) -> object:
    if type(value) is not str:
        raise _FieldError(value, "text")
    return value


_SIMPLE: Final[Mapping[Any, _Check]] = {
    int: _check_int,
    bool: _check_bool,
    float: _check_float,
    bytes: _check_bytes,
    str: _check_text,
}


def _optional(inner: _Check) -> _Check:
    return lambda value: None if value is None else inner(value)


def _enumeration(enumeration: type[IntEnum]) -> _Check:
    members: dict[object, IntEnum] = {member.value: member for member in enumeration}
    wanted = f"one of {', '.join(str(int(member)) for member in enumeration)}"

    def check(value: object) -> object:
        if type(value) is not int or value not in members:
            raise _FieldError(value, wanted)
        return members[value]

    return check


def _sequence(inner: _Check) -> _Check:
    def check(value: object) -> object:
        if type(value) is not tuple:
            raise _FieldError(value, "a list")
        checked: list[object] = []
        keep = checked.append
        try:
            for item in value:
                keep(inner(item))
        except _FieldError as error:
            error.path.append(f"[{len(checked)}]")
            raise
        return tuple(checked)

    return check


def _record(record_type: type[Any]) -> _Check:
    hints = _hints(record_type)
    names = tuple(hints)
    checks = tuple(_check_for(hint) for hint in hints.values())

    def check(value: object) -> object:
        if type(value) is not tuple or len(value) != len(names):
            raise _FieldError(value, f"a list of the {len(names)} fields of {record_type.__name__}")
        return record_type(*_check_each(value, checks, names))

    return check
