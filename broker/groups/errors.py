"""Why a request to a coordinator of groups is not carried out.

All are definite: nothing was changed, or the requester cannot tell and asks again, as Kafka's clients do.
"""

from __future__ import annotations

from controller.wire.codes import ErrorCode
from quorum.errors import Fault, QuorateError


class GroupRefusedError(QuorateError):
    """A request about groups gets an error in place of an answer.

    Attributes:
        error_code: Kafka's number.
    """

    fault = Fault.CLIENT

    def __init__(
        self, error_code: ErrorCode, problem: str, remedy: str = "ask the coordinator again"
    ) -> None:
        super().__init__(problem, remedy)
        self.error_code = error_code


class NotCoordinatorError(GroupRefusedError):
    """This broker is not the coordinator of groups, or no longer."""

    retriable = True

    def __init__(self, problem: str = "this broker is not the coordinator of groups") -> None:
        super().__init__(ErrorCode.NOT_COORDINATOR, problem, "ask any broker for the coordinator")
