"""The one table of what errors are answered with: complete, and no code says what its error does not."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import broker
import controller
import quorum.client
import quorum.metadata
from broker.groups.errors import GroupRefusedError
from controller.wire.codes import INDEFINITE, RETRIABLE, ErrorCode
from controller.wire.error_codes import CODES, code_of_error
from quorum.client import ConnectionLossError, NoAuthError, RequestTooLargeError, SessionExpiredError
from quorum.client.errors import server_error
from quorum.errors import QuorateError
from quorum.metadata.errors import (
    ContendedError,
    InvalidTopicSettingError,
    NoSessionError,
    NoSuchTopicError,
    UnknownTopicSettingError,
)


def kinds() -> Iterator[type[QuorateError]]:
    """Every class of errors below which a broker or a controller works."""
    for package in (quorum.client, quorum.metadata, controller, broker):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            found = importlib.import_module(module.name)
            for value in vars(found).values():
                if isinstance(value, type) and issubclass(value, QuorateError):
                    yield value


def of(kind: type[QuorateError]) -> QuorateError:
    """An error of a class, however it is made."""
    error = kind.__new__(kind)
    error.message = error.remedy = ""
    return error


def test_no_code_says_what_its_error_does_not() -> None:
    tried = 0
    for kind in set(kinds()):
        error = of(kind)
        if not hasattr(kind, "error_code") and "error_code" in getattr(kind, "__annotations__", {}):
            # It gets its code when it is made.
            continue
        tried += 1
        code = code_of_error(error)
        if error.retriable:
            assert code in RETRIABLE, kind
        if not error.definite:
            assert code in INDEFINITE, kind
        named = hasattr(kind, "error_code") or any(each in CODES for each in kind.__mro__)
        if error.definite and not error.retriable and not named:
            assert code is ErrorCode.UNKNOWN_SERVER_ERROR, kind
    assert tried > 40


def test_what_handlers_meet_has_its_code() -> None:
    for error, code in (
        (InvalidTopicSettingError("a", "b", "c", "d"), ErrorCode.INVALID_CONFIG),
        (UnknownTopicSettingError("a", "b", "", "c"), ErrorCode.INVALID_CONFIG),
        (NoSuchTopicError("t"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (RequestTooLargeError("set", 2, 1), ErrorCode.INVALID_REQUEST),
        (NoSessionError(), ErrorCode.REQUEST_TIMED_OUT),
        (SessionExpiredError(), ErrorCode.REQUEST_TIMED_OUT),
        (ContendedError("set", 3), ErrorCode.REQUEST_TIMED_OUT),
        (ConnectionLossError("set", "gone", sent=True), ErrorCode.REQUEST_TIMED_OUT),
        (NoAuthError(), ErrorCode.UNKNOWN_SERVER_ERROR),
        (server_error(-127, "/x"), ErrorCode.REQUEST_TIMED_OUT),
        (GroupRefusedError(ErrorCode.POLICY_VIOLATION, "full"), ErrorCode.POLICY_VIOLATION),
    ):
        assert code_of_error(error) is code
