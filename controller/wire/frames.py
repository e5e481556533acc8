"""The frames of Kafka's protocol: four bytes of length, a header, a body.

A request header names key, version, correlation id and client id; it ends with tagged fields where the
version is flexible. A response header is the correlation id, with tagged fields likewise; ApiVersions is the
one answer whose header never has them, which the caller says by `flexible=False`. Knows no body.
Source: Kafka protocol guide; RequestHeader.json and ResponseHeader.json (Kafka 3.9.1); KIP-482, KIP-511.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error
from typing import Final, NamedTuple

from controller.wire.decoding import Buffer, MalformedMessageError, varint

#: Largest frame that anybody takes, as Kafka's socket.request.max.bytes.
FRAME_BYTES_MAX: Final = 104_857_600
#: Bytes in front of every frame: its length.
LENGTH: Final = Struct(">i")
#: The beginning of every request's header: api key, api version, correlation id.
REQUEST_KEY: Final = Struct(">hhi")

_REQUEST_HEAD: Final = Struct(">ihhih")
_HEADER: Final = Struct(">hhih")
_RESPONSE_HEAD: Final = Struct(">ii")
_CLIENT_ID_BYTES_MAX: Final = 32_767
#: of one header; each is passed over on its own
_TAGS_MAX: Final = 1000


class RequestHeader(NamedTuple):
    """What stands in front of a request's body."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    #: Where the body begins in the frame, which is counted without its length.
    body_offset: int


def request_head(
    api_key: int, api_version: int, correlation_id: int, client_id: str, body_bytes: int, *, flexible: bool
) -> bytes:
    """Return length and header of a request; its body follows on the wire."""
    name = client_id.encode()
    if len(name) > _CLIENT_ID_BYTES_MAX:
        raise ValueError(f"a client id has at most {_CLIENT_ID_BYTES_MAX} bytes")
    size = _HEADER.size + len(name) + flexible + body_bytes
    head = _REQUEST_HEAD.pack(size, api_key, api_version, correlation_id, len(name)) + name
    return head + b"\0" if flexible else head


def parse_request_key(frame: Buffer) -> tuple[int, int, int]:
    """Return api key, api version and correlation id of a request frame that has them; it has no length."""
    api_key, api_version, correlation_id = REQUEST_KEY.unpack_from(frame)
    return api_key, api_version, correlation_id


def parse_request_header(frame: Buffer, is_flexible: Callable[[int, int], bool]) -> RequestHeader:
    """Read the header of a request frame.

    Args:
        frame: without its length.
        is_flexible: whether (api key, api version) has tagged fields; False for those that are not known.
    """
    try:
        api_key, api_version, correlation_id, name_bytes = _HEADER.unpack_from(frame)
        offset = _HEADER.size + max(name_bytes, 0)
        client_id = None if name_bytes < 0 else bytes(frame[_HEADER.size : offset]).decode()
        if is_flexible(api_key, api_version):
            offset = _behind_tags(frame, offset)
    except UnicodeDecodeError as problem:
        raise MalformedMessageError("request header", "the client id is not UTF-8") from problem
    except (error, IndexError) as problem:
        raise MalformedMessageError("request header", "it is cut short") from problem
    except ValueError as problem:
        raise MalformedMessageError("request header", str(problem)) from problem
    if offset > len(frame):
        raise MalformedMessageError("request header", "it is cut short")
    return RequestHeader(api_key, api_version, correlation_id, client_id, offset)


def response_head(correlation_id: int, body_bytes: int, *, flexible: bool) -> bytes:
    """Return length and header of a response; its body follows on the wire."""
    head = _RESPONSE_HEAD.pack(4 + flexible + body_bytes, correlation_id)
    return head + b"\0" if flexible else head


def parse_correlation_id(frame: Buffer) -> int:
    """Return the correlation id of a response frame, which is given without its length."""
    if len(frame) < LENGTH.size:
        raise MalformedMessageError("response header", "it is cut short")
    correlation_id: int = LENGTH.unpack_from(frame)[0]
    return correlation_id


def response_body_offset(frame: Buffer, *, flexible: bool) -> int:
    """Return where the body of a response frame begins."""
    if not flexible:
        return LENGTH.size
    try:
        return _behind_tags(frame, LENGTH.size)
    except IndexError as problem:
        raise MalformedMessageError("response header", "it is cut short") from problem
    except ValueError as problem:
        raise MalformedMessageError("response header", str(problem)) from problem


def _behind_tags(frame: Buffer, offset: int) -> int:
    """Return the offset behind tagged fields; no header has any that matter here."""
    count, offset = varint(frame, offset)
    if count > _TAGS_MAX:
        raise ValueError(f"{count} tagged fields, at most {_TAGS_MAX} are allowed")
    for _ in range(count):
        _, offset = varint(frame, offset)
        size, offset = varint(frame, offset)
        offset += size
        if offset > len(frame):
            raise IndexError
    return offset
