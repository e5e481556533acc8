"""Why a request to a coordinator of groups is not carried out.

All are definite: nothing was changed, or the requester cannot tell and asks again, as Kafka's clients do.
"""

from __future__ import annotations

from controller.wire.codes import ErrorCode
from quorum.errors import Fault, QuorateError
from quorum.metadata.errors import FencedError


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


class CoordinatorFencedError(FencedError):
    """Another coordinator has been elected: nothing of the refused write took effect."""

    def __init__(self, coordinator_epoch: int) -> None:
        super().__init__(
            f"coordinator epoch {coordinator_epoch} is over: /consumers/coordinator_epoch has changed",
            "resign",
        )


class GroupTooLargeError(QuorateError):
    """What is assigned to a group's members makes its record larger than it may be: it was not written."""

    fault = Fault.CLIENT

    def __init__(self, group_id: str, record_bytes: int, bytes_max: int) -> None:
        problem = f"group {group_id!r} would take {record_bytes} bytes, and may take {bytes_max}"
        super().__init__(problem, "use several groups, or raise groups.group_bytes_max")


class GroupChangedError(QuorateError):
    """Somebody else has written the group's znode: what this coordinator holds of it is stale."""

    fault = Fault.OPERATOR

    def __init__(self, group_id: str, problem: str) -> None:
        super().__init__(f"group {group_id!r}: {problem}", "leave /consumers/groups to the coordinator")
