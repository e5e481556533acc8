"""From a frame to a request: how large one may be, and which are served. Knows no connection.

Source: Kafka's protocol guide, "Request header".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.core.access.lists import Principal
from broker.server.authentication import Authentication
from broker.server.requests import Api, Request
from broker.wire.codec import is_flexible
from controller.wire.apis import ApiKey
from controller.wire.frames import REQUEST_KEY, parse_request_header, parse_request_key
from quorum.errors import ProtocolError
from quorum.platform.tls import FIRST_BYTE

#: The largest frame of a peer that has something to prove first.
UNPROVEN_FRAME_BYTES_MAX: Final = 8 * 1024


def frame_problem(
    api: Api, frame_bytes_max: int, length: int, api_key: int | None, is_unproven: bool
) -> str | None:
    """Return what is wrong with the size of a frame; None: nothing.

    Args:
        api: what is served.
        frame_bytes_max: of any frame.
        length: of this one.
        api_key: None while it has not arrived.
        is_unproven: whether its peer has something to prove first.
    """
    limits = [(frame_bytes_max, "limits.frame_bytes_max")]
    if is_unproven:
        limits.append((UNPROVEN_FRAME_BYTES_MAX, "before authentication"))
    served = None if api_key is None else api.served.get(api_key)
    if api_key is not None and served is not None and served.row.frame_bytes_max is not None:
        limits.append((served.row.frame_bytes_max, ApiKey(api_key).name))
    bytes_max, why = min(limits)
    if REQUEST_KEY.size <= length <= bytes_max:
        return None
    if length >> 24 == FIRST_BYTE[0]:
        return "it speaks TLS, and this port is plain"
    return f"a frame of {length} bytes; {REQUEST_KEY.size} to {bytes_max} are allowed ({why})"


def read_request(
    api: Api,
    frame: memoryview,
    received_s: float,
    sender: tuple[Principal, str],
    throttle: Callable[[int], None],
    gate: Authentication | None,
) -> Request | str:
    """Return the request of a frame, or why its peer is refused.

    Args:
        api: what is served.
        frame: without its length.
        received_s: when it was taken.
        sender: its peer, and where that is, host:port.
        throttle: see Request.
        gate: what the peer has proved so far; None: it need prove nothing.
    """
    api_key, api_version, correlation_id = parse_request_key(frame)
    served = api.served.get(api_key)
    if served is None:
        return f"api key {api_key} is not served here"
    if not served.versions.low <= api_version <= served.versions.high:
        if api_key == ApiKey.API_VERSIONS:
            # A header of a version that we do not know cannot be read, and need not be.
            return Request(api_key, -1, correlation_id, None, frame[:0], len(frame), received_s)
        return f"{ApiKey(api_key).name} version {api_version} is not served"
    if gate is not None and (problem := gate.problem(api_key)) is not None:
        return problem
    try:
        header = parse_request_header(frame, is_flexible)
    except ProtocolError as error:
        return error.message
    body = frame[header.body_offset :]
    about = api_key, api_version, correlation_id, header.client_id, body, len(frame), received_s
    who, peer = sender
    return Request(*about, client_host=who.host, peer=peer, principal=who.name, throttle=throttle)
