"""Which of Kafka's codes an error is answered with: the one table, which no handler goes around.

An error that carries a code of its own keeps it: those of logs, of groups, of other brokers' answers. Of the
others the nearest class in the table counts. What has no row is the quorum's: an outcome that is not known,
or one that may be another if the same is asked again, is REQUEST_TIMED_OUT, and what was refused for good is
UNKNOWN_SERVER_ERROR, which no client repeats. Whether a code is retriable and definite stands in `codes`.
Source: org.apache.kafka.common.protocol.Errors (Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from controller.wire.codes import ErrorCode
from quorum.client import ClientClosedError, RequestTooLargeError, SessionExpiredError
from quorum.errors import QuorateError
from quorum.metadata.errors import (
    ControllerFencedError,
    FixedBrokerSettingError,
    InvalidSettingError,
    NoSuchTopicError,
)

CODES: Final[Mapping[type[QuorateError], ErrorCode]] = MappingProxyType(
    {
        InvalidSettingError: ErrorCode.INVALID_CONFIG,
        FixedBrokerSettingError: ErrorCode.INVALID_REQUEST,
        NoSuchTopicError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        RequestTooLargeError: ErrorCode.INVALID_REQUEST,
        ControllerFencedError: ErrorCode.NOT_CONTROLLER,
        # A broker registers again: the same may succeed soon.
        SessionExpiredError: ErrorCode.REQUEST_TIMED_OUT,
        ClientClosedError: ErrorCode.REQUEST_TIMED_OUT,
    }
)


def code_of_error(error: QuorateError) -> ErrorCode:
    """Return Kafka's code for an error."""
    own = getattr(error, "error_code", None)
    if own is not None:
        return ErrorCode(own)
    for kind in type(error).__mro__:
        if kind in CODES:
            return CODES[kind]
    if error.retriable or not error.definite:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.UNKNOWN_SERVER_ERROR
