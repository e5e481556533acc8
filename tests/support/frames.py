"""Whole frames of Kafka's protocol."""

from __future__ import annotations

from controller.wire.frames import request_head, response_head


def pack_request(
    api_key: int, api_version: int, correlation_id: int, client_id: str, body: bytes, *, flexible: bool
) -> bytes:
    """Return a request frame, with its length.

    Args:
        api_key: of the header.
        api_version: of the header.
        correlation_id: of the header; the answer repeats it.
        client_id: names the sender to people.
        body: as encoded for that version.
        flexible: whether that version has tagged fields.
    """
    return request_head(api_key, api_version, correlation_id, client_id, len(body), flexible=flexible) + body


def pack_response(correlation_id: int, body: bytes, *, flexible: bool) -> bytes:
    """Return a response frame, with its length.

    Args:
        correlation_id: of the request.
        body: as encoded for the request's version.
        flexible: whether that version has tagged fields; False for every ApiVersions.
    """
    return response_head(correlation_id, len(body), flexible=flexible) + body
