"""What a request to a broker can fail with, each definite or indefinite.

A lost connection is raised by the connection itself (`BrokerConnectionLostError`, indefinite).
Source: Kafka's error codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.wire.codes import INDEFINITE, RETRIABLE, ErrorCode, code_name
from quorum.errors import Fault, QuorateError

#: What to do about answers that people meet on the command line.
_REMEDIES: Final[Mapping[int, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "see `quorate topics list`",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`quorate topics alter` changes it; give another name for another one",
    ErrorCode.INVALID_REPLICATION_FACTOR: "give at least 1, at most as many as brokers in `quorate status`",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "see `quorate transactions list`",
    ErrorCode.GROUP_ID_NOT_FOUND: "see `quorate groups list`",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first; `quorate groups describe` names them",
}


class NoBrokerAnswersError(QuorateError):
    """None of the known brokers could be reached; nothing was sent."""

    fault = Fault.NETWORK
    retriable = True


class UnsupportedByBrokerError(QuorateError):
    """A broker does not serve a request in any version that this client speaks."""

    fault = Fault.PEER


class BrokerRequestError(QuorateError):
    """A broker answered with an error.

    Attributes:
        error_code: Kafka's number.
    """

    fault = Fault.CLIENT

    def __init__(self, what: str, error_code: int, message: str | None = None) -> None:
        told = f": {message}" if message else ""
        super().__init__(f"{what}: {code_name(error_code)}{told}", _REMEDIES.get(error_code, ""))
        self.error_code = error_code
        self.retriable = error_code in RETRIABLE
        self.definite = error_code not in INDEFINITE
