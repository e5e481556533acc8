"""Frames of the messages between peers: NamedTuples in, bytes out, and back without trust.

A frame is a 4-byte big-endian length of what follows, a version byte, the CRC32 of the body and the body,
which is the msgpack list ``[tag, *fields]``. A field of log entries is the last of its class and the first on
the wire: tag and entries are one prefix that is packed and summed once for all followers.

The annotations of the registered classes are read once; msgspec packs by them, and checks arity, types and
sizes as it unpacks. Decoding raises ProtocolError for everything that is not exactly a message, and nothing
else. It does not know what a message means nor whether its sender may send it. Soft state only: the prefixes
packed in this turn.

Source: Raft §5 for the messages, the msgpack specification for the body.
"""

from __future__ import annotations

import re
import struct
import sys
import types
import typing
import zlib
from collections.abc import Mapping
from enum import IntEnum
from typing import Annotated, Any, Final, NamedTuple, Protocol

import msgpack
from msgspec import DecodeError, Meta
from msgspec.msgpack import Decoder, Encoder

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
_LEAST_BYTES: Final = _CHECKED.size + 2  #: a frame with a list of nothing but a tag
_FIELDS_MAX: Final = 14  #: tag and fields fit msgpack's one-byte list header
_FIXARRAY: Final = 0x90
_ROUTE: Final = ("term", "sender", "receiver")
_SHARED_MAX: Final = 64  #: prefixes kept within one turn
_REMEDY: Final = "all nodes must run releases that speak the same peer protocol"
#: in place of the classes' own constructors, whose Python code would be a good part of the work
_new: Final[Any] = tuple.__new__
#: where msgspec says that a value is wrong: the places on the way to it
_AT: Final = re.compile(r" - at `\$((?:\[\d+\])+)`")

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


class _Spec(NamedTuple):
    """What the codec knows of one message class."""

    tag: int
    message_type: type[Any]
    names: tuple[str, ...]  #: in wire order
    unpack: Decoder[tuple[Any, ...]]  #: of the tag and the fields in wire order
    record: type[Any] | None  #: of the entries in the last field; None: there are none


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
        #: classes that carry payloads (bytes, entries), which small messages overtake
        self.bulk_types = frozenset(filter(_is_bulk, self._by_type))
        self._pack = Encoder().encode
        #: [(entries, tag, packed prefix, its CRC)] of this turn; the same tuple object means the same bytes
        self._shared: list[tuple[object, int, bytes, int]] = []

    def encode(self, message: PeerMessage) -> tuple[bytes, ...]:
        """Pack a message.

        Returns:
            The parts of its frame in order; a part may be shared with other frames of this turn.
        """
        spec = self._by_type.get(type(message))
        if spec is None:
            raise TypeError(f"{type(message).__name__} is not a registered peer message")
        fields: Any = message
        if spec.record is None:
            prefix, prefix_crc = b"", 0
            rest = self._pack((spec.tag, *fields))
        else:
            for entries, tag, prefix, prefix_crc in self._shared:  # noqa: B007 - found, or packed below
                if entries is fields[-1] and tag == spec.tag:
                    break
            else:
                prefix = bytes((_FIXARRAY | (len(fields) + 1), spec.tag)) + self._pack(fields[-1])
                prefix_crc = zlib.crc32(prefix)
                if len(self._shared) < _SHARED_MAX:
                    self._shared.append((fields[-1], spec.tag, prefix, prefix_crc))
            rest = self._pack(fields[:-1])[1:]
        size = _CHECKED.size + len(prefix) + len(rest)
        if size > self.frame_bytes_max:
            name = spec.message_type.__name__
            raise ValueError(f"{name} packs to {size} bytes, frames hold at most {self.frame_bytes_max}")
        header = _HEADER.pack(size, CODEC_VERSION, zlib.crc32(rest, prefix_crc))
        return (header, prefix, rest) if prefix else (header + rest,)

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
        if not _LEAST_BYTES <= len(frame) <= self.frame_bytes_max:
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
        spec = self._by_tag.get(body[1]) if body[0] & 0xF0 == _FIXARRAY else None
        if spec is None:
            raise ProtocolError(f"{shown(bytes(body[:2]))} is no list with a known message tag", _REMEDY)
        try:
            values = spec.unpack.decode(body)
        except (DecodeError, UnicodeDecodeError) as error:
            raise ProtocolError(_describe(spec, body, error), _REMEDY) from None
        if spec.record is None:
            fields = values[1:]
        else:
            entries = values[1] and tuple([_new(spec.record, entry) for entry in values[1]])
            fields = (*values[2:], entries)
        message: PeerMessage = _new(spec.message_type, fields)
        return message


