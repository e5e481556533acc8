"""Kafka requests to one chosen broker, as bytes on a socket: for tests that ask what no client library would.

A `BrokerLink` is one blocking connection to a client listener; it sends requests, or any bytes, and reads
answers. Nothing here retries or looks for another broker. `record_batch` makes a batch of format 2 without
any client. Source: Kafka protocol guide.
"""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any, Self

from crc32c import crc32c

from broker.wire.codec import LongResponse, decode_response, encode_request, is_flexible
from broker.wire.packing import Parts
from controller.wire.frames import response_body_offset
from tests.support.frames import pack_request

TIMEOUT_S = 15.0
API_VERSIONS = 18
_HEADER = struct.Struct(">qiibIhiqqqhii")


def whole(answer: Parts | LongResponse) -> bytes:
    """Return the body of a response, with all the steps of a long one taken."""
    if isinstance(answer, list):
        return b"".join(answer)
    for _ in answer.steps():
        pass
    return b"".join(answer.parts)


class BrokerLink:
    """One connection to a broker's client listener."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S, client_id: str = "test") -> None:
        """Connect to "host:port"."""
        self._client_id = client_id
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout_s)
        self._correlation_id = 0

    def ask(self, api_key: int, api_version: int, values: Mapping[str, Any]) -> Any:
        """Send one request and return its answer as an entity of kio."""
        self.send(api_key, api_version, encode_request(api_key, api_version, values))
        return self.answer(api_key, api_version)

    def send(self, api_key: int, api_version: int, body: bytes) -> None:
        """Send one request with a body of any bytes."""
        self._correlation_id += 1
        flexible = is_flexible(api_key, api_version)
        self.socket.sendall(
            pack_request(api_key, api_version, self._correlation_id, self._client_id, body, flexible=flexible)
        )

    def answer(self, api_key: int, api_version: int) -> Any:
        """Read the next answer."""
        frame = self.frame()
        assert struct.unpack_from(">i", frame)[0] == self._correlation_id, "an answer to another request"
        flexible = api_key != API_VERSIONS and is_flexible(api_key, api_version)
        return decode_response(api_key, api_version, frame[response_body_offset(frame, flexible=flexible) :])

    def has_answer(self) -> bool:
        """Whether bytes have arrived."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def frame(self) -> bytes:
        """Read one frame, without its length."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def closed_by_broker(self) -> bool:
        """Wait for the next byte: whether the end of the connection comes instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        received = b""
        while len(received) < size:
            chunk = self.socket.recv(size - len(received))
            if not chunk:
                raise ConnectionResetError(f"the broker closed the connection after {len(received)} bytes")
            received += chunk
        return received

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def ask(address: str, api_key: int, api_version: int, values: Mapping[str, Any]) -> Any:
    """Send one request on a connection of its own."""
    with BrokerLink(address) as link:
        return link.ask(api_key, api_version, values)


def partitions_as_seen_by(address: str, topic: str) -> dict[int, Any]:
    """What one broker's Metadata says about a topic: {partition: leader_id, isr_nodes, error_code, …}."""
    found = ask(address, 3, 7, {"topics": [{"name": topic}], "allow_auto_topic_creation": False})
    return {row.partition_index: row for row in found.topics[0].partitions}


def produce(
    address: str, topic: str, partition: int, records: bytes, *, acks: int = -1, timeout_ms: int = 5000
) -> Any:
    """Produce batches to one partition at one broker; returns the answer's row of that partition."""
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    values = {"transactional_id": None, "acks": acks, "timeout": timeout_ms, "topic_data": data}
    return ask(address, 0, 9, values).responses[0].partition_responses[0]


def record_batch(
    values: Sequence[bytes], *, attributes: int = 0, producer: tuple[int, int, int] = (-1, -1, -1)
) -> bytes:
    """A batch of format 2 of uncompressed records without keys.

    Args:
        values: of its records.
        attributes: as in the batch's header.
        producer: producer id, producer epoch, sequence number of the first record.
    """
    records = b""
    for number, value in enumerate(values):
        body = b"\0" + _varint(0) + _varint(number) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        records += _varint(len(body)) + body
    header = _HEADER.pack(
        *(0, _HEADER.size - 12 + len(records), -1, 2, 0, attributes, len(values) - 1),
        *(1_700_000_000_000, 1_700_000_000_000, *producer, len(values)),
    )
    checksum = struct.pack(">I", crc32c(header[21:] + records))
    return header[:17] + checksum + header[21:] + records


def _varint(number: int) -> bytes:
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*out, left])
