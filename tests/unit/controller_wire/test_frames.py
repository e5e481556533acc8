"""Frames beside kio's header entities, and headers that are cut short."""

from __future__ import annotations

import io

import pytest
from kio.schema.request_header.v1 import RequestHeader as RequestHeaderV1
from kio.schema.request_header.v2 import RequestHeader as RequestHeaderV2
from kio.schema.response_header.v0 import ResponseHeader as ResponseHeaderV0
from kio.schema.response_header.v1 import ResponseHeader as ResponseHeaderV1
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from controller.wire.decoding import MalformedMessageError
from controller.wire.frames import (
    RequestHeader,
    parse_correlation_id,
    parse_request_header,
    response_body_offset,
)
from tests.support.frames import pack_request, pack_response


@pytest.mark.parametrize("flexible", [False, True])
def test_a_request_frame_has_kios_header(flexible: bool) -> None:
    buffer = io.BytesIO()
    header_type = RequestHeaderV2 if flexible else RequestHeaderV1
    header = header_type(
        request_api_key=i16(3), request_api_version=i16(12), correlation_id=i32(77), client_id="käse"
    )
    entity_writer(header_type)(buffer, header)
    frame = pack_request(3, 12, 77, "käse", b"body", flexible=flexible)
    assert frame[4:] == buffer.getvalue() + b"body"
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    parsed = parse_request_header(frame[4:], lambda key, version: flexible and (key, version) == (3, 12))
    assert parsed == RequestHeader(3, 12, 77, "käse", len(frame) - 8)
    assert frame[4 + parsed.body_offset :] == b"body"


@pytest.mark.parametrize("flexible", [False, True])
def test_a_response_frame_has_kios_header(flexible: bool) -> None:
    buffer = io.BytesIO()
    header_type = ResponseHeaderV1 if flexible else ResponseHeaderV0
    entity_writer(header_type)(buffer, header_type(correlation_id=i32(77)))
    frame = pack_response(77, b"body", flexible=flexible)
    assert frame[4:] == buffer.getvalue() + b"body"
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert parse_correlation_id(frame[4:]) == 77
    assert frame[4 + response_body_offset(frame[4:], flexible=flexible) :] == b"body"


def test_tagged_fields_of_headers_are_passed_over() -> None:
    head = b"\x00\x03\x00\x0c" + b"\x00\x00\x00\x01" + b"\xff\xff"
    tags = b"\x02" + b"\x00\x01x" + b"\x85\x01\x02yy"
    parsed = parse_request_header(head + tags + b"body", lambda _key, _version: True)
    assert parsed.client_id is None
    assert parsed.body_offset == len(head + tags)
    assert response_body_offset(b"\0\0\0\1" + tags + b"body", flexible=True) == 4 + len(tags)


def test_tagged_fields_of_headers_have_bounds() -> None:
    head = b"\x00\x03\x00\x0c" + b"\x00\x00\x00\x01" + b"\xff\xff"
    for tags, problem in (
        (b"\x01\x05\x03xx", "cut short"),
        (b"\xe9\x07" + b"\0\0" * 1001, "1001 tagged fields"),
    ):
        with pytest.raises(MalformedMessageError, match=problem):
            parse_request_header(head + tags, lambda _key, _version: True)
        with pytest.raises(MalformedMessageError, match=problem):
            response_body_offset(b"\0\0\0\1" + tags, flexible=True)


def test_a_header_that_is_cut_short_is_refused() -> None:
    frame = pack_request(3, 12, 1, "client", b"", flexible=True)[4:]
    for length in range(len(frame)):
        with pytest.raises(MalformedMessageError, match="request header: it is cut short"):
            parse_request_header(frame[:length], lambda _key, _version: True)
    with pytest.raises(MalformedMessageError, match="not UTF-8"):
        parse_request_header(b"\0\3\0\x0c\0\0\0\1\0\1\xff\0", lambda _key, _version: True)
    with pytest.raises(MalformedMessageError):
        parse_correlation_id(b"\0\0\0")
    with pytest.raises(MalformedMessageError):
        response_body_offset(b"\0\0\0\1", flexible=True)
    with pytest.raises(MalformedMessageError):
        parse_request_header(b"\0\3\0\x0c\0\0\0\1\xff\xff" + b"\xff" * 9, lambda _key, _version: True)