def _describe(spec: _Spec, body: memoryview, error: Exception) -> str:
    """Say what is wrong with a body that msgspec refused: which field, and its value."""
    name, text = spec.message_type.__name__, str(error)
    count = body[0] & 0x0F
    if count != len(spec.names) + 1:
        return f"{name} has {count - 1} fields instead of {len(spec.names)}"
    at = _AT.search(text)
    if at is None:
        return f"frame body is not msgpack of a {name}: {text}"
    places = [int(place) for place in at[1][1:-1].split("][")]
    path = f".{spec.names[places[0] - 1]}"
    names = spec.record._fields if spec.record is not None else ()
    for depth, place in enumerate(places[1:]):
        path += f".{names[place]}" if depth else f"[{place}]"
    try:
        value: Any = _unpack(body)
        for place in places:
            value = value[place]
    except (ValueError, TypeError, msgpack.UnpackException):
        # Something behind it is no msgpack of a message either.
        return f"{name}{path}: {text[: at.start()]}"
    return f"{name}{path} is {shown(value)}: {text[: at.start()]}"


def _unpack(body: memoryview) -> object:
    return msgpack.unpackb(
        body,
        use_list=False,
        raw=False,
        unicode_errors="replace",
        max_map_len=0,
        max_ext_len=0,
        max_array_len=min(len(body), ITEMS_MAX),
        max_str_len=TEXT_BYTES_MAX,
    )


# --- reading annotations --------------------------------------------------------------------------------

#: types that are made of others while this runs, which type checkers do not follow
_TUPLE: Final[Any] = tuple
_ANNOTATED: Final[Any] = Annotated
_NATURAL: Final = Annotated[int, Meta(ge=0)]
_SIMPLE: Final[Mapping[Any, Any]] = {
    int: _NATURAL,
    bool: bool,
    float: Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)],
    bytes: bytes,
    str: Annotated[str, Meta(max_length=TEXT_BYTES_MAX)],
}


def _read_spec(tag: int, message_type: type[Any]) -> _Spec:
    hints = _hints(message_type)
    names = tuple(hints)
    if names[: len(_ROUTE)] != _ROUTE:
        raise TypeError(f"{message_type.__name__} does not begin with {', '.join(_ROUTE)}")
    if not 0 <= tag <= 0x7F or len(names) > _FIELDS_MAX:
        raise TypeError(f"{message_type.__name__}: tag {tag} of 0..127, {len(names)} fields of {_FIELDS_MAX}")
    wired = [_wired(hint) for hint in hints.values()]
    record = None
    if any(map(_is_records, hints.values())):
        if not _is_records(hints[names[-1]]) or sum(map(_is_records, hints.values())) > 1:
            raise TypeError(f"{message_type.__name__} has entries in another field than the last")
        record = typing.get_args(hints[names[-1]])[0]
        names, wired = (names[-1], *names[:-1]), [wired[-1], *wired[:-1]]
    return _Spec(tag, message_type, names, Decoder(_TUPLE[(int, *wired)]), record)


def _hints(record_type: type[Any]) -> dict[str, Any]:
    if not (issubclass(record_type, tuple) and hasattr(record_type, "_fields")):
        raise TypeError(f"{record_type.__name__} is not a NamedTuple")
    hints = typing.get_type_hints(record_type)
    return {name: hints[name] for name in record_type._fields}


def _is_bulk(message_type: type[Any]) -> bool:
    return any(hint is bytes or _is_records(hint) for hint in _hints(message_type).values())


def _is_records(hint: Any) -> bool:
    arguments = typing.get_args(hint)
    return (
        typing.get_origin(hint) is tuple
        and len(arguments) == 2
        and arguments[1] is Ellipsis
        and isinstance(arguments[0], type)
        and issubclass(arguments[0], tuple)
    )


def _wired(hint: Any) -> Any:
    """Return the type by which msgspec unpacks an annotated field, with its bounds."""
    simple = _SIMPLE.get(hint)
    if simple is not None:
        return simple
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union) and len(arguments) == 2 and arguments[1] is type(None):
        return _wired(arguments[0]) | None
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        # Session ids use all 64 bits; everything else in a message counts from 0.
        item = int if arguments[0] is int else _wired(arguments[0])
        return _ANNOTATED[_TUPLE[item, ...], Meta(max_length=ITEMS_MAX)]
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return hint
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _TUPLE[tuple(map(_wired, _hints(hint).values()))]
    raise TypeError(f"peer messages do not carry fields of type {hint!r}")
