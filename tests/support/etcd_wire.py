"""Messages of etcd's v3 API, as far as loads need them: encoded by hand, decoded field by field.

`put`, `get` and `guarded` (a transaction of comparisons and puts) are the requests of key-value loads;
leases and watches come with them. Knows no connection. Source: etcd 3.5, api/etcdserverpb/rpc.proto and
api/mvccpb/kv.proto; Protocol Buffers encoding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

PUT = "/etcdserverpb.KV/Put"
RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
LEASE_GRANT = "/etcdserverpb.Lease/LeaseGrant"
WATCH = "/etcdserverpb.Watch/Watch"

#: the most comparisons or puts in one transaction, as etcd ships (--max-txn-ops)
OPERATIONS_MAX = 128


class Guard(NamedTuple):
    """A key that must have a version; a key that does not exist has version 0."""

    key: str
    key_version: int


class Event(NamedTuple):
    """A change that a watch tells."""

    key: str
    deleted: bool


def varint(number: int) -> bytes:
    """A number of seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def number_field(field_number: int, value: int) -> bytes:
    """A field with a number; 0 is what an absent field means."""
    return varint(field_number << 3) + varint(value)


def bytes_field(field_number: int, value: bytes) -> bytes:
    """A field with bytes, a string or a message."""
    return varint(field_number << 3 | 2) + varint(len(value)) + value


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of a message whose fields are numbers, bytes or messages.

    Raises:
        ValueError: it holds another kind of field, or is cut.
    """
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        value, position = _read_varint(message, position)
        if tag & 7 == 0:
            yield tag >> 3, value
        elif tag & 7 == 2 and position + value <= len(message):
            yield tag >> 3, message[position : position + value]
            position += value
        else:
            raise ValueError(f"field {tag >> 3} of kind {tag & 7} at byte {position} of {len(message)}")


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        if position >= len(message):
            raise ValueError(f"a number is cut at byte {position}")
        byte = message[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def bytes_of(message: bytes, field_number: int) -> list[bytes]:
    """Every value of a field with bytes, a string or a message."""
    return [value for number, value in fields(message) if number == field_number and isinstance(value, bytes)]


def number_of(message: bytes, field_number: int) -> int:
    """The value of a field with a number; 0 if it is absent."""
    values = [value for number, value in fields(message) if number == field_number and isinstance(value, int)]
    return values[-1] if values else 0


def put(key: str, value: bytes, lease_id: int = 0) -> bytes:
    """PutRequest."""
    body = bytes_field(1, key.encode()) + bytes_field(2, value)
    return body + number_field(3, lease_id) if lease_id else body


def get(key: str, *, serializable: bool) -> bytes:
    """RangeRequest of one key: serializable from the server's own state, otherwise linearizable."""
    body = bytes_field(1, key.encode())
    return body + number_field(7, 1) if serializable else body


def guarded(guards: Sequence[Guard], puts: Sequence[tuple[str, bytes]]) -> bytes:
    """TxnRequest: the puts, if every guard holds.

    Raises:
        ValueError: more comparisons or puts than etcd takes in one transaction.
    """
    if max(len(guards), len(puts)) > OPERATIONS_MAX:
        raise ValueError(f"{len(guards)} comparisons and {len(puts)} puts; at most {OPERATIONS_MAX} of each")
    parts = [
        bytes_field(1, bytes_field(3, guard.key.encode()) + number_field(4, guard.key_version))
        for guard in guards
    ]
    parts += [bytes_field(2, bytes_field(2, put(key, value))) for key, value in puts]
    return b"".join(parts)


def lease_grant(ttl_s: int) -> bytes:
    """LeaseGrantRequest; the server chooses the id."""
    return number_field(1, ttl_s)


def watch_create(key: str, *, prefix: bool = False) -> bytes:
    """WatchRequest for one key, or for all that begin with it."""
    first = key.encode()
    body = bytes_field(1, first)
    if prefix:
        body += bytes_field(2, first[:-1] + bytes([first[-1] + 1]))
    return bytes_field(1, body)


def txn_succeeded(response: bytes) -> bool:
    """Whether the guards of a transaction held."""
    return number_of(response, 2) == 1


def value_in(response: bytes) -> bytes | None:
    """The value in a RangeResponse of one key; None if the key does not exist."""
    found = bytes_of(response, 2)
    if not found:
        return None
    values = bytes_of(found[0], 5)
    return values[0] if values else b""


def granted(response: bytes) -> tuple[int, int]:
    """(lease id, time to live in seconds) of a LeaseGrantResponse."""
    return number_of(response, 2), number_of(response, 3)


def events(response: bytes) -> list[Event]:
    """The events of a WatchResponse; none in the one that says that the watch stands."""
    found = []
    for event in bytes_of(response, 11):
        (key,) = bytes_of(bytes_of(event, 2)[0], 1)
        found.append(Event(key.decode(), deleted=number_of(event, 1) == 1))
    return found
