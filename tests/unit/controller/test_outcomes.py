"""What a client is answered where the quorum refuses, and an assignment that no write can carry."""

from __future__ import annotations

import pytest

from controller.messages.codes import ErrorCode
from controller.runtime.outcomes import ASSIGNMENT_BYTES_MAX, code_of_error, too_large
from quorum.client import ConnectionLossError, RequestTooLargeError
from quorum.client.errors import server_error
from quorum.errors import QuorateError
from quorum.metadata.errors import ContendedError
from quorum.metadata.records import TopicRecord


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTooLargeError("x", 2, 1), ErrorCode.INVALID_REQUEST),
        (server_error(-102, "/x"), ErrorCode.UNKNOWN_SERVER_ERROR),
        (server_error(-127, "/x"), ErrorCode.REQUEST_TIMED_OUT),
        (ContendedError("x", 1), ErrorCode.REQUEST_TIMED_OUT),
        (ConnectionLossError("x", "y", sent=True), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_only_what_may_succeed_later_is_answered_as_a_timeout(error: QuorateError, code: ErrorCode) -> None:
    assert code_of_error(error) is code


def test_an_assignment_that_fits_no_write_is_refused_with_its_size() -> None:
    assert too_large(TopicRecord(None, dict.fromkeys(range(10_000), (1_001, 1_002, 1_003)))) is None
    problem = too_large(TopicRecord(None, dict.fromkeys(range(10_000), tuple(range(1_000, 1_020)))))
    assert problem is not None
    assert f"at most {ASSIGNMENT_BYTES_MAX} are allowed" in problem.message
